"""The last writer of each queue's offsets, and whether two writers take turns on it.

Place in the walk: consume_offsets → what accounts for falls of offsets. Carried: the last writer of
each queue and its last fall, for TURN_SPAN_US.

Two writers show in one of two ways. A report falls below that of another client which wrote a
moment ago, and the queue had not changed hands between them. Or the offsets of one client id are
two sequences that both rise, one below the other: two processes bear its name. Invariant: no Python
loop goes over reports that broke no law, unless their queue has a fall in the same cycle. Absent on
purpose: hand-overs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pipelines.base.settings import MINUTE_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.forgetting import recent
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among, newest_of_each
from pipelines.marts.life_cycles import is_of_another_life, without_ended

TURN_SPAN_US: Final = MINUTE_US
"""Clients report each 5 s; one that has not for so long takes no turn any more."""
_QUEUE: Final = [
    *QUEUE_FIELDS,
    ("client_id", KEY_TEXT),
    ("seq", pa.int64()),
    ("event_us", pa.int64()),
]
WRITERS: Final = pa.schema(_QUEUE)
"""The last accepted report of each queue."""
FALLS: Final = pa.schema([*_QUEUE, ("offset", pa.int64()), ("previous_offset", pa.int64())])
"""The last fall of each queue."""

Row = Mapping[str, Any]
Key = tuple[Any, ...]


class Writers:
    """Clients that wrote to the queues whose reports broke a law."""

    def __init__(
        self,
        writers: pa.Table,
        falls: pa.Table,
        reports: pa.Table,
        broken: pa.Table,
        *,
        ends: Sequence[Row] = (),
    ) -> None:
        """reports: accepted ones of the cycle; broken: those of them that broke a law; ends: rows
        of lifecycle by which something is gone.
        """
        self._ends = ends
        self._carried, self._reports = writers, reports.select(WRITERS.names).cast(WRITERS)
        self._of: defaultdict[Key, list[Row]] = defaultdict(list)
        self._falls: dict[Key, Row] = {_key(fall): fall for fall in falls.to_pylist()}
        if broken.num_rows:
            both = pa.concat_tables([writers, self._reports])
            for row in both.filter(are_among(both, broken, QUEUE_KEY)).to_pylist():
                self._of[_key(row)].append(row)

    def before(self, report: Row) -> Row | None:
        """The report that stood before this one; null when it is long ago."""
        earlier = [row for row in self._of.get(_key(report), ()) if row["seq"] < report["seq"]]
        if not earlier or report["event_us"] - earlier[-1]["event_us"] > TURN_SPAN_US:
            return None
        if is_of_another_life(earlier[-1]["seq"], report, self._ends):
            return None
        return earlier[-1]

    def take_turns(self, fall: Row, *, writer: Row | None) -> bool:
        """Do two writers take turns on the queue of this fall? Notes it."""
        before = self._falls.get(_key(fall))
        if before is not None and is_of_another_life(before["seq"], fall, self._ends):
            before = None
        self._falls[_key(fall)] = fall
        if writer is None or writer["client_id"] is None or fall["client_id"] is None:
            return False
        if writer["client_id"] != fall["client_id"]:
            return True
        return (
            before is not None
            and before["client_id"] == fall["client_id"]
            and fall["event_us"] - before["event_us"] <= TURN_SPAN_US
            and before["offset"] < fall["offset"]
            and before["previous_offset"] < fall["previous_offset"]
        )

    def carried(self) -> tuple[pa.Table, pa.Table]:
        """Last writers and last falls."""
        newest = newest_of_each(self._carried, self._reports, QUEUE_KEY)
        rows = [{name: fall[name] for name in FALLS.names} for fall in self._falls.values()]
        falls = pa.Table.from_pylist(rows, schema=FALLS)
        return (
            without_ended(recent(newest, newest, TURN_SPAN_US), self._ends),
            without_ended(recent(falls, newest, TURN_SPAN_US), self._ends),
        )


def _key(row: Row) -> Key:
    return tuple(row[name] for name in QUEUE_KEY)
