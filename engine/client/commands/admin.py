"""`tidemark admin`: the groups of commands, each from a module of its own.

A group is a noun: `tidemark admin topic list`. A command that belongs to a group but has a module
of its own is mounted here with `<group>.app.command(name)(function)`.

Absent on purpose: work. Each module asks through engine/client/admin and shows rows.
"""

from __future__ import annotations

import typer

from engine.client.commands import topics

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
admin = typer.Typer(no_args_is_help=True, help="Ask a cluster, or change it.")
app.add_typer(admin, name="admin")

admin.add_typer(topics.app, name="topic", help="Topics: list, route, status, create, delete.")


@app.callback()
def room() -> None:
    """The client's commands."""
