"""Judges every group's queues at each tick that may bring new information.

Place in the walk: group_watermarks, client_windows, falls of offsets and ticks → judged rows, from
which stalled_windows, group_state and the exposures to duplicates follow.

Carried per queue: its last row, its verdict, and when it is due; beside it, for queues that moved
within the last window, their figures at each tick of it; the last sample; falls of the last hour;
and rows that lie beyond the last tick. Invariant: a judged row is a function of the facts that its
tick sees; two cycles over the halves give the rows of one over the whole. Absent on purpose: rows
of queues that nothing new can be said of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import REPORT_SPAN_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging import ticks as grid
from pipelines.marts.judging.arrivals import (
    HORIZONS,
    NO_GRID,
    Grid,
    batches,
    grids_by_emitter,
    horizons_after,
    last_of,
    segments,
    shipped_by_emitter,
)
from pipelines.marts.judging.attention import (
    FIRINGS,
    NOTHING_SAMPLED,
    RING,
    VERDICT,
    Attention,
    Moment,
)
from pipelines.marts.judging.endings import (
    ENDINGS,
    NAMING,
    SNAPSHOT,
    Ending,
    Texts,
    endings_arrived,
)
from pipelines.marts.judging.heads import HEADS, Heads, Usual
from pipelines.marts.judging.heads import OF_SAMPLE as OF_HEAD
from pipelines.marts.judging.judged_rows import JUDGED, JudgedRows
from pipelines.marts.judging.news import (
    FALLS,
    FIGURES,
    SAMPLES,
    WAITING,
    Arrived,
    Cut,
    Highs,
    arrived,
    falls_arrived,
    samples_arrived,
)
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_run, flags, numbers
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import with_rows
from pipelines.marts.judging.rules import KINDS, RULES, STATES
from pipelines.marts.judging.service_times import SERVICES, STATS, ServiceTimes
from pipelines.marts.mart import Given, Made, Positions, Step, coded, fleeting

NAME: Final = "judged_queues"

_KEYS: Final = ("cluster", "broker", "emitter", "group", "topic", "queue_id")
_CODED: Final = {"state": STATES, "rule": RULES, "kind": KINDS, "fires": FIRINGS}
"""Columns of numbers that stand for words."""
_NARROW: Final = {
    **dict.fromkeys(_CODED, pa.int8()),
    "is_broadcast": pa.int8(),
    "is_locked": pa.int8(),
    "is_bad": pa.int8(),
    "is_exposed": pa.int8(),
    "is_gone": pa.int8(),
    "client": pa.int32(),
    "gap_ms": pa.int32(),
    "cadence_ms": pa.int32(),
    "commit_gap_ms": pa.int32(),
    "commit_cadence_ms": pa.int32(),
    "had_members": pa.int8(),
    "by_pulls": pa.int8(),
}
"""Columns of a queue that need no 64 bits; the others may be UNKNOWN."""
_NOBODY: Final = -1
"""No client has pulled: inside the state, in place of its number."""

KEYS: Final = pa.schema([(name, pa.int32() if name == "queue_id" else KEY_TEXT) for name in _KEYS])
COLUMNS: Final = (*FIGURES, *VERDICT)
QUEUES: Final = pa.schema(
    [
        coded(name, _CODED[name])
        if name in _CODED
        else pa.field(name, _NARROW.get(name, pa.int64()))
        for name in COLUMNS
    ]
)
"""A row per queue, by its number; UNKNOWN stands for null."""
CLIENTS: Final = pa.schema([("client_id", pa.string())])
WINDOWS: Final = fleeting(
    pa.schema(
        [
            ("number", pa.int64()),
            *((name, pa.list_(pa.int64())) for name in (*RING, "lows", "swings")),
        ]
    )
)
"""Of queues whose window is not settled, their figures at its ticks."""
EMITTERS: Final = pa.schema(
    [("emitter", pa.string()), ("tick_us", pa.int64()), ("tells_snapshots", pa.bool_())]
)
"""The last living tick of each emitter, and whether it has reported a snapshot by then."""


@dataclass(slots=True)
class _Queues:
    """All queues known in this cycle."""

    keys: pa.Table
    columns: dict[str, Positions]
    known: int
    """How many were known before."""
    first_seqs: Positions
    emitters: list[str]
    emitter: Positions
    """Per queue the number of its emitter."""
    emits_snapshots: dict[str, bool]
    """Emitters that have reported a snapshot before this cycle."""


def judged_queues(given: Given) -> Made:
    """A row per queue looked at and tick."""
    facts, state = given.facts, given.state
    rows = facts["group_watermarks"]
    shipped = shipped_by_emitter(state["horizons"], facts["shipments"])
    grids = grids_by_emitter(facts[grid.NAME])
    queues = _all_queues(given)
    number = numbers(facts[QUEUE_NUMBERS]["number"])
    slide_us = given.evaluation.slide_us
    cut = Cut(shipped, grids, queues.keys, queues.first_seqs)
    news = arrived(rows, number, state["waiting"], cut, slide_us=slide_us)
    samples = samples_arrived(state["samples"], facts["client_windows"], cut)
    falls = falls_arrived(state["falls"], facts["offset_violations"], cut)
    clients = _merge_clients(state["clients"], news)
    endings, unseen = endings_arrived(state["endings"], facts["lifecycle"], shipped, grids)
    attention = _attention(given, queues, news, cut, endings=endings)
    highs = Highs(falls.filter(pa.array(_was_seen(falls, state["falls"]))))
    services = ServiceTimes(
        state["services"], state["stats"], facts["consume_stats"], shipped=shipped, grids=grids
    )
    _give_heads(attention, queues, samples, services, given=given)
    _restore(attention, samples, queues, highs, given=given, clients=clients)
    made = JudgedRows(attention, queues.keys, clients, samples)
    walk = _Walk(given, queues, attention, news, samples, falls, cut, endings, highs, services)
    last = _walk(walk, made)
    carried, touched = _carried(given, queues, attention, clients)
    carried["waiting"] = news.waiting
    carried["endings"] = unseen
    carried["samples"] = _samples_left(samples, queues, last, attention)
    carried["falls"] = _falls_left(falls, highs, last)
    carried["horizons"] = horizons_after(shipped)
    if attention.heads is not None:
        carried["heads"] = attention.heads.left(min(last.values(), default=0))
    if services.is_changed:
        carried["services"], carried["stats"] = services.left(last), services.waiting
    emitting = {one.emitter for one in endings if one.kind == SNAPSHOT}
    emitting |= {name for name, emits in queues.emits_snapshots.items() if emits}
    carried["emitters"] = pa.Table.from_pylist(
        [
            {"emitter": name, "tick_us": last.get(name), "tells_snapshots": name in emitting}
            for name in sorted({*last, *emitting})
        ],
        EMITTERS,
    )
    return Made(made.table(), carried, touched)


def _all_queues(given: Given) -> _Queues:
    state, rows = given.state, given.facts["group_watermarks"]
    keys, known = state["keys"], state["keys"].num_rows
    first = np.flatnonzero(np.asarray(given.facts[QUEUE_NUMBERS]["is_first"]))
    first_seqs = np.zeros(known + len(first), np.int64)
    if len(first):
        keys = with_rows(keys, rows, first)
        first_seqs[known:] = numbers(rows["seq"])[first]
    columns = {}
    for name in COLUMNS:
        start = {"reports": 0, "client": _NOBODY}.get(name, VERDICT.get(name, UNKNOWN))
        start = 0 if name in _NARROW and start == UNKNOWN else start
        # Null: an earlier version did not carry it.
        before = np.asarray(pc.fill_null(state["queues"][name], start))
        if len(first):
            new = np.full(len(first), start, before.dtype)
            before = np.concatenate([before, new])
        columns[name] = before
    emitters: dict[str, int] = {}
    emitter = np.zeros(keys.num_rows, np.int32)
    for name, begin, end in _emitter_runs(keys):
        emitter[begin:end] = emitters.setdefault(name, len(emitters))
    emitting = {row["emitter"]: row["tells_snapshots"] for row in state["emitters"].to_pylist()}
    return _Queues(keys, columns, known, first_seqs, list(emitters), emitter, emitting)


def _emitter_runs(keys: pa.Table) -> list[tuple[str, int, int]]:
    return segments(keys["emitter"])


def _merge_clients(known: pa.Table, news: Arrived) -> pa.Table:
    """All clients, and `client` among the columns of the news: their numbers."""
    words = news.clients.dictionary
    new = words.filter(pc.is_null(pc.index_in(words, known["client_id"])))
    both = pa.concat_tables([known, pa.table([new], schema=CLIENTS)])
    codes = pc.index_in(words, both["client_id"]).cast(pa.int64())
    indices = news.clients.indices.fill_null(0).to_numpy()
    found = np.asarray(codes)[indices] if len(words) else np.zeros(len(indices), np.int64)
    is_nobody = np.asarray(news.clients.is_null())
    news.columns["client"] = np.where(is_nobody, _NOBODY, found)
    return both.combine_chunks()


def _attention(
    given: Given, queues: _Queues, news: Arrived, cut: Cut, *, endings: list[Ending]
) -> Attention:
    """The queues with news, due before the last tick, or with a window to be kept up."""
    ends = np.array(
        [
            ticks[-1] if len(ticks := cut.grids.get(name, NO_GRID).ticks) else UNKNOWN
            for name in queues.emitters
        ],
        np.int64,
    )
    is_due = np.zeros(queues.keys.num_rows, bool)
    if len(ends):
        due_us = queues.columns["due_us"]
        is_due = due_us <= ends.max()
        if ends.min() != ends.max():
            is_due &= due_us <= ends[queues.emitter]
    for rows in news.by_tick.values():
        is_due[news.number[rows]] = True
    for ending in endings:
        is_due |= _concerned(queues, ending, None)
    windows = given.state["windows"]
    is_due[numbers(windows["number"])] = True
    chosen = np.flatnonzero(is_due)
    columns = {name: column[chosen].astype(np.int64) for name, column in queues.columns.items()}
    attention = Attention(chosen, queues.emitter[chosen], columns, given.evaluation)
    if windows.num_rows:
        held = np.searchsorted(chosen, numbers(windows["number"]))
        for name in RING:
            values = np.asarray(windows[name].combine_chunks().flatten()).reshape(len(held), -1)
            attention.ring[name][:, held] = values.T
        for name, figures in (
            ("lows", attention.courses.lows),
            ("swings", attention.courses.swings),
        ):
            values = np.asarray(windows[name].combine_chunks().flatten())
            if len(values):  # An earlier version carried none.
                figures[:, held] = values.reshape(len(held), -1).T
    return attention


_OF_SAMPLE: Final = (
    "event_us",
    "held_count",
    "client_pull_us",
    "locked",
    "client_committed",
    "first_held",
)


def _concerned(queues: _Queues, ending: Ending, rows: Positions | None) -> Flags:
    """Which queues (of these rows; None: of all) may an ending end?"""
    emitter = queues.emitter if rows is None else queues.emitter[rows]
    if ending.emitter not in queues.emitters:
        return np.zeros(len(emitter), bool)
    found: Flags = emitter == queues.emitters.index(ending.emitter)
    if ending.kind == SNAPSHOT and rows is None:
        # The first one concerns all: from now on silence means that nothing changed.
        is_first = not queues.emits_snapshots.get(ending.emitter, False)
        return np.asarray(found & (is_first | (queues.columns["seq"] < ending.below_seq)))
    for name, word in (("group", ending.group), ("topic", ending.topic)):
        if word is not None:
            found &= Texts.of(queues.keys[name]).are(word, rows)
    return found


def _end(walk: _Walk, endings: list[Ending]) -> None:
    """What ends at a tick; from an emitter's first snapshot on silence means: unchanged."""
    attention, queues = walk.attention, walk.queues
    for ending in endings:
        rows = np.flatnonzero(_concerned(queues, ending, attention.chosen))
        if ending.kind in NAMING:
            is_named = ending.kind == "TOPIC_NAMED"
            attention.columns["unnamed_us"][rows] = UNKNOWN if is_named else ending.tick_us
            attention.columns["due_us"][rows] = 0
            continue
        if ending.kind == SNAPSHOT and ending.emitter in queues.emitters:
            code = queues.emitters.index(ending.emitter)
            if not attention.emits_snapshots[code]:
                # What has grown old by now stays so, whether its cycle has ended meanwhile or not.
                attention.sample[rows] = attention.sampled_rows(rows, ending.tick_us)
                attention.emits_snapshots[code] = True
                attention.columns["due_us"][rows] = 0
        for row in attention.end(rows, ending.below_seq).tolist():
            walk.highs.forget(int(attention.chosen[row]))


def _restore(
    attention: Attention,
    samples: pa.Table,
    queues: _Queues,
    highs: Highs,
    *,
    given: Given,
    clients: pa.Table,
) -> None:
    """Restores what was sampled and what had fallen before the first tick of the cycle."""
    attention.emits_snapshots = np.array(
        [queues.emits_snapshots.get(name, False) for name in queues.emitters], dtype=bool
    )
    attention.samples = {
        **{name: numbers(samples[name]) for name in {*_OF_SAMPLE, *OF_HEAD}},
        "client": _codes(samples["client_id"], clients),
    }
    known = given.state["samples"].num_rows
    before = np.flatnonzero(numbers(given.state["samples"]["tick_us"]) > 0)
    places, is_chosen = _places(attention, numbers(samples["number"])[:known][before])
    attention.sample[places] = before[is_chosen]
    for number, event_us, high in highs.present():
        _set_high(attention, number, event_us, high)


def _give_heads(
    attention: Attention,
    queues: _Queues,
    samples: pa.Table,
    services: ServiceTimes,
    *,
    given: Given,
) -> None:
    """The heads of windows, where clients report any, and how long calls of their groups take."""
    heads = given.state["heads"]
    if not samples.num_rows and not heads.num_rows:
        return
    attention.heads = Heads(heads, attention.chosen, given.evaluation)

    def usual_of(places: Positions, tick_us: int) -> Usual:
        keys = queues.keys.take(pa.array(attention.chosen[places]))
        return services.usual(services.numbers_of(keys), tick_us)

    attention.usual_of = usual_of


def _codes(names: pa.ChunkedArray, clients: pa.Table) -> Positions:
    """The numbers of clients; UNKNOWN for one that has never pulled."""
    return numbers(pc.index_in(names, value_set=clients["client_id"].combine_chunks()))


def _set_high(attention: Attention, number: int, event_us: int, high: int) -> None:
    places, _ = _places(attention, np.array([number]))
    attention.high[places], attention.high_us[places] = high, event_us


def _places(attention: Attention, number: Positions) -> tuple[Positions, Positions]:
    """Places of those of the queues that are looked at, and which of them they are."""
    chosen = attention.chosen
    if not len(chosen):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    places = np.searchsorted(chosen, number)
    is_chosen = chosen[np.minimum(places, len(chosen) - 1)] == number
    return places[is_chosen], np.flatnonzero(is_chosen)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What is walked over, from tick to tick."""

    given: Given
    queues: _Queues
    attention: Attention
    news: Arrived
    samples: pa.Table
    falls: pa.Table
    cut: Cut
    endings: list[Ending]
    highs: Highs
    services: ServiceTimes


def _walk(walk: _Walk, made: JudgedRows) -> dict[str, int]:
    """Every tick in order; returns the last living tick of each emitter."""
    given, queues, attention, news = walk.given, walk.queues, walk.attention, walk.news
    samples = walk.samples
    last = {
        row["emitter"]: row["tick_us"]
        for row in given.state["emitters"].to_pylist()
        if row["tick_us"] is not None
    }
    known = given.state["samples"].num_rows
    sample_ticks = numbers(samples["tick_us"]).copy()
    was_seen = numbers(given.state["samples"]["tick_us"]) > 0
    sample_ticks[:known][was_seen] = 0
    by_sample = batches(sample_ticks)
    sampled = numbers(samples["number"])
    fell: dict[int, list[dict[str, Any]]] = {}
    is_new = ~_was_seen(walk.falls, given.state["falls"]) & (numbers(walk.falls["tick_us"]) > 0)
    for row in walk.falls.filter(pa.array(is_new)).to_pylist():
        fell.setdefault(row["tick_us"], []).append(row)
    ends: dict[int, list[Ending]] = {}
    for ending in walk.endings:
        ends.setdefault(ending.tick_us, []).append(ending)
    scratch = np.zeros(queues.keys.num_rows, np.int64)
    for moment in _moments(queues.emitters, walk.cut.grids, last):
        attention.begin(moment)
        ended = ends.get(moment.tick_us, [])
        # What comes at this tick behind a deletion is another life; what comes with a snapshot is
        # the same one.
        _end(walk, [one for one in ended if one.kind != SNAPSHOT])
        rows = news.by_tick.get(moment.tick_us)
        if rows is not None:
            _take(attention, news, rows, scratch, tick_us=moment.tick_us)
        replaced = by_sample.get(moment.tick_us)
        if replaced is not None:
            _take_samples(attention, samples, sampled, replaced, made=made)
        walk.services.take(moment.tick_us)
        for row in fell.get(moment.tick_us, ()):
            _set_high(attention, *walk.highs.take(row))
        _end(walk, ended)  # What came at this tick with a lower seq has ended too.
        verdicts = attention.look(moment)
        if verdicts is not None:
            made.add(moment.tick_us, verdicts)
    return last


def _take(
    attention: Attention, news: Arrived, rows: Positions, scratch: Positions, *, tick_us: int
) -> None:
    run = as_run(rows)
    number = news.number[run]
    everything = len(attention.chosen) == len(scratch)
    places = number if everything else np.searchsorted(attention.chosen, number)
    np.add.at(attention.columns["reports"], places, news.columns["reports"][run])
    is_last = last_of(number, scratch)
    chosen = as_run(rows[is_last])
    found = {name: column[chosen] for name, column in news.columns.items()}
    attention.take(places[is_last], found, tick_us)


def _take_samples(
    attention: Attention,
    samples: pa.Table,
    sampled: Positions,
    rows: Positions,
    *,
    made: JudgedRows,
) -> None:
    """The last sample of each queue; a client that gave a queue up takes its own one back."""
    places, among = _places(attention, sampled[rows])
    rows = rows[among]
    made.before_samples(places)
    is_dropped = flags(samples["is_dropped"].take(pa.array(rows)))
    if not is_dropped.any():
        attention.sample[places] = rows
        return
    clients = samples["client_id"]
    for place, row, dropped in zip(places, rows, is_dropped, strict=True):
        before = attention.sample[place]
        if not dropped:
            attention.sample[place] = row
        elif before >= 0 and clients[before].as_py() == clients[row].as_py():
            attention.sample[place] = NOTHING_SAMPLED


def _moments(emitters: list[str], grids: Mapping[str, Grid], last: dict[str, int]) -> list[Moment]:
    """The ticks of all emitters in order; moves `last` on."""
    of = [grids.get(name, NO_GRID) for name in emitters]
    count = len(emitters)
    moments = []
    at = [0] * count
    for tick in np.unique(np.concatenate([one.ticks for one in of] or [np.empty(0, np.int64)])):
        tick_us = int(tick)
        has_tick = np.zeros(count, bool)
        run, since, before, stepped, polled = (np.full(count, UNKNOWN) for _ in range(5))
        for code, one in enumerate(of):
            place = at[code]
            if place < len(one.ticks) and one.ticks[place] == tick_us:
                has_tick[code] = True
                run[code], since[code] = one.runs[place], one.alive_since[place]
                stepped[code], polled[code] = one.stepped[place], one.polled[place]
                before[code] = last.get(emitters[code], UNKNOWN)
                last[emitters[code]] = tick_us
                at[code] += 1
        moments.append(Moment(tick_us, has_tick, run, since, before, stepped, polled))
    return moments


def _carried(
    given: Given, queues: _Queues, attention: Attention, clients: pa.Table
) -> tuple[dict[str, pa.Table], dict[str, Positions]]:
    """The queues with what the cycle has learnt, and the windows that are not settled."""
    chosen, known = attention.chosen, queues.known
    grown = queues.keys.num_rows > known
    everything = len(chosen) == queues.keys.num_rows
    carried: dict[str, pa.Table] = {}
    touched: dict[str, Positions] = {}
    columns = []
    for field in QUEUES:
        column = queues.columns[field.name]
        narrow = attention.columns[field.name].astype(column.dtype)
        if everything:
            column = narrow
        elif len(chosen) and not np.array_equal(column[chosen], narrow):
            column = column if grown else column.copy()
            column[chosen] = narrow
        columns.append(pa.array(column))
    new = np.arange(known, queues.keys.num_rows)
    if len(chosen) or grown:
        carried["queues"] = pa.table(columns, schema=QUEUES)
        touched["queues"] = _either(chosen, new, queues.keys.num_rows) if grown else chosen
    if grown:
        carried["keys"], touched["keys"] = queues.keys, new
    if clients.num_rows > given.state["clients"].num_rows:
        carried["clients"] = clients
        touched["clients"] = np.arange(given.state["clients"].num_rows, clients.num_rows)
    carried["windows"] = _windows(attention)
    return carried, touched


def _either(some: Positions, others: Positions, count: int) -> Positions:
    """The places below `count` that are among one of them, in order."""
    is_meant = np.zeros(count, bool)
    is_meant[some] = True
    is_meant[others] = True
    return np.flatnonzero(is_meant)


def _windows(attention: Attention) -> pa.Table:
    rows = np.flatnonzero(attention.columns["due_us"] == 0)
    lists = []
    for figures in (*attention.ring.values(), attention.courses.lows, attention.courses.swings):
        size = len(figures)
        offsets = pa.array(np.arange(0, (len(rows) + 1) * size, size, dtype=np.int32))
        lists.append(pa.ListArray.from_arrays(offsets, pa.array(figures.T[rows].reshape(-1))))
    return pa.table([pa.array(attention.chosen[rows]), *lists], schema=WINDOWS)


def _samples_left(
    samples: pa.Table, queues: _Queues, last: Mapping[str, int], attention: Attention
) -> pa.Table:
    """The last sample of each queue as long as it speaks of now, and what no tick has seen."""
    count = samples.num_rows
    if not count:
        return samples
    ticks = numbers(samples["tick_us"])
    is_seen = ticks > 0
    number = numbers(samples["number"])
    is_last = np.zeros(count, bool)
    is_dropped = flags(samples["is_dropped"])
    _, among = _places(attention, number)
    looked_at = np.zeros(count, bool)
    looked_at[among] = True
    is_held = np.zeros(count, bool)
    held = attention.sample[attention.sample != NOTHING_SAMPLED]
    is_held[held] = True
    seen = np.flatnonzero(is_seen & ~is_dropped)
    # In the order in which ticks saw them: of those of one queue the last one stays.
    ordered = seen[np.argsort(ticks[seen], kind="stable")]
    is_last[ordered] = last_of(number[ordered], np.zeros(queues.keys.num_rows, np.int64))
    ends = np.array([last.get(name, 0) for name in queues.emitters], np.int64)
    end_us = ends[queues.emitter[number]]
    is_young = end_us - numbers(samples["event_us"]) <= REPORT_SPAN_US
    is_young |= attention.emits_snapshots[queues.emitter[number]]
    kept = ~is_seen | (np.where(looked_at, is_held, is_last) & is_young)
    return samples.filter(pa.array(kept)).combine_chunks()


def _was_seen(rows: pa.Table, known: pa.Table) -> Flags:
    """Which of the rows, those known at their beginning, had a tick seen before this cycle?"""
    seen = np.zeros(rows.num_rows, bool)
    seen[: known.num_rows] = numbers(known["tick_us"]) > 0
    return seen


def _falls_left(falls: pa.Table, highs: Highs, last: Mapping[str, int]) -> pa.Table:
    """Falls that may matter, and those that no tick has seen."""
    unseen = falls.filter(pc.equal(falls["tick_us"], 0))
    left = highs.left(min(last.values(), default=0))
    return pa.concat_tables([left, unseen]).unify_dictionaries().combine_chunks()


STEP: Final = Step(
    NAME,
    (
        "group_watermarks",
        QUEUE_NUMBERS,
        "client_windows",
        "consume_stats",
        "lifecycle",
        "offset_violations",
        "shipments",
        grid.NAME,
    ),
    judged_queues,
    {
        "keys": KEYS,
        "queues": QUEUES,
        "clients": CLIENTS,
        "windows": WINDOWS,
        "waiting": WAITING,
        "samples": SAMPLES,
        "falls": FALLS,
        "horizons": HORIZONS,
        "emitters": EMITTERS,
        "endings": ENDINGS,
        "heads": HEADS,
        "services": SERVICES,
        "stats": STATS,
    },
    makes=JUDGED,
    wakes=("group_watermarks", "client_windows", "shipments"),
)
