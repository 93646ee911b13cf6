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
            _collect(ours, load.run(side, seconds, "send,consume"))
            memory.append(side.memory_mib() or (0.0, 0.0))
        if rival:
            with rival_side(flush) as side:
                _collect(theirs, load.run(side, seconds, "send,consume"))
    resident, anonymous = (median(values) for values in zip(*memory, strict=True))
    table = Table(
        title=f"{flush.upper()}_FLUSH, 1 KiB, Java client, median of {rounds} "
        f"(our broker afterwards: {resident:.0f} MiB resident, {anonymous:.0f} MiB anonymous)"
    )
    for heading in (
        "what",
        "ours msg/s",
        "p50 µs",
        "p99 µs",
        "CPU µs",
        "rival msg/s",
        "p50 µs",
        "ratio",
    ):
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
    keys = ("msgs_per_s", "p50_us", "p99_us", "broker_cpu_us")
    rate, p50, p99, cpu = (_median(ours, key) for key in keys)
    their_rate, their_p50 = (_median(theirs, key) for key in ("msgs_per_s", "p50_us"))
    ratio = f"{rate / their_rate:.2f}" if rate and their_rate else ""
    cells = (rate, p50, p99, cpu, their_rate, their_p50)
    return [*(f"{v:,.0f}" if v else "" for v in cells), ratio]


def _median(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [run[key] for run in runs if key in run]
    return median(values) if values else None


def measure_telemetry_cost(load: JavaLoad, *, rounds: int, seconds: float) -> Table:
    """Two of our brokers, with and without a spool of facts, loaded in turn by one warm client.

    A ratio is the median of the pairs' ratios: what else the machine does meets both of a pair.
    """
    figures: tuple[Figures, Figures] = (defaultdict(list), defaultdict(list))
    with tidemark_side("async") as told, tidemark_side("async", "--no-telemetry") as silent:
        for figure in load.run_pairs((told, silent), seconds, rounds):
            _collect(figures[figure["side"]], [figure])
    table = Table(title=f"cost of telemetry, ASYNC_FLUSH, 1 KiB, medians of {rounds} pairs")
    rates_of = ("with msg/s", "without", "ratio", "pairs, middle half")
    for heading in ("what", *rates_of, "CPU µs", "without", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    with_spool, without = figures
    for name, runs in with_spool.items():
        rates_told = _compared(runs, without[name], "msgs_per_s", ",.0f")
        costs_told = _compared(runs, without[name], "broker_cpu_us", ".1f")
        table.add_row(name, *rates_told, *costs_told[:3])
    return table


def _compared(
    runs: list[dict[str, Any]], others: list[dict[str, Any]], key: str, form: str
) -> list[str]:
    """Medians of both, the median ratio of the pairs, and where the middle half of them lies."""
    ratios = sorted(run[key] / other[key] for run, other in zip(runs, others, strict=True))
    both = [format(median(run[key] for run in side), form) for side in (runs, others)]
    quarter = len(ratios) // 4
    middle = f"{ratios[quarter]:.2f}-{ratios[-1 - quarter]:.2f}"
    return [*both, f"{median(ratios):.3f}", middle]
