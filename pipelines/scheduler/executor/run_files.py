"""Executor files that persist pending runs and the record of accepted runs.

    runs/<logDateTime>-<logId>.json    {"state": "ACCEPTED" | "STARTED" | "FINISHED", …}
    taken    since <ms> boot <id>
             + <logId> <moment> <logDateTime>        a run was taken
             - <logId> <moment> <logDateTime>        and was refused after all
             ! <logId> <moment> <logDateTime>        it was said that it was not taken

What is in `runs` when an executor starts was left by one that died: a finished result is delivered
now, and a run that was not finished is reported as ended so.

None is accepted twice. A run is named by its logId and the moment that its schedule gives, which a
centre of ours sends along: one with an empty database gives the same logIds again. XXL-Job's centre
sends no run twice: there the moment is the logDateTime. What was sent before the answer "not taken"
is not taken any more, for the centre may have sent the run elsewhere. TAKEN_MAX runs are
remembered.

Invariant: after kill -9 between any two lines a file is whole or as before, and lines of the book
are there. A power cut may lose the last: after another start of the machine the book is sure of
nothing before. What it says of a run that was sent after `since` is so. Moments are those of the
centre's clock but for the first `since`, which is this machine's, CLOCKS_APART_MS later.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from engine.foundation.errors import MustBe
from pipelines.scheduler.executor.job_queue import RunKey
from pipelines.scheduler.wire.fields import Fields, Malformed, parsed
from pipelines.scheduler.wire.messages import (
    LOG_PAGE_CHARS_MAX,
    Code,
    RunResult,
    Taken,
)

NEVER_BEGUN: Final = "the executor ended before this run began: nothing of it was done"
CUT_OFF: Final = "the executor ended while this run was at work: how far it came is not known"

_log = logging.getLogger(__name__)
TAKEN_MAX: Final = 50_000
CLOCKS_APART_MS: Final = 5_000
"""The centre's clock may be so far ahead of this machine's."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TURNED: Final = ".new"

Name = tuple[int, int]
"""logId and moment."""


class Stage(StrEnum):
    """How far a run has come."""

    ACCEPTED = "ACCEPTED"
    STARTED = "STARTED"
    FINISHED = "FINISHED"


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Within, this process alone uses the folder. Raises ConfigError when another one does."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (home / "lock").open("w")
    except OSError as error:
        raise MustBe("home", str(home), f"a folder to write in ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MustBe("home", str(home), "a folder that no executor uses now") from error
        yield


class RunFiles:
    """The files of one executor."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "runs"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def left(self) -> list[RunResult]:
        """The results of all runs that an earlier process left, in their order. A run without one
        gets it written down now, so that it stays as it is reported."""
        results = []
        for path in sorted(self._folder.iterdir()):
            if path.suffix != ".json":
                path.unlink()
                continue
            try:
                result, stage = _read(path.read_bytes())
            except (Malformed, OSError, ValueError) as error:
                _log.error("%s cannot be read and is set aside: %s", path, error)
                path.rename(path.with_suffix(".damaged-json"))
                continue
            if stage is not Stage.FINISHED:
                self.finish(result)
            results.append(result)
        return results

    def accept(self, key: RunKey) -> None:
        """The run is ours from now on. Raises OSError when the disk does not take it."""
        self._write(key, Stage.ACCEPTED)

    def start(self, key: RunKey) -> None:
        """It is at work from now on."""
        self._write(key, Stage.STARTED)

    def finish(self, result: RunResult) -> None:
        """It has ended so."""
        self._write((result.log_id, result.log_time_ms), Stage.FINISHED, result)

    def forget(self, key: RunKey) -> None:
        """An admin has its result, or it was not accepted after all."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: RunKey) -> Path:
        log_id, log_time_ms = key
        return self._folder / f"{log_time_ms:015d}-{log_id:019d}.json"

    def _write(self, key: RunKey, stage: Stage, result: RunResult | None = None) -> None:
        path = self._path(key)
        log_id, log_time_ms = key
        stored: dict[str, object] = {"state": stage, "logId": log_id, "logDateTime": log_time_ms}
        if result is not None:
            message = result.message.encode("utf-8", "replace").decode()
            stored |= {"handleCode": int(result.code), "handleMsg": message}
        aside = path.with_suffix(".new")
        with contextlib.ExitStack() as undo:
            undo.callback(aside.unlink, missing_ok=True)
            aside.write_bytes(orjson.dumps(stored))
            os.replace(aside, path)  # noqa: PTH105 - the call whose atomicity is meant


def _read(body: bytes) -> tuple[RunResult, Stage]:
    fields = Fields.of(parsed(body))
    stage = Stage(fields.text("state", chars_max=20))
    unfinished = NEVER_BEGUN if stage is Stage.ACCEPTED else CUT_OFF
    result = RunResult(
        fields.integer("logId", high=2**63 - 1),
        fields.integer("logDateTime", high=2**63 - 1),
        fields.integer("handleCode", low=1, default=Code.FAIL),
        fields.text(
            "handleMsg",
            chars_max=LOG_PAGE_CHARS_MAX,
            default="" if stage is Stage.FINISHED else unfinished,
        ),
    )
    return result, stage


class TakenRuns:
    """The book of one executor, which alone writes it."""

    def __init__(
        self, home: Path, *, now_ms: int, boot: str | None = None, taken_max: int = TAKEN_MAX
    ) -> None:
        """`now_ms`: by this machine's clock. `boot`: of which start of the machine; None: the
        kernel says. Raises OSError when the folder cannot be written."""
        self._path = home / "taken"
        self._taken_max = taken_max
        self._boot = _boot() if boot is None else boot
        self._runs: OrderedDict[Name, int] = OrderedDict()
        self._denied: OrderedDict[Name, int] = OrderedDict()
        self._since_ms = now_ms + CLOCKS_APART_MS
        self._lines = 0
        self._is_torn = False
        self._read()
        self._write_anew()

    def __len__(self) -> int:
        return len(self._runs)

    def has(self, log_id: int, log_time_ms: int, fire_time_ms: int | None) -> bool:
        """Was this run taken?"""
        names = ((log_id, log_time_ms), (log_id, fire_time_ms))
        return any(name in self._runs for name in names)

    def says(self, log_id: int, log_time_ms: int, fire_time_ms: int | None) -> Taken:
        """What is known of a run that was sent at `log_time_ms`, for `fire_time_ms`."""
        if self.has(log_id, log_time_ms, fire_time_ms):
            return Taken.YES
        if log_time_ms < self._since_ms:
            return Taken.UNSURE
        name = _name(log_id, log_time_ms, fire_time_ms)
        try:
            self._add("!", name, log_time_ms)
        except OSError as error:
            _log.warning("that run %d is not here cannot be promised: %s", log_id, error)
            return Taken.UNSURE
        self._keep_denial(name, log_time_ms)
        return Taken.NO

    def is_too_late(self, log_id: int, log_time_ms: int, fire_time_ms: int | None) -> bool:
        """Was it said, after this was sent, that the run is not here?"""
        name = _name(log_id, log_time_ms, fire_time_ms)
        return log_time_ms <= self._denied.get(name, -1)

    def take(self, log_id: int, log_time_ms: int, fire_time_ms: int | None) -> None:
        """Write a run down. Raises OSError when the disk does not take it; then it is not taken."""
        name = _name(log_id, log_time_ms, fire_time_ms)
        self._add("+", name, log_time_ms)
        self._keep(name, log_time_ms)
        if self._lines > 3 * self._taken_max:
            self._write_anew()

    def give_back(self, log_id: int, log_time_ms: int, fire_time_ms: int | None) -> None:
        """It was refused after all. When the disk does not take that, the run counts as taken once
        this process has ended: it is not begun then."""
        name = _name(log_id, log_time_ms, fire_time_ms)
        self._runs.pop(name, None)
        try:
            self._add("-", name, log_time_ms)
        except OSError as error:
            _log.warning("that run %d was refused is not written down: %s", log_id, error)

    def _keep(self, name: Name, log_time_ms: int) -> None:
        self._runs[name] = log_time_ms
        while len(self._runs) > self._taken_max:
            _, forgotten_ms = self._runs.popitem(last=False)
            self._since_ms = max(self._since_ms, forgotten_ms + 1)

    def _keep_denial(self, name: Name, log_time_ms: int) -> None:
        self._denied[name] = max(log_time_ms, self._denied.pop(name, 0))
        while len(self._denied) > self._taken_max:
            self._denied.popitem(last=False)

    def _add(self, sign: str, name: Name, log_time_ms: int) -> None:
        line = f"{sign} {name[0]} {name[1]} {log_time_ms}\n".encode()
        if self._is_torn:
            line = b"\n" + line
        self._is_torn = True
        written = os.write(self._file, line)
        if written < len(line):
            raise OSError(f"{written} of {len(line)} bytes were taken")
        self._is_torn = False
        self._lines += 1

    def _read(self) -> None:
        """What an earlier process left. Lines that are not whole are left out: their runs were not
        accepted."""
        try:
            lines = self._path.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return
        match lines[0].split() if lines else []:
            case ["since", since, "boot", self._boot] if since.isdigit():
                self._since_ms = int(since)
        for sign, name, log_time_ms in _entries(lines[1:]):
            if sign == "+":
                self._keep(name, log_time_ms)
            elif sign == "!":
                self._keep_denial(name, log_time_ms)
            else:
                self._runs.pop(name, None)

    def _write_anew(self) -> None:
        """The book without what is not remembered any more."""
        lines = [f"since {self._since_ms} boot {self._boot}"]
        for sign, known in (("+", self._runs), ("!", self._denied)):
            lines += [f"{sign} {name[0]} {name[1]} {at}" for name, at in known.items()]
        aside = self._path.with_suffix(_TURNED)
        aside.write_text("\n".join(lines) + "\n", encoding="ascii")
        os.replace(aside, self._path)  # noqa: PTH105 - the call whose atomicity is meant
        before = getattr(self, "_file", None)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if before is not None:
            os.close(before)
        self._lines = len(lines)
        self._is_torn = False

    def close(self) -> None:
        """Nothing is written any more."""
        os.close(self._file)


def _name(log_id: int, log_time_ms: int, fire_time_ms: int | None) -> Name:
    return (log_id, log_time_ms if fire_time_ms is None else fire_time_ms)


def _entries(lines: list[str]) -> Iterator[tuple[str, Name, int]]:
    for line in lines:
        match line.split():
            case [("+" | "-" | "!") as sign, log_id, moment, at] if (
                log_id + moment + at
            ).isdigit():
                yield sign, (int(log_id), int(moment)), int(at)


def _boot() -> str:
    """Which start of the machine this is; where nobody says, each process is one."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}-{os.urandom(4).hex()}"
