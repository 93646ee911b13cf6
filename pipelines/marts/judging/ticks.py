"""The grid of evaluation: at which moments each emitter can be judged.

Place in the walk: shipped horizons and boots → ticks, at which queues are judged. Ticks are
multiples of the slide in data time; those of a shipment lie between the horizon before it and its
own, so they do not depend on where a cycle was cut.

A horizon says that everything up to it was reported, so an emitter lives on between two horizons of
one life, however far apart they are (a shipper may have stood still, its emitter did not). Between
the last horizon of a life and the boot of the next one nobody reports: when that took longer than
SILENCE_US, no tick in it is alive, and of those ticks only the first is a row.

Invariant: a horizon never goes back; a clock that was set back gives no ticks until it has regained
it. Absent on purpose: rows of queues, and the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.mart import KEY_TEXT, Given, Made, Positions, Step
from pipelines.settings import SILENCE_US

NAME: Final = "ticks"
EMITTER_SILENT: Final = "EMITTER_SILENT"
"""Why nothing is known at a tick: its emitter reported nothing, and was no more."""

TICKS: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("tick_us", pa.int64()),
        ("is_alive", pa.bool_()),
        ("alive_since_us", pa.int64()),
        ("run_from_us", pa.int64()),
        ("why_unknown", pa.string()),
    ]
)
"""run_from_us: first tick of the unbroken run of living ticks that the tick belongs to.
alive_since_us: boot, or return from a silence, from which on the emitter has reported.
"""
EMITTERS: Final = pa.schema(
    [
        ("emitter", pa.string()),
        ("horizon_us", pa.int64()),
        ("epoch", pa.int64()),
        ("alive_since_us", pa.int64()),
        ("run_from_us", pa.int64()),
    ]
)


@dataclass(slots=True)
class Emitter:
    """Where an emitter stands."""

    horizon_us: int
    epoch: int
    alive_since_us: int
    run_from_us: int


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipment: its horizon, and the boots among its rows."""

    epoch: int
    horizon_us: int
    boots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ticks of an emitter that are alike."""

    ticks: Positions
    is_alive: bool
    alive_since_us: int
    run_from_us: int


def ticks(given: Given) -> Made:
    """A row per emitter and tick; of a silence its first tick."""
    slide_us = given.evaluation.slide_us
    emitters = {
        row["emitter"]: Emitter(**{name: row[name] for name in EMITTERS.names[1:]})
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
    """Per emitter its new shipments in order, each with the boots among its rows."""
    shipments, lifecycle = given.facts["shipments"], given.facts["lifecycle"]
    is_boot = pc.equal(pc.cast(lifecycle["kind"], pa.string()), "BOOT")
    boots: dict[str, list[tuple[int, int]]] = {}
    for row in lifecycle.filter(is_boot).select(["emitter", "seq", "event_us"]).to_pylist():
        boots.setdefault(row["emitter"], []).append((row["seq"], row["event_us"]))
    told: dict[str, list[Shipment]] = {}
    columns = ["emitter", "seq_from", "seq_to", "broker_epoch", "event_us_to"]
    for row in shipments.select(columns).to_pylist():
        own = tuple(
            sorted(
                moment
                for seq, moment in boots.get(row["emitter"], [])
                if row["seq_from"] <= seq <= row["seq_to"]
            )
        )
        shipment = Shipment(row["broker_epoch"], row["event_us_to"], own)
        told.setdefault(row["emitter"], []).append(shipment)
    yield from told.items()


def _stretches(
    emitters: dict[str, Emitter], name: str, shipment: Shipment, slide_us: int
) -> Iterator[Stretch]:
    """What the shipment adds; moves the emitter on."""
    known = emitters.get(name)
    boots = shipment.boots
    if known is None:
        begin_us = boots[0] if boots else shipment.horizon_us - SILENCE_US
        known = emitters[name] = Emitter(
            min(begin_us, shipment.horizon_us) - 1,
            shipment.epoch,
            begin_us,
            -(-begin_us // slide_us) * slide_us,
        )
    elif not boots and shipment.epoch > known.epoch:
        boots = (shipment.epoch,)  # The row of the boot was lost; every row knows its life.
    known.epoch = shipment.epoch
    end_us = max(shipment.horizon_us, known.horizon_us)
    for boot_us in (min(max(boot, known.horizon_us), end_us) for boot in boots):
        yield from _until(known, boot_us - 1, boot_us - known.horizon_us <= SILENCE_US, slide_us)
        known.alive_since_us = boot_us
    yield from _until(known, end_us, True, slide_us)


def _until(known: Emitter, end_us: int, is_alive: bool, slide_us: int) -> Iterator[Stretch]:
    """The ticks in (horizon, end]."""
    first = (known.horizon_us // slide_us + 1) * slide_us
    grid = np.arange(first, end_us + 1, slide_us, dtype=np.int64)
    known.horizon_us = max(known.horizon_us, end_us)
    if not len(grid):
        return
    if is_alive:
        yield Stretch(grid, True, known.alive_since_us, known.run_from_us)
    else:
        known.run_from_us = int(grid[-1]) + slide_us
        yield Stretch(grid[:1], False, known.alive_since_us, known.run_from_us)


def _as_rows(name: str, stretch: Stretch) -> pa.Table:
    count = len(stretch.ticks)
    emitter = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [name])
    why = None if stretch.is_alive else EMITTER_SILENT
    return pa.table(
        [
            emitter,
            pa.array(stretch.ticks),
            pa.repeat(pa.scalar(stretch.is_alive), count),
            pa.repeat(pa.scalar(stretch.alive_since_us, pa.int64()), count),
            pa.repeat(pa.scalar(stretch.run_from_us, pa.int64()), count),
            pa.repeat(pa.scalar(why, pa.string()), count),
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
