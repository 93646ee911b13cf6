"""Messages a second and latencies, ours beside the rival's, alternating, as medians and ratios."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from rich.table import Table

from bench.bars import (
    BATCH_RATE_RATIO,
    CONSUME_RATE_RATIO,
    MEMORY_AT_LOAD,
    MEMORY_IDLE,
    SEND_LATENCY_RATIO,
    SEND_RATE_RATIO,
    TELEMETRY_RATE_RATIO,
    Bar,
)
from bench.brokers import FLUSHES, rival_side, tidemark_side
from bench.java_load import JavaLoad

Figures = dict[str, list[dict[str, Any]]]
SEND, BATCH, CONSUME = "send, {} in flight", "send batches of {}", "consume_backlog"
RATE_BARS: dict[str, Bar] = {
    SEND.format(64): SEND_RATE_RATIO,
    BATCH.format(32): BATCH_RATE_RATIO,
    CONSUME: CONSUME_RATE_RATIO,
}
TELEMETRY_TURN_S = 5.0
"""A side's turn lasts for two of the shipper's longest intervals at least: it begins with a
shipment, because the shipper was held before, and a short turn would have one too many."""
LATENCY_BARS: dict[str, Bar] = {SEND.format(1): SEND_LATENCY_RATIO}


def measure_throughput(load: JavaLoad, *, rounds: int, seconds: float, rival: bool) -> list[Table]:
    """One table per flush mode; every figure is the median over `rounds`."""
    return [_measure(load, flush, rounds=rounds, seconds=seconds, rival=rival) for flush in FLUSHES]


def _measure(load: JavaLoad, flush: str, *, rounds: int, seconds: float, rival: bool) -> Table:
    ours: Figures = defaultdict(list)
    theirs: Figures = defaultdict(list)
    memory: list[tuple[float, float]] = []
    idle_memory: list[float] = []
    for _ in range(rounds):
        with tidemark_side(flush) as side:
            idle_memory.append((side.memory_mib() or (0.0, 0.0))[1])
            _collect(ours, load.run(side, seconds, "send,consume"))
            memory.append(side.memory_mib() or (0.0, 0.0))
        if rival:
            with rival_side(flush) as side:
                _collect(theirs, load.run(side, seconds, "send,consume"))
    resident, anonymous = (median(values) for values in zip(*memory, strict=True))
    table = Table(
        title=f"{flush.upper()}_FLUSH, 1 KiB, Java client, median of {rounds} "
        f"(our broker: {median(idle_memory):.0f} MiB anonymous when idle, bar {MEMORY_IDLE}; "
        f"afterwards {resident:.0f} MiB resident, {anonymous:.0f} anonymous, bar {MEMORY_AT_LOAD})"
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
        "bar",
        "p50 ratio",
        "bar",
    ):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, runs in ours.items():
        rate, latency = RATE_BARS.get(name, ""), LATENCY_BARS.get(name, "")
        *cells, ratio, p50_ratio = _row(runs, theirs.get(name, []))
        table.add_row(name, *cells, ratio, str(rate), p50_ratio, str(latency))
    return table


def _collect(into: Figures, figures: list[dict[str, Any]]) -> None:
    for figure in figures:
        name = figure["bench"]
        if name == "send_sync":
            name = SEND.format(figure["threads"])
        elif name == "send_batch":
            name = BATCH.format(figure["batch"])
        into[name].append(figure)


def _row(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    keys = ("msgs_per_s", "p50_us", "p99_us", "broker_cpu_us")
    rate, p50, p99, cpu = (_median(ours, key) for key in keys)
    their_rate, their_p50 = (_median(theirs, key) for key in ("msgs_per_s", "p50_us"))
    pairs = ((rate, their_rate), (p50, their_p50))
    ratios = (f"{mine / other:.2f}" if mine and other else "" for mine, other in pairs)
    cells = (rate, p50, p99, cpu, their_rate, their_p50)
    return [*(f"{v:,.0f}" if v else "" for v in cells), *ratios]


def _median(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [run[key] for run in runs if key in run]
    return median(values) if values else None


def measure_telemetry_cost(load: JavaLoad, *, rounds: int, seconds: float) -> Table:
    """Two of our brokers, with facts shipped to a lake and with none, loaded in turn by one client.

    A ratio is the median of the pairs' ratios: what else the machine does meets both of a pair.
    The shipper's CPU time is apart from its broker's; it runs a cycle behind, so that some of it
    falls to the load that follows. No turn is shorter than TELEMETRY_TURN_S.
    """
    seconds = max(seconds, TELEMETRY_TURN_S)
    figures: tuple[Figures, Figures] = (defaultdict(list), defaultdict(list))
    silence = tidemark_side("async", "--no-telemetry")
    with tidemark_side("async", ships=True) as told, silence as silent:
        for figure in load.run_pairs((told, silent), seconds, rounds):
            _collect(figures[figure["side"]], [figure])
    table = Table(title=f"cost of telemetry, ASYNC_FLUSH, 1 KiB, medians of {rounds} pairs")
    rates_of = ("with msg/s", "without", "ratio", "bar", "pairs, middle half")
    for heading in ("what", *rates_of, "CPU µs", "without", "ratio", "shipper's CPU µs"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    shipping, without = figures
    for name, runs in shipping.items():
        *rates, middle = _compared(runs, without[name], "msgs_per_s", ",.0f")
        *costs, _ = _compared(runs, without[name], "broker_cpu_us", ".1f")
        shipper = _median(runs, "shipper_cpu_us")
        told_shipper = "" if shipper is None else f"{shipper:.1f}"
        table.add_row(name, *rates, str(TELEMETRY_RATE_RATIO), middle, *costs, told_shipper)
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
