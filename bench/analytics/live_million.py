"""Benchmark `live-1m`: a live run with 1,000,000 known keys, 1 % of which move each minute.

The facts come from the broker's own telemetry, without a broker or clients around it (to make a
million offsets takes longer than all parts may); spool, shipper and pipeline are those that a user
starts. First every key is reported once and judged; then the cycles of SECONDS count, the longest
of them. Then a snapshot of all keys is emitted as a broker does it each ten minutes, spread over a
number of its samples, while keys move as before: its cycles count apart, until its last row is
judged. The memory of the driver's two processes is that of both times. Scaled, there are fewer
keys.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.analytics.cost import Clock, Spent, resident_bytes
from bench.analytics.figures import Figure
from bench.bars import CYCLE_OF_A_MILLION, DRIVER_MEMORY
from demo.processes import Actor, stop_all, tidemark
from engine.foundation.observing import GroupWatermark, LifecycleEvent
from engine.runtime import system_runtime
from engine.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

KEYS = 1_000_000
QUEUES = 16
SECONDS = 60.0
SHARE_A_MINUTE = 0.01
EMITTED_AT_ONCE = 1_000
START_PATIENCE_S = 90.0
KNOWN_PATIENCE_S = 120.0
SNAPSHOT_SAMPLES = 30
"""Seconds over which a snapshot in haste is emitted, the shortest that a broker takes for one."""
SNAPSHOT_PATIENCE_S = 120.0
GIB = 2**30
CYCLE = re.compile(
    r"^cycle (\d+): (\d+) rows in, (\d+) out, horizon \S+, ([\d.]+) s$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What the pipeline says of one."""

    rows: int
    gold_rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """The cycles of a time."""

    cycles: list[Cycle]
    spent: Spent

    def longest(self, what: str) -> Figure:
        """The longest of them."""
        if not self.cycles:
            return Figure(what, None, bar=CYCLE_OF_A_MILLION, note="no cycle ended")
        seconds = sorted(one.seconds for one in self.cycles)
        rows = sum(one.rows for one in self.cycles)
        return Figure(
            what,
            seconds[-1],
            "s",
            CYCLE_OF_A_MILLION,
            wall_s=self.spent.wall_s,
            cpu_s=self.spent.cpu_s,
            note=f"{len(seconds)} cycles, median {seconds[len(seconds) // 2]:.1f}; {rows:,} rows",
        )


@dataclass(slots=True)
class Peak:
    """The most memory seen, in bytes."""

    driver: int = 0
    """Its Python and its Java together."""
    everything: int = 0
    """With executors' Python workers and upkeep."""

    def look(self, pid: int) -> None:
        """At the pipeline's family now."""
        found = resident_bytes(pid)
        own = [size for one, (name, size) in found.items() if one == pid or name == "java"]
        self.driver = max(self.driver, sum(own))
        self.everything = max(self.everything, sum(size for _, size in found.values()))


def measure(folder: Path, scale: float) -> list[Figure]:
    """The longest cycle, that beside a snapshot, and the driver's memory."""
    keys = max(1_000, round(KEYS * scale))
    with processes(folder) as pipeline:
        quiet, snapshot, peak = asyncio.run(_live(folder, pipeline, keys))
    if not quiet.cycles:
        raise SystemExit(f"no cycle ended within {SECONDS:.0f} s")
    what = f"live, {keys:,} keys known, {SHARE_A_MINUTE:.0%} of them move a minute"
    return [
        quiet.longest(f"{what}: longest cycle"),
        snapshot.longest(f"{what}: longest cycle while a snapshot of all keys is emitted"),
        Figure(
            f"{what}: driver's memory",
            peak.driver / GIB,
            "GiB",
            DRIVER_MEMORY,
            wall_s=quiet.spent.wall_s + snapshot.spent.wall_s,
            note=f"{peak.everything / GIB:.2f} with its executors' workers",
        ),
    ]


@contextmanager
def processes(home: Path) -> Iterator[Actor]:
    """Shipper and pipeline; the pipeline is handed out."""
    logs, lake, store = home / "logs", str(home / "lake"), str(home / "store")
    logs.mkdir(parents=True)
    shipper = Actor("shipper", tidemark("shipper", "--store", store, "--lake", lake), logs)
    pipeline = Actor("pipeline", tidemark("pipeline", "run", "--lake", lake), logs)
    actors = [pipeline, shipper]
    try:
        for actor in reversed(actors):
            actor.start()
        pipeline.wait_for_line("ready", within_s=START_PATIENCE_S)
        yield pipeline
    finally:
        stop_all(actors)


async def _live(home: Path, pipeline: Actor, keys: int) -> tuple[Stretch, Stretch, Peak]:
    identity = EmitterIdentity("cluster-1", "broker-a", 0)
    telemetry = Telemetry.open(system_runtime(), str(home / "store" / SPOOL_DIRECTORY), identity)
    telemetry.start()
    emitted, peak = Emitted(telemetry, [100] * keys), Peak()
    try:
        await _emit_all(telemetry, emitted.offsets)
        await _known(pipeline, keys)
        until_s = time.monotonic() + SECONDS
        quiet = await _stretch(pipeline, emitted, peak, lambda _rows: time.monotonic() > until_s)
        emitted.begin_snapshot()
        patience_s = time.monotonic() + SNAPSHOT_PATIENCE_S
        snapshot = await _stretch(
            pipeline,
            emitted,
            peak,
            lambda rows: (not emitted.waiting and rows >= keys) or time.monotonic() > patience_s,
        )
    finally:
        await telemetry.close()
    return quiet, snapshot, peak


class Emitted:
    """What the broker's telemetry emits, second by second."""

    def __init__(self, telemetry: Telemetry, offsets: list[int]) -> None:
        self.telemetry = telemetry
        self.offsets = offsets
        self.waiting = range(0)
        """Keys that a snapshot has still to emit."""
        self._chance = Random(7)
        self._first = 0
        self._from_ms = 0

    def begin_snapshot(self) -> None:
        """All keys, from the next second on."""
        self._first, self._from_ms = self.telemetry.next_seq, int(time.time() * 1000)
        self.waiting = range(len(self.offsets))

    async def second(self) -> None:
        """Keys that move, and a part of the snapshot under way."""
        keys = len(self.offsets)
        moving = self._chance.sample(range(keys), max(1, round(keys * SHARE_A_MINUTE / 60)))
        _emit(self.telemetry, self.offsets, moving, step=20)
        count = min(len(self.waiting), -(-keys // SNAPSHOT_SAMPLES))
        part, self.waiting = self.waiting[:count], self.waiting[count:]
        for begin in range(0, len(part), EMITTED_AT_ONCE):
            _emit(self.telemetry, self.offsets, part[begin : begin + EMITTED_AT_ONCE], step=0)
            await asyncio.sleep(0)
        if count and not self.waiting:
            _end_snapshot(self.telemetry, keys, first=self._first, from_ms=self._from_ms)


async def _stretch(
    pipeline: Actor, emitted: Emitted, peak: Peak, is_over: Callable[[int], bool]
) -> Stretch:
    """Emit second by second until it is over, by the rows that cycles have taken since."""
    before, clock = len(cycles_of(pipeline)), Clock(pipeline.pid)
    began_s, number = time.monotonic(), 0
    while not is_over(sum(one.rows for one in cycles_of(pipeline)[before:])):
        number += 1
        await emitted.second()
        peak.look(pipeline.pid)
        await asyncio.sleep(max(0.0, began_s + number - time.monotonic()))
    return Stretch(cycles_of(pipeline)[before:], clock.spent())


async def _emit_all(telemetry: Telemetry, offsets: list[int]) -> None:
    """A snapshot, from its begin to its end."""
    first, from_ms = telemetry.next_seq, int(time.time() * 1000)
    for begin in range(0, len(offsets), EMITTED_AT_ONCE):
        end = min(begin + EMITTED_AT_ONCE, len(offsets))
        _emit(telemetry, offsets, range(begin, end), step=0)
        await asyncio.sleep(0)
    _end_snapshot(telemetry, len(offsets), first=first, from_ms=from_ms)


def _end_snapshot(telemetry: Telemetry, keys: int, *, first: int, from_ms: int) -> None:
    detail = f"{keys} queues of groups"
    telemetry.observe(LifecycleEvent("SNAPSHOT", detail, seq_from=first, time_from_ms=from_ms))


def _emit(telemetry: Telemetry, offsets: list[int], keys: Sequence[int], *, step: int) -> None:
    """These keys have moved by so many messages, and have nothing left."""
    now_ms = int(time.time() * 1000)
    facts = []
    for key in keys:
        at = offsets[key] = offsets[key] + step
        group, topic = f"group-{key // QUEUES}", f"topic-{key // QUEUES}"
        marks = (at, at, at, at, "AT_END", None, 0, at, now_ms)
        holder = (f"client-{key % 4}", None, now_ms, now_ms, 1, "CLUSTERING", 4)
        facts.append(GroupWatermark(group, topic, key % QUEUES, *marks, *holder))
    telemetry.observe_all(facts)
    telemetry.write_turn()


async def _known(pipeline: Actor, keys: int) -> None:
    """Wait until the pipeline has judged a row of each key."""
    deadline_s = time.monotonic() + KNOWN_PATIENCE_S
    while sum(one.rows for one in cycles_of(pipeline)) < keys:
        if time.monotonic() > deadline_s or not pipeline.running:
            done = sum(one.rows for one in cycles_of(pipeline))
            raise SystemExit(f"{done:,} of {keys:,} rows judged in {KNOWN_PATIENCE_S:.0f} s")
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)  # What was started for so many rows comes to rest.


def cycles_of(pipeline: Actor) -> list[Cycle]:
    """What it has said so far."""
    said = pipeline.log.read_text(encoding="utf-8", errors="replace")
    return [
        Cycle(int(rows), int(gold), float(seconds))
        for _, rows, gold, seconds in CYCLE.findall(said)
    ]
