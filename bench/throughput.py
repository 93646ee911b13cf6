"""Compares our throughput, CPU time per message and latencies with RocketMQ's.

A JVM is slow until it has compiled what it runs. A rival that is started anew for each round of a
few seconds is measured compiling, and ours looks fast. So both live for the whole run and are warm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

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
from bench.java_load import Figure, JavaLoad, Pace, shortcomings

Figures = dict[str, list[Figure]]
"""Of one side, by the name of the load, in the order of time."""
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


def measure_throughput(load: JavaLoad, pace: Pace, *, rival: bool) -> Iterator[Table]:
    """Two tables per flush mode: rates with CPU time a message, and latencies.

    Both brokers stay up for the whole run, are warmed, and are loaded in turn by one client. A
    ratio is the median of the pairs' ratios: what else the machine does meets both of a pair.
    """
    for flush in FLUSHES:
        with ExitStack() as stack:
            sides = [stack.enter_context(tidemark_side(flush))]
            if rival:
                sides.append(stack.enter_context(rival_side(flush)))
            idle = [side.memory_mib()[1] for side in sides]
            runs = load.run_pairs(sides, pace)
            loaded = [side.memory_mib()[1] for side in sides]
        figures = [_by_load(runs, side) for side in range(len(sides))]
        ours, theirs = figures[0], figures[1] if rival else {}
        caption = "\n".join([_memory(idle, loaded), *shortcomings(runs)])
        yield _rates(f"{flush.upper()}_FLUSH, 1 KiB, Java client, {pace}", ours, theirs, caption)
        yield _latencies(f"{flush.upper()}_FLUSH, latencies of the same sends", ours, theirs)


def _memory(idle: list[float], loaded: list[float]) -> str:
    """Anonymous memory before and after the loads, the rival's behind ours."""
    before, after = (" : ".join(f"{mib:.0f}" for mib in values) for values in (idle, loaded))
    return (
        f"anonymous memory, MiB: {before} idle (bar {MEMORY_IDLE}), "
        f"{after} after the loads (bar {MEMORY_AT_LOAD})"
    )


def _rates(title: str, ours: Figures, theirs: Figures, caption: str) -> Table:
    headings = ("ours msg/s", "rival", "ratio", "bar", "pairs, middle half")
    table = _table(title, *headings, "CPU µs", "rival", "ratio", caption=caption)
    for name, runs in ours.items():
        *rates, middle = _compared(runs, theirs.get(name, []), "msgs_per_s", ",.0f")
        *costs, _ = _compared(runs, theirs.get(name, []), "broker_cpu_us", ".1f")
        table.add_row(name, *rates, str(RATE_BARS.get(name, "")), middle, *costs)
    return table


def _latencies(title: str, ours: Figures, theirs: Figures) -> Table:
    table = _table(title, "p50 µs", "rival", "ratio", "bar", "p99 µs", "rival", "ratio")
    for name, runs in ours.items():
        if "p50_us" in runs[0]:
            *halves, _ = _compared(runs, theirs.get(name, []), "p50_us", ",.0f")
            *slow, _ = _compared(runs, theirs.get(name, []), "p99_us", ",.0f")
            table.add_row(name, *halves, str(LATENCY_BARS.get(name, "")), *slow)
    return table


def _table(title: str, *headings: str, caption: str = "") -> Table:
    table = Table(title=title, caption=caption)
    table.add_column("what")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _by_load(figures: list[Figure], side: int) -> Figures:
    """The figures of one side, by the name of their load."""
    found: Figures = defaultdict(list)
    for figure in figures:
        if figure["side"] == side:
            found[_name(figure)].append(figure)
    return found


def _name(figure: Figure) -> str:
    if figure["bench"] == "send_sync":
        return SEND.format(figure["threads"])
    if figure["bench"] == "send_batch":
        return BATCH.format(figure["batch"])
    return str(figure["bench"])


def measure_telemetry_cost(load: JavaLoad, pace: Pace) -> Table:
    """Two of our brokers, with facts shipped to a lake and with none, loaded in turn by one client.

    A ratio is the median of the pairs' ratios: what else the machine does meets both of a pair.
    The shipper's CPU time is apart from its broker's; it runs a cycle behind, so that some of it
    falls to the load that follows. No turn is shorter than TELEMETRY_TURN_S.
    """
    pace = replace(pace, seconds=max(pace.seconds, TELEMETRY_TURN_S))
    silence = tidemark_side("async", "--no-telemetry")
    with tidemark_side("async", ships=True) as shipping, silence as silent:
        figures = load.run_pairs((shipping, silent), pace)
    shipped, without = (_by_load(figures, side) for side in range(2))
    table = _table(
        f"cost of telemetry, ASYNC_FLUSH, 1 KiB, {pace}",
        *("with msg/s", "without", "ratio", "bar", "pairs, middle half"),
        *("CPU µs", "without", "ratio", "shipper's CPU µs"),
        caption="\n".join(shortcomings(figures)),
    )
    for name, runs in shipped.items():
        *rates, middle = _compared(runs, without[name], "msgs_per_s", ",.0f")
        *costs, _ = _compared(runs, without[name], "broker_cpu_us", ".1f")
        shipper = [run["shipper_cpu_us"] for run in runs if "shipper_cpu_us" in run]
        shipper_cpu = f"{median(shipper):.1f}" if shipper else ""
        table.add_row(name, *rates, str(TELEMETRY_RATE_RATIO), middle, *costs, shipper_cpu)
    return table


def _compared(runs: list[Figure], others: list[Figure], key: str, form: str) -> list[str]:
    """Medians of both, the median ratio of the pairs, and where the middle half of them lies.

    What was not measured, such as the rival when it is left out, is an empty cell.
    """
    both = [[run[key] for run in side if run.get(key)] for side in (runs, others)]
    medians = [format(median(values), form) if values else "" for values in both]
    pairs = zip(runs, others, strict=bool(others))
    ratios = sorted(
        run[key] / other[key] for run, other in pairs if run.get(key) and other.get(key)
    )
    if not ratios:
        return [*medians, "", ""]
    quarter = len(ratios) // 4
    return [*medians, f"{median(ratios):.2f}", f"{ratios[quarter]:.2f}-{ratios[-1 - quarter]:.2f}"]
