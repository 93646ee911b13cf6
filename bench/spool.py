"""Measures telemetry cost per fact and per event-loop iteration, and shipper throughput.

    python -m bench.spool

Each figure is the least of several rounds: the machine's noise only ever adds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from engine.foundation.observing import OffsetReport
from engine.runtime import system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.events import row_of
from engine.telemetry.frames import Turn, encode_frame
from engine.telemetry.shipper.shipper import Shipper

ROUNDS: Final = 5
TURNS: Final = 4_000
FACT: Final = OffsetReport(
    group="orders_group",
    topic="orders",
    queue_id=3,
    offset=1_000_000,
    previous_offset=999_999,
    path="COMMIT_RPC",
    trigger="TIMER",
    client_id="127.0.0.1@4711",
    accepted=True,
    min_offset=0,
    max_offset=1_000_100,
)


class Figure(NamedTuple):
    """One measured number."""

    name: str
    value: float
    unit: str


def figures() -> Iterator[Figure]:
    """Measure everything, one figure after the other."""
    yield Figure("fact to row", _least_us(_rows), "µs/fact")
    yield Figure("encode a turn of 8 facts", _least_us(_frames), "µs/turn")
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder) / "store" / "spool"
        identity = EmitterIdentity("bench", "broker-a", 0)
        telemetry = Telemetry.open(system_runtime(), str(spool), identity)
        yield Figure("turn without facts", _least_us(lambda: _turns(telemetry, 0)), "µs/turn")
        for facts in (1, 8, 64):
            turn_us = _least_us(partial(_turns, telemetry, facts))
            yield Figure(f"observe and write_turn, {facts} facts", turn_us, "µs/turn")
            yield Figure(f"observe and write_turn, {facts} facts", turn_us / facts, "µs/fact")
        asyncio.run(telemetry.close())
        yield _reopened(spool, identity)
        yield _shipped(spool, Path(folder) / "lake")


def _rows() -> int:
    for _ in range(TURNS):
        row_of(FACT)
    return TURNS


def _frames() -> int:
    rows = [(*row_of(FACT)[:1], 1, row_of(FACT)[1])] * 8
    for _ in range(TURNS):
        encode_frame(Turn(1, 1, rows, ()))
    return TURNS


def _turns(telemetry: Telemetry, facts: int) -> int:
    for _ in range(TURNS):
        for _ in range(facts):
            telemetry.observe(FACT)
        telemetry.write_turn()
    return TURNS


def _least_us(work: Callable[[], int]) -> float:
    """The least time of one piece over ROUNDS rounds, µs; `work` says how many pieces it did."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        pieces = work()
        least = min(least, (time.perf_counter_ns() - began) / 1000 / pieces)
    return least


def _reopened(spool: Path, identity: EmitterIdentity) -> Figure:
    size_bytes = sum(path.stat().st_size for path in spool.glob("*.seg"))
    began = time.perf_counter()
    Telemetry.open(system_runtime(), str(spool), identity)
    return Figure(
        "reboot reads the spool", size_bytes / 1e6 / (time.perf_counter() - began), "MB/s"
    )


def _shipped(spool: Path, lake: Path) -> Figure:
    shipper = Shipper(system_runtime(), str(spool), str(lake), {})
    began = time.perf_counter()
    rows = shipper.ship_all()
    return Figure("shipped to Delta", rows / (time.perf_counter() - began), "rows/s")


def print_table() -> None:
    """The figures as a table on standard output."""
    print(f"each the least of {ROUNDS} rounds")
    for figure in figures():
        print(f"{figure.name:<40} {figure.value:>12,.2f} {figure.unit}")


if __name__ == "__main__":
    print_table()
