"""Finds POP groups that are handed messages and acknowledge none, tick by tick.

Place in the walk: pop_watermarks → per group since when its messages come back unacknowledged, for
`group_state`. A group acknowledges none when invisible times ran out, the first of them a window
ago, and nothing was acknowledged since, nor for LATELY_US before. It is over with the first
acknowledgement, and when no invisible time has run out for as long as two of them, or LATELY_US:
nobody takes messages any more. Of a group whose checkpoints are not known nothing is said.

Invariant: what is known at a tick follows from the rows that it has seen. Absent on purpose: lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from pipelines.base.settings import MINUTE_US, MS_US, Evaluation
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.arrivals import Grid, Shipped, batches, seen_from, ticks_of
from pipelines.marts.judging.packed import numbers
from pipelines.marts.keys import as_text

LATELY_US: Final = 5 * MINUTE_US
"""A group that acknowledged within this time acknowledges."""
INVISIBLE_TIMES: Final = 2
"""When none of them has run out for so many, messages are taken no more."""

_KEYS: Final = (("emitter", KEY_TEXT), ("group", KEY_TEXT))
RECORDS: Final = pa.schema(
    [
        *_KEYS,
        *(
            (name, pa.int64())
            for name in ("acked_us", "expired", "first_us", "last_us", "invisible_ms")
        ),
        ("is_shown", pa.bool_()),
    ]
)
"""Groups of which something is remembered, as `_Record` has it."""
WAITING: Final = pa.schema(
    [
        *_KEYS,
        *((name, pa.int64()) for name in ("seen_us", "event_us", "acknowledged", "expired")),
        ("invisible_ms", pa.int64()),
        ("is_known", pa.bool_()),
    ]
)
"""What no tick has seen yet."""


@dataclass(slots=True)
class _Record:
    """What is remembered of a group. Moments in µs."""

    acked_us: int | None = None
    """When it acknowledged something last."""
    expired: int = 0
    """Invisible times that have run out since."""
    first_us: int | None = None
    """When the first of them did."""
    last_us: int | None = None
    invisible_ms: int = 0
    """The longest of them."""
    is_shown: bool = False

    def take(self, row: Mapping[str, Any]) -> None:
        """A row of one of its queues."""
        at_us = row["event_us"]
        if not row["is_known"] or row["acknowledged"] > 0:
            self.expired, self.first_us, self.last_us = 0, None, None
            self.acked_us = at_us if row["is_known"] else None
        elif row["expired"] > 0:
            self.first_us = at_us if self.first_us is None else self.first_us
            self.expired, self.last_us = self.expired + row["expired"], at_us
            self.invisible_ms = max(self.invisible_ms, row["invisible_ms"] or 0)

    def acknowledges_none(self, tick_us: int, window_us: int) -> bool:
        """Is that so at a tick?"""
        if self.first_us is None or self.last_us is None:
            return False
        lately = self.acked_us is not None and tick_us - self.acked_us <= LATELY_US
        goes_on_us = max(LATELY_US, INVISIBLE_TIMES * self.invisible_ms * MS_US)
        goes_on = tick_us - self.last_us <= goes_on_us
        return goes_on and not lately and tick_us - self.first_us >= window_us

    def is_over(self, tick_us: int) -> bool:
        """Is there nothing to be remembered at a tick?"""
        moments = [at_us for at_us in (self.acked_us, self.last_us) if at_us is not None]
        span_us = max(LATELY_US, INVISIBLE_TIMES * self.invisible_ms * MS_US)
        return not self.is_shown and all(tick_us - at_us > span_us for at_us in moments)

    @property
    def since_us(self) -> int | None:
        """When the first message that came back was handed out."""
        return None if self.first_us is None else self.first_us - self.invisible_ms * MS_US


GroupKey = tuple[str, str]
"""(emitter, group)"""


@dataclass(frozen=True, slots=True)
class NotAcknowledging:
    """A group that takes messages and acknowledges none."""

    since_us: int
    expired: int


class Unacknowledged:
    """The POP groups of a partition."""

    def __init__(
        self,
        state: Mapping[str, pa.Table],
        marks: pa.Table,
        *,
        shipped: Mapping[str, Shipped],
        grids: Mapping[str, Grid],
    ) -> None:
        self._records: dict[GroupKey, _Record] = {}
        for row in state["pops"].to_pylist():
            key = row.pop("emitter"), row.pop("group")
            self._records[key] = _Record(**row)
        new = _as_waiting(marks, shipped)
        rows = pa.concat_tables([state["pop_marks"], new]).unify_dictionaries().combine_chunks()
        ticks = ticks_of(rows["emitter"], numbers(rows["seen_us"]), grids)
        self._rows = rows
        self._by_tick = batches(ticks)
        self._waiting = rows.filter(pa.array(ticks == 0))

    def __bool__(self) -> bool:
        """Is there any POP group?"""
        return bool(self._records or self._by_tick)

    def turned(
        self, tick_us: int, emitters: frozenset[str], evaluation: Evaluation
    ) -> list[GroupKey]:
        """Takes the rows of a tick, and names the groups that begin or cease to be shown, of
        emitters that have this tick.
        """
        batch = self._by_tick.get(tick_us)
        if batch is not None:
            for row in self._rows.take(pa.array(batch)).to_pylist():
                self._records.setdefault((row["emitter"], row["group"]), _Record()).take(row)
        turned = []
        for key, record in list(self._records.items()):
            if key[0] not in emitters:
                continue
            is_shown = record.acknowledges_none(tick_us, evaluation.window_us)
            if is_shown != record.is_shown:
                record.is_shown = is_shown
                turned.append(key)
            if record.is_over(tick_us):
                del self._records[key]
        return turned

    def shown(self) -> dict[GroupKey, NotAcknowledging]:
        """Groups that take messages and acknowledge none."""
        return {
            key: NotAcknowledging(one.since_us or 0, one.expired)
            for key, one in self._records.items()
            if one.is_shown
        }

    def state(self) -> dict[str, pa.Table]:
        """What is carried on."""
        rows = [
            {"emitter": emitter, "group": group, **asdict(one)}
            for (emitter, group), one in sorted(self._records.items())
        ]
        return {"pops": _table(rows), "pop_marks": self._waiting}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for field in RECORDS:
        kind = pa.string() if field.type == KEY_TEXT else field.type
        columns.append(pa.array([row[field.name] for row in rows], kind).cast(field.type))
    return pa.table(columns, schema=RECORDS)


def _as_waiting(marks: pa.Table, shipped: Mapping[str, Shipped]) -> pa.Table:
    columns = [
        *(as_text(marks[name]) for name, _ in _KEYS),
        pa.array(seen_from(marks, numbers(marks["event_us"]), shipped)),
        *(marks[name] for name in ("event_us", "acknowledged", "expired", "invisible_ms")),
        marks["unknown_reason"].is_null(),
    ]
    return pa.table(columns, schema=WAITING)
