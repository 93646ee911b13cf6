"""Measures the store's CPU time per message for put, get, flush, recovery and look-up.

Messages are found by key.

    python -m bench.store_paths

CPU time of the process (both threads) is what repeats on a shared machine; wall time is beside it.
Each figure is the least of several rounds. The last part asks two questions the design rests on:
how much writing once per turn would save, and how a commit-log file should be made for fast syncs.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from engine.foundation.observing import SilentObserver
from engine.foundation.units import KIB, MIB
from engine.runtime import system_runtime
from engine.store import FlushDiskType, GetStatus, MessageDraft, MessageStore, StoreConfig

ROUNDS: Final = 3
MESSAGES: Final = 32_000
PER_TURN: Final = 64
QUEUES: Final = 8
BODY: Final = os.urandom(KIB)
Clocks = tuple[float, float]
"""CPU seconds, wall seconds."""


def config(root: Path, flush: FlushDiskType) -> StoreConfig:
    """RocketMQ's settings but for smaller commit-log files, so that rolls count, too."""
    return StoreConfig(str(root), flush_disk_type=flush, mapped_file_size_commit_log_bytes=16 * MIB)


def message(number: int, body: bytes = BODY) -> MessageDraft:
    """For one of eight queues, with a tag and a unique key, as Java clients send them."""
    return MessageDraft(
        topic="BenchmarkTest",
        queue_id=number % QUEUES,
        body=body,
        properties=f"UNIQ_KEY\x017F00000100002A9F000000000{number:07d}\x02WAIT\x01true\x02"
        "TAGS\x01TagA\x02",
        born_timestamp_ms=1_800_000_000_000,
        born_host="127.0.0.1:40000",
        store_host="127.0.0.1:10911",
    )


async def opened(root: Path, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> MessageStore:
    """A started store."""
    store = await MessageStore.open(system_runtime(), config(root, flush), SilentObserver())
    store.start()
    return store


async def fill(store: MessageStore, per_turn: int) -> None:
    """Put MESSAGES, `per_turn` between two turns of the loop; wait as the flush type asks."""
    number = 0
    while number < MESSAGES:
        for _ in range(per_turn):
            result = store.put(message(number))
            number += 1
        waiting = store.when_flushed(result.end_offset)
        if waiting is None:
            await asyncio.sleep(0)
        else:
            assert await waiting


async def timed(work: Callable[[], Awaitable[None]]) -> Clocks:
    """CPU and wall seconds of `work`."""
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return time.process_time() - cpu, time.perf_counter() - wall


async def put_round(root: Path, flush: FlushDiskType, per_turn: int) -> Clocks:
    """Fill a new store."""
    store = await opened(root, flush)
    spent = await timed(lambda: fill(store, per_turn))
    await store.close()
    return spent


async def get_round(root: Path, *, tagged: bool) -> Clocks:
    """Read every queue of the filled store from its beginning, 32 messages a pull."""
    store = await opened(root)

    async def read() -> None:
        for queue_id in range(QUEUES):
            queue_offset = 0
            while True:
                result = store.get(
                    "BenchmarkTest",
                    queue_id,
                    queue_offset,
                    max_count=32,
                    max_bytes=256 * KIB,
                    wanted=(lambda tags_code: tags_code == 2598919) if tagged else None,
                )
                if result.status is not GetStatus.FOUND:
                    break
                queue_offset = result.next_begin_offset

    spent = await timed(read)
    await store.close()
    return spent


async def find_round(root: Path) -> Clocks:
    """Ask the index for every key."""
    store = await opened(root)

    async def find() -> None:
        for number in range(MESSAGES):
            key = f"7F00000100002A9F000000000{number:07d}"
            found = store.query_by_key(
                "BenchmarkTest", key, max_count=32, begin_ms=0, end_ms=1 << 60
            )
            assert found.physical_offsets

    spent = await timed(find)
    await store.close()
    return spent


async def recover_round(root: Path) -> Clocks:
    """Open the filled store as after SIGKILL with everything derived lost: all is read again."""
    (root / "abort").touch()
    for folder in ("consumequeue", "index"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    (root / "checkpoint").unlink()
    stores: list[MessageStore] = []

    async def recover() -> None:
        stores.append(await opened(root))

    spent = await timed(recover)
    await stores[0].close()
    return spent


def putting(home: Path, flush: FlushDiskType, per_turn: int) -> Callable[[int], Awaitable[Clocks]]:
    """A round that fills a store of its own."""
    return lambda number: put_round(home / f"{flush.value}-{per_turn}-{number}", flush, per_turn)


def least(rounds: list[Clocks]) -> Clocks:
    """The round that the neighbours disturbed least."""
    return min(rounds)


def measure_store(home: Path) -> Table:
    """CPU and wall microseconds a message of every path."""
    table = Table(
        title=f"store, {MESSAGES} messages of 1 KiB, 8 queues, keys indexed, least of {ROUNDS}"
    )
    for heading in ("path", "CPU us/message", "messages/s"):
        table.add_column(heading, justify="left" if heading == "path" else "right")

    def row(name: str, work: Callable[[int], Awaitable[Clocks]]) -> None:
        async def one(number: int) -> Clocks:
            return await work(number)

        cpu, wall = least([asyncio.run(one(number)) for number in range(ROUNDS)])
        table.add_row(name, f"{cpu / MESSAGES * 1e6:.2f}", f"{MESSAGES / wall:,.0f}")

    for flush in FlushDiskType:
        for per_turn in (1, PER_TURN):
            row(f"put, {flush.value}, {per_turn} a turn", putting(home, flush, per_turn))
    filled = home / f"{FlushDiskType.ASYNC_FLUSH.value}-{PER_TURN}-0"
    row("get, 32 a pull", lambda _: get_round(filled, tagged=False))
    row("get, 32 a pull, tag test", lambda _: get_round(filled, tagged=True))
    row("find by key", lambda _: find_round(filled))
    row("recover, all derived files lost", lambda _: recover_round(filled))
    return table


def measure_design(home: Path) -> Table:
    """Behind `commit_log`: a write per record or per turn, and how to make a file."""
    table = Table(title=f"design questions, least of {ROUNDS}")
    for heading in ("what", "us"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    record = os.urandom(1100)
    path = home / "writes"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, 64 * MIB)
    singly = spent_us(lambda n: os.pwrite(descriptor, record, n * 1100), 20_000)
    joined = spent_us(
        lambda n: os.pwrite(descriptor, b"".join([record] * PER_TURN), n * 1100 * PER_TURN), 600
    )
    table.add_row("one pwrite per record", f"{singly:.2f}")
    table.add_row(f"one pwrite per {PER_TURN} records, per record", f"{joined / PER_TURN:.2f}")
    os.close(descriptor)
    for kind in ("growing", "sparse", "reserved", "zeroed"):
        sync = sync_us(home / kind, kind, record)
        table.add_row(f"1 KiB append + fdatasync, {kind} file, median", f"{sync:.0f}")
    return table


def spent_us(work: Callable[[int], object], times: int) -> float:
    """Wall microseconds of one call, the least of several rounds."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for number in range(times):
            work(number)
        rounds.append((time.perf_counter() - started) / times * 1e6)
    return min(rounds)


def sync_us(path: Path, kind: str, record: bytes) -> float:
    """Median of an append and its sync on a file made in one of four ways."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    size_bytes = 8 * MIB
    if kind == "sparse":
        os.ftruncate(descriptor, size_bytes)
    elif kind == "reserved":
        os.posix_fallocate(descriptor, 0, size_bytes)
    elif kind == "zeroed":
        os.pwrite(descriptor, bytes(size_bytes), 0)
    os.fsync(descriptor)
    times: list[float] = []
    for number in range(400):
        started = time.perf_counter()
        os.pwrite(descriptor, record, number * len(record))
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - started)
    os.close(descriptor)
    return sorted(times)[len(times) // 2] * 1e6


def main() -> None:
    """Print both tables."""
    console = Console(width=140)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-store-", dir=".") as folder:
        console.print(measure_store(Path(folder)))
        console.print(measure_design(Path(folder)))


if __name__ == "__main__":
    main()
