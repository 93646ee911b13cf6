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
)
from pipelines.marts.consumer_lag import trends
from pipelines.marts.declaring import as_declared
from pipelines.marts.judging.arrivals import Grid, batches, grids_by_emitter, segments
from pipelines.marts.judging.judged_rows import PERIOD_US
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_column, numbers, truncated
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import with_rows
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.judging.rules import time_lag_us
from pipelines.marts.judging.ticks import EMITTER_SILENT, SPOOL_LOSS
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.keys import positions_of
from pipelines.marts.mart import KEY_TEXT, Given, GoldTable, Made, Positions, mart
from pipelines.marts.sentences import messages
from pipelines.settings import MS_US, SECOND_US, Evaluation

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
            "worst queue: OK, SLOW, STALLED, STOPPED, REWOUND, NO_OFFSET, DATA_LOST, BROADCAST or "
            "UNKNOWN",
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
        Column("trend", STRING, "GROWING, STEADY or SHRINKING of the summed lag"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
    ),
    ("cluster", "broker", "group", "observed_at"),
    on_ticks="true",
)

SNAPSHOT_US: Final = 600 * SECOND_US
"""Every group is told at least this often, so that a reader need not look back further."""
SEVERITY: Final = (
    "OK",
    "BROADCAST",
    "UNKNOWN",
    "SLOW",
    "NO_OFFSET",
    "REWOUND",
    "STALLED",
    "STOPPED",
    "DATA_LOST",
)
"""From harmless to worst."""
_BROADCAST, _UNKNOWN = SEVERITY.index("BROADCAST"), SEVERITY.index("UNKNOWN")

GROUP_KEY: Final = ("cluster", "broker", "emitter", "group")
GROUPS: Final = pa.schema([*((name, KEY_TEXT) for name in GROUP_KEY), ("is_changed", pa.bool_())])
"""is_changed: since the group was told last."""
QUEUES: Final = pa.schema(
    [("group_number", pa.int32()), ("topic", KEY_TEXT), ("queue_id", pa.int32())]
)
_FIGURE_TYPES: Final = {
    "severity": pa.int8(),
    "is_evaluated": pa.bool_(),
    "is_bad": pa.bool_(),
    "lag": pa.int64(),
    "lag_before": pa.int64(),
    "waiting_since_us": pa.int64(),
    "members": pa.int64(),
    "seq": pa.int64(),
    "complete_from_us": pa.int64(),
}
FIGURES: Final = pa.schema(list(_FIGURE_TYPES.items()))
"""Of every queue, by its number, as judged last; UNKNOWN stands for null."""

WORDS: Final = {
    EMITTER_SILENT: "the broker reported nothing more, and was started again later",
    SPOOL_LOSS: "the broker lost reports; its next snapshot tells how it stands",
}
"""Why nothing is known of any queue."""

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
        turned = _take(known, rows, tick_us)
        told = _is_told(known, turned, tick_us, runs)
        if told.any():
            known.is_changed &= ~told
            part = _summed(known, told, tick_us, runs, evaluation=given.evaluation)
            if part is not None:
                parts.append(part)
    made = pa.concat_tables(parts) if parts else MART.none
    return Made(made, _carried(known))


class _Rows:
    """Judged rows, by tick."""

    def __init__(self, judged: pa.Table) -> None:
        rules = judged["rule"]
        is_bad, lag = np.asarray(judged["is_bad"]), numbers(judged["lag"])
        self.by_tick = batches(numbers(judged["tick_us"]))
        self.number = numbers(judged["number"])
        evaluated = np.asarray(judged["is_evaluated"])
        self.turned = evaluated & (is_bad != np.asarray(judged["was_bad"]))
        self.figures: dict[str, Values] = {
            "severity": _severities(rules, is_bad, lag),
            "is_evaluated": evaluated,
            "is_bad": is_bad,
            "lag": lag,
        }
        for name in ("lag_before", "waiting_since_us", "members", "seq", "complete_from_us"):
            self.figures[name] = numbers(judged[name])


def _severities(rules: pa.ChunkedArray, is_bad: Flags, lag: Positions) -> Values:
    parts = []
    for chunk in rules.chunks:
        ranks = pc.index_in(chunk.dictionary, value_set=pa.array(SEVERITY)).cast(pa.int8())
        parts.append(np.asarray(ranks)[np.asarray(chunk.indices)])
    rank = np.concatenate(parts) if parts else np.empty(0, np.int8)
    unseen = np.where(lag == UNKNOWN, _UNKNOWN, 0)
    calm = np.where(rank == _BROADCAST, _BROADCAST, unseen)
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
    keys = known.groups.take(pa.array(groups))
    nothing = pa.nulls(count, pa.int64())
    columns = {
        **dict(zip(keys.schema.names, keys.columns, strict=True)),
        **dict.fromkeys(("lag_messages", "time_lag_ms", "members"), nothing),
        "state": pa.repeat("UNKNOWN", count),
        "reason": pa.repeat(f"unknown: {WORDS[why]}", count),
        "queues": pa.array(np.bincount(of_queue, minlength=count)),
        "queues_known": pa.array(np.zeros(count, np.int64)),
        "queues_not_ok": pa.array(np.zeros(count, np.int64)),
        "trend": pa.nulls(count, pa.string()),
        "seq": pa.array(_most(of_queue, count, known.figures["seq"][chosen])),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    return as_declared(columns, GROUP_STATE)


def _take(known: _Known, rows: _Rows, tick_us: int) -> Flags:
    """The judged rows of a tick into the figures; which groups have a queue that turned?"""
    turned = np.zeros(known.groups.num_rows, bool)
    batch = rows.by_tick.get(tick_us)
    if batch is None:
        return turned
    number = rows.number[batch]
    for name, column in known.figures.items():
        column[number] = rows.figures[name][batch]
    groups = known.group_of[number]
    known.is_changed[groups] = True
    turned[groups[rows.turned[batch]]] = True
    return turned


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
    before, known_before = _sum(code, count, figures["lag_before"])
    waited = _most(code, count, time_lag_us(tick_us, figures["waiting_since_us"]))
    complete_from = np.maximum(
        _most(code, count, figures["complete_from_us"]), runs[known.emitter_of[groups]]
    )
    is_compared = (queues_known > 0) & (known_before > 0)
    is_compared &= tick_us - complete_from >= evaluation.window_us
    grown = truncated((lag - before) * 60_000, evaluation.window_ms)
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
        "trend": trends(np.where(is_compared, grown, UNKNOWN), lag),
        "seq": pa.array(_most(code, count, figures["seq"])),
        "observed_us": pa.repeat(pa.scalar(tick_us, pa.int64()), count),
    }
    reason = _behind(summed).to_pylist()
    for group, queue in _worst_queues(known, code, worst, chosen, tick_us=tick_us).items():
        reason[group] = _reason(known, summed, group, queue, behind=reason[group])
    keys = known.groups.take(pa.array(groups))
    named = dict(zip(keys.schema.names, keys.columns, strict=True))
    return as_declared({**named, **summed, "reason": pa.array(reason, pa.string())}, GROUP_STATE)


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
    return pc.binary_join_element_wise(told, *words, "")


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
    if not_ok:
        lag = int(known.figures["lag"][queue])
        how_far = "" if lag == UNKNOWN else f", {messages(lag)} behind"
        return f"{state.lower()}: {place}{how_far}; {not_ok} of {queues} queues are not OK"
    if state == "BROADCAST":
        return "broadcasting: each client keeps its own offsets"
    return f"no offset on {place}; {behind}"


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
    reads=("group_watermarks", QUEUE_NUMBERS, JUDGED_QUEUES, TICKS),
    carries={"groups": GROUPS, "queues": QUEUES, "figures": FIGURES},
    wakes=("group_watermarks", JUDGED_QUEUES, TICKS),
)
