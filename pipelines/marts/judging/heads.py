"""Detects messages stuck in a listener while their client finishes later ones.

Place in the walk: what clients say of the heads of their windows → since when each head is in its
listener, and whether it has been passed for so long that no window need be waited for.

A head is reported when it was the head at the look before as well, an answer of its client that
came later confirms it, it is in its listener for nearly two slides, messages behind it were
finished meanwhile, and it is there for far longer than calls usually take (`service_times`), and
for twice as long as heads of this queue have lately stood before they moved on. A client whose
calls take long, or that reports less, is judged by the window. A message of 9 s or more among quick
ones may so be reported once: it stands for two slides by then, and a frozen head has to be reported
within three.

Times of a client are held against each other alone: its clock may be wrong by any amount. Since
when a head stands by the broker's clock is the latest moment that its client's answers allow.
Invariant: only looks at the queue change what is remembered, so it does not depend on cuts. Absent
on purpose: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.base.settings import SECOND_US, Evaluation
from pipelines.marts.judging.packed import UNKNOWN, Flags, numbers
from pipelines.marts.mart import Positions

STANDS_SLIDES: Final = 2
JITTER_US: Final = SECOND_US
"""A head is seen as late as an answer, so it has stood for so many slides, less this."""
ASKED_US: Final = 5 * SECOND_US
"""Clients are asked this often: what one answer shows of a head a later one confirms, or a longer
silence, since an answer that is no news is no row.
"""
USUAL_TIMES: Final = 10
"""In its listener for so many times the length that calls hardly ever have, a head is stuck."""
STOOD_TIMES: Final = 2
"""The same of heads of this queue that stood for a while and were finished then."""
STOOD_MEMORY_US: Final = 1_200 * SECOND_US
"""How long such a head is remembered."""
SAME_US: Final = SECOND_US
"""Two answers that differ by less in when the head went to its listener mean the same."""

HEADS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("offset", pa.int64()),
        ("since_us", pa.int64()),
        ("from_us", pa.int64()),
        ("until_us", pa.int64()),
        ("stood_us", pa.int64()),
        ("stood_at_us", pa.int64()),
    ]
)
"""A row per queue whose head is passed, or lately stood. since_us: when it went to its listener, by
its client's clock. from_us, until_us: the span in which it certainly was there, by the broker's.
stood_us, stood_at_us: for how long the head stood that did so longest, and when it moved on.
"""
_COLUMNS: Final = HEADS.names[1:]
OF_SAMPLE: Final = (
    *("event_us", "first_held", "head_since_us"),
    *("head_age_us", "passed_us", "finished_count"),
)
"""What is looked at of a sample."""


@dataclass(frozen=True, slots=True)
class Usual:
    """How queues' groups usually work, UNKNOWN where it is not known."""

    most_us: Positions
    """Listener calls hardly ever take longer, even at their slowest times of late."""
    always_us: Positions
    """The same, as far as it is not a matter of single minutes."""
    listeners: Positions
    """Calls under way at once."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Of queues, the heads that are passed for too long: UNKNOWN in all columns for others."""

    count: Positions
    """Messages behind the head that are finished."""
    head_age_us: Positions
    usual_us: Positions
    patience_us: Positions
    """How long it had to stand."""

    @property
    def is_reported(self) -> Flags:
        """Whether anything is known of each queue's head."""
        return np.asarray(self.count != UNKNOWN)

    @property
    def columns(self) -> tuple[Positions, ...]:
        """In order."""
        return self.count, self.head_age_us, self.usual_us, self.patience_us

    @staticmethod
    def none(count: int) -> Passed:
        """Nothing is passed."""
        nothing = np.full(count, UNKNOWN)
        return Passed(nothing, nothing, nothing, nothing)


class Heads:
    """The heads of the queues that are looked at."""

    def __init__(self, known: pa.Table, chosen: Positions, evaluation: Evaluation) -> None:
        self._known = known
        self._chosen = chosen
        self._evaluation = evaluation
        self._of = {name: np.full(len(chosen), UNKNOWN) for name in _COLUMNS}
        if known.num_rows and len(chosen):
            number = numbers(known["number"])
            places = np.minimum(np.searchsorted(chosen, number), len(chosen) - 1)
            held = np.flatnonzero(chosen[places] == number)
            for name, column in self._of.items():
                column[places[held]] = numbers(known[name])[held]

    def forget(self, rows: Positions) -> None:
        """A life of these queues has ended."""
        for column in self._of.values():
            column[rows] = UNKNOWN

    def look(
        self,
        rows: Positions,
        reported: Positions,
        sample: Mapping[str, Positions],
        *,
        tick_us: int,
        usual_of: Callable[[Positions], Usual],
    ) -> Passed:
        """Which heads of these queues are passed for too long?

        reported: which of them have a client that reports what it holds; sample: what it reported
        on these. usual_of: how the groups of some queues usually work.
        """
        is_silent = np.ones(len(rows), bool)
        is_silent[reported] = False
        self._of["offset"][rows[is_silent]] = UNKNOWN
        in_listener = (sample["first_held"] != UNKNOWN) & (sample["head_since_us"] != UNKNOWN)
        in_listener &= sample["finished_count"] > 0
        some = np.flatnonzero(in_listener | (self._of["offset"][rows[reported]] != UNKNOWN))
        found = Passed.none(len(rows))
        if not len(some):
            return found
        places, in_listener = rows[reported[some]], in_listener[some]
        head = {name: column[places] for name, column in self._of.items()}
        now = {name: sample[name][some] for name in OF_SAMPLE}
        is_same = in_listener & (now["first_held"] == head["offset"])
        apart_us = np.where(is_same, now["head_since_us"] - head["since_us"], 0)
        is_same &= np.abs(apart_us) < SAME_US
        self._note_moved_on(head, ~is_same, tick_us)
        self._note(head, now, in_listener, is_same, tick_us=tick_us)
        for name, column in self._of.items():
            column[places] = head[name]
        passed = self._passed(places, head, now, is_same, tick_us=tick_us, usual_of=usual_of)
        return Passed(*(_spread(column, reported[some], len(rows)) for column in passed.columns))

    def _note_moved_on(self, head: dict[str, Positions], has_moved: Flags, tick_us: int) -> None:
        """Heads that had stood, and were finished while their clients went on telling."""
        slide_us = self._evaluation.slide_us
        had = has_moved & (head["offset"] != UNKNOWN)
        stood_us = np.where(had, head["until_us"] - head["from_us"], 0)
        # Seen no more within a slide of its last answer.
        length_us = stood_us + slide_us
        age_us = tick_us - np.where(head["stood_at_us"] == UNKNOWN, 0, head["stood_at_us"])
        is_more = (head["stood_us"] == UNKNOWN) | (length_us >= head["stood_us"])
        is_taken = had & (stood_us >= slide_us - JITTER_US)
        is_taken &= is_more | (age_us > STOOD_MEMORY_US)
        head["stood_us"] = np.where(is_taken, length_us, head["stood_us"])
        head["stood_at_us"] = np.where(is_taken, tick_us, head["stood_at_us"])

    def _note(
        self,
        head: dict[str, Positions],
        now: Mapping[str, Positions],
        in_listener: Flags,
        is_same: Flags,
        *,
        tick_us: int,
    ) -> None:
        age_us = np.where(now["head_age_us"] == UNKNOWN, 0, np.maximum(now["head_age_us"], 0))
        from_us = np.where(in_listener, now["event_us"] - age_us, UNKNOWN)
        from_us = np.where(is_same, np.minimum(from_us, head["from_us"]), from_us)
        # An answer that is no news is no row: what was reported holds until something else is.
        asked_us = tick_us - self._evaluation.slide_us
        until_us = np.where(in_listener, np.maximum(now["event_us"], asked_us), UNKNOWN)
        head["offset"] = np.where(in_listener, now["first_held"], UNKNOWN)
        head["since_us"] = np.where(in_listener, now["head_since_us"], UNKNOWN)
        head["from_us"] = from_us
        head["until_us"] = np.where(in_listener, np.maximum(until_us, from_us), UNKNOWN)

    def _passed(
        self,
        rows: Positions,
        head: Mapping[str, Positions],
        now: Mapping[str, Positions],
        is_same: Flags,
        *,
        tick_us: int,
        usual_of: Callable[[Positions], Usual],
    ) -> Passed:
        evaluation = self._evaluation
        least_us = STANDS_SLIDES * evaluation.slide_us - JITTER_US
        patience_us = np.full(len(rows), least_us)
        is_young = head["stood_at_us"] != UNKNOWN
        is_young &= tick_us - np.where(is_young, head["stood_at_us"], 0) <= STOOD_MEMORY_US
        stood_us = np.where(is_young, head["stood_us"], 0)
        patience_us = np.maximum(patience_us, STOOD_TIMES * stood_us)
        from_us = np.where(is_same, head["from_us"], 0)
        age_us = np.where(is_same, tick_us - from_us, 0)
        shown_us = max(evaluation.slide_us, ASKED_US) - JITTER_US
        is_shown = now["event_us"] - from_us >= shown_us
        is_shown |= tick_us - now["event_us"] > ASKED_US + JITTER_US
        some = np.flatnonzero(is_same & is_shown & (age_us >= patience_us))
        if not len(some):
            return Passed.none(len(rows))
        usual = usual_of(rows[some])
        is_known = usual.most_us != UNKNOWN
        long_us = USUAL_TIMES * np.where(is_known, usual.most_us, 0)
        patience_us = np.maximum(patience_us[some], long_us)
        # One by one behind a head that stands; or more than could have been under way beside it.
        goes_on = now["passed_us"][some] >= evaluation.slide_us
        count = now["finished_count"][some]
        goes_on |= (usual.listeners != UNKNOWN) & (count >= usual.listeners)
        due = np.flatnonzero(is_known & goes_on & (age_us[some] >= patience_us))
        values = (count, age_us[some], usual.most_us, patience_us)
        return Passed(*(_spread(one[due], some[due], len(rows)) for one in values))

    def left(self, last_us: int) -> pa.Table:
        """HEADS that may matter behind the tick `last_us`, with those of queues not looked at."""
        is_head = self._of["offset"] != UNKNOWN
        at_us = self._of["stood_at_us"]
        is_young = (at_us != UNKNOWN) & (
            last_us - np.where(at_us == UNKNOWN, 0, at_us) <= STOOD_MEMORY_US
        )
        kept = np.flatnonzero(is_head | is_young)
        known = self._known
        if known.num_rows:
            is_other = ~np.isin(numbers(known["number"]), self._chosen)
            known = known.filter(pa.array(is_other))
        columns = [self._chosen[kept], *(column[kept] for column in self._of.values())]
        mine = pa.table([pa.array(column) for column in columns], schema=HEADS)
        return pa.concat_tables([known, mine]).combine_chunks()


def _spread(values: Positions, places: Positions, count: int) -> Positions:
    """The values at their places among `count`; UNKNOWN elsewhere."""
    found = np.full(count, UNKNOWN)
    found[places] = values
    return found
