"""Figures of every queue, from which the state of its group is summed up.

Place in the walk: judged rows → figures by queue number, tick by tick → `sums`, `words`.

Invariant: a figure is that of the last tick that judged the queue; UNKNOWN stands for null. Absent
on purpose: groups.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.judging.arrivals import batches
from pipelines.marts.judging.packed import UNKNOWN, Flags, numbers
from pipelines.marts.mart import coded

SEVERITY: Final = (
    "OK",
    "BROADCAST",
    "CATCHING_UP",
    "UNKNOWN",
    "PAUSED",
    "SLOW",
    "NO_OFFSET",
    "REWOUND",
    "STALLED",
    "STOPPED",
    "DATA_LOST",
)
"""From harmless to worst."""
_CALM: Final = tuple(SEVERITY.index(state) for state in ("BROADCAST", "CATCHING_UP", "UNKNOWN"))
"""Shown without a rule that fires."""
CATCHING_UP, UNSEEN = SEVERITY.index("CATCHING_UP"), SEVERITY.index("UNKNOWN")

_FIGURE_TYPES: Final = {
    "is_evaluated": pa.bool_(),
    "is_bad": pa.bool_(),
    "is_beyond": pa.bool_(),
    "is_silent": pa.bool_(),
    "swings": pa.bool_(),
    "lag": pa.int64(),
    "open": pa.int64(),
    "open_before": pa.int64(),
    "growth": pa.int64(),
    "retained": pa.int64(),
    "waiting_since_us": pa.int64(),
    "members": pa.int64(),
    "seq": pa.int64(),
    "complete_from_us": pa.int64(),
    "tick_us": pa.int64(),
}

FIGURES: Final = pa.schema(
    [coded("severity", SEVERITY), *((name, kind) for name, kind in _FIGURE_TYPES.items())]
)
"""Of every queue, by its number, as judged last; UNKNOWN stands for null. is_beyond: its consume
offset lies beyond its end. is_silent: its client does not say what it holds.
tick_us: the tick that judged it.
"""

Values = np.ndarray[tuple[int], np.dtype[Any]]


class JudgedFigures:
    """Judged rows, by tick."""

    def __init__(self, judged: pa.Table) -> None:
        rules = judged["rule"]
        is_bad, lag = np.asarray(judged["is_bad"]), numbers(judged["lag"])
        self.by_tick = batches(numbers(judged["tick_us"]))
        self.number = numbers(judged["number"])
        evaluated = np.asarray(judged["is_evaluated"])
        self.turned = evaluated & (is_bad != np.asarray(judged["was_bad"]))
        self.ends = np.asarray(judged["ends"])
        self.turned |= self.ends
        self.figures: dict[str, Values] = {
            "is_evaluated": evaluated,
            "is_bad": is_bad,
            "swings": np.asarray(judged["swings"]),
            "lag": lag,
            "is_silent": np.asarray(judged["is_silent"]),
        }
        for name in _NUMBERS:
            self.figures[name] = numbers(judged[name])
        # Of one without an offset it may be known what waits, and not what is finished.
        is_unseen = (lag != 0) & (self.figures["open"] == UNKNOWN)
        ranks = _ranks(rules)
        self.figures["severity"] = _severities(ranks, is_bad, is_unseen)
        is_lost = ranks == SEVERITY.index("DATA_LOST")
        self.figures["is_beyond"] = is_unseen & is_lost & (lag == UNKNOWN)


_NUMBERS: Final = (
    *("open", "open_before", "growth", "retained"),
    *("waiting_since_us", "members", "seq", "complete_from_us", "tick_us"),
)


def _ranks(rules: pa.ChunkedArray) -> Values:
    parts = []
    for chunk in rules.chunks:
        ranks = pc.index_in(chunk.dictionary, value_set=pa.array(SEVERITY)).cast(pa.int8())
        parts.append(np.asarray(ranks)[np.asarray(chunk.indices)])
    return np.concatenate(parts) if parts else np.empty(0, np.int8)


def _severities(rank: Values, is_bad: Flags, is_unseen: Flags) -> Values:
    calm = np.where(is_unseen, UNSEEN, 0)
    for one in _CALM:
        calm[rank == one] = one
    return np.where(is_bad & (rank > 0), rank, calm).astype(np.int8)
