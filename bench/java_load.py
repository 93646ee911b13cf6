"""Uses RocketMQ's own Java client to put the same load on every broker."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.brokers import Side
from demo.rocketmq import Installation
from provision import jars, java
from provision.places import rocketmq_jars

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
TIMEOUT_S = 1800
PAUSE = "pause"
"""A line of this name ends what is not measured: warming up, filling a topic."""
COLD = "cold"
"""A line of this name asks for the log to be taken out of the machine's memory, and is answered."""
SIDE = "side"
"""A line of this name says whose the next figure is."""
Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how often a load runs."""

    rounds: int = 5
    """Turns of every side."""
    seconds: float = 4.0
    """Length of a turn."""
    warm_seconds: float = 20.0
    """What every side is given of the same loads before anything counts: the JVM of a broker, and
    that of the client, compile what is used often, and are slow until then."""

    def __str__(self) -> str:
        """In words, and whether the result may be written down."""
        said = f"{self.rounds} turns of {self.seconds:g} s after {self.warm_seconds:g} s uncounted"
        least = Pace()
        enough = (
            self.rounds >= least.rounds
            and self.seconds >= least.seconds
            and self.warm_seconds >= least.warm_seconds
        )
        return said if enough else f"{said}; too short for a figure of record"

    def arguments(self) -> tuple[str, str, str]:
        """As the Java programs take them."""
        return str(self.seconds), str(self.rounds), str(self.warm_seconds)


@dataclass(frozen=True, slots=True)
class JavaLoad:
    """The compiled load generator."""

    java_home: Path
    classes: Path

    def run_pairs(self, sides: Sequence[Side], pace: Pace) -> list[Figure]:
        """Send and consume on every broker in turn from one client; all of them stay up.

        One dictionary per figure, in the order of time: bench, threads, batch, msgs, msgs_per_s,
        p50_us, p99_us and so on; `side` says whose it is, and broker_cpu_us what CPU time a message
        cost that broker. A side's shipper works in its side's turns alone, so that none of its work
        burdens the other; what its CPU time a message is, `shipper_cpu_us` says.
        """
        servers = (side.name_server for side in sides)
        return self._run("Pairs", sides, *pace.arguments(), *servers)

    def run_topics(self, side: Side, pace: Pace, *, count: int) -> list[Figure]:
        """Sends to one topic and to `count` topics in turn: send_one_topic, send_many_topics."""
        return self._run("Topics", [side], *pace.arguments(), side.name_server, str(count))

    def run_catch_up(self, side: Side, pace: Pace) -> list[Figure]:
        """Sends alone and beside a reader of a backlog that no memory holds any more: send_alone,
        send_beside, and what was read meanwhile, read_beside.
        """
        return self._run("CatchUp", [side], *pace.arguments(), side.name_server)

    def run_groups(self, sides: Sequence[Side], pace: Pace) -> list[Figure]:
        """Sends by 1, 16 and 64 threads to every side in turn, as `run_pairs`."""
        servers = (side.name_server for side in sides)
        return self._run("Groups", sides, *pace.arguments(), *servers)

    def _run(self, program: str, sides: Sequence[Side], *arguments: str) -> list[Figure]:
        with tempfile.TemporaryDirectory() as home:
            command = [
                *(str(self.java_home / "bin" / "java"), "-Xms256m", "-Xmx1g", "-XX:+UseG1GC"),
                *(f"-Duser.home={home}", "-Djava.net.preferIPv4Stack=true"),
                *("-cp", f"{self.classes}:{rocketmq_jars()}/*", program, *arguments),
            ]
            complaints = Path(home) / "stderr"
            with (
                complaints.open("w") as stderr,
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                ) as process,
            ):
                assert process.stdin is not None
                assert process.stdout is not None
                impatience = threading.Timer(TIMEOUT_S, process.kill)
                impatience.start()
                figures = list(_figures(process.stdout, process.stdin, sides))
                impatience.cancel()
            if process.returncode or not figures:
                said = complaints.read_text()[-2000:]
                raise SystemExit(f"the Java load ended with {process.returncode}:\n{said}")
        return figures


def _figures(lines: Iterable[str], answers: IO[str], sides: Sequence[Side]) -> Iterator[Figure]:
    """The figures as they come; the CPU time since the line before is theirs."""
    side = 0
    before = _cpu_seconds(sides[side])
    for line in lines:
        if not line.startswith("{"):
            continue
        figure = json.loads(line)
        if figure["bench"] == SIDE:
            side = figure["side"]
            for number, other in enumerate(sides):
                other.let_ship(go_on=number == side)
        if figure["bench"] == COLD:
            sides[side].forget_log()
            print(file=answers, flush=True)
        now = _cpu_seconds(sides[side])
        if figure["bench"] not in (PAUSE, COLD, SIDE):
            for process, total in now.items():
                if total and figure["msgs"]:
                    figure[f"{process}_cpu_us"] = (total - before[process]) / figure["msgs"] * 1e6
            yield figure | {"side": side}
        before = now


def shortcomings(figures: Iterable[Figure]) -> list[str]:
    """Loads that were not wholly carried out, in words: a rate alone would hide a refused send."""
    found = []
    for figure in figures:
        whose = f"{figure['bench']} of side {figure['side']}"
        if errors := figure.get("errors", 0):
            found.append(f"{whose}: {errors} sends failed beside {figure['msgs']}")
        if (wanted := figure.get("of", 0)) > figure["msgs"]:
            found.append(f"{whose}: {figure['msgs']} of {wanted} messages came")
    return found


def _cpu_seconds(side: Side) -> dict[str, float]:
    return {"broker": side.cpu_seconds(), "shipper": side.shipper_cpu_seconds()}


def compile_load(folder: Path) -> JavaLoad:
    """Compile the load generator against the jars that set-up brought."""
    java_home = java.find(with_compiler=True)
    if java_home is None:
        raise SystemExit(java.missing(with_compiler=True))
    wrong = jars.faults(jars.read_pins(jars.ROCKETMQ.pins), rocketmq_jars())
    if wrong:
        raise SystemExit(f"run `make setup`: {wrong[0]}")
    classes = folder / "classes"
    Installation(java_home, rocketmq_jars()).compile(SOURCES, classes)
    return JavaLoad(java_home, classes)
