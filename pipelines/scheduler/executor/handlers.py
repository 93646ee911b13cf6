"""Defines how modules declare job handlers, and the context that handlers receive.

A handler is a function with one argument. It returns: the run has succeeded. It raises: the run has
failed, and the traceback is the result's message. Or it says itself how it ended, by `handle_fail`
or `handle_success`; the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Final, TypeVar

from engine.foundation.errors import MustBe
from pipelines.scheduler.wire.messages import NAME_CHARS_MAX, Code

_MARK: Final = "__tidemark_job_handler__"


class RunStopped(BaseException):
    """Raised in a handler whose run is to end: it was killed, covered, took too long, or the
    executor ends. `finally` blocks run; after a grace of seconds the process is killed.
    """


@dataclass(slots=True)
class JobContext:
    """One run, as its handler sees it."""

    job_id: int
    log_id: int
    parameters: str
    """As written at the job; XXL-Job gives them no form."""
    triggered_at: datetime
    """When the centre triggered this run, UTC."""
    fire_time: datetime
    """When it was planned for, UTC: what a late run works for. Equal to `triggered_at` when the
    centre does not say (`fire_time_is_known`)."""
    fire_time_is_known: bool
    shard_index: int
    shard_total: int
    """1 unless the job is broadcast; each index below it runs on one executor."""
    code: int = Code.SUCCESS
    message: str = ""
    _write: Callable[[str], object] = field(default=print, repr=False)

    def log(self, text: str) -> None:
        """Write a line into the run's log, with the time. What is printed goes there, too."""
        now = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
        self._write(f"{now} {text}")

    def handle_success(self, message: str = "") -> None:
        """The run has succeeded, and this is to be said of it."""
        self.code, self.message = Code.SUCCESS, message

    def handle_fail(self, message: str = "") -> None:
        """The run has failed."""
        self.code, self.message = Code.FAIL, message


Handler = Callable[[JobContext], object]
_Marked = TypeVar("_Marked", bound=Handler)


def handler(name: str) -> Callable[[_Marked], _Marked]:
    """Mark a function as the handler of that name. Raises ConfigError for a name that no centre can
    ask for."""
    if not name or len(name) > NAME_CHARS_MAX or name.strip() != name or not name.isprintable():
        raise MustBe("handler", name, f"a printable name of 1 to {NAME_CHARS_MAX} characters")

    def mark(function: _Marked) -> _Marked:
        setattr(function, _MARK, name)
        return function

    return mark


def handlers_in(module: ModuleType) -> dict[str, Handler]:
    """The handlers of a module, those that it imports included. Raises ConfigError for two of one
    name."""
    found: dict[str, Handler] = {}
    for value in vars(module).values():
        name = getattr(value, _MARK, None) if callable(value) else None
        if isinstance(name, str) and found.setdefault(name, value) is not value:
            raise MustBe("handler", name, "the name of one function", module.__name__)
    return found
