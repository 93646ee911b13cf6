"""Requests that kill a run, read its log or fetch the log's last lines after a failure.

Place in the walk: beside the centre, which has no part in it: who asks (commands, pages, alerting)
reaches the database and the executors.

Invariant: a request goes only to an address that is in the registry, or was written by hand in the
run's group. Each call is one question, bounded by the wire's time-out, and blocks so long. For
alerts a run is asked about once, ASKED_MAX at a look, and an address that failed no more in that
look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from engine.foundation.errors import ConnectFailed, RequestRefused, TidemarkError
from pipelines.database.database import Database
from pipelines.scheduler.run_life import ENDED, RunState
from pipelines.scheduler.store import groups, registry, results
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.store.kills import begin_kill
from pipelines.scheduler.store.troubles import LAST_LINES, TROUBLES_MAX, Trouble
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import ExecutorClient, opened_caller
from pipelines.scheduler.wire.fields import INT_MAX, Malformed
from pipelines.scheduler.wire.messages import LogRequest

NO_LOG: Final = "there is no log of it, or no more"
Value = TypeVar("Value")
ASKED_MAX: Final = 3
FOUND_MAX: Final = 2 * TROUBLES_MAX
_BEYOND: Final = INT_MAX
"""No log has this line: who is asked for it says which is the last."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What became of the wish to end a run."""

    log_id: int
    state: RunState
    """CANCELLED: it was not sent yet. Ended otherwise: there was nothing to do. Else its executor
    was asked to end it, and the result comes as usual.
    """
    address: str | None
    """The executor that was asked, if one was. Ours ends this run; one of XXL-Job ends all its runs
    of the job."""
    message: str = ""
    """What it said, or what was done without one."""


@dataclass(frozen=True, slots=True)
class RunLog:
    """Lines of the log of a run."""

    log_id: int
    state: RunState
    from_line: int
    to_line: int
    """The last line that is here; the next question begins behind it. 0: there is no log."""
    text: str
    is_end: bool
    """Nothing will follow: the run has ended, and no line is left."""


def kill_run(database: Database, log_id: int, change: Change, *, token: str | None) -> Killed:
    """Have a run end: cancelled before it is sent, else by its executor. It is not tried again.

    Raises ConfigError for a run that there is not, ConnectFailed when its executor is not there,
    RequestRefused when that says no, and as the wire does when it does not answer.
    """
    kill = begin_kill(database, log_id, change)
    if kill.address is None:
        return Killed(log_id, kill.state, None, kill.message)
    _check_is_there(database, kill.address, now_ms=change.now_ms)
    key = groups.own_token(database, kill.job_id) or (None, token)
    answer = _answer_of(kill.address, key, lambda client: client.kill(kill.job_id, log_id))
    if not answer.is_success:
        raise RequestRefused(answer.code, answer.message)
    return Killed(log_id, kill.state, kill.address, answer.message)


def log_of_run(
    database: Database, log_id: int, *, from_line: int = 1, now_ms: int, token: str | None
) -> RunLog:
    """Lines of a run's log from one on, as many as its executor gives at once; none of a run that
    was not sent. Raises as `kill_run` does.
    """
    run = results.run_of(database, log_id)
    if run.address is None or run.sent_ms is None:
        return RunLog(log_id, run.state, from_line, 0, "", is_end=run.state in ENDED)
    _check_is_there(database, run.address, now_ms=now_ms)
    request = LogRequest(log_id, run.sent_ms, from_line)
    key = groups.own_token(database, run.job_id) or (None, token)
    page = _answer_of(run.address, key, lambda client: client.log(request))
    has_ended = run.state in ENDED
    if page.to_line == 0 and page.is_end:
        return RunLog(log_id, run.state, from_line, 0, "", is_end=has_ended)
    is_end = has_ended and (page.is_end or page.to_line < from_line)
    return RunLog(log_id, run.state, from_line, page.to_line, page.text, is_end)


def _check_is_there(database: Database, address: str, *, now_ms: int) -> None:
    if address not in registry.everybody(database, now_ms=now_ms):
        raise ConnectFailed(f"{address} is not registered (any more): it is not asked")


def _answer_of(
    address: str,
    key: tuple[str | None, str | None],
    ask: Callable[[ExecutorClient], Awaitable[Value]],
) -> Value:
    async def call() -> Value:
        async with opened_caller() as caller:
            app, token = key
            return await ask(ExecutorClient(caller, Address.parse(address), token=token, app=app))

    return asyncio.run(call())


class LastLines:
    """What was found, run by run."""

    def __init__(self, database: Database, token: str | None) -> None:
        self._database = database
        self._token = token
        self._found: dict[int, str] = {}

    def added(self, troubles: Sequence[Trouble], *, now_ms: int) -> list[Trouble]:
        """Troubles with the last lines of their logs, where these are to be had."""
        questions, silent = 0, set[str | None]()
        for one in troubles:
            if one.run is None or one.outcome != "FAILED" or one.run in self._found:
                continue
            if one.executor in silent or questions == ASKED_MAX:
                continue
            questions += 1
            try:
                self._found[one.run] = self._lines_of(one.run, now_ms)
            except (TidemarkError, Malformed):
                silent.add(one.executor)
                self._found[one.run] = ""
        for run in list(self._found)[:-FOUND_MAX]:
            del self._found[run]
        return [
            one
            if one.run is None
            else replace(one, last_lines=self._found.get(one.run) or one.last_lines)
            for one in troubles
        ]

    def _lines_of(self, run: int, now_ms: int) -> str:
        def log(from_line: int) -> RunLog:
            return log_of_run(
                self._database, run, from_line=from_line, now_ms=now_ms, token=self._token
            )

        end = log(_BEYOND).to_line
        if not end:
            return ""
        return "\n".join(log(max(1, end - LAST_LINES + 1)).text.splitlines()[-LAST_LINES:])
