"""`tidemark executor`: runs a module's handlers on request from a centre.

Absent on purpose: work.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.foundation.errors import MustBe
from pipelines.scheduler.commands.context import ConfigOption, settings_from_xxl

app = typer.Typer(no_args_is_help=True)


@app.callback()
def scheduler() -> None:
    """Jobs."""


@app.command("executor")
def executor(
    module: Annotated[str, typer.Option(help="Module with the handlers, as for `import`.")],
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Address of an admin with its context path; may be given again."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--app", help="Name under which the centre knows it.")
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(help="Folder of logs and results; else one in ~/.tidemark, by name."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen; else 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(help="9999 by default; 0: a free one.", min=0, max=65_535)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="How the centre reaches it; else http://HOST:PORT/.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the access token; else TIDEMARK_JOBS_TOKEN has it."),
    ] = None,
    scripts: Annotated[
        bool,
        typer.Option("--scripts", help="Run scripts from the centre: whoever edits jobs may."),
    ] = False,
    processes: Annotated[int, typer.Option(help="Runs at work at once.", min=1, max=1000)] = 32,
    log_days: Annotated[
        int | None, typer.Option(help="Days to keep logs, 30 by default; < 3: for ever.")
    ] = None,
    words: Annotated[str, typer.Option(help="Of which XXL-Job: 3.4 and before, or 3.5.")] = "3.4",
    config: ConfigOption = None,
) -> None:
    """Run the handlers of a module when a centre asks, until stopped."""
    import asyncio
    import logging
    import os

    from pipelines.base.secrets import secret_from
    from pipelines.database.database import home_folder
    from pipelines.scheduler.executor.serving import TOKEN_VARIABLE, Settings, serve_in_foreground
    from pipelines.scheduler.wire.messages import Dialect
    from pipelines.scheduler.xxl_settings import EXECUTOR

    if words not in {dialect.value for dialect in Dialect}:
        raise MustBe("words", words, "3.4 or 3.5")
    variable = TOKEN_VARIABLE if token_file is None and os.environ.get(TOKEN_VARIABLE) else None
    file = None if token_file is None else str(token_file)
    token = secret_from(variable, file, os.environ, key="token")
    given = {"app": name, "admins": admin or None, "home": home, "host": host, "port": port}
    given |= {"address": address, "log_days": log_days}
    given |= {"token": None if token is None else token.reveal()}
    found = settings_from_xxl(config, EXECUTOR, given)
    for key, option in (("app", "--app"), ("admins", "--admin")):
        if key not in found:
            raise MustBe(option, None, "given, here or in the file of --config")
    default_home = home_folder() / "executors" / found["app"].replace("/", "_")
    found |= {"home": Path(found.get("home", default_home)), "admins": tuple(found["admins"])}
    settings = Settings(
        module=module, scripts=scripts, processes=processes, dialect=Dialect(words), **found
    )

    def ready(line: str) -> None:
        typer.echo(line)
        sys.stdout.flush()

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    asyncio.run(serve_in_foreground(settings, ready))
