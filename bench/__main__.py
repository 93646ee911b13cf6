"""`make bench`: runs benchmarks on this machine and prints tables, without assertions.

Ratios say most. A figure that has a bar (bench.bars) has it beside it.

    python -m bench [--only PART ...] [--rounds N] [--seconds S] [--warm S] [--no-rival]

Rounds, seconds and warm-up are those of the loads by the Java client: throughput, telemetry, topics
and catchup. Below their defaults a table says that it is no figure of record.

Parts: throughput (ours beside Apache RocketMQ, both up and warm), telemetry (its cost), topics
(sends over 10,000 of them), catchup (sends beside a reader of cold data), spool, store, paths and
filter (micro-benchmarks of the hot paths), cpu (what a message sent costs our broker), connections
(10,000 idle ones and a slow reader), turns (how long one step holds the event loop, with 10,000
clients), timers (how late 100,000 leave that are due in one second), failover (from SIGKILL of a
Raft group's leader to sends as before, by our client and Java's), groups (sends to three brokers in
such a group, beside one broker and DLedger), masters (sends to masters with a slave beside one
alone, and how fast a new slave copies), observer (what it takes to watch 3,500 topics and
1,500 groups from outside), scheduler (how late runs start when 10,000 jobs are due in a minute),
scheduler.kills (centres and executors killed with SIGKILL, `--kills 100` times on each database:
what is lost or begins twice), start (to ready; takes 12 GiB for a while).

analytics (all bars of the analytics core, each a part that can be run alone: analytics.p13 and so
on; `--scale 0.1` makes them smaller, for trying them).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.analytics.figures import as_markdown, as_table
from bench.analytics.parts import BY_NAME, run_parts
from bench.analytics.parts import PARTS as ANALYTICS
from bench.java_load import Pace, compile_load
from bench.side_loads import measure_catch_up, measure_topics
from bench.throughput import measure_telemetry_cost, measure_throughput

KILLS = 100
PARTS = (
    "throughput",
    "telemetry",
    "topics",
    "catchup",
    "spool",
    "store",
    "paths",
    "filter",
    "cpu",
    "connections",
    "turns",
    "timers",
    "failover",
    "groups",
    "masters",
    "start",
    "observer",
    "scheduler",
    "scheduler.kills",
    "analytics",
)
MODULES = {
    "spool": "bench.spool",
    "store": "bench.store_paths",
    "filter": "bench.filter",
    "cpu": "bench.send_cpu",
    "connections": "bench.connections",
    "paths": "bench.read_paths",
    "start": "bench.start",
    "turns": "bench.turns",
    "timers": "bench.timers",
    "failover": "bench.failover",
    "groups": "bench.groups",
    "masters": "bench.masters",
    "observer": "bench.observer",
    "scheduler": "bench.scheduler",
    "scheduler.kills": "bench.scheduler_kills",
}
CHOICES = (*PARTS, *(f"analytics.{name}" for name in BY_NAME))


def main() -> None:
    """Run the parts asked for and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=list(PARTS))
    least = Pace()
    parser.add_argument("--rounds", type=int, default=least.rounds, help="turns of every side")
    parser.add_argument("--seconds", type=float, default=least.seconds, help="length of a turn")
    parser.add_argument(
        "--warm", type=float, default=least.warm_seconds, help="seconds a side, uncounted, before"
    )
    parser.add_argument("--no-rival", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--kills", type=int, default=KILLS, help="of scheduler.kills")
    parser.add_argument("--scale", type=float, default=1.0, help="of the parts of analytics")
    options = parser.parse_args()
    console = Console(width=140)
    analytics = [one for one in options.only if one.partition(".")[0] == "analytics"]
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        home = Path(folder)
        if analytics:
            names = [one.partition(".")[2] for one in analytics]
            measure_analytics(console, names, home / "analytics", scale=options.scale)
        for part in options.only:
            if part in analytics:
                continue
            console.rule(part)
            if part in MODULES:
                kills = [str(options.kills)] if part == "scheduler.kills" else []
                subprocess.run([sys.executable, "-m", MODULES[part], *kills], check=True)
            else:
                load = compile_load(home)
                pace = Pace(options.rounds, options.seconds, options.warm)
                rival = not options.no_rival
                if part == "throughput":
                    for table in measure_throughput(load, pace, rival=rival):
                        console.print(table)
                elif part == "topics":
                    console.print(measure_topics(load, pace, rival=rival))
                elif part == "catchup":
                    console.print(measure_catch_up(load, pace))
                else:
                    console.print(measure_telemetry_cost(load, pace))


def measure_analytics(console: Console, names: list[str], home: Path, *, scale: float) -> None:
    """Run the parts of these names ("": all), and print their figures as they come and together."""
    wanted = list(ANALYTICS) if "" in names else [BY_NAME[name] for name in names]
    found = []
    for part, figures in run_parts(wanted, home, scale=scale):
        command = f"python -m bench --only analytics.{part.name}"
        rows = [(command, figure) for figure in figures]
        console.print(as_table(rows, title=part.name))
        found += rows
    title = "" if scale == 1 else f"at a scale of {scale:g}: no figures of record\n\n"
    print(f"\n{title}{as_markdown(found)}")


if __name__ == "__main__":
    main()
