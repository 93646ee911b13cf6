"""The `tidemark admin namesrv` commands: name-server settings and key-value entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.output import Row, shown
from engine.admin.commands.session import DEFAULT_NAMESRV, JsonOption, NamesrvOption, ask
from engine.foundation.errors import ConfigError
from engine.foundation.terminal import say

app = typer.Typer(no_args_is_help=True)

NamespaceArgument = Annotated[
    str, typer.Argument(help="Where the value is, such as ORDER_TOPIC_CONFIG.")
]
KeyArgument = Annotated[str, typer.Argument(help="Key of the value.")]


@app.command("config")
def config(
    *,
    key: Annotated[str | None, typer.Option(help="Only keys that contain this text.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Settings of each name server, under RocketMQ's names."""

    async def work(admin: Admin) -> list[Row]:
        rows: list[Row] = []
        names: dict[str, None] = {}
        for address in admin.name_servers.addresses:
            settings = await admin.name_servers.config(address)
            names |= dict.fromkeys(settings)
            rows += [
                {"namesrv": address, "key": name, "value": value}
                for name, value in settings.items()
                if key is None or key in name
            ]
        if not rows:
            raise ConfigError("--key", key, f"part of one of {', '.join(names)}")
        return rows

    say(shown(ask(namesrv, work), as_json=as_json))


@app.command("set")
def set_config(
    settings: Annotated[list[str], typer.Argument(help="key=value, under RocketMQ's names.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Change settings of all name servers named; each says which ones it keeps as they are."""

    async def work(admin: Admin) -> list[str]:
        wanted = read_settings(settings)
        for address in admin.name_servers.addresses:
            await admin.name_servers.update_config(address, wanted)
        return list(admin.name_servers.addresses)

    for address in ask(namesrv, work):
        say(f"name server {address}: {' '.join(settings)}")


@app.command("values")
def values(
    namespace: NamespaceArgument,
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """What a name server keeps for tools in a namespace."""
    found = ask(namesrv, lambda admin: admin.name_servers.key_values(namespace))
    rows = [{"key": key, "value": value} for key, value in found.items()]
    say(shown(rows, as_json=as_json, empty=f"no values in {namespace}"))


@app.command("put")
def put(
    namespace: NamespaceArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="What is kept.")],
    *,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Keep a value in all name servers named."""

    async def work(admin: Admin) -> None:
        for name, text in (("namespace", namespace), ("key", key)):
            if not text.strip():
                raise ConfigError(name, text, "not blank")
        await admin.name_servers.put_key_value(namespace, key, value)

    ask(namesrv, work)
    say(f"{namespace}: {key}={value}")


@app.command("delete")
def delete(
    namespace: NamespaceArgument, key: KeyArgument, *, namesrv: NamesrvOption = DEFAULT_NAMESRV
) -> None:
    """Let all name servers named forget a value."""
    ask(namesrv, lambda admin: admin.name_servers.delete_key_value(namespace, key))
    say(f"{namespace}: {key} is deleted")


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """`key=value` each. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigError("setting", text, "key=value")
        found[name] = value
    return found
