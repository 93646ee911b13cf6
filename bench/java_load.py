"""The load: RocketMQ's own Java client, the same for every broker it is pointed at."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision import jars, java
from provision.places import rocketmq_jars

SOURCE = Path(__file__).parent / "java" / "Bench.java"
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class JavaLoad:
    """The compiled load generator."""

    java_home: Path
    classes: Path

    def run(self, name_server: str, seconds: float, what: str) -> list[dict[str, Any]]:
        """Run the parts named in `what` (of send, consume, e2e), each `seconds` long.

        One dictionary per figure: bench, threads, batch, msgs_per_s, p50_us, p99_us and so on.
        """
        with tempfile.TemporaryDirectory() as home:
            command = [
                *(str(self.java_home / "bin" / "java"), "-Xms256m", "-Xmx1g", "-XX:+UseG1GC"),
                *(f"-Duser.home={home}", "-Djava.net.preferIPv4Stack=true"),
                *("-cp", f"{self.classes}:{rocketmq_jars()}/*", "Bench"),
                *(name_server, str(seconds), what),
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not figures:
            raise SystemExit(f"the Java load ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return figures


def compile_load(folder: Path) -> JavaLoad:
    """Compile the load generator against the jars that set-up brought."""
    java_home = java.find(with_compiler=True)
    if java_home is None:
        raise SystemExit(java.missing(with_compiler=True))
    wrong = jars.faults(jars.read_pins(jars.ROCKETMQ.pins), rocketmq_jars())
    if wrong:
        raise SystemExit(f"run `make setup`: {wrong[0]}")
    classes = folder / "classes"
    subprocess.run(
        [
            *(str(java_home / "bin" / "javac"), "-nowarn", "-proc:none"),
            *("-cp", f"{rocketmq_jars()}/*", "-d", str(classes), str(SOURCE)),
        ],
        check=True,
    )
    return JavaLoad(java_home, classes)
