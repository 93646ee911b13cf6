"""Measures the cost of sending to 10,000 topics, and of sending while a reader catches up.

Each is measured against the same sends without, from one client, in turn.
"""

from __future__ import annotations

from statistics import median

from rich.table import Table

from bench.bars import CATCH_UP_P99_RATIO, MANY_TOPICS_RATE_RATIO
from bench.brokers import Side, rival_side, tidemark_side
from bench.java_load import Figure, JavaLoad, Pace

TOPICS = 10_000


def measure_topics(load: JavaLoad, pace: Pace, *, rival: bool) -> Table:
    """Send rate over TOPICS of four queues each ÷ over one topic, 64 in flight."""
    table = Table(title=f"{TOPICS:,} topics, ASYNC_FLUSH, 1 KiB, 64 in flight; medians, {pace}")
    for heading in ("whose", "one topic msg/s", "all topics", "ratio", "bar", "open files after"):
        table.add_column(heading, justify="left" if heading == "whose" else "right")

    def add(whose: str, side: Side) -> None:
        figures = load.run_topics(side, pace, count=TOPICS)
        one, many = (
            _median(figures, f"send_{n}", "msgs_per_s") for n in ("one_topic", "many_topics")
        )
        table.add_row(
            whose,
            f"{one:,.0f}",
            f"{many:,.0f}",
            f"{many / one:.2f}",
            str(MANY_TOPICS_RATE_RATIO),
            f"{side.open_files():,}",
        )

    with tidemark_side("async") as side:
        add("ours", side)
    if rival:
        with rival_side("async") as side:
            add("rival", side)
    return table


def measure_catch_up(load: JavaLoad, pace: Pace) -> Table:
    """Latencies of sends alone, and beside a group that reads what no memory holds any more."""
    with tidemark_side("async") as side:
        figures = load.run_catch_up(side, pace)
    read = _median(figures, "read_beside", "msgs_per_s")
    table = Table(
        title=f"sends beside a catch-up read of {read:,.0f} msg/s from the disk, ASYNC_FLUSH, "
        f"1 KiB, 8 in flight; medians, {pace}"
    )
    for heading in ("what", "alone", "beside", "ratio", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, key in (
        ("p50 µs", "p50_us"),
        ("p99 µs", "p99_us"),
        ("max µs", "max_us"),
        ("msg/s", "msgs_per_s"),
    ):
        before, after = (_median(figures, f"send_{name}", key) for name in ("alone", "beside"))
        bar = str(CATCH_UP_P99_RATIO) if key == "p99_us" else ""
        table.add_row(what, f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.2f}", bar)
    return table


def _median(figures: list[Figure], bench: str, key: str) -> float:
    return median(figure[key] for figure in figures if figure["bench"] == bench)
