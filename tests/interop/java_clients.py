"""The official Java client as a judge: compiles the checks of `java/` and runs one.

A check runs against a name server.

A check is a program of its own. It prints one line, `PASS Name what` or `FAIL Name why`, and is the
same whether it speaks to Apache RocketMQ or to our broker: a check that passes there and fails here
is our defect.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.rocketmq import Installation
from provision import jars, java
from provision.places import rocketmq_jars

SOURCES = Path(__file__).parent / "java"
CHECKS = (
    "ConcurrentPush",
    "Orderly",
    "TagFilter",
    "LitePull",
    "BatchSend",
    "Transaction",
    "RequestReply",
    "Timers",
)
OURS_ALONE = ("FullProperties",)
"""Of what Apache RocketMQ does not do: it takes properties that leave their retry no room."""
ARGUMENTS = {"TagFilter": ("sql",)}
"""What a check gets besides the name server: filter by MessageSelector.bySql as well."""
CHECK_TIMEOUT_S = 240


@dataclass(frozen=True)
class JavaChecks:
    """The compiled checks, ready to run."""

    java_home: Path
    classes: Path
    home: Path

    @property
    def class_path(self) -> str:
        return f"{self.classes}:{rocketmq_jars()}/*"

    def judge(self, check: str, name_server: str) -> str:
        """Run one of CHECKS; return its PASS or FAIL line."""
        return self.run(check, name_server, *ARGUMENTS.get(check, ()))

    def run(
        self, check: str, name_server: str, *arguments: str, properties: Sequence[str] = ()
    ) -> str:
        """Run one check; return its PASS or FAIL line, with the end of its error output when it
        failed. `properties` are system properties of the JVM, `name=value`.
        """
        command = [
            *(str(self.java_home / "bin" / "java"), "-Xms64m", "-Xmx512m"),
            *("-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Duser.home={self.home}", *(f"-D{each}" for each in properties)),
            *("-cp", self.class_path),
            *(check, name_server, *arguments),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
        verdicts = [
            line for line in done.stdout.splitlines() if line.startswith(("PASS ", "FAIL "))
        ]
        if done.returncode == 0 and len(verdicts) == 1:
            return verdicts[0]
        return "\n".join(
            [*verdicts, f"FAIL {check} exit code {done.returncode}", done.stderr[-4000:]]
        )


def compile_checks(folder: Path) -> JavaChecks:
    """Compile every check below `folder` with the javac and the jars that set-up brought."""
    java_home = java.find(with_compiler=True)
    wrong = jars.faults(jars.read_pins(jars.ROCKETMQ.pins), rocketmq_jars())
    assert java_home is not None, java.missing(with_compiler=True)
    assert not wrong, f"run `make setup`: {wrong[0]}"
    checks = JavaChecks(java_home=java_home, classes=folder / "classes", home=folder / "home")
    checks.home.mkdir(parents=True)
    Installation(java_home, rocketmq_jars()).compile(SOURCES.glob("*.java"), checks.classes)
    return checks
