"""Common set-up for admin commands: name-server option, connection and error reporting.

Invariant: a TidemarkError becomes one line on standard error and exit code 1; standard output then
stays empty. Absent on purpose: the requests (the commands), how answers are shown (`output`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import Parameter
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from engine.admin import Admin, admin_at
from engine.admin.commands.output import shown, shown_record
from engine.foundation.errors import ConnectFailed, RequestRefused, TidemarkError
from engine.foundation.terminal import complain, option, say, with_options
from engine.protocol.bodies_broker import TopicRouteData
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue

Answer = TypeVar("Answer")

NamesrvOption = Annotated[
    str,
    typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", help="Name servers, split by ';'."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with JSON in place of a table.")]
DEFAULT_NAMESRV = "127.0.0.1:9876"
Work: TypeAlias = Callable[..., Awaitable[Any]]
"""What a command asks of a connected Admin, its first argument."""
Mounting: TypeAlias = Callable[[Work], Work]
_NAMESRV = option("namesrv", NamesrvOption, DEFAULT_NAMESRV)
_JSON = option("as_json", JsonOption, default=False)

CREDENTIALS_FILE: ContextVar[str | None] = ContextVar("CREDENTIALS_FILE", default=None)
"""Given before the command, `tidemark admin --credentials FILE topic list`; None: no account."""


def ask(namesrv: str, work: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Do the work with a connected Admin; end the process with a sentence when it fails."""

    async def main() -> Answer:
        async with admin_at(namesrv, credentials=CREDENTIALS_FILE.get()) as admin:
            return await work(admin)

    try:
        return asyncio.run(main())
    except TidemarkError as error:
        complain(f"tidemark admin: {sentence(error)}")
        raise typer.Exit(1) from error


def shows_rows(app: typer.Typer, name: str, *, empty: str = "nothing") -> Mounting:
    """A command whose work returns rows: a table, or JSON. `empty` is said of none; parameters of
    the command stand in braces in it."""

    def texts(found: Any, given: Mapping[str, Any]) -> Iterable[str]:
        return [shown(found, as_json=given["as_json"], empty=empty.format(**given))]

    return _mounting(app, name, texts, _NAMESRV, _JSON)


def shows_record(app: typer.Typer, name: str) -> Mounting:
    """A command whose work returns one record."""

    def texts(found: Any, given: Mapping[str, Any]) -> Iterable[str]:
        return [shown_record(found, as_json=given["as_json"])]

    return _mounting(app, name, texts, _NAMESRV, _JSON)


def says_lines(app: typer.Typer, name: str) -> Mounting:
    """A command whose work returns what was done: a line, or several."""

    def texts(found: Any, _: Mapping[str, Any]) -> Iterable[str]:
        return [found] if isinstance(found, str) else found

    return _mounting(app, name, texts, _NAMESRV)


def _mounting(
    app: typer.Typer,
    name: str,
    texts: Callable[[Any, Mapping[str, Any]], Iterable[str]],
    *options: Parameter,
) -> Mounting:
    def mounted(work: Work) -> Work:
        def run(*, namesrv: str, **given: Any) -> None:
            wanted = {key: value for key, value in given.items() if key != "as_json"}
            for text in texts(ask(namesrv, lambda admin: work(admin, **wanted)), given):
                say(text)

        app.command(name)(with_options(run, work, *options))
        return work

    return mounted


def sentence(error: TidemarkError) -> str:
    """The error as a user reads it: what was refused, by which rule."""
    if isinstance(error, RequestRefused):
        name = next((code.name for code in ResponseCode if code == error.code), "UNKNOWN")
        return f"refused with {error.code} {name}: {error.remark}"
    if isinstance(error, ConnectFailed):
        return f"{error}; is it running, and is the address right?"
    return str(error)


async def route_to(admin: Admin, topic: str) -> TopicRouteData:
    """The brokers of a topic. Raises RequestRefused when none has it."""
    route = await admin.topics.route(topic)
    if route is None:
        raise _no_route(topic)
    return route


async def queues_of(admin: Admin, topic: str) -> Sequence[MessageQueue]:
    """The readable queues of a topic. Raises RequestRefused when there are none."""
    queues = await admin.topics.queues(topic)
    if not queues:
        raise _no_route(topic)
    return queues


def _no_route(topic: str) -> RequestRefused:
    return RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no route leads to topic {topic}")
