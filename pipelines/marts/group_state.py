"""State of a group on a broker: its worst queue, in words, with sums that say how many queues they
cover.

Place in the walk: judged rows → gold group_state. A row when the state of a queue of the group
changed; on a grid of ten seconds of data time when anything of the group did; and every group each
SNAPSHOT_US. What was told stands until the next row of the group, as long as its emitter is alive.

Carried: the figures of every queue, by its number, and the groups. Of a group that is told all
queues are summed up anew, at a few nanoseconds each: no sum drifts. Invariant: an unknown lag is
left out of the sum and counted in queues - queues_known; it is never taken as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.marts.columns import (
    BROKER,
    CLUSTER,
    EMITTER,
    GROUP,
    INT,
    LONG,
    OBSERVED_AT,
    OBSERVED_DATE,
    SEQ,
    STRING,
    TIMESTAMP,
)
from pipelines.marts.consumer_lag import STEADY_PER_MINUTE
from pipelines.marts.declaring import as_declared
from pipelines.marts.judging.arrivals import Grid, batches, grids_by_emitter, segments
from pipelines.marts.judging.judged_rows import PERIOD_US
from pipelines.marts.judging.packed import NEVER, UNKNOWN, Flags, as_column, numbers, truncated
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import with_rows
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.judging.rules import time_lag_us
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.keys import positions_of
from pipelines.marts.mart import KEY_TEXT, Given, GoldTable, Made, Positions, coded, mart
from pipelines.marts.polled import NAME as POLLED
from pipelines.marts.polled import OBSERVED, errors_ms
from pipelines.marts.sentences import deleted_unread, messages, rate
from pipelines.settings import MS_US, SECOND_US, Evaluation
from pipelines.wording import duration

GROUP_STATE: Final = GoldTable(
    "group_state",
    "group, broker and evaluation tick at which its state changed (at least each 10 minutes)",
    (
        OBSERVED_AT,
        CLUSTER,
        BROKER,
        GROUP,
        must(
            "state",
            STRING,
            "worst queue: OK, CATCHING_UP, PAUSED, SLOW, STALLED, STOPPED, REWOUND, NO_OFFSET, "
            "DATA_LOST, "
            "BROADCAST or UNKNOWN; GONE: it has no queue here any more",
        ),
        must("reason", STRING, "the state in words, naming queue and figures"),
        Column("lag_messages", LONG, "sum over queues whose lag is known; null when none is"),
        Column(
            "time_lag_ms", LONG, "largest over queues whose time lag is known; null when none is"
        ),
        must("queues", INT, "queues of the group on this broker"),
        must("queues_known", INT, "of these, queues whose lag is known"),
        must("queues_not_ok", INT, "of these, queues whose state is not OK"),
        Column("members", INT, "clients of the group; null when not told"),
        Column("trend", STRING, "GROWING, STEADY or SHRINKING of the messages that are unfinished"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
        Column(
            "unfinished_messages",
            LONG,
            "of lag_messages those that no client says it has finished; what is judged. Equal to "
            "it for clients that tell nothing and report their offsets often",
        ),
        Column(
            "lag_change_per_hour",
            LONG,
            "messages an hour by which unfinished_messages changes: certain courses of queues, and "
            "the last window's where none is known yet; null as trend",
        ),
        Column(
            "drain_time_ms",
            LONG,
            "time until the last queue that catches up has done so, at its rate; null when none "
            "does",
        ),
        Column(
            "retained_until",
            TIMESTAMP,
            "when the first queue that falls behind loses unread messages, at its rate; null when "
            "none does, or when its queue has deleted nothing yet",
        ),
        Column(
            "provenance",
            STRING,
            "OBSERVED: polled and not told, its broker is watched from outside; null: told",
        ),
        Column(
            "error_ms",
            LONG,
            "how far the moments of this row may be off: it was polled so often; null when told",
        ),
    ),
    ("cluster", "broker", "group", "observed_at"),
    on_ticks="true",
)

SNAPSHOT_US: Final = 600 * SECOND_US
"""Every group is told at least this often, so that a reader need not look back further."""
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
GONE: Final = "GONE"
"""Not a state of a group: it has none here any more."""
_CALM: Final = tuple(SEVERITY.index(state) for state in ("BROADCAST", "CATCHING_UP", "UNKNOWN"))
"""Shown without a rule that fires."""
_CATCHING_UP, _UNKNOWN = SEVERITY.index("CATCHING_UP"), SEVERITY.index("UNKNOWN")

GROUP_KEY: Final = ("cluster", "broker", "emitter", "group")
GROUPS: Final = pa.schema([*((name, KEY_TEXT) for name in GROUP_KEY), ("is_changed", pa.bool_())])
"""is_changed: since the group was told last."""
QUEUES: Final = pa.schema(
    [("group_number", pa.int32()), ("topic", KEY_TEXT), ("queue_id", pa.int32())]
)
_FIGURE_TYPES: Final = {
    "is_evaluated": pa.bool_(),
    "is_bad": pa.bool_(),
    "is_beyond": pa.bool_(),
    "lag": pa.int64(),
    "open": pa.int64(),
    "open_before": pa.int64(),
    "growth": pa.int64(),
    "retained": pa.int64(),
    "waiting_since_us": pa.int64(),
    "members": pa.int64(),
    "seq": pa.int64(),
    "complete_from_us": pa.int64(),
}
FIGURES: Final = pa.schema(
    [coded("severity", SEVERITY), *((name, kind) for name, kind in _FIGURE_TYPES.items())]
)
"""Of every queue, by its number, as judged last; UNKNOWN stands for null. is_beyond: its consume
offset lies beyond its end.
"""

_FIGURES_ADDED: Final = (
    *("unfinished_messages", "lag_change_per_hour"),
    *("drain_time_ms", "retained_until"),
)

Unknown = list[tuple[str, str]]
"""Emitters of which nothing is known from a tick on, and why."""
Values = np.ndarray[tuple[int], np.dtype[Any]]


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


def group_state(given: Given) -> Made:
    """One row per group, broker and tick at which it is told."""
    known = _known(given)
    judged = given.facts[JUDGED_QUEUES]
    rows = _Rows(judged)
    ticks = given.facts[TICKS]
    unknown = _unknown_from(ticks)
    parts = []
    for tick_us, runs in _ticks(known.emitters, grids_by_emitter(ticks), unknown):
        for emitter, why in unknown.get(tick_us, ()):
            part = _unknown(known, emitter, why, tick_us)
            if part is not None:
                parts.append(part)
        turned, ended = _take(known, rows, tick_us)
        if len(ended):
            parts.append(_gone(known, ended, tick_us))
        told = _is_told(known, turned, tick_us, runs)
        if told.any():
            known.is_changed &= ~told
            part = _summed(known, told, tick_us, runs, evaluation=given.evaluation)
            if part is not None:
                parts.append(part)
    made = pa.concat_tables(parts) if parts else MART.none
    return Made(_with_errors(made, given.facts[POLLED]), _carried(known))


def _with_errors(made: pa.Table, periods: pa.Table) -> pa.Table:
    """The rows with how far their moments may be off."""
    if not periods.num_rows or not made.num_rows:
        return made
    at_us = pc.cast(made["observed_at"], pa.int64())
    rows = pa.table({"emitter": made["emitter"], "event_us": at_us})
    error_ms = errors_ms(rows, periods, by="event_us")
    is_polled = pa.array(error_ms != UNKNOWN)
    told = {
        "provenance": pc.if_else(is_polled, OBSERVED, pa.scalar(None, pa.string())),
        "error_ms": as_column(error_ms),
    }
    for name, column in told.items():
        place = made.schema.get_field_index(name)
        made = made.set_column(place, made.schema.field(name), column)
    return made


class _Rows:
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
            "lag": lag,
        }
        for name in _NUMBERS:
            self.figures[name] = numbers(judged[name])
        is_unseen = (lag == UNKNOWN) & (self.figures["open"] == UNKNOWN)
        ranks = _ranks(rules)
        self.figures["severity"] = _severities(ranks, is_bad, is_unseen)
        self.figures["is_beyond"] = is_unseen & (ranks == SEVERITY.index("DATA_LOST"))


_NUMBERS: Final = (
    *("open", "open_before", "growth", "retained"),
    *("waiting_since_us", "members", "seq", "complete_from_us"),
)


def _ranks(rules: pa.ChunkedArray) -> Values:
    parts = []
    for chunk in rules.chunks:
        ranks = pc.index_in(chunk.dictionary, value_set=pa.array(SEVERITY)).cast(pa.int8())
        parts.append(np.asarray(ranks)[np.asarray(chunk.indices)])
    return np.concatenate(parts) if parts else np.empty(0, np.int8)


def _severities(rank: Values, is_bad: Flags, is_unseen: Flags) -> Values:
    calm = np.where(is_unseen, _UNKNOWN, 0)
    for one in _CALM:
        calm[rank == one] = one
    return np.where(is_bad & (rank > 0), rank, calm).astype(np.int8)


def _known(given: Given) -> _Known:
    """What is carried, with the groups and queues that are new."""
    groups, queues = given.state["groups"], given.state["queues"]
    facts = given.facts["group_watermarks"]
    first = np.flatnonzero(np.asarray(given.facts[QUEUE_NUMBERS]["is_first"]))
    columns = given.state["figures"]
    figures = {name: np.asarray(columns[name]).copy() for name in FIGURES.names}
    is_changed = np.asarray(groups["is_changed"]).astype(bool)
    if len(first):
        new = facts.select([*GROUP_KEY, "topic", "queue_id"]).take(pa.array(first))
        number, new_groups = positions_of(groups, new, GROUP_KEY)
        flagged = new.append_column("is_changed", pa.array(np.zeros(len(first), bool)))
        groups = with_rows(groups, flagged, new_groups)
        is_changed = np.concatenate([is_changed, np.zeros(len(new_groups), bool)])
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
    return _Known(groups, queues, group_of, emitter_of, list(emitters), figures, is_changed)


def _ticks(
    emitters: list[str], grids: Mapping[str, Grid], unknown: Mapping[int, Unknown]
) -> list[tuple[int, Positions]]:
    """Every tick, with the first tick of the run it belongs to per emitter; UNKNOWN for those that
    have none.
    """
    told = {tick_us: np.full(len(emitters), UNKNOWN) for tick_us in unknown}
    for code, name in enumerate(emitters):
        if name not in grids:
            continue
        for tick_us, run in zip(grids[name].ticks.tolist(), grids[name].runs.tolist(), strict=True):
            told.setdefault(tick_us, np.full(len(emitters), UNKNOWN))[code] = run
    return sorted(told.items(), key=lambda one: one[0])


def _unknown_from(ticks: pa.Table) -> dict[int, Unknown]:
    """Ticks from which on nothing is known of an emitter."""
    told: dict[int, Unknown] = {}
    for row in ticks.filter(pc.invert(ticks["is_alive"])).to_pylist():
        told.setdefault(row["tick_us"], []).append((row["emitter"], row["why_unknown"]))
    return told


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
        "reason": pa.repeat(f"unknown: {WORDS[why]}", count),
        "queues": pa.array(np.bincount(of_queue, minlength=count)),
        "seq": pa.array(_most(of_queue, count, known.figures["seq"][chosen])),
    }
    return _without_figures(known, groups, columns, tick_us)


def _gone(known: _Known, ended: Positions, tick_us: int) -> pa.Table:
    """Rows that say of groups of which a queue has ended that none is left."""
    is_left = np.zeros(known.groups.num_rows, bool)
    is_left[known.group_of[known.figures["is_evaluated"]]] = True
    groups = ended[~is_left[ended]]
    count = len(groups)
    seq = _most(known.group_of, len(is_left), known.figures["seq"])
    columns = {
        "state": pa.repeat(GONE, count),
        "reason": pa.repeat("gone: it has no queue here any more", count),
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
        **dict.fromkeys(("lag_messages", "time_lag_ms", "members", *_FIGURES_ADDED), nothing),
        **dict.fromkeys(("queues_known", "queues_not_ok"), none),
        **columns,
        "trend": pa.nulls(count, pa.string()),
        **_untold(count),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    return as_declared(made, GROUP_STATE)


def _untold(count: int) -> dict[str, pa.Array]:
    """How far moments may be off: as of what was told."""
    return {"provenance": pa.nulls(count, pa.string()), "error_ms": pa.nulls(count, pa.int64())}


def _take(known: _Known, rows: _Rows, tick_us: int) -> tuple[Flags, Positions]:
    """The judged rows of a tick into the figures; which groups have a queue that turned, and which
    one that has ended?
    """
    turned = np.zeros(known.groups.num_rows, bool)
    batch = rows.by_tick.get(tick_us)
    if batch is None:
        return turned, np.empty(0, np.int64)
    number = rows.number[batch]
    for name, column in known.figures.items():
        column[number] = rows.figures[name][batch]
    groups = known.group_of[number]
    known.is_changed[groups] = True
    turned[groups[rows.turned[batch]]] = True
    return turned, np.unique(groups[rows.ends[batch]])


def _is_told(known: _Known, turned: Flags, tick_us: int, runs: Positions) -> Flags:
    # Behind a stretch of which nothing is known all groups are told anew.
    turned |= (runs == tick_us)[known.emitter_of]
    if tick_us % SNAPSHOT_US == 0:
        told = np.ones(len(turned), bool)
    elif tick_us % PERIOD_US == 0:
        told = turned | known.is_changed
    else:
        told = turned
    if (runs == UNKNOWN).any():
        told = told & (runs != UNKNOWN)[known.emitter_of]
    return told


def _summed(
    known: _Known, told: Flags, tick_us: int, runs: Positions, *, evaluation: Evaluation
) -> pa.Table | None:
    """Rows of the groups that are told at a tick."""
    chosen = np.flatnonzero(told[known.group_of] & known.figures["is_evaluated"])
    if not len(chosen):
        return None
    of_group = known.group_of[chosen]
    has_queue = np.zeros(len(told), bool)
    has_queue[of_group] = True
    groups = np.flatnonzero(has_queue)
    rank = np.cumsum(has_queue) - 1
    code, count = rank[of_group], len(groups)
    figures = {name: column[chosen] for name, column in known.figures.items()}
    lag, queues_known = _sum(code, count, figures["lag"])
    unfinished, open_known = _sum(code, count, figures["open"])
    waited = _most(code, count, time_lag_us(tick_us, figures["waiting_since_us"]))
    complete_from = np.maximum(
        _most(code, count, figures["complete_from_us"]), runs[known.emitter_of[groups]]
    )
    change, trend = _courses(code, count, figures, evaluation)
    is_early = tick_us - complete_from < evaluation.window_us
    change[is_early] = UNKNOWN
    not_ok = np.bincount(code[figures["is_bad"]], minlength=count)
    queues = np.bincount(code, minlength=count)
    worst = _most(code, count, figures["severity"].astype(np.int64))
    summed = {
        "state": pa.array(SEVERITY).take(pa.array(worst)),
        "lag_messages": as_column(np.where(queues_known > 0, lag, UNKNOWN)),
        "time_lag_ms": as_column(np.where(waited == UNKNOWN, UNKNOWN, waited // MS_US)),
        "queues": pa.array(queues),
        "queues_known": pa.array(queues_known),
        "queues_not_ok": pa.array(not_ok),
        "members": as_column(_most(code, count, figures["members"])),
        "trend": pa.array(_TRENDS).take(pa.array(trend, mask=change == UNKNOWN)),
        "unfinished_messages": as_column(np.where(open_known > 0, unfinished, UNKNOWN)),
        "lag_change_per_hour": as_column(change),
        "drain_time_ms": as_column(
            _most(code, count, _drain_ms(figures, evaluation)),
        ),
        "retained_until": as_column(_retained_until(code, count, figures, tick_us)),
        "seq": pa.array(_most(code, count, figures["seq"])),
        **_untold(count),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    reason = _behind(summed).to_pylist()
    for group, queue in _worst_queues(known, code, worst, chosen, tick_us=tick_us).items():
        reason[group] = _reason(known, summed, group, queue, behind=reason[group])
    keys = known.groups.take(pa.array(groups))
    named = dict(zip(keys.schema.names, keys.columns, strict=True))
    return as_declared({**named, **summed, "reason": pa.array(reason, pa.string())}, GROUP_STATE)


_TRENDS: Final = ("GROWING", "STEADY", "SHRINKING")


def _courses(
    code: Positions, count: int, figures: Mapping[str, Values], evaluation: Evaluation
) -> tuple[Positions, Positions]:
    """By how many messages an hour what is open of each group changes, and the place of that in
    _TRENDS. Courses that are certain count whatever they are; changes over a window alone, where no
    course is known yet, must be more than STEADY_PER_MINUTE.
    """
    now, before, growth = figures["open"], figures["open_before"], figures["growth"]
    is_certain = growth != UNKNOWN
    has_window = ~is_certain & (now != UNKNOWN) & (before != UNKNOWN)
    moved = np.where(has_window, now - np.where(has_window, before, 0), 0)
    moved = truncated(moved * 3600, evaluation.window_ms // 1000)
    change, known = _sum(code, count, np.where(is_certain, growth, UNKNOWN))
    by_window, known_by_window = _sum(code, count, np.where(has_window, moved, UNKNOWN))
    total = change + by_window
    allowance = np.where(known_by_window > 0, STEADY_PER_MINUTE * 60, 0)
    place = np.select([np.abs(total) <= allowance, total > 0], [1, 0], 2)
    return np.where(known + known_by_window > 0, total, UNKNOWN), place


def _drain_ms(figures: Mapping[str, Values], evaluation: Evaluation) -> Positions:
    """Per queue that catches up the time until it has done so; UNKNOWN for all others."""
    left, before, growth = figures["open"], figures["open_before"], figures["growth"]
    is_certain = (growth != UNKNOWN) & (growth < 0)
    has_window = (before != UNKNOWN) & (left != UNKNOWN)
    fell = np.where(has_window, before, 0) - np.where(has_window, left, 0)
    fell = truncated(fell * 3600, evaluation.window_ms // 1000)
    per_hour = np.where(is_certain, -np.where(is_certain, growth, 0), fell)
    catches_up = (figures["severity"] == _CATCHING_UP) & (left != UNKNOWN) & (per_hour > 0)
    seconds = np.where(catches_up, left, 0) * 3600 // np.maximum(per_hour, 1)
    return np.where(catches_up, seconds * 1000, UNKNOWN)


def _retained_until(
    code: Positions, count: int, figures: Mapping[str, Values], tick_us: int
) -> Positions:
    """Per group the moment at which retention reaches what waits in the first of its queues."""
    retained, growth = figures["retained"], figures["growth"]
    is_known = (retained != UNKNOWN) & (growth > 0) & figures["is_bad"]
    hours = np.where(is_known, np.maximum(retained, 0), 0) * 3600 // np.maximum(growth, 1)
    first = np.full(count, NEVER)
    np.minimum.at(first, code[is_known], tick_us + hours[is_known] * SECOND_US)
    return np.where(first == NEVER, UNKNOWN, first)


def _sum(code: Positions, count: int, values: Positions) -> tuple[Positions, Positions]:
    """Sums of the known values, and how many are known."""
    is_known = values != UNKNOWN
    sums = np.zeros(count, np.int64)
    np.add.at(sums, code[is_known], values[is_known])
    return sums, np.bincount(code[is_known], minlength=count)


def _most(code: Positions, count: int, values: Positions) -> Positions:
    """The largest known value of each; UNKNOWN is smaller than all."""
    most = np.full(count, UNKNOWN)
    np.maximum.at(most, code, values)
    return most


def _behind(summed: Mapping[str, pa.Array]) -> pa.ChunkedArray:
    """What is said of a group of which nothing worse is to be said."""
    lag = pc.cast(summed["lag_messages"], pa.string())
    told = pc.if_else(
        pc.equal(lag, "1"), "1 message", pc.binary_join_element_wise(lag, "messages", " ")
    )
    told = pc.fill_null(told, messages(None))
    parts = (" behind on ", summed["queues_known"], " of ", summed["queues"], " queues")
    words = [one if isinstance(one, str) else pc.cast(one, pa.string()) for one in parts]
    unfinished = summed["unfinished_messages"]
    is_ahead = pc.fill_null(pc.less(unfinished, summed["lag_messages"]), False)
    ahead = pc.binary_join_element_wise(", ", pc.cast(unfinished, pa.string()), " unfinished", "")
    return pc.binary_join_element_wise(told, *words, pc.if_else(is_ahead, ahead, ""), "")


def _worst_queues(
    known: _Known, code: Positions, worst: Positions, chosen: Positions, *, tick_us: int
) -> dict[int, int]:
    """Per told group whose state is not OK, the number of its worst queue: the most behind, in
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


def _reason(
    known: _Known, summed: Mapping[str, pa.Array], group: int, queue: int, *, behind: str
) -> str:
    """Why a group is not OK, in words."""
    state = summed["state"][group].as_py()
    not_ok, queues = summed["queues_not_ok"][group].as_py(), summed["queues"][group].as_py()
    place = (
        f"{known.queues['topic'][queue].as_py()} queue {known.queues['queue_id'][queue].as_py()}"
    )
    figures = {
        name: None if (value := int(known.figures[name][queue])) == UNKNOWN else value
        for name in ("lag", "open", "growth", "retained")
    }
    lag = figures["lag"]
    how_far = "" if lag is None else f", {messages(lag)} behind"
    if not_ok:
        further = _falling(figures) if state == "SLOW" else ""
        return f"{state.lower()}: {place}{how_far}{further}; {not_ok} of {queues} queues are not OK"
    if state == "BROADCAST":
        return "broadcasting: each client keeps its own offsets"
    if state == "CATCHING_UP":
        drain_ms = summed["drain_time_ms"][group].as_py()
        when = "" if drain_ms is None else f"; done in about {duration(drain_ms)} at this rate"
        return f"catching up: {place}{how_far}{when}; {behind}"
    if figures["open"] is not None:
        return (
            f"too early to say whether it gains: {place}{how_far}, waiting for too long; {behind}"
        )
    if known.figures["is_beyond"][queue]:
        return f"the consume offset of {place} lies beyond its end; {behind}"
    return f"no offset on {place}; {behind}"


def _falling(figures: Mapping[str, int | None]) -> str:
    growth = figures["growth"]
    if growth is None or growth <= 0:
        return ", waiting for longer than is allowed"
    return f", falling behind by {rate(growth)}; {deleted_unread(figures['retained'], growth)}"


def _carried(known: _Known) -> dict[str, pa.Table]:
    groups = known.groups
    place = groups.schema.get_field_index("is_changed")
    columns = [pa.array(known.figures[name]) for name in FIGURES.names]
    return {
        "groups": groups.set_column(place, "is_changed", pa.array(known.is_changed)),
        "queues": known.queues,
        "figures": pa.table(columns, schema=FIGURES),
    }


MART = mart(
    GROUP_STATE,
    group_state,
    reads=("group_watermarks", QUEUE_NUMBERS, JUDGED_QUEUES, TICKS, POLLED),
    carries={"groups": GROUPS, "queues": QUEUES, "figures": FIGURES},
    wakes=("group_watermarks", JUDGED_QUEUES, TICKS),
)
