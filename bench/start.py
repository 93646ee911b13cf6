"""Measures start-up time for an empty store, and for 10 GiB after a clean stop or SIGKILL.

After SIGKILL there is 1 GiB of log to look through. Run by `python -m bench --only start`.

    python -m bench.start [--rounds N] [--at FOLDER]

A broker is a process of its own, started as a user does; the clock runs from there to its ready
line. Before each start the kernel is asked to forget the store's files, as after a reboot. The ten
gibibytes are messages of a mebibyte of zeros, which the file keeps without their pages being
written, and one gibibyte of small messages behind them; the tail is small messages alone. They lie
in TOPICS topics of eight queues: a start opens every queue, so that one topic would look fast.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console
from rich.table import Table

from bench.bars import START_CLEAN, START_EMPTY, START_UNCLEAN, Bar
from bench.brokers import cpu_seconds
from bench.store_paths import QUEUES, message
from engine.foundation.observing import SilentObserver
from engine.foundation.units import GIB, KIB, MIB
from engine.runtime import Runtime, SystemDisk, system_runtime
from engine.runtime.disk import File
from engine.store import MessageDraft, MessageStore, StoreConfig

TIDEMARK: Final = str(Path(sys.prefix) / "bin" / "tidemark")
SMALL: Final = os.urandom(KIB)
LARGE: Final = bytes(MIB)
PER_TURN: Final = 64
TOPICS: Final = 100
HEAD_BYTES: Final = 256
"""More than a record holds before its body, and behind it."""
Clocks = tuple[float, float]
"""Wall seconds, CPU seconds."""


class SparseFile:
    """A file whose long runs of zeros are not written: it was made of zeros."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: bytes, position: int) -> None:
        """Write both ends alone when all between is zero."""
        inner = data[HEAD_BYTES:-HEAD_BYTES]
        if len(inner) < MIB // 2 or inner.count(0) != len(inner):
            self._file.pwrite(data, position)
            return
        self._file.pwrite(data[:HEAD_BYTES], position)
        self._file.pwrite(data[-HEAD_BYTES:], position + len(data) - HEAD_BYTES)


class SparseDisk(SystemDisk):
    """The machine's disk, with sparse files."""

    def open(self, path: str, *, create: bool = False) -> File:
        """See `Disk.open`."""
        return cast("File", SparseFile(super().open(path, create=create)))


async def fill(runtime: Runtime, store_folder: Path, parts: list[tuple[int, bytes]]) -> int:
    """Put messages of each body until so many bytes are in the log; stop cleanly; their number."""
    config = StoreConfig(str(store_folder))
    store = await MessageStore.open(runtime, config, SilentObserver())
    store.start()
    number = 0
    for end_offset, body in parts:
        while store.physical_max < end_offset:
            for _ in range(PER_TURN):
                store.put(of_many_topics(number, body))
                number += 1
            await asyncio.sleep(0)
    await store.close()
    return number


def of_many_topics(number: int, body: bytes) -> MessageDraft:
    """The message of this number: topic after topic, then the next queue of each."""
    draft = message(number, body)
    draft.topic, draft.queue_id = f"start-{number % TOPICS}", number // TOPICS % QUEUES
    return draft


def forget(folder: Path) -> None:
    """Ask the kernel to drop the pages it holds of these files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def seconds_to_ready(store: Path, *, killed: bool) -> Clocks:
    """Start a broker, wait for its ready line, end it; `killed`: by SIGKILL."""
    command = [TIDEMARK, "broker", "--store", str(store), "--port", "0", "--namesrv", "127.0.0.1:1"]
    began = time.monotonic()
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.monotonic() - began, cpu_seconds(process.pid)
        assert line.startswith("ready "), f"{line!r} is not the ready line"
        if killed:
            process.kill()
        else:
            process.terminate()
            assert process.wait() == 0
    return seconds


def empty_starts(home: Path, rounds: int) -> list[Clocks]:
    """Each in a folder that is not there yet."""
    return [seconds_to_ready(home / f"empty-{number}", killed=False) for number in range(rounds)]


def starts_of(store: Path, rounds: int, *, killed: bool) -> list[Clocks]:
    """Start it again and again, its files not in memory; then it goes."""
    found = []
    for _ in range(rounds):
        forget(store)
        found.append(seconds_to_ready(store, killed=killed))
    shutil.rmtree(store)
    return found


def clean_starts(home: Path, rounds: int) -> tuple[list[Clocks], int]:
    """Ten gibibytes, stopped cleanly each time; also how many messages they are."""
    store = home / "clean"
    runtime = replace(system_runtime(), disk=SparseDisk())
    parts = [(9 * GIB, LARGE), (10 * GIB - MIB, SMALL)]
    count = asyncio.run(fill(runtime, store, parts))
    return starts_of(store, rounds, killed=False), count


def unclean_starts(home: Path, rounds: int) -> tuple[list[Clocks], int]:
    """One gibibyte of small messages, each time after SIGKILL: all of it is looked through."""
    store = home / "unclean"
    count = asyncio.run(fill(system_runtime(), store, [(GIB - MIB, SMALL)]))
    (store / "abort").touch()
    return starts_of(store, rounds, killed=True), count


def measure_start(home: Path, *, rounds: int) -> Table:
    """The three starts, medians and worst."""
    table = Table(
        title=f"from start to ready, {TOPICS} topics of {QUEUES} queues, {rounds} rounds, "
        "files not in memory"
    )
    for heading in ("store", "messages", "median s", "worst s", "CPU s", "bar"):
        table.add_column(heading, justify="left" if heading == "store" else "right")

    def row(name: str, found: list[Clocks], count: int, bar: Bar) -> None:
        wall, cpu = zip(*found, strict=True)
        figures = [statistics.median(wall), max(wall), statistics.median(cpu)]
        table.add_row(name, f"{count:,}", *(f"{figure:.2f}" for figure in figures), str(bar))

    row("empty", empty_starts(home, rounds), 0, START_EMPTY)
    found, count = clean_starts(home, rounds)
    row("10 GiB after a clean stop", found, count, START_CLEAN)
    found, count = unclean_starts(home, rounds)
    row("1 GiB after SIGKILL", found, count, START_UNCLEAN)
    return table


def main() -> None:
    """Measure below a folder that goes afterwards, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.start")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at", help="folder on the disk to measure; 12 GiB are needed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-start-", dir=options.at) as folder:
        Console(width=100).print(measure_start(Path(folder), rounds=options.rounds))


if __name__ == "__main__":
    main()
