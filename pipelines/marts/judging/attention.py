"""Selects the queues that need judging in a cycle and judges them tick by tick.

Place in the walk: of the state the queues with news, with a window that is not settled, in trouble,
or due → their verdicts at every tick. All others cost nothing.

A state is shown as bad when its rule fired on two evaluations in a row, and as good on the first
clean one; trouble that lasts (`keeping`) is clean when what opened it has gone. Where messages wait
too long and a rule has fired once, it is too early to say. Behind a silence, or another stretch of
which nothing is known, what was shown before it stays until a window is complete again, unless the
queue is seen to be well. Invariant: a queue
that is not looked at at a tick has a settled window (all its ticks hold what is known now), so its
window needs no memory. Absent on purpose: tables; arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.base.settings import REPORT_SPAN_US, Evaluation
from pipelines.marts.judging import keeping, progress, queue_courses, swings
from pipelines.marts.judging.growths import Growths
from pipelines.marts.judging.heads import OF_SAMPLE, Heads, Passed, Usual
from pipelines.marts.judging.news import FIGURES, REWIND_MEMORY_US
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, as_run, places
from pipelines.marts.judging.progress import open_messages
from pipelines.marts.judging.queue_courses import LagCourses, Lags, passages
from pipelines.marts.judging.rules import (
    CATCHING_UP,
    DATA_LOST,
    HEALTHY_MAX,
    OK,
    SLOW,
    STALLED,
    STOPPED,
    TOO_EARLY,
    Chosen,
    Judged,
    Seen,
    Verdicts,
    judged,
)
from pipelines.marts.judging.standing import Looked, Stand, Standing
from pipelines.marts.mart import Positions

RING: Final = ("committed", "max_offset", "pulled", "reached", "reports")
"""What is remembered of every tick of the window."""
FIRINGS: Final = ("FIRES_NOT", "FIRES", "UNSEEN")
FIRES_NOT, FIRES, UNSEEN = range(3)
"""Did a rule fire on the evaluation before? UNSEEN: the tick before had none."""
ENDS, HAS_ENDED = 1, 2
"""Is the queue gone? ENDS: since this tick, and it is to be reported."""
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
    "reached": UNKNOWN,
    "moved_us": 0,
    "stood_us": UNKNOWN,
    "commit_stood_us": UNKNOWN,
    "gap_ms": progress.UNLEARNT,
    "cadence_ms": progress.UNLEARNT,
    "commit_gap_ms": progress.UNLEARNT,
    "commit_cadence_ms": progress.UNLEARNT,
    "commit_held_last": 0,
    "commit_held": 0,
    "growth": UNKNOWN,
    "growth_us": UNKNOWN,
    "growth_from_us": UNKNOWN,
    "growth_from": UNKNOWN,
    "growth_least": UNKNOWN,
    "late_us": UNKNOWN,
    "had_members": 0,
    "based_us": UNKNOWN,
    "jumped_us": UNKNOWN,
    "by_pulls": 0,
    "moves": 0,
    "lost_us": UNKNOWN,
    "lost_before_us": UNKNOWN,
    "unnamed_us": UNKNOWN,
}
"""What is remembered of a queue beside its last row, with what it is at the beginning.

due_us: the moment from which a tick must look at it again. changed_us: tick that saw its last news.
looked_us: the last tick that looked at it. low_from_us: since when every tick has, so that the
least lag of each minute is known. reached: the first offset that is not finished, as far as anybody
knows; moved_us: the tick at which it changed last. stood_us, commit_stood_us: the tick since which
what is reached, and the consume offset, stand while messages wait. gap_ms, cadence_ms, commit_...:
how long each stood before it moved last, and usually. commit_held_last, commit_held: messages that
the last report of an offset has shown to be pulled and not finished, and the last two. growth,
growth_us: messages an hour by which it falls behind, and the tick at which that was certain last.
growth_least, growth_from_us, growth_from: as `growths` has them.
late_us: since when messages wait for too long. had_members: has the group had any in this life?
based_us: the tick from which its course is compared, where it began anew. jumped_us: the last tick
at which it fell, or unread messages were deleted. by_pulls: does what was pulled count as reached?
moves: has it moved within the window? lost_us, lost_before_us: the last two ticks that saw unread
messages deleted. unnamed_us: since when no member of its group names its topic.
"""
OF_LIFE: Final = tuple(
    name
    for name in VERDICT
    if name.startswith(
        (
            "stood",
            "commit_",
            "gap",
            "cadence",
            "growth",
            "late",
            "had_",
            "based",
            "jumped",
            "by_",
            "lost",
            "unnamed",
        )
    )
)
"""What ends with a life of the queue."""
NOTHING_SAMPLED: Final = -1


@dataclass(frozen=True, slots=True)
class Moment:
    """A tick, and what is known of the emitters at it; an array has a place per emitter."""

    tick_us: int
    has_tick: Flags
    run_from_us: Positions
    alive_since_us: Positions
    before_us: Positions
    """The emitter's living tick before this one; UNKNOWN before the first."""
    stepped_us: Positions
    """The age of messages that were stored before is unknown."""
    polled_us: Positions
    """How often somebody outside looks; 0: the broker reports on itself."""


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
        self.heads: Heads | None = None
        """None: no client reports what it holds."""
        self.usual_of: Callable[[Positions, int], Usual] | None = None
        """How the groups of some of the queues usually work, as of a tick."""
        self.emits_snapshots: Flags = np.zeros(0, bool)
        """Per emitter: does it report only what changed, and everything in snapshots?"""
        self.alive_since_us: Positions = np.zeros(0, np.int64)
        """Per emitter, at the present tick: what was sampled before speaks of another life, or was
        reported before rows were lost.
        """
        self._evaluation = evaluation
        self._steps = evaluation.ticks_per_window
        self._size = self._steps + 1
        self.courses = LagCourses(len(chosen))
        self.ring = {name: np.tile(columns[name], (self._size, 1)) for name in RING}
        """Per tick of the window, by its number modulo the size, the queues' figures."""
        self._standing = Standing(
            columns, self.ring, self.courses, slot=self.slot, evaluation=evaluation
        )
        self._growths = Growths(columns, self.ring, slot=self.slot, evaluation=evaluation)

    def has_jumped(self, rows: Positions, tick_us: int) -> Flags:
        """What of a window ago lies before a jump of the offset, and is no base of a change?"""
        jumped_us = self.columns["jumped_us"][rows]
        return np.asarray(jumped_us > tick_us - self._evaluation.window_us)

    def slot(self, tick_us: int) -> int:
        """The place of a tick in the window."""
        return (tick_us // self._evaluation.slide_us) % self._size

    def begin(self, moment: Moment) -> None:
        """A tick begins; at those before it that are no rows, what was known before was known."""
        self.alive_since_us = moment.alive_since_us
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
        at = as_run(rows)
        self.columns["changed_us"][at] = tick_us
        self.columns["due_us"][at] = 0
        is_newer = news["seq"] > self.columns["seq"][at]
        if not is_newer.all():  # A clock was ahead: newer rows have been seen before.
            at, news = rows[is_newer], Chosen(news, np.flatnonzero(is_newer))
        self.columns["is_gone"][at] = 0
        for name in (*FIGURES, "client"):
            if name != "reports":
                self.columns[name][at] = news[name]

    def end(self, rows: Positions, below_seq: int) -> Positions:
        """What was reported on these queues before this seq speaks of nothing any more; returns the
        queues that it ends.
        """
        seq = self.columns["seq"][rows]
        is_meant = (seq < below_seq) & (seq != UNKNOWN) & (self.columns["is_gone"][rows] == 0)
        rows = rows[is_meant]
        self.columns["is_gone"][rows] = ENDS
        self.columns["evaluated_from_us"][rows] = UNKNOWN
        self.columns["due_us"][rows] = 0
        for name in OF_LIFE:
            self.columns[name][rows] = VERDICT[name]
        self.high[rows] = UNKNOWN
        self.sample[rows] = NOTHING_SAMPLED
        if self.heads is not None:
            self.heads.forget(rows)
        return rows

    def look(self, moment: Moment) -> Verdicts | None:
        """Judge what is due at this tick; None when nothing is."""
        rows = self._due_rows(moment)
        if not len(rows):
            return None
        self._forget_ages(rows, moment)
        tick_us = moment.tick_us
        at = self._at(rows)
        emitter = self.emitter[at]
        is_reported, by_pulls = self._reach(rows, tick_us)
        now, before = self._window_at(rows, tick_us)
        event_us = now["event_us"]
        exists = event_us != UNKNOWN
        emits_snapshots = self.emits_snapshots[emitter]
        is_ended = now["is_gone"] != 0
        is_evaluated = (
            exists & ~is_ended & (emits_snapshots | (tick_us - event_us <= REPORT_SPAN_US))
        )
        from_us = now["evaluated_from_us"]
        was_evaluated = from_us != UNKNOWN
        from_us = np.where(is_evaluated, np.where(from_us == UNKNOWN, tick_us, from_us), UNKNOWN)
        complete_from = np.maximum(from_us, moment.run_from_us[emitter])
        turned = self._turn(rows, now, by_pulls, tick_us)
        is_deleted = turned.is_deleted
        looked = Looked(
            *(rows, now, is_reported, by_pulls, is_deleted, is_evaluated, tick_us, complete_from)
        )
        seen = self._seen(looked, moment, before, turned)
        verdict = judged(seen, self._evaluation)
        keeping.keep_until_gone(verdict, seen, is_evaluated, self._evaluation)
        keeping.hold_unnamed(verdict, seen)
        keeping.name_losses(verdict, seen, is_evaluated, self._evaluation)
        verdict.rule[~is_evaluated] = 0
        verdict.kind[~is_evaluated] = 0
        in_part = is_evaluated & ~seen.is_complete
        keeping.keep_unseen(verdict, now, in_part, moment.run_from_us[emitter])
        had_chance = ~emits_snapshots & (tick_us - moment.alive_since_us[emitter] > REPORT_SPAN_US)
        is_gone = exists & ~is_evaluated & (is_ended | had_chance)
        is_anew = moment.run_from_us[emitter] == tick_us
        fired = np.where(is_anew, UNSEEN, now["fires"])
        verdicts = self._verdicts(
            rows,
            seen,
            verdict,
            fired,
            is_evaluated=is_evaluated,
            is_counted=is_evaluated | is_gone,
            ends=is_gone & np.where(is_ended, now["is_gone"] == ENDS, was_evaluated),
            complete_from_us=complete_from,
            is_anew=is_anew,
        )
        self.columns["evaluated_from_us"][at] = from_us
        self.columns["is_gone"][rows[is_ended]] = HAS_ENDED
        return verdicts

    def _turn(
        self, rows: Positions, now: Mapping[str, Positions], by_pulls: Flags, tick_us: int
    ) -> keeping.Turned:
        """Where courses begin anew, into their columns."""
        slide_us = self._evaluation.slide_us
        slot, at = self.slot(tick_us - slide_us), self._at(rows)
        former = {name: self.ring[name][slot][at] for name in keeping.MARKS}
        evaluation = self._evaluation
        turned = keeping.turned(now, former, by_pulls, tick_us=tick_us, evaluation=evaluation)
        self.columns["based_us"][rows[turned.moves_again]] = tick_us - slide_us
        self.columns["based_us"][rows[turned.anew | turned.is_other_mark]] = tick_us
        self.columns["jumped_us"][rows[turned.anew]] = tick_us
        lost = rows[turned.is_deleted]
        self.columns["lost_before_us"][lost] = self.columns["lost_us"][lost]
        self.columns["lost_us"][lost] = tick_us
        return turned

    def _seen(
        self,
        looked: Looked,
        moment: Moment,
        before: Mapping[str, Positions],
        turned: keeping.Turned,
    ) -> Seen:
        """What the rules are given of queues at a tick; `before` is how they were a window ago."""
        tick_us, rows, now = looked.tick_us, looked.rows, looked.now
        is_evaluated, at = looked.is_evaluated, self._at(rows)
        count = open_messages(now["max_offset"], now["reached"])
        fell_behind = self.columns["growth"][at] > 0
        self._note_course(
            *(rows, moment, count, (now, before)), turned=turned, is_evaluated=is_evaluated
        )
        stand = self._standing.look(looked, self.usual_of)
        passed = self._passed(rows, looked.is_reported, tick_us)
        patience_us = np.where(passed.is_reported, passed.patience_us, stand.patience_us)
        since_us = progress.waiting_since_us(now)
        late = progress.is_late(since_us, tick_us, self._evaluation) & is_evaluated
        late_us = self.columns["late_us"][at]
        begun = np.where(late_us == UNKNOWN, tick_us, late_us)
        self.columns["late_us"][at] = np.where(late, begun, UNKNOWN)
        return Seen(
            tick_us,
            now,
            before,
            is_evaluated & (tick_us - looked.from_us >= self._evaluation.window_us),
            count,
            since_us,
            looked.is_reported,
            looked.by_pulls,
            late & (begun <= looked.from_us),
            self._is_silent(looked, stand),
            stand.stands,
            patience_us,
            swings.periods_us(self.courses.swings, rows),
            swings.deficits(self.courses.swings, rows, count),
            fell_behind != (self.columns["growth"][at] > 0),
            passed,
            self.highs(rows, tick_us),
            moment.polled_us[self.emitter[at]],
            lambda some: self._sampled(rows[some], tick_us),
            lambda some: self._growths.extremes(rows[some], tick_us),
        )

    def _is_silent(self, looked: Looked, stand: Stand) -> Flags:
        """Whose client says neither what it holds nor, as far as was seen, how often it reports?"""
        now = looked.now
        is_asked = (now["members"] != 0) & (progress.place(now) != UNKNOWN)
        return np.asarray(stand.is_unlearnt & is_asked & ~looked.is_reported)

    def _verdicts(
        self,
        rows: Positions,
        seen: Seen,
        verdict: Judged,
        fired: Positions,
        *,
        is_evaluated: Flags,
        is_counted: Flags,
        ends: Flags,
        complete_from_us: Positions,
        is_anew: Flags,
    ) -> Verdicts:
        """What is shown of a verdict, and what is remembered of it; `fired`: did a rule on the
        evaluation before?
        """
        columns, now, at = self.columns, seen.now, self._at(rows)
        fires = is_evaluated & (verdict.rule > HEALTHY_MAX)
        was_bad = now["is_bad"] == 1
        shown = np.where(fired == UNSEEN, was_bad, fired == FIRES)
        # What was deleted unread is gone, and a passed head was one at the evaluation before, too.
        shown |= (verdict.rule == DATA_LOST) & (now["lost_us"] != UNKNOWN)
        shown |= seen.passed.is_reported & (verdict.rule == STALLED)
        is_bad = np.where(is_counted, fires & shown, was_bad)
        pulled, committed = now["pulled"], now["committed"]
        moves = self._moves(rows, seen)
        is_late = progress.is_late(seen.waiting_since_us, seen.tick_us, self._evaluation)
        is_early = fires & ~is_bad & is_late
        stands = is_bad & ((verdict.rule == STALLED) | (verdict.rule == STOPPED))
        # Whoever finishes much and reports it rarely is well, and yet a crash would repeat it.
        since = np.maximum(columns["commit_stood_us"][at], complete_from_us)
        is_unreported = (columns["commit_stood_us"][at] != UNKNOWN) & seen.is_complete
        is_unreported &= seen.tick_us - since >= self._evaluation.window_us
        is_unreported &= now["reached"] > committed
        is_exposed = (stands | is_unreported) & (committed != UNKNOWN) & (pulled > committed)
        is_changed = (
            (verdict.rule != now["rule"])
            | (verdict.kind != now["kind"])
            | (is_exposed != (now["is_exposed"] == 1))
            | (seen.is_other_course & (verdict.rule == SLOW))
            | (stands & (moves != (now["moves"] == 1)))
        )
        verdicts = Verdicts(
            rows,
            verdict,
            is_evaluated,
            seen.is_complete,
            is_counted,
            ends,
            is_bad,
            was_bad,
            is_exposed,
            is_changed,
            seen.before,
            complete_from_us,
            seen.open,
            seen.waiting_since_us,
            seen.is_reported,
            ~moves,
            seen.patience_us,
            seen.passed,
            is_anew,
            is_early,
            seen.is_silent,
            seen.by_pulls,
            seen.swing_us != UNKNOWN,
        )
        self._remember(verdicts, seen, fires)
        return verdicts

    def _moves(self, rows: Positions, seen: Seen) -> Flags:
        """Has what was reached moved within the window, so that nothing stands now?"""
        is_still = seen.stands | seen.passed.is_reported | ~seen.is_complete
        ago_us = seen.tick_us - self.columns["moved_us"][self._at(rows)]
        return np.asarray(~is_still & (ago_us < self._evaluation.window_us))

    def _remember(self, verdicts: Verdicts, seen: Seen, fires: Flags) -> None:
        """What the next look has to know of a verdict."""
        columns, now, rows, verdict = self.columns, seen.now, verdicts.rows, verdicts.judged
        at = self._at(rows)
        # The course of one that comes back to what is allowed has ended.
        had_course = verdict.is_within & (now["rule"] != OK) & (now["growth"] != UNKNOWN)
        columns["growth"][at] = np.where(had_course, 0, now["growth"])
        columns["is_exposed"][at] = verdicts.is_exposed
        columns["rule"][at] = verdict.rule
        columns["by_pulls"][at] = verdicts.by_pulls
        columns["moves"][at] = ~verdicts.stands
        columns["kind"][at] = verdict.kind
        # One that caught up and does so no more, or of which it was too early to say, was not well.
        firing = fires | (verdict.rule == CATCHING_UP) | (verdict.rule == TOO_EARLY)
        columns["fires"][at] = np.where(verdicts.is_evaluated, firing, UNSEEN)
        columns["is_bad"][at] = verdicts.is_bad
        due_us = self._due_us(seen.tick_us, verdicts, fires)
        columns["due_us"][at] = due_us
        # The least lags of one that rests are not kept: it begins anew, in whatever cycle.
        columns["looked_us"][rows[due_us != 0]] = UNKNOWN

    def _forget_ages(self, rows: Positions, moment: Moment) -> None:
        """How long a message waits that was stored before the clock was set is unknown."""
        since = self.columns["waiting_since_us"]
        at = self._at(rows)
        is_known = since[at] != UNKNOWN
        is_timeless = is_known & (since[at] < moment.stepped_us[self.emitter[at]])
        since[rows[is_timeless]] = UNKNOWN

    def _due_rows(self, moment: Moment) -> Positions:
        due = self.columns["due_us"] <= moment.tick_us
        if not moment.has_tick.all():
            due &= moment.has_tick[self.emitter]
        return np.flatnonzero(due)

    def _window_at(
        self, rows: Positions, tick_us: int
    ) -> tuple[Mapping[str, Positions], Mapping[str, Positions]]:
        """What is known of queues now, which joins their window, and what was a window ago."""
        at = self._at(rows)
        now, slot = Chosen(self.columns, at), self.slot(tick_us)
        for name in RING:
            self.ring[name][slot][at] = now[name]
        past = self.slot(tick_us - self._evaluation.window_us)
        return now, {name: self.ring[name][past][at] for name in RING}

    def _at(self, rows: Positions) -> Positions | slice:
        return places(rows, len(self.chosen))

    def _reach(self, rows: Positions, tick_us: int) -> tuple[Flags, Flags]:
        """What each queue has reached, into its column; whose client reports what it holds, and
        where does what was pulled count as reached?
        """
        columns = self.columns
        at = self._at(rows)
        now = Chosen(columns, at)
        had = (now["had_members"] == 1) | (now["members"] > 0)
        columns["had_members"][at] = had
        slot = self.slot(tick_us - self._evaluation.slide_us)
        before = {name: self.ring[name][slot][at] for name in ("committed", "pulled")}
        held = progress.held_at_report(now, before, tick_us, self._evaluation)
        columns["commit_held_last"][at], columns["commit_held"][at] = held
        now = Chosen(columns, at)  # What was gathered before is of the tick before.
        sample = self.sampled_rows(rows, tick_us)
        is_reported = np.asarray(sample != NOTHING_SAMPLED)
        reported = np.full(len(rows), UNKNOWN)
        some = np.flatnonzero(is_reported)
        if len(some):
            place = sample[some]
            puller = now["client"][some]
            is_reader = (puller < 0) | (puller == self.samples["client"][place])
            reported[some] = np.maximum(
                self.samples["client_committed"][place], self.samples["first_held"][place]
            )
            # One that holds nothing, and does not say what it finished, says nothing.
            is_reported[some] = (
                is_reader & (now["members"][some] != 0) & (reported[some] != UNKNOWN)
            )
        by_pulls = progress.goes_by_pulls(now, is_reported, self._evaluation)
        columns["reached"][at] = progress.reached(now, reported, is_reported, by_pulls)
        return is_reported, by_pulls

    def _passed(self, rows: Positions, is_reported: Flags, tick_us: int) -> Passed:
        """The heads that are passed for too long."""
        if self.heads is None or self.usual_of is None:
            return Passed.none(len(rows))
        usual_of = self.usual_of
        reported = np.flatnonzero(is_reported)
        sample = self.sample[rows[reported]]
        figures = {name: self.samples[name][sample] for name in OF_SAMPLE}
        return self.heads.look(
            rows, reported, figures, tick_us=tick_us, usual_of=lambda some: usual_of(some, tick_us)
        )

    def _note_course(
        self,
        rows: Positions,
        moment: Moment,
        count: Positions,
        window: tuple[Mapping[str, Positions], Mapping[str, Positions]],
        *,
        turned: keeping.Turned,
        is_evaluated: Flags,
    ) -> None:
        """Into their columns: by how many messages an hour each queue falls further behind."""
        tick_us, slide_us = moment.tick_us, self._evaluation.slide_us
        columns, at = self.columns, self._at(rows)
        is_new = (columns["looked_us"][at] != tick_us - slide_us) | ~is_evaluated | turned.anew
        since = np.where(is_new | turned.course, tick_us, columns["low_from_us"][at])
        since = np.maximum(since, moment.run_from_us[self.emitter[at]])
        columns["looked_us"][at] = tick_us
        columns["low_from_us"][at] = since
        is_anew = is_new | turned.is_other_mark
        self._growths.note(rows, count, window[1]["max_offset"], is_anew, tick_us=tick_us)
        lags = Lags(rows, count, *passages(*window), since, is_new, turned.course)
        self.courses.note(lags, tick_us=tick_us, slide_us=slide_us)
        growth = np.where(since == tick_us, UNKNOWN, columns["growth"][at])
        if queue_courses.begins_block(tick_us, slide_us):
            is_behind = columns["rule"][at] != OK
            growth = self.courses.growth(
                lags,
                growth,
                columns["growth_us"],
                is_behind,
                tick_us=tick_us,
                evaluation=self._evaluation,
            )
        columns["growth"][at] = growth

    def _due_us(self, tick_us: int, verdicts: Verdicts, fires: Flags) -> Positions:
        """The moment from which each queue must be looked at again: 0, at the next tick."""
        at = self._at(verdicts.rows)
        event_us = self.columns["event_us"][at]
        since = verdicts.waiting_since_us
        changed_us = self.columns["changed_us"][at]
        window_us = self._evaluation.window_us
        is_settled = (changed_us == UNKNOWN) | (tick_us - changed_us >= window_us)
        # What is reached moves without news, too: by a sample, or since a sample has grown old.
        is_settled &= tick_us - self.columns["moved_us"][at] >= window_us
        is_waiting = (since != UNKNOWN) & (since != NEVER)
        allowed_us = self._evaluation.allowed_time_ms * 1000
        late_us = np.where(is_waiting, since, 0) + allowed_us + 1
        due_us = np.where(is_waiting & (late_us > tick_us), late_us, NEVER)
        silent_us = np.where(event_us == UNKNOWN, 0, event_us) + REPORT_SPAN_US + 1
        silent_us[self.emits_snapshots[self.emitter[at]]] = NEVER
        is_calm = is_settled & ~fires & ~verdicts.is_bad
        quiet = is_calm & verdicts.is_complete & verdicts.judged.is_at_rest
        absent = is_calm & ~verdicts.is_evaluated
        return np.where(quiet, np.minimum(due_us, silent_us), np.where(absent, NEVER, 0))

    def highs(self, rows: Positions, tick_us: int) -> Positions:
        """The offset that each of these queues has to regain, or UNKNOWN."""
        at = self._at(rows)
        high_us = self.high_us[at]
        is_young = (high_us != UNKNOWN) & (tick_us - high_us <= REWIND_MEMORY_US)
        return np.where(is_young, self.high[at], UNKNOWN)

    def sampled_rows(self, rows: Positions, tick_us: int) -> Positions:
        """Rows of the samples that still speak of these queues, or NOTHING_SAMPLED."""
        return self._speaking(self.sample[self._at(rows)], rows, tick_us)

    def former_samples(self, former: Positions, rows: Positions, tick_us: int) -> Positions:
        """The same of samples that the queues had before."""
        return self._speaking(former, rows, tick_us)

    def _speaking(self, sample: Positions, rows: Positions, tick_us: int) -> Positions:
        """A sample speaks of its queue until another one comes, its client is gone, or its emitter
        begins anew; of an emitter that reports no snapshots, until it is old.
        """
        has = np.flatnonzero(sample != NOTHING_SAMPLED)
        found = np.full(len(rows), NOTHING_SAMPLED)
        if len(has):
            emitter = self.emitter[rows[has]]
            event_us = self.samples["event_us"][sample[has]]
            speaks = self.emits_snapshots[emitter] | (tick_us - event_us <= REPORT_SPAN_US)
            speaks &= event_us >= self.alive_since_us[emitter]
            found[has] = np.where(speaks, sample[has], NOTHING_SAMPLED)
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
