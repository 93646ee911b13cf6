"""Records the causes of each group's lag with supporting figures, or UNKNOWN with a reason.

Causes are the listeners, the clients' windows, the division of queues, retries, bursts, and reads
from disk.

Place in the walk: watermarks, what members report of their work, changes of members, cold reads and
the states of groups → gold lag_causes. A group is behind when its lag is beyond what is allowed or
a queue of it stands. Its causes are emitted when they change, every REPEAT_WINDOWS windows while it
is behind, and once more, as NONE, when it has caught up.

Carried: `causes.marks` and `causes.newest_reports`. Invariant: the rows of a group and tick are all
causes that hold then or held within the window before, which says when; none of them says more than
its figures do. Absent on purpose: a guess at the one true cause. A slow listener saturates its
pool, and both are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import Evaluation
from pipelines.marts.causes.diagnosing import findings
from pipelines.marts.causes.finding import CAUSES, Figures, Finding, said
from pipelines.marts.causes.marks import COUNTED, GROUPS, QUEUES, SLOTS, Marks
from pipelines.marts.causes.newest_reports import SCHEMAS, STANDING, GroupKey, NewestReports
from pipelines.marts.causes.queues import KEYED_MIN, SKEW_PERCENT, LateQueues, skews
from pipelines.marts.columns import GROUP_AT, INT, LONG, STAMP, STRING, rows_as_declared
from pipelines.marts.group_state import MART as GROUP_STATE
from pipelines.marts.judging.arrivals import (
    HORIZONS,
    batches,
    grids_by_emitter,
    horizons_after,
    seen_from,
    shipped_by_emitter,
)
from pipelines.marts.judging.packed import UNKNOWN, Flags, numbers
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.rules import PRODUCE_ALLOWANCE_US
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.keys import are_among, positions_of
from pipelines.marts.lifecycle_events import BOOT, GONE, PARTED, SPOOL_LOSS
from pipelines.marts.mart import Given, GoldTable, Made, Positions, mart
from pipelines.sentences import causes as sentences
from pipelines.staging.facts import is_one_of

_OF_QUEUES: Final = (*GONE, *PARTED)
"""Kinds of lifecycle rows that take queues out of a group's lag."""
LAG_CAUSES: Final = GoldTable(
    "lag_causes",
    "group, broker, evaluation tick and cause: why the group is behind, written when other causes "
    "hold than before, and again each two windows while it is behind",
    (
        *GROUP_AT,
        must(
            "cause",
            STRING,
            "STANDING_QUEUES, PAUSED, NO_MEMBERS, LISTENERS_SATURATED, SLOW_LISTENER, "
            "FLOW_CONTROL_COUNT, FLOW_CONTROL_BYTES, FLOW_CONTROL_SPAN, HOT_QUEUE, LAGGING_QUEUE, "
            "HOT_KEY, FEWER_QUEUES_THAN_MEMBERS, MEMBERS_WITHOUT_QUEUES, RETRIES, BURST, "
            "COLD_READS, REBALANCE_FLAPPING, INVISIBLE_TIMES_RUN_OUT; UNKNOWN: no test found one; "
            "NONE: behind no more",
        ),
        must("evidence", STRING, "what is wrong, the figures, and what to do, in sentences"),
        Column("measured", LONG, "the figure the cause rests on; null: the evidence is in words"),
        Column("expected", LONG, "what it is held against: a limit, a fair part, what was usual"),
        Column("unit", STRING, "of both"),
        Column(
            "share_percent",
            INT,
            "how much of the whole it concerns: of members, of the lag, of the messages or of the "
            "time; null when the whole is not known",
        ),
        Column("topic", STRING, "topic concerned; null: the group as a whole"),
        Column("queue_id", INT, "queue concerned"),
        Column("client_id", STRING, "member concerned most"),
        Column(
            "lag_messages",
            LONG,
            "messages behind; null when the lag of a queue is unknown",
            rests_on=("lag_at_least_messages",),
        ),
        *STAMP,
        Column(
            "lag_at_least_messages",
            LONG,
            "messages behind, over the queues whose lag is known; lag_messages when all are",
        ),
    ),
    ("emitter", "group", "observed_at", "cause"),
    on_ticks="true",
)
REPEAT_WINDOWS: Final = 2
RECOVERED: Final = 2
"""A group whose lag is below such a part of what is allowed is no longer behind at once; one whose
lag is about what is allowed when it was not beyond for a window.
"""
ONE_QUEUE: Final = 2
"""One queue may be so many times further behind than its part of what is allowed: reports of a
queue come by themselves, those of a group's many queues one after the other.
"""
QUEUES_NAMED_MAX: Final = 10_000
"""Queues of one group that are looked at for one that stands out: those furthest behind."""

_BITS: Final = {cause: 1 << number for number, cause in enumerate(CAUSES)}
_UNKNOWN: Final = _BITS["UNKNOWN"]


def lag_causes(given: Given) -> Made:
    """One row per cause of a group that is behind, at ticks at which they are reported."""
    shipped = shipped_by_emitter(given.state["horizons"], given.facts["shipments"])
    walk = _Walk(given)
    facts = given.facts["group_watermarks"]
    seen = seen_from(facts, numbers(facts["event_us"]), shipped)
    events = sorted(_events(given, shipped), key=lambda one: one[:4])
    walk.over(batches(_up(seen, walk.period_us)), events)
    carried = {
        **walk.marks.state(),
        **walk.reports.state({name: int(one.horizons[-1]) for name, one in shipped.items()}),
        "horizons": horizons_after(shipped),
    }
    touched = walk.marks.touched(given.state)
    return Made(rows_as_declared(walk.rows, LAG_CAUSES), carried, touched)


def period_us(evaluation: Evaluation) -> int:
    """Distance of the ticks at which causes are looked at: a part of the window."""
    ticks = evaluation.ticks_per_window
    return evaluation.slide_us * max(n for n in range(1, max(ticks // 3, 1) + 1) if not ticks % n)


def _up(moments: Positions, period: int) -> Positions:
    """The first tick at or after each moment."""
    return -(-moments // period) * period


Event = tuple[int, int, str, int, str, dict[str, Any]]
"""When it is seen, 1 for what follows from facts seen then, emitter, seq, kind, row."""


def _events(given: Given, shipped: Any) -> Iterator[Event]:
    """All rows but watermarks."""
    facts = given.facts
    windows = _windows_of_interest(facts["client_windows"], given.state)
    kinds = (BOOT, SPOOL_LOSS, *GONE, *PARTED)
    ends = facts["lifecycle"].filter(is_one_of(facts["lifecycle"]["kind"], *kinds))
    for kind, rows in (
        ("stats", facts["consume_stats"]),
        ("window", windows),
        ("change", facts["rebalance_events"]),
        ("cold", facts["cold_reads"]),
        ("end", ends),
    ):
        seen = seen_from(rows, numbers(rows["event_us"]), shipped)
        for moment, row in zip(seen.tolist(), rows.to_pylist(), strict=True):
            yield moment, 0, row["emitter"], row["seq"], kind, row
    states = _standing_states(facts[GROUP_STATE.name], given.state["states"])
    ticks = numbers(pc.cast(states["observed_at"], pa.int64()))
    for moment, row in zip(ticks.tolist(), states.to_pylist(), strict=True):
        yield moment, 1, row["emitter"], 0, "state", row
    dead = facts[TICKS].filter(pc.invert(facts[TICKS]["is_alive"]))
    for row in dead.to_pylist():
        yield row["tick_us"], 1, row["emitter"], 0, "silence", row


def _standing_states(states: pa.Table, known: pa.Table) -> pa.Table:
    """States in which a queue stands, and others of groups that were in such a state."""
    states = states.select(["observed_at", "emitter", "group", "state", "reason"])
    is_standing = is_one_of(states["state"], *STANDING)
    standing = states.filter(is_standing)
    if not standing.num_rows and not known.num_rows:
        return standing
    key = ("emitter", "group")
    stood = pc.or_(are_among(states, known, key), are_among(states, standing, key))
    return states.filter(pc.or_(is_standing, stood))


def _windows_of_interest(windows: pa.Table, state: Mapping[str, pa.Table]) -> pa.Table:
    """Windows most of whose messages have one key, or whose pulls rest for what they handed out,
    and others of queues that had such a window.
    """
    is_hot = pc.and_(
        pc.greater_equal(windows["keyed_messages"], KEYED_MIN),
        pc.greater_equal(
            pc.multiply(windows["top_key_messages"], 100),
            pc.multiply(windows["keyed_messages"], SKEW_PERCENT),
        ),
    )
    is_meant = pc.or_(pc.fill_null(is_hot, False), is_one_of(windows["resting"], "SPAN"))
    meant = windows.filter(is_meant)
    known = [table for table in (state["keys"], state["rests"], meant) if table.num_rows]
    key = ("emitter", "group", "topic", "queue_id", "client_id")
    for others in known:
        is_meant = pc.or_(is_meant, are_among(windows, others, key))
    return windows.filter(is_meant) if known else meant


class _Walk:
    """From one moment to the next: rows taken, then groups looked at."""

    def __init__(self, given: Given) -> None:
        self.evaluation = given.evaluation
        self.period_us = period_us(given.evaluation)
        self.marks = Marks(given)
        self.reports = NewestReports(given.state, given.evaluation.window_us)
        self.rows: list[dict[str, Any]] = []
        self._number: dict[GroupKey, int | None] = {}
        """Numbers of groups that were asked for."""
        self._names: dict[int, dict[str, str]] = {}
        """Keys of groups that were asked for."""
        self._own: dict[str, Positions] = {}
        """Groups of emitters that were asked for."""
        self._late: tuple[int, Positions] = (-1, np.empty(0, np.int64))
        """Groups with a late queue, and when."""
        self._part: tuple[int, Flags] = (-1, np.empty(0, bool))
        """Groups of which the lag of a queue is unknown, and when."""
        self._ticks: dict[int, list[str]] = {}
        for name, grid in grids_by_emitter(given.facts[TICKS]).items():
            for tick_us in grid.ticks[grid.ticks % self.period_us == 0].tolist():
                self._ticks.setdefault(tick_us, []).append(name)

    def over(self, watermarks: dict[int, Positions], events: list[Event]) -> None:
        """Take all rows, and report the causes at each tick."""
        by_moment: dict[int, list[Event]] = {}
        for event in events:
            moment = -(-event[0] // self.period_us) * self.period_us
            by_moment.setdefault(moment, []).append(event)
        for moment in sorted({*watermarks, *by_moment, *self._ticks}):
            news = by_moment.get(moment, [])
            self._take_watermarks(watermarks.get(moment), news, moment)
            silent = [one for one in news if not self._take(one)]
            for event in silent:
                self._report_silence(event[2], event[5], moment)
            for emitter in sorted(self._ticks.get(moment, [])):
                self._look_at(emitter, moment)

    def _take_watermarks(self, rows: Positions | None, news: list[Event], moment: int) -> None:
        """The rows of a moment, and between them what ends queues or groups."""
        ends = [one for one in news if one[4] == "end" and one[5]["kind"] in _OF_QUEUES]
        slot = (moment - 1) // self.marks.slot_us
        if rows is None:
            rows = np.empty(0, np.int64)
        if not ends:
            if len(rows):
                self.marks.take(rows, slot)
            return
        emitters = np.array(self.marks.facts["emitter"].take(pa.array(rows)).to_pylist())
        seqs = numbers(self.marks.facts["seq"])[rows]
        left = np.ones(len(rows), bool)
        for end in sorted(ends, key=lambda one: one[3]):
            before = left & (emitters == end[2]) & (seqs < end[3])
            if before.any():
                self.marks.take(rows[before], slot)
            left &= ~before
            self.marks.end(end[5])
        if left.any():
            self.marks.take(rows[left], slot)

    def _take(self, event: Event) -> bool:
        """Take a row; False for a silence, which is reported when all else was taken."""
        kind, row = event[4], event[5]
        match kind:
            case "stats":
                number = self._number_of((row["emitter"], row["group"]))
                named = 0 if number is None else int(self.marks.groups["named"][number])
                self.reports.take_stats(row, is_behind=named != 0)
            case "window":
                self.reports.take_window(row)
            case "change":
                self.reports.take_change(row)
            case "cold":
                self.reports.take_cold(row)
            case "state":
                self.reports.take_state(row)
            case "end":
                self.reports.end(row)
            case _:
                return False
        return True

    def _report_silence(self, emitter: str, row: dict[str, Any], moment: int) -> None:
        """Of groups that are behind nothing is known any more."""
        why = WORDS[row["why_unknown"]]
        own = self._groups_of(emitter)
        named = self.marks.groups["named"][own]
        for number, key in self._named(own[(named != 0) & (named != _UNKNOWN)]):
            self.reports.forget_held(_of(key))
            said = sentences.silent(key["group"], key["broker"], why)
            self._report(number, key, [Finding("UNKNOWN", said)], moment)

    def _look_at(self, emitter: str, moment: int) -> None:
        """All groups of an emitter at a tick."""
        own, figures = self._groups_of(emitter), self.marks.groups
        standing = {
            number: reason
            for key, reason in self.reports.standing().items()
            if key[0] == emitter and (number := self._number_of(key)) is not None
        }
        allowed, lag = self._allowed(own, moment), figures["lag"][own]
        is_behind = (lag > allowed) | np.isin(own, self._groups_with_a_late_queue(moment))
        is_behind |= np.isin(own, np.array(list(standing), np.int64))
        was_named = ~is_behind & (figures["named"][own] != 0)
        far_below = set(own[lag <= allowed // RECOVERED].tolist())
        for number, key in self._named(own[was_named]):
            if number in far_below or not self.reports.was_behind(_of(key), moment):
                self.reports.forget_held(_of(key))
                over = Finding("NONE", sentences.none(key["group"]))
                self._report(number, key, [over], moment)
        again_us = REPEAT_WINDOWS * self.evaluation.window_us
        for number, key, group in self._figures(own[is_behind], moment, standing):
            found = self.reports.hold(_of(key), findings(group), moment)
            age_us = moment - int(figures["named_us"][number])
            if _bits(found) != figures["named"][number] or age_us >= again_us:
                self._report(number, key, found, moment)

    def _named(self, groups: Positions) -> Iterator[tuple[int, dict[str, str]]]:
        """These groups with their keys, which are nearly the same at each tick."""
        numbers_of = groups.tolist()
        new = [number for number in numbers_of if number not in self._names]
        if new:
            self._names |= zip(new, self.marks.names_of(np.array(new)), strict=True)
        return ((number, self._names[number]) for number in numbers_of)

    def _allowed(self, groups: Positions, moment: int) -> Positions:
        """The lag that is allowed to each: a few messages a queue, or those of the last seconds."""
        figures, slot_us = self.marks.groups, self.marks.slot_us
        slot = (moment - 1) // slot_us
        allowed = self.evaluation.allowed_lag * np.maximum(figures["queues"][groups], 1)
        sent = self.marks.sent_recently(groups, slot)
        lately = sent * PRODUCE_ALLOWANCE_US // (moment - self._begins_us(groups, moment))
        return np.asarray(np.maximum(allowed, lately))

    def _groups_with_a_late_queue(self, moment: int) -> Positions:
        """Groups of which one queue is so far behind that what others may be is no excuse."""
        if self._late[0] != moment:
            queues = self.marks.queues
            far = np.flatnonzero(queues["lag"] > ONE_QUEUE * self.evaluation.allowed_lag)
            late = queues["lag"][far] > ONE_QUEUE * self._allowed_queues(far, moment)
            self._late = moment, np.unique(queues["group_number"][far[late]])
        return self._late[1]

    def _is_part(self, moment: int) -> Flags:
        """Of each group: is the lag of one of its queues unknown at this moment?"""
        if self._part[0] != moment:
            self._part = moment, self.marks.are_in_part()
        return self._part[1]

    def _allowed_queues(self, queues: Positions, moment: int) -> Positions:
        """The lag that is allowed to each queue."""
        slot = (moment - 1) // self.marks.slot_us
        begins_us = self._begins_us(self.marks.queues["group_number"][queues], moment)
        sent = self.marks.given_recently(queues, slot)
        lately = sent * PRODUCE_ALLOWANCE_US // (moment - begins_us)
        return np.asarray(np.maximum(self.evaluation.allowed_lag, lately))

    def _begins_us(self, groups: Positions, moment: int) -> Positions:
        """When the slot before the present one began, or the group if that is later."""
        slot_us = self.marks.slot_us
        first_us = np.minimum(self.marks.groups["first_us"][groups], moment - self.period_us)
        return np.asarray(np.maximum(((moment - 1) // slot_us - 1) * slot_us, first_us))

    def _figures(
        self, groups: Positions, moment: int, standing: dict[int, str]
    ) -> Iterator[tuple[int, dict[str, str], Figures]]:
        """What is known of each of these groups, and its key."""
        marks, slot_us = self.marks, self.marks.slot_us
        slot = (moment - 1) // slot_us
        late = self._late_queues(groups, moment)
        skew_of = skews(late)
        begins_us = self._begins_us(groups, moment).tolist()
        given = marks.given_by_slot(groups, slot)
        counted = {name: marks.recently(groups, name, slot).tolist() for name in COUNTED}
        lags, is_part = marks.groups["lag"][groups].tolist(), self._is_part(moment)
        members_of = marks.groups["members"][groups].tolist()
        first_slots = ((marks.groups["first_us"][groups] - 1) // slot_us).tolist()
        for place, (number, key) in enumerate(self._named(groups)):
            members, own = members_of[place], _of(key)
            reports = self.reports.of_group(own, moment)
            queues, topics = late.of_group(number) if "keys" in reports else ((), {})
            yield (
                number,
                key,
                Figures(
                    group=key["group"],
                    broker=key["broker"],
                    tick_us=moment,
                    slot_us=slot_us,
                    span_us=moment - begins_us[place],
                    slots_known=min(SLOTS, slot - first_slots[place] + 1),
                    lag=lags[place],
                    is_part=bool(is_part[number]),
                    members=None if members == UNKNOWN else members,
                    given=given[place],
                    consumed=counted["consumed"][place],
                    retried=counted["retried"][place],
                    came_back=counted["came_back"][place],
                    skew=skew_of.get(number),
                    queues=queues,
                    topics=topics,
                    was_hot=self.reports.was_hot(own, moment),
                    standing=standing.get(number),
                    **reports,
                ),
            )

    def _late_queues(self, groups: Positions, moment: int) -> LateQueues:
        """The late queues of these groups, retry queues apart; of one with very many those furthest
        behind.
        """
        marks = self.marks
        is_meant = np.zeros(len(marks.groups["lag"]), bool)
        is_meant[groups] = True
        numbers_of = marks.queues["group_number"]
        own = np.flatnonzero(is_meant[numbers_of] & ~marks.is_retry & (marks.queues["seq"] > 0))
        own = own[np.lexsort((-marks.queues["lag"][own], numbers_of[own]))]
        of_group = numbers_of[own]
        is_kept = np.arange(len(own)) - np.searchsorted(of_group, of_group) < QUEUES_NAMED_MAX
        own, of_group = own[is_kept], of_group[is_kept]
        lag = marks.queues["lag"][own]
        given = marks.given_recently(own, (moment - 1) // marks.slot_us)
        late = np.maximum(lag - self._allowed_queues(own, moment), 0)
        some = np.flatnonzero(late)
        keys = marks.queue_keys.take(pa.array(own))
        topics = keys["topic"].unify_dictionaries().combine_chunks()
        topic = np.asarray(topics.indices)
        place = of_group * max(1, len(topics.dictionary)) + topic
        _, of_place = np.unique(place, return_inverse=True)
        queues = np.bincount(of_place)[of_place[some]]
        sent = np.zeros(len(of_place), np.int64)
        np.add.at(sent, of_place, given)
        return LateQueues(
            of_group[some],
            topic[some],
            numbers(keys["queue_id"])[some],
            lag[some],
            given[some],
            late[some],
            queues,
            sent[of_place[some]],
            topics.dictionary.to_pylist(),
        )

    def _number_of(self, key: GroupKey) -> int | None:
        """The number of a group; None of one of which no watermark was reported."""
        if key not in self._number:
            names = pa.Table.from_pylist([dict(zip(("emitter", "group"), key, strict=True))])
            place, new = positions_of(self.marks.group_keys, names, ("emitter", "group"))
            self._number[key] = None if len(new) else int(place[0])
        return self._number[key]

    def _groups_of(self, emitter: str) -> Positions:
        if emitter not in self._own:
            is_own = is_one_of(self.marks.group_keys["emitter"], emitter)
            self._own[emitter] = np.flatnonzero(np.asarray(is_own))
        return self._own[emitter]

    def _report(
        self, number: int, key: Mapping[str, str], found: list[Finding], moment: int
    ) -> None:
        marks, lag = self.marks, int(self.marks.groups["lag"][number])
        marks.groups["named"][number] = _bits(found)
        marks.groups["named_us"][number] = moment
        marks.touched_groups[number] = True
        for one in found:
            self.rows.append(
                {
                    **key,
                    "observed_us": moment,
                    "lag_messages": None if self._is_part(moment)[number] else lag,
                    "lag_at_least_messages": lag,
                    "seq": int(marks.groups["seq"][number]),
                    **dict(zip(_OF_FINDING, _figures_of(one), strict=True)),
                    "evidence": said(one.evidence),
                }
            )


def _of(key: Mapping[str, str]) -> GroupKey:
    return key["emitter"], key["group"]


def _bits(found: Iterable[Finding]) -> int:
    """The causes as one number: 0 when there are none any more."""
    return sum([_BITS[one.cause] for one in found if one.cause != "NONE"])


_OF_FINDING: Final = (
    *("cause", "evidence", "measured", "expected", "unit", "share_percent"),
    *("topic", "queue_id", "client_id"),
)
_figures_of = attrgetter(*_OF_FINDING)

MART: Final = mart(
    LAG_CAUSES,
    lag_causes,
    reads=(
        "group_watermarks",
        QUEUE_NUMBERS,
        "consume_stats",
        "client_windows",
        "rebalance_events",
        "cold_reads",
        "lifecycle",
        "shipments",
        TICKS,
        GROUP_STATE.name,
    ),
    carries={"groups": GROUPS, "queues": QUEUES, **SCHEMAS, "horizons": HORIZONS},
)
