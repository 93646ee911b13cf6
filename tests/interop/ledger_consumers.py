"""Foreign consumers in processes of their own, each with a ledger of its messages.

Java's, Go's and C++'s clients as their projects ship them, with their own defaults; push consumers,
and of Java's the one that polls. A member may be stopped by SIGTERM, and leave its group, or by
SIGKILL; when it is started again it continues its ledger. Place: `new_lives` plays stories with
them. Absent on purpose: what a story expects of a ledger.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from provision.places import earlier_rocketmq_jars, rocketmq_jars
from tests.interop.java_clients import JavaChecks

GO_SOURCES = Path(__file__).parent / "go"
GO_BUILD_TIMEOUT_S = 400
"""The first build on a machine fetches and compiles two dozen modules."""
READY_WITHIN_S = 60
START_TRIES = 8
CLIENTS = ("java", "java 4.9.7", "go", "c++")
SILENT_GO = "go, holds nothing"
"""Go's client, built so that it says of each queue that it holds nothing, as a client may that does
not count what it has handed to listeners. Those of its project say what they hold, up to v2.1.2.
"""
GO_CLIENT = "github.com/apache/rocketmq-client-go/v2"
SAYS_WHAT_IT_HOLDS = "if !pq.msgCache.Empty() {\n\t\tinfo.Cached"
"""In the client's process_queue.go."""
POLLERS = {"java polls": "committing", "java polls alone": "alone"}
"""Java's DefaultMQPullConsumer, with the offsets of its group or with its own (PollingLedger)."""


@dataclass
class LedgerConsumer:
    """A member of a group: how it is started, its process while it runs, what it was handed."""

    command: list[str]
    folder: Path
    ledger: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    _failures: int = 0
    _read: int = field(default=0, repr=False)

    def start(self) -> None:
        """Begin; `is_ready` says when it has. Not to be called from a thread that may end."""
        self.starts += 1
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "HOME": str(self.folder)},
            )
        self._began = time.monotonic()

    @property
    def _log(self) -> Path:
        return self.folder / f"consumer-{self.starts}.log"

    def is_ready(self) -> bool:
        """It has joined its group; AssertionError if it has ended, or takes READY_WITHIN_S. One
        that ended is started again, up to `START_TRIES`: a client gives up when it has no answer
        within 3 s, as on a machine that starts many at once.
        """
        assert self.process is not None
        if b"ready\n" in self._log.read_bytes():
            self._failures = 0
            return True
        if self.process.poll() is not None and self._failures < START_TRIES - 1:
            self._failures += 1
            self.start()
        waits = self.process.poll() is None and time.monotonic() - self._began < READY_WITHIN_S
        assert waits, f"{self.command} is not ready:\n{self._log.read_text()[-4000:]}"
        return False

    def end(self, *, kill: bool) -> None:
        """Ask it to end; `has_ended` says when it has."""
        assert self.process is not None
        if kill:
            self.process.kill()
        else:
            self.process.terminate()

    def has_ended(self) -> bool:
        """Nothing of it runs."""
        return self.process is None or self.process.poll() is not None

    def delivered(self) -> Iterator[dict[str, Any]]:
        """What it was handed since the last call."""
        if not self.ledger.exists():
            return
        with self.ledger.open() as lines:
            lines.seek(self._read)
            while (line := lines.readline()).endswith("\n"):
                self._read = lines.tell()
                yield json.loads(line)


@dataclass(frozen=True)
class Consumers:
    """Makes members of every client that is at hand."""

    checks: JavaChecks
    folder: Path

    def made(
        self, client: str, name_server: str, group: str, topic: str, *, orderly: bool, policy: str
    ) -> LedgerConsumer:
        """A member that was not started yet; its instance and its ledger are its own."""
        folder = self.folder / f"{group}-{client.replace(' ', '-')}"
        folder.mkdir(parents=True)
        ledger = folder / "ledger.jsonl"
        words = [name_server, group, topic, "orderly" if orderly else "concurrently"]
        if client == "c++":
            module = [sys.executable, "-m", "tests.interop.native_ledger"]
            assert policy == "LAST", "the wheel of the C++ library sets no other start policy"
            return LedgerConsumer([*module, *words, str(ledger)], folder, ledger)
        words += [policy, str(ledger)]
        if client in ("go", SILENT_GO):
            program = _built_in_go(self.folder, is_silent=client == SILENT_GO)
            return LedgerConsumer([str(program), *words], folder, ledger)
        jars = earlier_rocketmq_jars() if client == "java 4.9.7" else rocketmq_jars()
        command = [
            *(str(self.checks.java_home / "bin" / "java"), "-Xms32m", "-Xmx256m"),
            *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Duser.home={folder}", "-cp", f"{self.checks.classes}:{jars}/*"),
        ]
        if client in POLLERS:
            assert not orderly, "what polls takes a queue's messages in order anyway"
            words = [name_server, group, topic, POLLERS[client], str(ledger)]
            return LedgerConsumer([*command, "PollingLedger", *words], folder, ledger)
        return LedgerConsumer([*command, "LedgerConsumer", *words], folder, ledger)

    def why_not(self, client: str) -> str | None:
        """Why a client cannot be had on this machine; None if it can."""
        has_earlier = any(earlier_rocketmq_jars().glob("rocketmq-client-*.jar"))
        if client == "java 4.9.7" and not has_earlier:
            return "no jars of RocketMQ 4.9.7: `make test-slow` brings them"
        if client in ("go", SILENT_GO):
            try:
                _built_in_go(self.folder, is_silent=client == SILENT_GO)
            except RuntimeError as error:
                return str(error)
        return None


@cache
def _built_in_go(folder: Path, *, is_silent: bool = False) -> Path:
    """The Go consumer, compiled into `folder`; RuntimeError with the reason where there is no
    toolchain, or no module proxy on the first build of a machine. `is_silent`: as `SILENT_GO`.
    """
    name = "go-ledger-consumer"
    sources = _without_windows(folder / "silent-go") if is_silent else GO_SOURCES
    program = folder / (f"{name}-silent" if is_silent else name)
    _go(sources, "build", "-mod=readonly", "-o", str(program), ".")
    return program


def _without_windows(folder: Path) -> Path:
    """The sources of the consumer, beside a copy of its client that never says what it holds."""
    own = Path(_go(GO_SOURCES, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", GO_CLIENT).strip())
    shutil.copytree(GO_SOURCES, folder)
    shutil.copytree(own, folder / "client", copy_function=shutil.copyfile)
    for place in (folder / "client").rglob("*"):
        place.chmod(0o755 if place.is_dir() else 0o644)
    queue = folder / "client" / "consumer" / "process_queue.go"
    said = queue.read_text(encoding="utf-8")
    assert said.count(SAYS_WHAT_IT_HOLDS) == 1
    hidden = SAYS_WHAT_IT_HOLDS.replace("if !", "if false && !")
    queue.write_text(said.replace(SAYS_WHAT_IT_HOLDS, hidden), encoding="utf-8")
    _go(folder, "mod", "edit", "-replace", f"{GO_CLIENT}=./client")
    return folder


def _go(folder: Path, *words: str) -> str:
    """What a command of the toolchain prints; RuntimeError when it cannot be done."""
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("no Go toolchain on the PATH: Go's client is not tried")
    done = subprocess.run(
        [go, *words],
        capture_output=True,
        text=True,
        timeout=GO_BUILD_TIMEOUT_S,
        check=False,
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0"},
    )
    if done.returncode:
        raise RuntimeError(f"Go's client cannot be built here:\n{done.stderr[-2000:]}")
    return done.stdout
