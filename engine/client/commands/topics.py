"""`tidemark admin topic ...`: what topics there are, where, how full; create, change, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.client.commands.asking import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask
from engine.client.commands.showing import shown

app = typer.Typer(no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]


@app.command("list")
def list_topics(*, namesrv: NamesrvOption = DEFAULT_NAMESRV, as_json: JsonOption = False) -> None:
    """All topics the name server knows."""
    names = ask(namesrv, lambda admin: admin.topics())
    typer.echo(shown([{"topic": name} for name in names], as_json=as_json, empty="no topics"))
