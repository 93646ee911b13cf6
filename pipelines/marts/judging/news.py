"""Gathers new facts about queues into the column layout that the judges use.

Place in the walk: facts of a cut → per tick one row per queue. Rows beyond the last tick wait, the
last one per queue and tick.

Invariant: a sample or a fall of a queue that has not been reported yet is left out, since nobody
could say where it belongs. Absent on purpose: verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import HOUR_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.arrivals import Grid, Shipped, batches, last_of, seen_from, ticks_of
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, flags, numbers
from pipelines.marts.judging.rules import EXACT, NONE, STATES, UNREADABLE
from pipelines.marts.keys import QUEUE_KEY, as_text, positions_of
from pipelines.marts.mart import Positions, coded
from pipelines.marts.offset_violations import EARLIER_LIFE
from pipelines.staging.facts import is_one_of

REWIND_MEMORY_US: Final = HOUR_US
"""A fall of the committed offset is remembered this long, or until it is regained or reset by an
operator.
"""

FIGURES: Final = (
    "event_us",
    "seq",
    "broker_epoch",
    "pulled",
    "committed",
    "state",
    "waiting_since_us",
    "min_offset",
    "max_offset",
    "last_pull_us",
    "last_commit_us",
    "last_store_us",
    "members",
    "lag",
    "is_broadcast",
    "is_locked",
    "reports",
)
"""Numbers of a row that the rules need. reports: since the row before; in the state the sum."""


def _number(name: str) -> pa.Field:
    kind = pa.int64()
    return coded(name, STATES, kind) if name == "state" else pa.field(name, kind)


WAITING: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("emitter", KEY_TEXT),
        ("seen_us", pa.int64()),
        ("client", KEY_TEXT),
        *(_number(name) for name in FIGURES),
    ]
)
"""Rows that no tick has seen yet."""

_SEEN: Final = (
    ("number", pa.int64()),
    ("emitter", KEY_TEXT),
    ("seq", pa.int64()),
    ("seen_us", pa.int64()),
    ("tick_us", pa.int64()),
    ("event_us", pa.int64()),
)
"""The emitter of the fact, and the tick that sees it first: 0, none yet."""
SAMPLES: Final = pa.schema(
    [
        *_SEEN,
        ("held_count", pa.int64()),
        ("locked", pa.int64()),
        ("client_pull_us", pa.int64()),
        ("head_message_id", pa.string()),
        ("head_offset", pa.int64()),
        ("head_since_us", pa.int64()),
        ("stack", pa.string()),
        ("client_id", pa.string()),
        ("is_dropped", pa.bool_()),
        ("client_committed", pa.int64()),
        ("first_held", pa.int64()),
        ("finished_count", pa.int64()),
        ("head_age_us", pa.int64()),
        ("passed_us", pa.int64()),
    ]
)
"""The last sample of a queue, and those that no tick has seen yet (tick_us 0). is_dropped: it takes
back what the same client said before. By the clock of the client alone: head_age_us: for how long
its head had been in a listener when it last did anything for the queue; passed_us: and when it
finished another message of it.
"""

FALLS: Final = pa.schema(
    [
        *_SEEN,
        ("previous_offset", pa.int64()),
        ("is_reset", pa.bool_()),
    ]
)
"""Falls of committed offsets of the last hour."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a cycle has of emitters and queues."""

    shipped: Mapping[str, Shipped]
    grids: Mapping[str, Grid]
    queues: pa.Table
    """Keys of all queues, by their numbers."""
    first_seqs: Positions
    """Per queue the seq of its first row, or 0 when the queue was known before."""


@dataclass(slots=True)
class Arrived:
    """Rows of a cut that ticks see, and those that go on waiting."""

    number: Positions
    columns: dict[str, Positions]
    clients: pa.Array
    """Last pullers, as texts of a dictionary."""
    by_tick: dict[int, Positions]
    waiting: pa.Table


def figures_of(rows: pa.Table) -> dict[str, Positions]:
    """The numbers of group_watermarks' facts."""
    words = as_text(rows["committed_state"])
    codes = _state_codes(words)
    is_broadcast = flags(rows["is_broadcast"])
    waiting = numbers(rows["time_lag_us"])
    stored = numbers(rows["store_us_at_committed"])
    has_begun = (codes == NONE) & (stored != UNKNOWN)
    is_exact = ((codes == EXACT) | (codes == UNREADABLE) | has_begun) & ~is_broadcast
    since = np.where(is_exact, stored, NEVER)
    since[(waiting == UNKNOWN)] = UNKNOWN
    plain = {
        name: numbers(rows[name])
        for name in FIGURES
        if name not in ("state", "waiting_since_us", "lag", "is_broadcast", "is_locked")
    }
    return {
        **plain,
        "state": codes,
        "waiting_since_us": since,
        "lag": numbers(rows["lag_messages"]),
        "is_broadcast": is_broadcast.astype(np.int64),
        "is_locked": np.asarray(pc.is_valid(rows["lock_holder"])).astype(np.int64),
    }


def _state_codes(words: pa.ChunkedArray) -> Positions:
    parts = []
    for chunk in words.chunks:
        known = pc.index_in(chunk.dictionary, value_set=pa.array(STATES))
        codes = pc.fill_null(known.cast(pa.int64()), UNREADABLE)  # What a later version says.
        parts.append(np.asarray(codes)[np.asarray(chunk.indices)])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def arrived(
    rows: pa.Table, number: Positions, waiting: pa.Table, cut: Cut, *, slide_us: int
) -> Arrived:
    """The facts of a cut behind those that waited, by the tick that sees them first."""
    new = figures_of(rows)
    seen = seen_from(rows, new["event_us"], cut.shipped)
    columns = {
        name: np.concatenate([numbers(waiting[name]), new[name]]) if waiting.num_rows else new[name]
        for name in FIGURES
    }
    seen = np.concatenate([numbers(waiting["seen_us"]), seen])
    number = np.concatenate([numbers(waiting["number"]), number])
    emitters = _joined(waiting["emitter"], rows["emitter"])
    clients = _joined(waiting["client"], rows["last_puller"])
    ticks = ticks_of(emitters, seen, cut.grids)
    left = np.flatnonzero(ticks == 0)
    last = _last_of_each_tick(number, seen, columns, left, slide_us=slide_us)
    kept = pa.table(
        [
            pa.array(number[last]),
            emitters.take(pa.array(last)),
            pa.array(seen[last]),
            clients.take(pa.array(last)),
            *(pa.array(columns[name][last]) for name in FIGURES),
        ],
        schema=WAITING,
    )
    return Arrived(number, columns, clients.combine_chunks(), batches(ticks), kept)


def _last_of_each_tick(
    number: Positions,
    seen: Positions,
    columns: dict[str, Positions],
    rows: Positions,
    *,
    slide_us: int,
) -> Positions:
    """Of the rows the last one per queue and tick to come, with the reports of those before it."""
    if not len(rows):
        return rows
    columns["reports"] = columns["reports"].copy()
    ticks = -(-seen[rows] // slide_us)
    scratch = np.zeros(int(number[rows].max()) + 1, np.int64)
    kept = []
    for batch in batches(ticks).values():
        of_batch = rows[batch]
        numbers_here = number[of_batch]
        last = last_of(numbers_here, scratch)
        sums = np.zeros(len(of_batch), np.int64)
        np.add.at(sums, scratch[numbers_here], columns["reports"][of_batch])
        columns["reports"][of_batch[last]] = sums[last]
        kept.append(of_batch[last])
    return np.sort(np.concatenate(kept))


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    parts = [*as_text(first).chunks, *as_text(second).chunks]
    return pa.chunked_array(parts, KEY_TEXT).unify_dictionaries()


def samples_arrived(known: pa.Table, rows: pa.Table, cut: Cut) -> pa.Table:
    """SAMPLES of the cut behind those known; `tick_us` is the tick that sees them first, or 0."""
    number, is_known = _numbers_of(rows, cut)
    held = rows.filter(pa.array(is_known))
    moments = numbers(held["event_us"])
    new = pa.table(
        [
            *_unseen(number, held, moments, cut),
            pa.array(numbers(held["held_count"])),
            pa.array(flags(held["locked"]).astype(np.int64)),
            pa.array(_attended_us(held, moments)),
            pc.cast(held["head_message_id"], pa.string()),
            pa.array(numbers(held["first_held"])),
            pa.array(numbers(held["head_since_us"])),
            pc.cast(held["stack"], pa.string()),
            pc.cast(held["client_id"], pa.string()),
            pa.array(flags(held["dropped"]) | _is_unanswered(held)),
            held["client_committed"],
            held["first_held"],
            held["finished_count"],
            _behind_head_us(held, "last_pull_us", "last_consume_us"),
            _behind_head_us(held, "last_consume_us"),
        ],
        schema=SAMPLES,
    )
    return _with_ticks(pa.concat_tables([known, new]), cut.grids)


def _unseen(
    number: Positions, facts: pa.Table, moments_us: Positions, cut: Cut
) -> tuple[pa.Array | pa.ChunkedArray, ...]:
    """The columns _SEEN of facts that no tick has seen yet."""
    return (
        pa.array(number),
        as_text(facts["emitter"]),
        facts["seq"],
        pa.array(seen_from(facts, moments_us, cut.shipped)),
        pa.array(np.zeros(facts.num_rows, np.int64)),
        pa.array(moments_us),
    )


def _behind_head_us(held: pa.Table, *moments: str) -> pa.Array:
    """How long after its head went into a listener the latest of these moments of a client was."""
    latest = pc.max_element_wise(*(held[name] for name in moments))
    return pc.subtract(latest, held["head_since_us"])


def _attended_us(held: pa.Table, moments: Positions) -> Positions:
    """When a client turned to its queue last, by its own account; of one that is reported to have
    done so of late, now, so that its clock does not matter.
    """
    attended = pc.fill_null(held["attended"], False)
    is_reported = np.asarray(pc.is_valid(held["attended"]))
    reported_us = np.where(np.asarray(attended), moments, UNKNOWN)
    return np.where(is_reported, reported_us, numbers(held["last_pull_us"]))


def _is_unanswered(held: pa.Table) -> Flags:
    """Does its client no longer answer? What it said last is no news of now."""
    return np.asarray(pc.fill_null(pc.invert(held["answered"]), False))


def falls_arrived(known: pa.Table, violations: pa.Table, cut: Cut) -> pa.Table:
    """FALLS of the cut, from rows of offset_violations, behind those known."""
    is_fall = pc.equal(violations["law"], "MONOTONIC")
    is_of_two_lives = is_one_of(violations["cause"], EARLIER_LIFE)
    fell = violations.filter(pc.and_(is_fall, pc.invert(is_of_two_lives))).sort_by(
        [("emitter", "ascending"), ("seq", "ascending")]
    )
    number, is_known = _numbers_of(fell, cut)
    fell = fell.filter(pa.array(is_known))
    moments = numbers(pc.cast(fell["observed_at"], pa.int64()))
    new = pa.table(
        [
            *_unseen(number, fell, moments, cut),
            pa.array(numbers(fell["previous_offset"])),
            pa.array(flags(pc.equal(fell["path"], "RESET"))),
        ],
        schema=FALLS,
    )
    return _with_ticks(pa.concat_tables([known, new]), cut.grids)


class Highs:
    """Falls of the committed offsets of queues, and from them the offsets to regain."""

    def __init__(self, seen: pa.Table) -> None:
        self._falls: dict[int, list[dict[str, Any]]] = {}
        for row in seen.to_pylist():
            self._falls.setdefault(row["number"], []).append(row)

    def present(self) -> Iterator[tuple[int, int, int]]:
        """Per queue that has fallen: its number, the moment of its last fall, and the offset to
        regain since then.
        """
        for number, falls in self._falls.items():
            yield number, falls[-1]["event_us"], _high(falls)

    def take(self, row: dict[str, Any]) -> tuple[int, int, int]:
        """One more fall: the same for its queue; nothing is to be regained after a reset."""
        number = row["number"]
        if row["is_reset"]:
            self.forget(number)
            return number, row["event_us"], UNKNOWN
        falls = self._falls.setdefault(number, [])
        falls.append(row)
        oldest_us = row["event_us"] - REWIND_MEMORY_US
        falls[:] = [fall for fall in falls if fall["event_us"] >= oldest_us]
        return number, row["event_us"], _high(falls)

    def forget(self, number: int) -> None:
        """What the queue had is its past no more."""
        self._falls.pop(number, None)

    def left(self, now_us: int) -> pa.Table:
        """FALLS that may matter later than `now_us`."""
        oldest_us = now_us - 2 * REWIND_MEMORY_US
        rows = [
            row
            for _, falls in sorted(self._falls.items())
            for row in falls
            if falls[-1]["event_us"] >= oldest_us
        ]
        return pa.Table.from_pylist(rows, FALLS)


def _high(falls: list[dict[str, Any]]) -> int:
    return max(int(fall["previous_offset"]) for fall in falls)


def _with_ticks(rows: pa.Table, grids: Mapping[str, Grid]) -> pa.Table:
    """The rows with the tick that sees them first, where none has yet."""
    whole = rows.unify_dictionaries().combine_chunks()
    before = numbers(whole["tick_us"])
    found = ticks_of(whole["emitter"], numbers(whole["seen_us"]), grids)
    place = whole.schema.get_field_index("tick_us")
    return whole.set_column(place, "tick_us", pa.array(np.where(before > 0, before, found)))


def _numbers_of(rows: pa.Table, cut: Cut) -> tuple[Positions, Flags]:
    """Numbers of the queues of those rows whose queue had been reported before, and which they
    are.
    """
    if not rows.num_rows:
        return np.empty(0, np.int64), np.empty(0, bool)
    found, _ = positions_of(cut.queues, rows, QUEUE_KEY)
    is_known = found < cut.queues.num_rows
    place = np.where(is_known, found, 0)
    if cut.queues.num_rows:
        is_known &= numbers(rows["seq"]) > cut.first_seqs[place]
    return found[is_known], is_known
