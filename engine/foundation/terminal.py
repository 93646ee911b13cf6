"""Prints command output for the user, whether to a terminal or to a redirected stream.

Invariant: nothing that is printed moves a cursor, colours or hides anything: texts from clients and
brokers are in it. Absent on purpose: the log (log_lines).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from engine.foundation.printable import printable, printable_lines


def say(text: str, *, err: bool = False) -> None:
    """Lines for the user; `err` for those that are no answer."""
    typer.echo(printable_lines(text), err=err)


def with_options(
    run: Callable[..., None], work: Callable[..., Any], *options: Parameter
) -> Callable[..., None]:
    """`run` as typer sees a command: it has the name, the help and the parameters of `work`, but
    for the first one, which `run` hands it; and these options behind them."""
    own = [*signature(work, eval_str=True).parameters.values()][1:]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*own, *options)]
    run.__name__, run.__doc__ = work.__name__, work.__doc__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def option(name: str, annotation: Any, default: object) -> Parameter:
    """An option that many commands have."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def complain(text: str) -> None:
    """Why the command ends: one line on standard error."""
    typer.echo(printable(text), err=True)
