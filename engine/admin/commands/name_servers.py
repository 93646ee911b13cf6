"""The `tidemark admin namesrv` commands: name-server settings and key-value entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.commands.output import Row
from engine.admin.commands.session import (
    says_lines,
    shows_rows,
)
from engine.foundation.errors import ConfigError

app = typer.Typer(no_args_is_help=True)

NamespaceArgument = Annotated[
    str, typer.Argument(help="Where the value is, such as ORDER_TOPIC_CONFIG.")
]
KeyArgument = Annotated[str, typer.Argument(help="Key of the value.")]


@shows_rows(app, "config")
async def config(
    admin: Admin,
    *,
    key: Annotated[str | None, typer.Option(help="Only keys that contain this text.")] = None,
) -> list[Row]:
    """Settings of each name server, under RocketMQ's names."""
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


@says_lines(app, "set")
async def set_config(
    admin: Admin,
    settings: Annotated[list[str], typer.Argument(help="key=value, under RocketMQ's names.")],
) -> list[str]:
    """Change settings of all name servers named; each says which ones it keeps as they are."""
    wanted, addresses = read_settings(settings), admin.name_servers.addresses
    for address in addresses:
        await admin.name_servers.update_config(address, wanted)
    return [f"name server {address}: {' '.join(settings)}" for address in addresses]


@shows_rows(app, "values", empty="no values in {namespace}")
async def values(admin: Admin, namespace: NamespaceArgument) -> list[Row]:
    """What a name server keeps for tools in a namespace."""
    found = await admin.name_servers.key_values(namespace)
    return [{"key": key, "value": value} for key, value in found.items()]


@says_lines(app, "put")
async def put(
    admin: Admin,
    namespace: NamespaceArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="What is kept.")],
) -> str:
    """Keep a value in all name servers named."""
    for name, text in (("namespace", namespace), ("key", key)):
        if not text.strip():
            raise ConfigError(name, text, "not blank")
    await admin.name_servers.put_key_value(namespace, key, value)
    return f"{namespace}: {key}={value}"


@says_lines(app, "delete")
async def delete(admin: Admin, namespace: NamespaceArgument, key: KeyArgument) -> str:
    """Let all name servers named forget a value."""
    await admin.name_servers.delete_key_value(namespace, key)
    return f"{namespace}: {key} is deleted"


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """`key=value` each. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigError("setting", text, "key=value")
        found[name] = value
    return found
