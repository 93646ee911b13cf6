"""Messages a second and latencies, ours beside the rival's, alternating, as medians and ratios."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from rich.table import Table

from bench.brokers import FLUSHES, rival_side, tidemark_side
from bench.java_load import JavaLoad

Figures = dict[str, list[dict[str, Any]]]


def measure_throughput(load: JavaLoad, *, rounds: int, seconds: float, rival: bool) -> list[Table]:
    """One table per flush mode; every figure is the median over `rounds`."""
    return [_measure(load, flush, rounds=rounds, seconds=seconds, rival=rival) for flush in FLUSHES]


def _measure(load: JavaLoad, flush: str, *, rounds: int, seconds: float, rival: bool) -> Table:
    ours: Figures = defaultdict(list)
    theirs: Figures = defaultdict(list)
    memory: list[tuple[float, float]] = []
    for _ in range(rounds):
        with tidemark_side(flush) as side:
            _collect(ours, load.run(side.name_server, seconds, "send,consume"))
            memory.append(side.memory_mib() or (0.0, 0.0))
        if rival:
            with rival_side(flush) as side:
                _collect(theirs, load.run(side.name_server, seconds, "send,consume"))
    resident, anonymous = (median(values) for values in zip(*memory, strict=True))
    table = Table(
        title=f"{flush.upper()}_FLUSH, 1 KiB, Java client, median of {rounds} "
        f"(our broker afterwards: {resident:.0f} MiB resident, {anonymous:.0f} MiB anonymous)"
    )
    for heading in ("what", "ours msg/s", "p50 µs", "p99 µs", "rival msg/s", "p50 µs", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, runs in ours.items():
        table.add_row(name, *_row(runs, theirs.get(name, [])))
    return table


def _collect(into: Figures, figures: list[dict[str, Any]]) -> None:
    for figure in figures:
        name = figure["bench"]
        if name == "send_sync":
            name = f"send, {figure['threads']} in flight"
        elif name == "send_batch":
            name = f"send batches of {figure['batch']}"
        into[name].append(figure)


def _row(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    rate, p50, p99 = (_median(ours, key) for key in ("msgs_per_s", "p50_us", "p99_us"))
    their_rate, their_p50 = (_median(theirs, key) for key in ("msgs_per_s", "p50_us"))
    ratio = f"{rate / their_rate:.2f}" if rate and their_rate else ""
    return [*(f"{v:,.0f}" if v else "" for v in (rate, p50, p99, their_rate, their_p50)), ratio]


def _median(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [run[key] for run in runs if key in run]
    return median(values) if values else None


def measure_telemetry_cost(load: JavaLoad, *, rounds: int, seconds: float) -> Table:
    """The same broker with and without its spool of facts, alternating."""
    with_spool: Figures = defaultdict(list)
    without: Figures = defaultdict(list)
    for _ in range(rounds):
        with tidemark_side("async") as side:
            _collect(with_spool, load.run(side.name_server, seconds, "send,consume"))
        with tidemark_side("async", "--no-telemetry") as side:
            _collect(without, load.run(side.name_server, seconds, "send,consume"))
    table = Table(title=f"cost of telemetry, ASYNC_FLUSH, 1 KiB, median of {rounds} pairs")
    for heading in ("what", "with msg/s", "without msg/s", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, runs in with_spool.items():
        on, off = _median(runs, "msgs_per_s"), _median(without[name], "msgs_per_s")
        assert on is not None
        assert off is not None
        table.add_row(name, f"{on:,.0f}", f"{off:,.0f}", f"{on / off:.3f}")
    return table
