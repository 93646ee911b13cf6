"""Starts the demo's processes in separate groups, logs their output and stops them.

Invariant: `stop_all` leaves no process behind: SIGTERM first, SIGKILL to the whole process group
when one does not end. That holds only where no signal handler raises: an exception between the
start of a process and the note of its number would lose it (see `demo.ending`).

Absent on purpose: what the processes do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from demo.patience import Patience, work_of
from engine.foundation.errors import TidemarkError

STOP_PATIENCE_S = 20.0
POLL_S = 0.05
READY = "ready"
"""How the line begins in which a process of ours says that it is."""


class StageError(TidemarkError):
    """A process of the demo did not start, or ended when it should not have."""


def _nothing() -> None:
    """What a wait heeds when nothing may cut it short."""


class Actor:
    """One process on stage."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        logs: Path,
        *,
        talks: bool = False,
        ready: str = READY,
    ) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.log = logs / f"{name}.log"
        self._talks = talks
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Is it alive now?"""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its number, or that of its last life."""
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs or before it began."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it, or start it again after its end; its output is appended to its log."""
        assert not self.running, f"{self.name} runs already"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.arguments,
                stdin=subprocess.PIPE if self._talks else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def send_line(self, line: str) -> None:
        """Write one line to its standard input."""
        assert self._process is not None, f"{self.name} has not been started"
        assert self._process.stdin is not None, f"{self.name} does not listen"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def wait_for_line(
        self,
        beginning: str,
        *,
        within_s: float,
        offset_bytes: int = 0,
        heed: Callable[[], None] = _nothing,
    ) -> str:
        """The first line of its log after `offset_bytes` that begins so; `heed` runs at each look.

        Raises StageError when the process ends or stays silent.
        """
        patience = self._patience(within_s)
        while True:
            heed()
            lines = self.log.read_bytes()[offset_bytes:].decode(errors="replace").splitlines()
            for line in lines:
                if line.startswith(beginning):
                    return line
            if not self.running:
                raise StageError(
                    f"{self.name} ended with exit code {self.exit_code}: {self.last_words()}"
                )
            if patience.is_over(time.monotonic()):
                raise StageError(
                    f"{self.name} did not say {beginning!r} within {within_s:.0f} s; see {self.log}"
                )
            time.sleep(POLL_S)

    def start_until_ready(self, *, within_s: float, heed: Callable[[], None] = _nothing) -> None:
        """Start it, and wait for the line in which this life of it says that it is ready. Raises as
        `wait_for_line` does; nothing is started where `heed` raises.
        """
        heed()
        said_bytes = self.said_bytes()
        self.start()
        self.wait_until_ready(within_s=within_s, offset_bytes=said_bytes, heed=heed)

    def wait_until_ready(
        self, *, within_s: float, offset_bytes: int, heed: Callable[[], None] = _nothing
    ) -> None:
        """Wait for the line in which it says, behind `offset_bytes`, that it is ready."""
        self.wait_for_line(self._ready, within_s=within_s, offset_bytes=offset_bytes, heed=heed)

    def said_bytes(self) -> int:
        """How much it has said so far, over all its lives."""
        return self.log.stat().st_size if self.log.exists() else 0

    def await_end(
        self,
        *,
        within_s: float,
        heed: Callable[[], None] = _nothing,
        exit_codes: Collection[int] | None = None,
    ) -> None:
        """Wait until it ends by itself, StageError when it does not, or with another code than one
        of `exit_codes`, if these are given; `heed` runs at each look.
        """
        assert self._process is not None, f"{self.name} has not been started"
        patience = self._patience(within_s)
        while self.running:
            heed()
            if patience.is_over(time.monotonic()):
                raise StageError(f"{self.name} did not end within {within_s:.0f} s; see {self.log}")
            time.sleep(POLL_S)
        if exit_codes is not None and self.exit_code not in exit_codes:
            raise StageError(
                f"{self.name} ended with exit code {self.exit_code}: {self.last_words()}"
            )

    def _patience(self, within_s: float) -> Patience:
        """For so many seconds, and again while it works or waits for a processor."""
        return Patience(time.monotonic(), within_s, lambda: work_of(self.pid))

    def kill(self) -> None:
        """SIGKILL to this process alone, as a machine would lose it."""
        assert self._process is not None, f"{self.name} has not been started"
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM, when it runs."""
        if self.running and self._process is not None:
            self._process.terminate()

    def finish(self) -> None:
        """Wait for its end; take its whole process group down when it does not come."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_PATIENCE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def last_words(self) -> str:
        """The last line of its log, or that there is none."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it said nothing, see {self.log}"


def tidemark(*arguments: str) -> list[str]:
    """Command line of a tidemark command in this very environment."""
    return [str(Path(sys.executable).parent / "tidemark"), *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """Command line of a module of ours in this very environment."""
    return [sys.executable, "-m", name, *arguments]


def stop_all(actors: Sequence[Actor]) -> None:
    """Ask all of them to stop, in order, then wait for each."""
    for actor in actors:
        actor.ask_to_stop()
    for actor in actors:
        actor.finish()
