"""Defines the evaluation grid: the times at which each emitter can be judged.

Place in the walk: shipped horizons, boots and losses → ticks, at which queues are judged. Ticks are
multiples of the slide in data time; those of a shipment lie between the horizon before it and its
own, so they do not depend on where a cycle was cut.

A horizon says that everything up to it was reported, so an emitter lives on between two horizons of
one life, however far apart they are (a shipper may have stood still, its emitter did not). Nothing
can be concluded, and no tick is alive,
- between the last horizon of a life and the boot of the next one, when that took longer than the
  emitter may be silent (`silence_us`): EMITTER_SILENT;
- between two looks of an observer that lie further apart than that, as it says: LOOKS_MISSED;
- from a loss of rows to the end of the first snapshot that began after it: SPOOL_LOSS. An emitter
  that reports no snapshots reports every queue within REPORT_SPAN_US;
- while its clock is not the time: CLOCK_STEPPED. One that was set forward has passed over a span,
  one that was set back makes the span up, at half speed, in this life. Behind it the age of what
  was stored before its end is unknown (`stepped_us`).
Of the ticks of such a stretch only the first is a row.

Invariant: a horizon never goes back; a clock that was set back gives no ticks until it has regained
it. Absent on purpose: rows of queues, and the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.base.settings import CLOCK_STEP_ALLOWED_US, MS_US, REPORT_SPAN_US, silence_us
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.lifecycle_events import BOOT, SPOOL_LOSS
from pipelines.marts.mart import Given, Made, Positions, Step
from pipelines.staging.facts import is_one_of

NAME: Final = "ticks"
EMITTER_SILENT: Final = "EMITTER_SILENT"
CLOCK_STEPPED: Final = "CLOCK_STEPPED"
LOOKS_MISSED: Final = "LOOKS_MISSED"
WORDS: Final = {
    EMITTER_SILENT: "the broker reported nothing more, and was started again later",
    SPOOL_LOSS: "the broker lost reports; its next snapshot shows how it stands",
    CLOCK_STEPPED: "the broker's clock was set, so its times are wrong",
    LOOKS_MISSED: "the broker did not answer its observer for a while",
}
"""Why nothing is known of any queue of an emitter."""
_KINDS: Final = (BOOT, "SNAPSHOT", SPOOL_LOSS, CLOCK_STEPPED, "OBSERVED", LOOKS_MISSED)

TICKS: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("tick_us", pa.int64()),
        ("is_alive", pa.bool_()),
        ("alive_since_us", pa.int64()),
        ("run_from_us", pa.int64()),
        ("why_unknown", pa.string()),
        ("stepped_us", pa.int64()),
        ("polled_us", pa.int64()),
    ]
)
"""run_from_us: first tick of the unbroken run of living ticks that the tick belongs to.
alive_since_us: boot, return from a silence, or loss, from which on the emitter has reported.
stepped_us: how old messages are that were stored before is unknown; 0 when the clock was not set.
polled_us: how often somebody outside looks at the broker; 0 when it reports on itself.
"""
EMITTERS: Final = pa.schema(
    [
        ("emitter", pa.string()),
        ("horizon_us", pa.int64()),
        ("epoch", pa.int64()),
        ("alive_since_us", pa.int64()),
        ("run_from_us", pa.int64()),
        ("why_unknown", pa.string()),
        ("lost_seq", pa.int64()),
        ("lost_us", pa.int64()),
        ("tells_snapshots", pa.bool_()),
        ("stepped_us", pa.int64()),
        ("report_each_ms", pa.int64()),
    ]
)


@dataclass(slots=True)
class Emitter:
    """Where an emitter stands."""

    horizon_us: int
    epoch: int
    alive_since_us: int
    run_from_us: int
    why_unknown: str | None = None
    """Why its last tick was not alive; None when it was."""
    lost_seq: int | None = None
    """The row that reported on a loss that no snapshot has made good yet."""
    lost_us: int | None = None
    tells_snapshots: bool = False
    stepped_us: int = 0
    """End of the last span in which its clock was not the time."""
    report_each_ms: int | None = None
    """How often it reports, when that is more seldom than a broker does."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A row that ends one stretch of ticks and begins another."""

    seq: int
    kind: str
    moment_us: int
    seq_from: int | None
    """Of a snapshot, the first row that may be of it."""
    step_us: int = 0
    """How far the clock was set."""
    report_each_ms: int | None = None
    since_us: int | None = None
    """The look before."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipment: its horizon, and the marks among its rows, in the order of seq."""

    epoch: int
    horizon_us: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ticks of an emitter that are alike."""

    ticks: Positions
    why_unknown: str | None
    alive_since_us: int
    run_from_us: int
    stepped_us: int
    polled_us: int


def ticks(given: Given) -> Made:
    """A row per emitter and tick; of a silence its first tick."""
    slide_us = given.evaluation.slide_us
    emitters = {
        row["emitter"]: Emitter(
            **{name: row[name] for name in EMITTERS.names[1:] if row.get(name) is not None}
        )
        for row in given.state["emitters"].to_pylist()
    }
    parts = [
        _as_rows(name, stretch)
        for name, shipments in _by_emitter(given)
        for shipment in shipments
        for stretch in _stretches(emitters, name, shipment, slide_us)
    ]
    rows = pa.concat_tables(parts).unify_dictionaries() if parts else TICKS.empty_table()
    state = [
        {"emitter": name, **{one: getattr(emitter, one) for one in EMITTERS.names[1:]}}
        for name, emitter in sorted(emitters.items())
    ]
    return Made(rows, {"emitters": pa.Table.from_pylist(state, EMITTERS)})


def _by_emitter(given: Given) -> Iterator[tuple[str, list[Shipment]]]:
    """Per emitter its new shipments in order, each with the marks among its rows."""
    shipments, lifecycle = given.facts["shipments"], given.facts["lifecycle"]
    marks = _marks(lifecycle)
    by_emitter: dict[str, list[Shipment]] = {}
    columns = ["emitter", "seq_from", "seq_to", "broker_epoch", "event_us_to"]
    for row in shipments.select(columns).to_pylist():
        own = [
            mark
            for mark in marks.get(row["emitter"], [])
            if row["seq_from"] <= mark.seq <= row["seq_to"]
        ]
        shipment = Shipment(row["broker_epoch"], row["event_us_to"], tuple(own))
        by_emitter.setdefault(row["emitter"], []).append(shipment)
    yield from by_emitter.items()


def _marks(lifecycle: pa.Table) -> dict[str, list[Mark]]:
    """Per emitter, in the order of seq."""
    rows = lifecycle.filter(is_one_of(lifecycle["kind"], *_KINDS))
    marks: dict[str, list[Mark]] = {}
    for row in rows.to_pylist():
        step_us = (row.get("step_ms") or 0) * MS_US
        if row["kind"] == CLOCK_STEPPED and not is_set_by(step_us):
            continue
        mark = Mark(
            *(row["seq"], row["kind"], row["event_us"], row.get("seq_from"), step_us),
            report_each_ms=row.get("report_each_ms"),
            since_us=row.get("time_from_us") if row["kind"] == LOOKS_MISSED else None,
        )
        marks.setdefault(row["emitter"], []).append(mark)
    return marks


def is_set_by(step_us: int) -> bool:
    """Was a clock set by so much that its times may not be believed?"""
    return abs(step_us) >= CLOCK_STEP_ALLOWED_US


def is_made_good(lost_seq: int, seq_from: int | None) -> bool:
    """Does a snapshot whose rows begin at `seq_from` report all that was lost by the row
    `lost_seq`? One that began before it may have lost rows itself.
    """
    return seq_from is None or seq_from > lost_seq


def _stretches(
    emitters: dict[str, Emitter], name: str, shipment: Shipment, slide_us: int
) -> Iterator[Stretch]:
    """What the shipment adds; moves the emitter on."""
    known = emitters.get(name)
    marks = shipment.marks
    boots = [mark.moment_us for mark in marks if mark.kind == "BOOT"]
    if known is None:
        begin_us = min(boots, default=shipment.horizon_us - REPORT_SPAN_US)
        known = emitters[name] = Emitter(
            min(begin_us, shipment.horizon_us) - 1,
            shipment.epoch,
            begin_us,
            -(-begin_us // slide_us) * slide_us,
        )
    elif not boots and shipment.epoch > known.epoch:
        # The row of the boot was lost; every row knows its life.
        marks = (Mark(0, "BOOT", shipment.epoch, None), *marks)
    known.epoch = shipment.epoch
    end_us = max(shipment.horizon_us, known.horizon_us)
    for mark in marks:
        moment_us = min(max(mark.moment_us, known.horizon_us + 1), end_us)
        is_boot = mark.kind == "BOOT"
        is_silent = is_boot and moment_us - known.horizon_us > silence_us(known.report_each_ms)
        why = EMITTER_SILENT if is_silent else None
        if mark.step_us > 0:
            yield from _until(known, moment_us - mark.step_us, None, slide_us)
            why = CLOCK_STEPPED
        if _is_gap(known, mark):
            yield from _until(known, mark.since_us or 0, None, slide_us)
            why = LOOKS_MISSED
        yield from _until(known, moment_us - 1, why, slide_us)
        _pass(known, mark, moment_us)
    yield from _until(known, end_us, None, slide_us)


def _is_gap(known: Emitter, mark: Mark) -> bool:
    """Did no look show anything for longer than an emitter may be silent?"""
    if mark.since_us is None:
        return False
    return mark.moment_us - mark.since_us > silence_us(known.report_each_ms)


def _pass(known: Emitter, mark: Mark, moment_us: int) -> None:
    """What a mark changes about its emitter."""
    match mark.kind:
        case "BOOT":
            known.alive_since_us = moment_us
            # Its clock stood until the time was that of its last row.
            known.stepped_us = min(known.stepped_us, moment_us)
        case "SNAPSHOT":
            known.tells_snapshots = True
            lost = known.lost_seq
            if lost is not None and is_made_good(lost, mark.seq_from):
                known.lost_seq = known.lost_us = None
        case "CLOCK_STEPPED":
            made_up_us = moment_us + max(0, -mark.step_us)
            known.stepped_us = max(known.stepped_us, made_up_us)
        case "OBSERVED":
            known.report_each_ms = mark.report_each_ms
        case "LOOKS_MISSED":
            if _is_gap(known, mark):
                known.alive_since_us = moment_us
        case _:
            known.lost_seq, known.lost_us = mark.seq, moment_us
            known.alive_since_us = moment_us


def _until(known: Emitter, end_us: int, why: str | None, slide_us: int) -> Iterator[Stretch]:
    """The ticks in (horizon, end]: unknown for `why`, or since rows were lost or the clock was set,
    or alive.
    """
    if known.lost_us is not None and not known.tells_snapshots:
        made_good_us = known.lost_us + REPORT_SPAN_US
        if made_good_us <= end_us:
            yield from _alike(known, made_good_us - 1, why or SPOOL_LOSS, slide_us)
            known.lost_seq = known.lost_us = None
    if why is None and known.lost_us is not None:
        why = SPOOL_LOSS
    if why is None and known.horizon_us < known.stepped_us:
        yield from _alike(known, min(end_us, known.stepped_us - 1), CLOCK_STEPPED, slide_us)
    yield from _alike(known, end_us, why, slide_us)


def _alike(known: Emitter, end_us: int, why: str | None, slide_us: int) -> Iterator[Stretch]:
    first, last = (known.horizon_us // slide_us + 1) * slide_us, end_us // slide_us * slide_us
    known.horizon_us = max(known.horizon_us, end_us)
    if first > last:
        return
    is_same, known.why_unknown = known.why_unknown == why, why
    if why is not None:  # However long it is: a clock may have been set by years.
        known.run_from_us = last + slide_us
        if is_same:
            return
        last = first
    grid = np.arange(first, last + 1, slide_us, dtype=np.int64)
    polled_us = (known.report_each_ms or 0) * MS_US
    yield Stretch(
        *(grid, why, known.alive_since_us, known.run_from_us, known.stepped_us, polled_us)
    )


def _as_rows(name: str, stretch: Stretch) -> pa.Table:
    count = len(stretch.ticks)
    emitter = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [name])
    why = stretch.why_unknown
    return pa.table(
        [
            emitter,
            pa.array(stretch.ticks),
            pa.repeat(pa.scalar(why is None), count),
            pa.repeat(pa.scalar(stretch.alive_since_us, pa.int64()), count),
            pa.repeat(pa.scalar(stretch.run_from_us, pa.int64()), count),
            pa.repeat(pa.scalar(why, pa.string()), count),
            pa.repeat(pa.scalar(stretch.stepped_us, pa.int64()), count),
            pa.repeat(pa.scalar(stretch.polled_us, pa.int64()), count),
        ],
        schema=TICKS,
    )


STEP: Final = Step(
    NAME,
    ("shipments", "lifecycle"),
    ticks,
    {"emitters": EMITTERS},
    makes=TICKS,
    wakes=("shipments",),
)
