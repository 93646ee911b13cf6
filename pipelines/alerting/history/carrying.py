"""Moves alert changes from the SQL log to the Delta table, exactly once.

The order is the proof: the table says how far it is, what lies beyond is appended with its last
number, the number is marked in SQL, and what it covers is dropped there. Killed between any two of
these, the next process asks the table and repeats the rest.

Invariant: a change leaves SQL only when the table has it. Absent on purpose: waiting and retrying;
who called calls again.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from pipelines.alerting.entries import Entry
from pipelines.alerting.store import changes
from pipelines.alerting.store.changes import Waiting
from pipelines.database.database import Database

ROWS_A_COMMIT: Final = 10_000
COMMITS_A_TURN: Final = 4
"""After so many the process looks at gold again; what is left goes with the next turn."""

_log = logging.getLogger(__name__)


class Table(Protocol):
    """Where history is kept, as `history.table` has it in the lake."""

    def taken(self, history: str, *, was_there: bool = False) -> int:
        """The number of the newest change of this history that it has; 0: none."""
        ...

    def append(self, history: str, entries: list[tuple[int, Entry]]) -> None:
        """Take these changes as one, or none of them."""
        ...


class Carrier:
    """Carries the changes of one lake's alerts."""

    def __init__(self, database: Database, lake: str, table: Table) -> None:
        self._database = database
        self._lake = lake
        self._table = table
        self._settled = False
        """Table and database are known to speak of the same history."""

    def carry(self) -> int:
        """Carry what waits; how many changes. Raises LakeError and StoreUnavailable: then it is
        unknown whether the last ones are in the table, and the next call finds out."""
        total = 0
        for _ in range(COMMITS_A_TURN):
            waits = changes.waiting(self._database, self._lake, rows_max=ROWS_A_COMMIT)
            if waits is None or (self._settled and not waits.entries):
                break
            count = self._carried(waits)
            total += count
            if count < ROWS_A_COMMIT:
                break
        return total

    def _carried(self, waits: Waiting) -> int:
        taken = self._table.taken(waits.history, was_there=waits.carried_seq > 0)
        if taken > waits.last_seq:
            _log.warning(
                "the lake has %d changes of this database's alerts, which knows of %d: it was put "
                "back from a copy, and goes on as another history",
                taken,
                waits.last_seq,
            )
            changes.begin_anew(self._database, self._lake, waits.history)
            return 0
        if taken < waits.carried_seq:
            self._say_lost(taken, waits.carried_seq)
        fresh = [(seq, entry) for seq, entry in waits.entries if seq > taken]
        if fresh:
            self._table.append(waits.history, fresh)
        seq = fresh[-1][0] if fresh else taken
        if seq > waits.carried_seq:
            changes.carried(self._database, self._lake, waits.history, seq=seq)
        self._settled = True
        return len(fresh)

    def _say_lost(self, taken: int, carried_seq: int) -> None:
        if not self._settled:
            _log.warning(
                "the lake has %d changes of alerts where it once had %d: its table was replaced or "
                "put back from a copy, and what is missing is gone",
                taken,
                carried_seq,
            )
