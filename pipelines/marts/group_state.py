"""Derives each group's state on a broker: its worst queue and totals over all its queues.

Place in the walk: judged rows → gold group_state. A row when the state of a queue of the group
changed; on a grid of ten seconds of data time when anything did; and each SNAPSHOT_US. It stands
until the next row of the group, as long as its emitter is alive. Carried: the figures of every
queue, and the groups; of a group with a row all queues are summed up anew, so no sum drifts.

Invariant: unknown is contagious: with the lag of one queue unknown that of the group is null, with
the reason; the sum over the others is a lower bound, in a column of its own, and each sum says how
many queues it covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MS_US, SECOND_US, Evaluation
from pipelines.base.time_units import moment_at
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import GROUP_AT, INT, LONG, STAMP, STRING, TIMESTAMP, as_declared
from pipelines.marts.groups.sums import (
    FIGURES,
    SEVERITY,
    SLOTS,
    SPAN_US,
    TRENDS,
    JudgedFigures,
    Sums,
    Values,
    change_reasons,
    courses,
    drain_ms,
    known_of,
    most_of,
    recent_changes,
    retained_until,
    slot_of,
    sum_of,
    unknown_reasons,
)
from pipelines.marts.groups.unacknowledged import CARRIED, GroupKey, Unacknowledged
from pipelines.marts.judging.arrivals import (
    HORIZONS,
    Grid,
    grids_by_emitter,
    horizons_after,
    segments,
    shipped_by_emitter,
)
from pipelines.marts.judging.judged_rows import PERIOD_US
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_column, as_run, numbers, places
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import with_rows
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.judging.rules import time_lag_us
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.keys import positions_of
from pipelines.marts.mart import Given, GoldTable, Made, Positions, mart
from pipelines.marts.polled import NAME as POLLED
from pipelines.marts.polled import OBSERVED, errors_ms
from pipelines.sentences import groups as sentences

GROUP_STATE: Final = GoldTable(
    "group_state",
    "group, broker and evaluation tick at which its state changed (at least each 10 minutes)",
    (
        *GROUP_AT,
        must(
            "state",
            STRING,
            "worst queue: OK, CATCHING_UP, PAUSED, SLOW, STALLED, STOPPED, REWOUND, NO_OFFSET, "
            "DATA_LOST, "
            "BROADCAST or UNKNOWN; STALLED is a POP group that acknowledges nothing, too; GONE: it "
            "has no queue here any more",
        ),
        must("reason", STRING, "the state in words, naming queue and figures"),
        Column(
            "lag_messages",
            LONG,
            "sum over all its queues; null when the lag of one of them is unknown",
            rests_on=("lag_at_least_messages",),
        ),
        Column(
            "time_lag_ms",
            LONG,
            "largest over all its queues; null when that of one of them is unknown",
            rests_on=("time_lag_at_least_ms",),
        ),
        must("queues", INT, "queues of the group on this broker"),
        must("queues_known", INT, "of these, queues whose lag is known"),
        must("queues_not_ok", INT, "of these, queues whose state is not OK"),
        Column("members", INT, "clients of the group; null when not known"),
        Column(
            "trend",
            STRING,
            "GROWING, STEADY or SHRINKING of the messages that are unfinished",
            rests_on=("lag_change_per_hour",),
        ),
        *STAMP,
        Column(
            "unfinished_messages",
            LONG,
            "of lag_messages those that no client says it has finished. Equal to it for clients "
            "that say nothing but their offsets: what is pulled is not finished; null when that of "
            "one queue is unknown",
            rests_on=("lag_messages",),
        ),
        Column(
            "lag_change_per_hour",
            LONG,
            "messages an hour by which unfinished_messages changes, summed up over all queues for "
            "one span: courses where each is certain, else the last minute; null as trend, and "
            "when one queue is unknown",
            rests_on=("unfinished_messages",),
        ),
        Column(
            "drain_time_ms",
            LONG,
            "time until the last queue that catches up has done so, at its rate; null when none "
            "does",
            rests_on=("lag_change_per_hour",),
        ),
        Column(
            "retained_until",
            TIMESTAMP,
            "when the first queue that falls behind loses unread messages, at its rate; null when "
            "none does, or when its queue has deleted nothing yet",
            rests_on=("lag_at_least_messages",),
        ),
        Column(
            "provenance",
            STRING,
            "OBSERVED: polled, for its broker is watched from outside; null: reported",
        ),
        Column(
            "error_ms",
            LONG,
            "how far the moments of this row may be off: it was polled so often; null: reported",
        ),
        Column(
            "lag_at_least_messages",
            LONG,
            "sum over the queues whose lag is known: the group is behind by this or more. Equal to "
            "lag_messages when all are; null when none is",
        ),
        Column(
            "time_lag_at_least_ms",
            LONG,
            "largest over the queues whose time lag is known, as lag_at_least_messages",
        ),
        Column(
            "unknown_reason",
            STRING,
            "why lag_messages is null: NO_OFFSET, BROADCAST or BEYOND_END of some queues; of all "
            "of them EMITTER_SILENT, SPOOL_LOSS, ...",
        ),
        Column(
            "unacknowledged_since",
            TIMESTAMP,
            "since when a group that reads by POP is handed messages and acknowledges none; null "
            "where it acknowledges, where that is unknown, and of all other groups",
        ),
        Column(
            "trend_unknown_reason",
            STRING,
            "why trend is null: QUEUE_UNKNOWN, JUMPED (an offset fell, or unread messages were "
            "deleted, within the last minute) or TOO_EARLY",
        ),
    ),
    ("cluster", "broker", "group", "observed_at", "emitter"),
    on_ticks="true",
)

SNAPSHOT_US: Final = 600 * SECOND_US
"""Every group is reported at least this often, so that a reader need not look back further."""
GONE: Final = "GONE"
"""Not a state of a group: it has none here any more."""

GROUP_KEY: Final = ("cluster", "broker", "emitter", "group")
_PAST: Final = tuple(f"open_{slot}" for slot in range(SLOTS))
GROUPS: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in GROUP_KEY),
        ("is_changed", pa.bool_()),
        *((name, pa.int64()) for name in ("open", *_PAST)),
    ]
)
"""is_changed: since the group was reported last. open: unfinished messages of all its queues, null
when those of one are unknown; open_…: the same at the last moments of the grid, by `slot_of`.
"""
QUEUES: Final = pa.schema(
    [("group_number", pa.int32()), ("topic", KEY_TEXT), ("queue_id", pa.int32())]
)

_FIGURES: Final = (
    *("lag_messages", "time_lag_ms", "members"),
    *("unfinished_messages", "lag_change_per_hour", "drain_time_ms", "retained_until"),
    *("lag_at_least_messages", "time_lag_at_least_ms"),
)
"""Columns that are null in the row of a group of which nothing can be summed up."""

Unknown = list[tuple[str, str]]
"""Emitters of which nothing is known from a tick on, and why."""


@dataclass(slots=True)
class _Known:
    """Groups and queues of the cycle."""

    groups: pa.Table
    queues: pa.Table
    group_of: Positions
    emitter_of: Positions
    """Per group the number of its emitter."""
    emitters: list[str]
    figures: dict[str, Values]
    is_changed: Flags
    open: Positions
    """Per group its unfinished messages, UNKNOWN when those of one queue are."""
    past: Sums
    """The same at the last moments of the grid."""
    pops: Unacknowledged

    def number_of(self, key: GroupKey) -> int | None:
        """The number of a POP group; None when none of its queues is known."""
        if self._numbers is None:
            emitters, names = (self.groups[one].to_pylist() for one in ("emitter", "group"))
            self._numbers = {key: at for at, key in enumerate(zip(emitters, names, strict=True))}
        return self._numbers.get(key)

    _numbers: dict[GroupKey, int] | None = None


def group_state(given: Given) -> Made:
    """One row per group, broker and tick at which it is reported."""
    shipped = shipped_by_emitter(given.state["horizons"], given.facts["shipments"])
    ticks = given.facts[TICKS]
    grids = grids_by_emitter(ticks)
    marks = given.facts["pop_watermarks"]
    known = _known(given, Unacknowledged(given.state, marks, shipped=shipped, grids=grids))
    judged = given.facts[JUDGED_QUEUES]
    rows = JudgedFigures(judged)
    unknown = _unknown_from(ticks)
    parts = []
    for tick_us, runs in _ticks(known.emitters, grids, unknown):
        for emitter, why in unknown.get(tick_us, ()):
            part = _unknown(known, emitter, why, tick_us)
            if part is not None:
                parts.append(part)
        turned, ended = _take(known, rows, tick_us)
        _turn_pops(known, turned, tick_us, runs, evaluation=given.evaluation)
        if len(ended):
            parts.append(_gone(known, ended, tick_us))
        emitted = _is_emitted(known, turned, tick_us, runs)
        if emitted.any():
            known.is_changed &= ~emitted
            part = _summed(known, emitted, tick_us, runs, evaluation=given.evaluation)
            if part is not None:
                parts.append(part)
        if tick_us % PERIOD_US == 0:
            has_tick = (runs != UNKNOWN)[known.emitter_of]
            known.past[slot_of(tick_us)][has_tick] = known.open[has_tick]
    made = pa.concat_tables(parts) if parts else MART.none
    carried = {**_carried(known), "horizons": horizons_after(shipped)}
    return Made(_with_errors(made, given.facts[POLLED]), carried)


def _with_errors(made: pa.Table, periods: pa.Table) -> pa.Table:
    """The rows with how far their moments may be off."""
    if not periods.num_rows or not made.num_rows:
        return made
    at_us = pc.cast(made["observed_at"], pa.int64())
    rows = pa.table({"emitter": made["emitter"], "event_us": at_us})
    error_ms = errors_ms(rows, periods, by="event_us")
    is_polled = pa.array(error_ms != UNKNOWN)
    columns = {
        "provenance": pc.if_else(is_polled, OBSERVED, pa.scalar(None, pa.string())),
        "error_ms": as_column(error_ms),
    }
    for name, column in columns.items():
        place = made.schema.get_field_index(name)
        made = made.set_column(place, made.schema.field(name), column)
    return made


def _known(given: Given, pops: Unacknowledged) -> _Known:
    """What is carried, with the groups and queues that are new."""
    groups, queues = given.state["groups"], given.state["queues"]
    facts = given.facts["group_watermarks"]
    first = np.flatnonzero(np.asarray(given.facts[QUEUE_NUMBERS]["is_first"]))
    columns = given.state["figures"]
    figures = {name: _carried_figure(columns[name]) for name in FIGURES.names}
    is_changed = np.asarray(groups["is_changed"]).astype(bool)
    sums = np.stack([numbers(groups[name]) for name in ("open", *_PAST)])
    if len(first):
        new = facts.select([*GROUP_KEY, "topic", "queue_id"]).take(pa.array(first))
        number, new_groups = positions_of(groups, new, GROUP_KEY)
        flagged = new.append_column("is_changed", pa.array(np.zeros(len(first), bool)))
        for name in ("open", *_PAST):
            flagged = flagged.append_column(name, pa.nulls(len(first), pa.int64()))
        groups = with_rows(groups, flagged, new_groups)
        is_changed = np.concatenate([is_changed, np.zeros(len(new_groups), bool)])
        sums = np.concatenate([sums, np.full((len(sums), len(new_groups)), UNKNOWN)], axis=1)
        of_group = new.append_column("group_number", pa.array(number.astype(np.int32)))
        queues = with_rows(queues, of_group, np.arange(len(first)))
        for name, before in figures.items():
            start = UNKNOWN if before.dtype == np.int64 else 0
            figures[name] = np.concatenate([before, np.full(len(first), start, before.dtype)])
    emitters: dict[str, int] = {}
    emitter_of = np.zeros(groups.num_rows, np.int64)
    for name, begin, end in segments(groups["emitter"]):
        emitter_of[begin:end] = emitters.setdefault(name, len(emitters))
    group_of = np.asarray(queues["group_number"])
    known = (group_of, emitter_of, list(emitters), figures, is_changed)
    return _Known(groups, queues, *known, sums[0].copy(), sums[1:].copy(), pops)


def _carried_figure(column: pa.ChunkedArray) -> Values:
    """A figure of all queues; null: an earlier version did not carry it."""
    start = UNKNOWN if column.type == pa.int64() else False if column.type == pa.bool_() else 0
    return np.asarray(pc.fill_null(column, pa.scalar(start, column.type))).copy()


def _ticks(
    emitters: list[str], grids: Mapping[str, Grid], unknown: Mapping[int, Unknown]
) -> list[tuple[int, Positions]]:
    """Every tick, with the first tick of the run it belongs to per emitter; UNKNOWN for those that
    have none.
    """
    runs_at = {tick_us: np.full(len(emitters), UNKNOWN) for tick_us in unknown}
    for code, name in enumerate(emitters):
        if name not in grids:
            continue
        for tick_us, run in zip(grids[name].ticks.tolist(), grids[name].runs.tolist(), strict=True):
            runs_at.setdefault(tick_us, np.full(len(emitters), UNKNOWN))[code] = run
    return sorted(runs_at.items(), key=lambda one: one[0])


def _unknown_from(ticks: pa.Table) -> dict[int, Unknown]:
    """Ticks from which on nothing is known of an emitter."""
    reasons: dict[int, Unknown] = {}
    for row in ticks.filter(pc.invert(ticks["is_alive"])).to_pylist():
        reasons.setdefault(row["tick_us"], []).append((row["emitter"], row["why_unknown"]))
    return reasons


def _unknown(known: _Known, emitter: str, why: str, tick_us: int) -> pa.Table | None:
    """Rows that say of every group of an emitter that nothing is known, and why."""
    if emitter not in known.emitters:
        return None
    code = known.emitters.index(emitter)
    is_meant = (known.emitter_of == code)[known.group_of] & known.figures["is_evaluated"]
    chosen = np.flatnonzero(is_meant)
    if not len(chosen):
        return None
    groups, of_queue = np.unique(known.group_of[chosen], return_inverse=True)
    count = len(groups)
    known.is_changed[groups] = False
    columns = {
        "state": pa.repeat("UNKNOWN", count),
        "reason": pa.array(sentences.nothing_known(_named(known, groups), WORDS[why])),
        "unknown_reason": pa.repeat(why, count),
        "queues": pa.array(np.bincount(of_queue, minlength=count)),
        "seq": pa.array(most_of(of_queue, count, known.figures["seq"][chosen])),
    }
    return _without_figures(known, groups, columns, tick_us)


def _gone(known: _Known, ended: Positions, tick_us: int) -> pa.Table:
    """Rows that say of groups of which a queue has ended that none is left."""
    is_left = np.zeros(known.groups.num_rows, bool)
    is_left[known.group_of[known.figures["is_evaluated"]]] = True
    groups = ended[~is_left[ended]]
    count = len(groups)
    seq = most_of(known.group_of, len(is_left), known.figures["seq"])
    columns = {
        "state": pa.repeat(GONE, count),
        "reason": pa.array([sentences.gone(*one) for one in _named(known, groups)], pa.string()),
        "queues": pa.array(np.zeros(count, np.int64)),
        "seq": pa.array(seq[groups]),
    }
    return _without_figures(known, groups, columns, tick_us)


def _without_figures(
    known: _Known, groups: Positions, columns: Mapping[str, pa.Array], tick_us: int
) -> pa.Table:
    """Rows of groups of which there is nothing to sum up."""
    count = len(groups)
    keys = known.groups.take(pa.array(groups))
    nothing = pa.nulls(count, pa.int64())
    none = pa.array(np.zeros(count, np.int64))
    made = {
        **dict(zip(keys.schema.names, keys.columns, strict=True)),
        **dict.fromkeys(_FIGURES, nothing),
        "unknown_reason": pa.nulls(count, pa.string()),
        "unacknowledged_since": nothing,
        **dict.fromkeys(("queues_known", "queues_not_ok"), none),
        **columns,
        **dict.fromkeys(("trend", "trend_unknown_reason"), pa.nulls(count, pa.string())),
        **_untold(count),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    return as_declared(made, GROUP_STATE)


def _untold(count: int) -> dict[str, pa.Array]:
    """How far moments may be off: as of what was reported."""
    return {"provenance": pa.nulls(count, pa.string()), "error_ms": pa.nulls(count, pa.int64())}


def _take(known: _Known, rows: JudgedFigures, tick_us: int) -> tuple[Flags, Positions]:
    """The judged rows of a tick into the figures; which groups have a queue that turned, and which
    one that has ended?
    """
    turned = np.zeros(known.groups.num_rows, bool)
    batch = rows.by_tick.get(tick_us)
    if batch is None:
        return turned, np.empty(0, np.int64)
    run = as_run(batch)
    number = rows.number[run]
    at = as_run(number)
    for name, column in known.figures.items():
        column[at] = rows.figures[name][run]
    groups = known.group_of[number]
    known.is_changed[groups] = True
    turned[groups[rows.turned[batch]]] = True
    jumped = groups[rows.jumps[batch]]
    known.open[jumped], known.past[:, jumped] = UNKNOWN, UNKNOWN
    return turned, np.unique(groups[rows.ends[batch]])


def _turn_pops(
    known: _Known, turned: Flags, tick_us: int, runs: Positions, *, evaluation: Evaluation
) -> None:
    """Into `turned`: POP groups that cease to acknowledge, or do so again."""
    if not known.pops:
        return
    alive = frozenset(
        name for name, run in zip(known.emitters, runs, strict=True) if run != UNKNOWN
    )
    for key in known.pops.turned(tick_us, alive, evaluation):
        number = known.number_of(key)
        if number is not None:
            turned[number] = True


def _is_emitted(known: _Known, turned: Flags, tick_us: int, runs: Positions) -> Flags:
    # Behind a stretch of which nothing is known all groups are reported anew.
    turned |= (runs == tick_us)[known.emitter_of]
    if tick_us % SNAPSHOT_US == 0:
        emitted = np.ones(len(turned), bool)
    elif tick_us % PERIOD_US == 0:
        emitted = turned | known.is_changed
    else:
        emitted = turned
    if (runs == UNKNOWN).any():
        emitted = emitted & (runs != UNKNOWN)[known.emitter_of]
    return emitted


def _summed(
    known: _Known, emitted: Flags, tick_us: int, runs: Positions, *, evaluation: Evaluation
) -> pa.Table | None:
    """Rows of the groups that are reported at a tick."""
    chosen = np.flatnonzero(emitted[known.group_of] & known.figures["is_evaluated"])
    if not len(chosen):
        return None
    of_group = known.group_of[chosen]
    has_queue = np.zeros(len(emitted), bool)
    has_queue[of_group] = True
    groups = np.flatnonzero(has_queue)
    rank = np.cumsum(has_queue) - 1
    code, count = rank[of_group], len(groups)
    at = places(chosen, len(known.group_of))
    figures = {name: column[at] for name, column in known.figures.items()}
    lag, queues_known = sum_of(code, count, figures["lag"])
    unfinished, open_known = sum_of(code, count, figures["open"])
    waited_us = time_lag_us(tick_us, figures["waiting_since_us"])
    time_lag_ms = np.where(waited_us == UNKNOWN, UNKNOWN, waited_us // MS_US)
    behind_ms, times_known = most_of(code, count, time_lag_ms), known_of(code, count, time_lag_ms)
    queues = np.bincount(code, minlength=count)
    complete_from = np.maximum(
        most_of(code, count, figures["complete_from_us"]), runs[known.emitter_of[groups]]
    )
    whole = np.where(open_known == queues, unfinished, UNKNOWN)
    known.open[emitted] = UNKNOWN
    known.open[groups] = whole
    recent = recent_changes(known.past[:, groups], whole, tick_us)
    is_young = tick_us - complete_from < SPAN_US + PERIOD_US
    recent[is_young | (PERIOD_US % evaluation.slide_us != 0)] = UNKNOWN
    change, trend = courses(code, count, figures, recent, tick_us=tick_us, evaluation=evaluation)
    change[tick_us - complete_from < evaluation.window_us] = UNKNOWN
    not_ok = np.bincount(code[figures["is_bad"]], minlength=count)
    worst = most_of(code, count, figures["severity"].astype(np.int64))
    since_us, came_back = _without_acknowledgements(known, groups, worst)
    summed = {
        "state": pa.array(SEVERITY).take(pa.array(worst)),
        "lag_messages": as_column(np.where(queues_known == queues, lag, UNKNOWN)),
        "time_lag_ms": as_column(np.where(times_known == queues, behind_ms, UNKNOWN)),
        "lag_at_least_messages": as_column(np.where(queues_known > 0, lag, UNKNOWN)),
        "time_lag_at_least_ms": as_column(behind_ms),
        "unknown_reason": unknown_reasons(code, count, figures),
        "unacknowledged_since": as_column(since_us),
        "queues": pa.array(queues),
        "queues_known": pa.array(queues_known),
        "queues_behind": pa.array(np.bincount(code[figures["lag"] > 0], minlength=count)),
        "queues_not_ok": pa.array(not_ok),
        "members": as_column(most_of(code, count, figures["members"])),
        "trend": pa.array(TRENDS).take(pa.array(trend, mask=change == UNKNOWN)),
        "unfinished_messages": as_column(whole),
        "trend_unknown_reason": change_reasons(code, figures, change, tick_us),
        "lag_change_per_hour": as_column(change),
        "drain_time_ms": as_column(most_of(code, count, drain_ms(figures, evaluation))),
        "retained_until": as_column(retained_until(code, count, figures, tick_us)),
        "seq": pa.array(most_of(code, count, figures["seq"])),
        **_untold(count),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    worst_queues = {
        group: _worst(known, queue, tick_us)
        for group, queue in _worst_queues(known, code, worst, chosen, tick_us=tick_us).items()
    }
    reasons = sentences.reasons(_named(known, groups), summed, worst_queues, came_back)
    keys = known.groups.take(pa.array(groups))
    key = dict(zip(keys.schema.names, keys.columns, strict=True))
    summed.pop("queues_behind")
    return as_declared({**key, **summed, "reason": pa.array(reasons, pa.string())}, GROUP_STATE)


def _named(known: _Known, groups: Positions) -> list[tuple[str, str]]:
    """Names of groups and their brokers."""
    keys = known.groups.select(["group", "broker"]).take(pa.array(groups))
    names, brokers = (pc.cast(column, pa.string()).to_pylist() for column in keys.columns)
    return list(zip(names, brokers, strict=True))


def _without_acknowledgements(
    known: _Known, groups: Positions, worst: Positions
) -> tuple[Positions, dict[int, sentences.CameBack]]:
    """Since when each of these groups is handed messages and acknowledges none; UNKNOWN of others.
    Those are STALLED (into `worst`), or UNKNOWN where nobody knows what is acknowledged, if nothing
    worse is true of them: what came back.
    """
    since_us = np.full(len(groups), UNKNOWN)
    said: dict[int, sentences.CameBack] = {}
    for key, one in known.pops.shown().items():
        rank = SEVERITY.index("STALLED" if one.unknown_reason is None else "UNKNOWN")
        for place in np.flatnonzero(groups == known.number_of(key)).tolist():
            if one.unknown_reason is None:
                since_us[place] = one.since_us
            if worst[place] < rank:
                worst[place] = rank
                since = moment_at(one.since_us)
                said[place] = sentences.CameBack(one.expired, since, one.unknown_reason)
    return since_us, said


def _worst_queues(
    known: _Known, code: Positions, worst: Positions, chosen: Positions, *, tick_us: int
) -> dict[int, int]:
    """Per reported group whose state is not OK, the number of its worst queue: the most behind, in
    messages, then in time; then by its name.
    """
    severity, of_group = known.figures["severity"][chosen], worst[code]
    rows = np.flatnonzero((severity == of_group) & (of_group > 0))
    if not len(rows):
        return {}
    waited = time_lag_us(tick_us, known.figures["waiting_since_us"][chosen[rows]])
    lag = known.figures["lag"][chosen[rows]]
    queues = known.queues.select(["topic", "queue_id"]).take(pa.array(chosen[rows]))
    topics = pc.rank(pc.cast(queues["topic"], pa.string()), tiebreaker="dense")
    order = np.lexsort((np.asarray(queues["queue_id"]), topics, waited, lag, code[rows]))
    ends = np.flatnonzero(np.diff(code[rows][order], append=-1))
    last = rows[order[ends]]
    return dict(zip(code[last].tolist(), chosen[last].tolist(), strict=True))


def _worst(known: _Known, queue: int, tick_us: int) -> sentences.WorstQueue:
    """What is known of one queue."""
    topic, queue_id = (known.queues[name][queue].as_py() for name in ("topic", "queue_id"))
    figures = {
        name: None if (value := int(known.figures[name][queue])) == UNKNOWN else value
        for name in ("lag", "open", "growth", "retained")
    }
    is_beyond, is_unnamed = (bool(known.figures[one][queue]) for one in ("is_beyond", "is_unnamed"))
    waited_us = time_lag_us(tick_us, known.figures["waiting_since_us"][[queue]])[0]
    is_silent = known.figures["is_silent"][queue] and waited_us != UNKNOWN
    silent_ms = int(waited_us) // MS_US if is_silent else None
    return sentences.WorstQueue(
        topic, queue_id, **figures, is_beyond=is_beyond, is_unnamed=is_unnamed, silent_ms=silent_ms
    )


def _carried(known: _Known) -> dict[str, pa.Table]:
    groups = known.groups
    sums = (known.is_changed, known.open, *known.past)
    for name, column in zip(("is_changed", "open", *_PAST), sums, strict=True):
        place = groups.schema.get_field_index(name)
        made = pa.array(column) if column.dtype == bool else as_column(column)
        groups = groups.set_column(place, GROUPS.field(name), made)
    columns = [pa.array(known.figures[name]) for name in FIGURES.names]
    return {
        **known.pops.state(),
        "groups": groups,
        "queues": known.queues,
        "figures": pa.table(columns, schema=FIGURES),
    }


MART = mart(
    GROUP_STATE,
    group_state,
    reads=(
        *("group_watermarks", "pop_watermarks", "shipments"),
        *(QUEUE_NUMBERS, JUDGED_QUEUES, TICKS, POLLED),
    ),
    carries={
        "groups": GROUPS,
        "queues": QUEUES,
        "figures": FIGURES,
        **CARRIED,
        "horizons": HORIZONS,
    },
    wakes=("group_watermarks", "pop_watermarks", JUDGED_QUEUES, TICKS),
)
