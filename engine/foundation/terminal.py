"""Prints command output for the user, whether to a terminal or to a redirected stream.

Invariant: nothing that is printed moves a cursor, colours or hides anything: texts from clients and
brokers are in it. Absent on purpose: the log (log_lines).
"""

from __future__ import annotations

import typer

from engine.foundation.printable import printable, printable_lines


def say(text: str, *, err: bool = False) -> None:
    """Lines for the user; `err` for those that are no answer."""
    typer.echo(printable_lines(text), err=err)


def complain(text: str) -> None:
    """Why the command ends: one line on standard error."""
    typer.echo(printable(text), err=True)
