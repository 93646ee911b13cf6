"""Files of runs in hand: one small file per run, from acceptance until its delivery.

    runs/<logDateTime>-<logId>.json    {"state": "ACCEPTED" | "STARTED" | "FINISHED", …}

Each change is a new file moved over the old one. What is here when an executor starts was left by
one that died: a result that was finished is delivered now, and a run that was not is reported as
ended so, and the centre need not wait and guess.

Invariant: after kill -9 between any two lines a file is whole or as before. A power cut may lose
the last seconds: then the centre finds the result lost, as when the whole machine is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from engine.foundation.errors import ConfigError
from pipelines.scheduler.executor.job_queue import RunKey
from pipelines.scheduler.wire.fields import Fields, Malformed, parsed
from pipelines.scheduler.wire.messages import (
    LOG_PAGE_CHARS_MAX,
    Code,
    RunResult,
)

NEVER_BEGUN: Final = "the executor ended before this run began: nothing of it was done"
CUT_OFF: Final = "the executor ended while this run was at work: how far it came is not known"

_log = logging.getLogger(__name__)


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
        raise ConfigError("home", str(home), f"a folder to write in ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError("home", str(home), "a folder that no executor uses now") from error
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
