"""Assembles `tidemark admin` from its command groups, each defined in its own module.

A group is a noun: `tidemark admin topic list`. A command that belongs to a group but has a module
of its own is mounted here.

Absent on purpose: work. Each module asks through engine/admin/api and shows rows.
"""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin.commands import (
    brokers,
    dead_letters,
    groups,
    load_export,
    messages,
    name_servers,
    offsets,
    replicas,
    timers,
    topic_scaling,
    topics,
)
from engine.admin.commands.session import CREDENTIALS_FILE, says_lines, shows_rows

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
admin = typer.Typer(no_args_is_help=True, help="Ask a cluster, or change it.")
app.add_typer(admin, name="admin")

for name, group, summary in (
    ("topic", topics.app, "Topics: list, show, route, status, stats, units, create, ..."),
    ("group", groups.app, "Groups: list, show, progress, connections, running, create, ..."),
    ("offset", offsets.app, "Consume offsets: reset, set, clone."),
    ("dlq", dead_letters.app, "Dead letters: list, redrive, discard."),
    ("message", messages.app, "Messages: by id, key, time, offset; trace, send, consume."),
    ("timer", timers.app, "Messages that wait for a moment: list, cancel, export, import."),
    ("cluster", brokers.cluster, "The cluster: list, export."),
    ("namesrv", name_servers.app, "Name servers: config, set; values they keep: values, put, ..."),
    ("replica", replicas.app, "Copies of a broker's log: list, promote, rebuild, transfer."),
    ("broker", brokers.app, "Brokers: status, config, set, progress, ha, wipe-write, clean, ..."),
):
    admin.add_typer(group, name=name, help=summary)


says_lines(topics.app, "shrink")(topic_scaling.shrink)
says_lines(topics.app, "grow")(topic_scaling.grow)
shows_rows(topics.app, "idle", empty="no idle consumers")(topic_scaling.idle)
says_lines(topics.app, "load")(load_export.load_topics)
says_lines(groups.app, "load")(load_export.load_groups)
says_lines(brokers.cluster, "export")(load_export.export)


@admin.callback()
def known_as(
    *,
    credentials: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEMARK_CREDENTIALS",
            help="TOML file: accessKey, secretKey, and a table tls with authorities.",
        ),
    ] = None,
) -> None:
    """Set the credentials for all commands of the group."""
    CREDENTIALS_FILE.set(credentials)


@app.callback()
def room() -> None:
    """The admin client's commands."""
