"""Fetches the last log lines of failed runs, for the alerts about them.

Place in the walk: `store.troubles` → their executors are asked, as far as they are there → rows
that alert rules are about. An executor that does not answer leaves what it had reported as the
result.

Invariant: bounded. A run is asked about once, ASKED_MAX at a look, and an address that failed no
more in that look: each question may take the wire's time-out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.foundation.errors import TidemarkError
from pipelines.database.database import Database
from pipelines.scheduler.centre.run_requests import RunLog, log_of_run
from pipelines.scheduler.store.troubles import LAST_LINES, TROUBLES_MAX, Trouble
from pipelines.scheduler.wire.fields import INT_MAX, Malformed

ASKED_MAX: Final = 3
FOUND_MAX: Final = 2 * TROUBLES_MAX
_BEYOND: Final = INT_MAX
"""No log has this line: who is asked for it says which is the last."""


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
