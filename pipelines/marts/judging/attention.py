"""The queues that a cycle looks at, moved from tick to tick.

Place in the walk: of the state the queues with news, with a window that is not settled, in trouble,
or due → their verdicts at every tick. All others cost nothing.

A state is shown as bad when its rule fired on two evaluations in a row, and as good on the first
clean one; the first evaluation after a silence keeps what was shown before it. Invariant: a queue
that is not looked at at a tick has a settled window (all its ticks hold what is known now), so its
window needs no memory. Absent on purpose: tables; arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.marts.judging.news import FIGURES, REWIND_MEMORY_US
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags
from pipelines.marts.judging.rules import (
    HEALTHY_MAX,
    STALLED,
    STOPPED,
    Chosen,
    Extremes,
    Judged,
    Seen,
    judged,
)
from pipelines.marts.mart import Positions
from pipelines.settings import SECOND_US, SILENCE_US, Evaluation

RING: Final = ("committed", "max_offset", "pulled", "lag", "reports")
"""What is remembered of every tick of the window."""
FIRES_NOT, FIRES, UNSEEN = 0, 1, 2
"""Did a rule fire on the evaluation before? UNSEEN: the tick before had none."""
VERDICT: Final = {
    "rule": 0,
    "kind": 0,
    "fires": UNSEEN,
    "is_bad": 0,
    "is_exposed": 0,
    "is_gone": 0,
    "evaluated_from_us": UNKNOWN,
    "due_us": NEVER,
    "changed_us": UNKNOWN,
    "looked_us": UNKNOWN,
    "low_from_us": UNKNOWN,
    "client": UNKNOWN,
}
"""What is remembered of a queue beside its last row, with what it is at the beginning.

due_us: the moment from which a tick must look at it again. changed_us: tick that saw its last news.
looked_us: the last tick that looked at it. low_from_us: since when every tick has, so that the
least lag of each minute is known.
"""
NOTHING_SAMPLED: Final = -1
LOW_MINUTES: Final = 4
"""Minutes of which the least lag is remembered: three that have passed, and the present one."""
MINUTE_US: Final = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Moment:
    """A tick, and what is known of the emitters at it; an array has a place per emitter."""

    tick_us: int
    has_tick: Flags
    run_from_us: Positions
    alive_since_us: Positions
    before_us: Positions
    """The emitter's living tick before this one; UNKNOWN before the first."""


@dataclass(frozen=True, slots=True)
class Told:
    """Queues looked at at a tick."""

    rows: Positions
    """Their places in the attention."""
    judged: Judged
    is_evaluated: Flags
    is_complete: Flags
    """Evaluated at every tick of the window."""
    is_counted: Flags
    """Evaluated, or known to be gone."""
    is_bad: Flags
    was_bad: Flags
    is_exposed: Flags
    """Shown as standing, with messages pulled beyond the consume offset."""
    is_changed: Flags
    """Has rule, kind or exposure changed since the tick before?"""
    before: Mapping[str, Positions]
    complete_from_us: Positions
    growth: Positions
    """Messages an hour by which the queue falls further behind, or UNKNOWN."""


class Attention:
    """Columns of the queues that are looked at, in the order of their numbers."""

    def __init__(
        self,
        chosen: Positions,
        emitter: Positions,
        columns: dict[str, Positions],
        evaluation: Evaluation,
    ) -> None:
        self.chosen = chosen
        """Numbers of the queues."""
        self.emitter = emitter
        """Per queue the number of its emitter."""
        self.columns = columns
        """FIGURES and those of VERDICT."""
        self.high = np.full(len(chosen), UNKNOWN)
        self.high_us = np.full(len(chosen), UNKNOWN)
        self.sample = np.full(len(chosen), NOTHING_SAMPLED)
        """Row of the samples that is the queue's last one."""
        self.samples: Mapping[str, Positions] = {}
        self.tells_snapshots: Flags = np.zeros(0, bool)
        """Per emitter: does it tell only what changed, and everything in snapshots?"""
        self._evaluation = evaluation
        self._steps = evaluation.ticks_per_window
        self._size = self._steps + 1
        self.lows = np.tile(np.full(len(chosen), UNKNOWN), (LOW_MINUTES, 1))
        """Least lag of a minute, by its number modulo LOW_MINUTES."""
        self.ring = {name: np.tile(columns[name], (self._size, 1)) for name in RING}
        """Per tick of the window, by its number modulo the size, the queues' figures."""

    def slot(self, tick_us: int) -> int:
        """The place of a tick in the window."""
        return (tick_us // self._evaluation.slide_us) % self._size

    def skip(self, moment: Moment) -> None:
        """Ticks that are no rows: what was known before them was known at them."""
        slide_us = self._evaluation.slide_us
        gaps = moment.has_tick & (moment.before_us != UNKNOWN)
        gaps &= moment.tick_us - np.where(gaps, moment.before_us, 0) > slide_us
        for code in np.flatnonzero(gaps):
            rows = np.flatnonzero(self.emitter == code)
            missed = (moment.tick_us - int(moment.before_us[code])) // slide_us - 1
            for back in range(1, min(missed, self._size) + 1):
                slot = self.slot(moment.tick_us - back * slide_us)
                for name in RING:
                    self.ring[name][slot][rows] = self.columns[name][rows]

    def take(self, rows: Positions, news: Mapping[str, Positions], tick_us: int) -> None:
        """The last row of each of some queues, as of this tick; `reports` are the sum so far."""
        self.columns["changed_us"][rows] = tick_us
        self.columns["due_us"][rows] = 0
        is_newer = news["seq"] > self.columns["seq"][rows]
        if not is_newer.all():  # A clock was ahead: newer rows have been seen before.
            rows, news = rows[is_newer], Chosen(news, np.flatnonzero(is_newer))
        self.columns["is_gone"][rows] = 0
        for name in (*FIGURES, "client"):
            if name != "reports":
                self.columns[name][rows] = news[name]

    def end(self, rows: Positions, below_seq: int) -> Positions:
        """What was told of these queues before this seq speaks of nothing any more; returns the
        queues that it ends.
        """
        seq = self.columns["seq"][rows]
        rows = rows[(seq < below_seq) & (seq != UNKNOWN)]
        self.columns["is_gone"][rows] = 1
        self.columns["evaluated_from_us"][rows] = UNKNOWN
        self.columns["due_us"][rows] = 0
        self.high[rows] = UNKNOWN
        self.sample[rows] = NOTHING_SAMPLED
        return rows

    def look(self, moment: Moment) -> Told | None:
        """Judge what is due at this tick; None when nothing is."""
        rows = self._due_rows(moment)
        if not len(rows):
            return None
        now, before = self._window_at(rows, moment.tick_us)
        tick_us, window_us = moment.tick_us, self._evaluation.window_us
        emitter = self.emitter[rows]
        event_us = now["event_us"]
        exists = event_us != UNKNOWN
        tells = self.tells_snapshots[emitter]
        is_ended = now["is_gone"] == 1
        is_evaluated = exists & ~is_ended & (tells | (tick_us - event_us <= SILENCE_US))
        from_us = now["evaluated_from_us"]
        from_us = np.where(is_evaluated, np.where(from_us == UNKNOWN, tick_us, from_us), UNKNOWN)
        complete_from = np.maximum(from_us, moment.run_from_us[emitter])
        is_complete = is_evaluated & (tick_us - complete_from >= window_us)
        growth = self._growth(rows, moment, now, is_evaluated)
        seen = Seen(
            tick_us,
            now,
            before,
            is_complete,
            growth,
            self.highs(rows, tick_us),
            lambda some: self._sampled(rows[some], tick_us),
            lambda some: self._extremes(rows[some], tick_us),
        )
        verdict = judged(seen, self._evaluation)
        verdict.rule[~is_evaluated] = 0
        verdict.kind[~is_evaluated] = 0
        had_chance = ~tells & (tick_us - moment.alive_since_us[emitter] > SILENCE_US)
        is_gone = exists & ~is_evaluated & (is_ended | had_chance)
        fires = is_evaluated & (verdict.rule > HEALTHY_MAX)
        fired = np.where(moment.run_from_us[emitter] == tick_us, UNSEEN, now["fires"])
        was_bad = now["is_bad"] == 1
        shown = np.where(fired == UNSEEN, was_bad, fired == FIRES)
        counted = is_evaluated | is_gone
        is_bad = np.where(counted, fires & shown, was_bad)
        pulled, committed = now["pulled"], now["committed"]
        stands = is_bad & ((verdict.rule == STALLED) | (verdict.rule == STOPPED))
        is_exposed = stands & (committed != UNKNOWN) & (pulled > committed)
        is_changed = (
            (verdict.rule != now["rule"])
            | (verdict.kind != now["kind"])
            | (is_exposed != (now["is_exposed"] == 1))
        )
        self.columns["is_exposed"][rows] = is_exposed
        told = Told(
            rows,
            verdict,
            is_evaluated,
            is_complete,
            counted,
            is_bad,
            was_bad,
            is_exposed,
            is_changed,
            before,
            complete_from,
            growth,
        )
        columns = self.columns
        columns["rule"][rows] = verdict.rule
        columns["kind"][rows] = verdict.kind
        columns["fires"][rows] = np.where(is_evaluated, fires, UNSEEN)
        columns["is_bad"][rows] = is_bad
        columns["evaluated_from_us"][rows] = from_us
        columns["due_us"][rows] = self._due_us(tick_us, told, fires)
        return told

    def _due_rows(self, moment: Moment) -> Positions:
        due = self.columns["due_us"] <= moment.tick_us
        if not moment.has_tick.all():
            due &= moment.has_tick[self.emitter]
        return np.flatnonzero(due)

    def _window_at(
        self, rows: Positions, tick_us: int
    ) -> tuple[Mapping[str, Positions], Mapping[str, Positions]]:
        """What is known of queues now, which joins their window, and what was a window ago."""
        everything = len(rows) == len(self.chosen)
        now = Chosen(self.columns, slice(None) if everything else rows)
        slot = self.slot(tick_us)
        for name in RING:
            self.ring[name][slot][rows] = now[name]
        past = self.slot(tick_us - self._evaluation.window_us)
        return now, {name: self.ring[name][past][rows] for name in RING}

    def _growth(
        self, rows: Positions, moment: Moment, now: Mapping[str, Positions], is_evaluated: Flags
    ) -> Positions:
        """By how many messages an hour each queue falls behind, by the least lag of each of the
        last three minutes; UNKNOWN where it did not grow in each of them.

        The least lag of a minute leaves out the swing that each commit brings.
        """
        tick_us, slide_us = moment.tick_us, self._evaluation.slide_us
        columns = self.columns
        is_new = (columns["looked_us"][rows] != tick_us - slide_us) | ~is_evaluated
        since = np.where(is_new, tick_us, columns["low_from_us"][rows])
        since = np.maximum(since, moment.run_from_us[self.emitter[rows]])
        minute = tick_us // MINUTE_US
        low = self.lows[minute % LOW_MINUTES]
        lag = now["lag"]
        begins = (tick_us - slide_us) // MINUTE_US != minute
        low[rows] = np.where(is_new | begins, lag, np.minimum(low[rows], lag))
        columns["looked_us"][rows] = tick_us
        columns["low_from_us"][rows] = since
        growth = np.full(len(rows), UNKNOWN)
        told = np.flatnonzero(since <= (minute - LOW_MINUTES + 1) * MINUTE_US)
        if len(told):
            first, second, third = (
                self.lows[(minute - back) % LOW_MINUTES][rows[told]] for back in (3, 2, 1)
            )
            grows = (first != UNKNOWN) & (second > first) & (third > second)
            grows &= lag[told] >= third
            growth[told] = np.where(grows, (third - first) * (60 // 2), UNKNOWN)
        return growth

    def _due_us(self, tick_us: int, told: Told, fires: Flags) -> Positions:
        """From when on each queue must be looked at again: 0, at the next tick."""
        event_us = self.columns["event_us"][told.rows]
        since = self.columns["waiting_since_us"][told.rows]
        changed_us = self.columns["changed_us"][told.rows]
        is_settled = (changed_us == UNKNOWN) | (tick_us - changed_us >= self._evaluation.window_us)
        is_waiting = (since != UNKNOWN) & (since != NEVER)
        allowed_us = self._evaluation.allowed_time_ms * 1000
        late_us = np.where(is_waiting, since, 0) + allowed_us + 1
        due_us = np.where(is_waiting & (late_us > tick_us), late_us, NEVER)
        silent_us = np.where(event_us == UNKNOWN, 0, event_us) + SILENCE_US + 1
        silent_us[self.tells_snapshots[self.emitter[told.rows]]] = NEVER
        is_calm = is_settled & ~fires & ~told.is_bad
        quiet = is_calm & told.is_complete & told.judged.is_at_rest
        absent = is_calm & ~told.is_evaluated
        return np.where(quiet, np.minimum(due_us, silent_us), np.where(absent, NEVER, 0))

    def highs(self, rows: Positions, tick_us: int) -> Positions:
        """The offset that each of these queues has to regain, or UNKNOWN."""
        high_us = self.high_us[rows]
        is_young = (high_us != UNKNOWN) & (tick_us - high_us <= REWIND_MEMORY_US)
        return np.where(is_young, self.high[rows], UNKNOWN)

    def sampled_rows(self, rows: Positions, tick_us: int) -> Positions:
        """Rows of the samples that still speak of these queues, or NOTHING_SAMPLED."""
        sample = self.sample[rows]
        has = np.flatnonzero(sample != NOTHING_SAMPLED)
        found = np.full(len(rows), NOTHING_SAMPLED)
        if len(has):
            is_young = tick_us - self.samples["event_us"][sample[has]] <= SILENCE_US
            is_young |= self.tells_snapshots[self.emitter[rows[has]]]
            found[has] = np.where(is_young, sample[has], NOTHING_SAMPLED)
        return found

    def _sampled(self, rows: Positions, tick_us: int) -> Mapping[str, Positions]:
        sample = self.sampled_rows(rows, tick_us)
        has = np.flatnonzero(sample != NOTHING_SAMPLED)
        made = {}
        for name in ("event_us", "held_count", "client_pull_us", "locked"):
            made[name] = np.full(len(rows), UNKNOWN)
            if len(has):
                made[name][has] = self.samples[name][sample[has]]
        return made

    def _extremes(self, rows: Positions, tick_us: int) -> Extremes:
        midway_us = tick_us - self._steps // 2 * self._evaluation.slide_us
        lag, committed = self.ring["lag"], self.ring["committed"]
        lag_least = np.full(len(rows), NEVER)
        least, most = np.full(len(rows), NEVER), np.full(len(rows), UNKNOWN)
        for slot in range(self._size):
            here = lag[slot][rows]
            np.minimum(lag_least, np.where(here == UNKNOWN, NEVER, here), out=lag_least)
            here = committed[slot][rows]
            np.minimum(least, np.where(here == UNKNOWN, NEVER, here), out=least)
            np.maximum(most, here, out=most)
        return Extremes(lag_least, least, most, committed[self.slot(midway_us)][rows])
