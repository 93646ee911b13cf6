"""Measures how late timers fire, in a rush and otherwise, and how much memory they take.

The rush and the normal rate are those of a broker in a process of its own, while sends go on; late
is by the store time of the delivery. Memory is that of a wheel over a real store in a process of
its own, once all of them are in the wheel and their hour has moved down.

    python -m bench.timers                 the rush, the normal rate, what one delivery costs
    python -m bench.timers --memory N ...  memory with so many that wait, all due in one hour
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.bars import TIMER_P99, TIMERS_MEMORY_RATIO, TIMERS_RUSH
from bench.brokers import cpu_seconds
from engine.delay.wheel.timer_records import parked
from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.protocol.codes import RequestCode
from engine.protocol.message_record import decode_records
from engine.store import StoreConfig
from tests.integration.broker.cluster import RawClient, eventually
from tests.interop.our_engine import our_engine
from tests.store_support import START_MS, HandClock, draft, open_store
from tests.unit.delay.wheel_bench import WheelBench

RUSH: Final = 100_000
RUSH_AFTER_S: Final = 75
"""The senders need so long for all of them, even on a machine that is busy."""
SENDERS: Final = 32
SENDS_A_SECOND: Final = 500
NORMAL_A_SECOND, NORMAL_S = 200, 20
PULL_COUNT: Final = 32
BODY: Final = b"x" * 100
TOPIC, BESIDE = "rush", "beside"


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


async def end_of(client: RawClient, topic: str) -> int:
    """How many messages the topic's only queue has."""
    answer = await client.ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0)
    return int(answer.fields["offset"])


async def late_ms(client: RawClient, end: int, *, since: int = 0) -> list[int]:
    """How late each delivery was, in the order of the queue."""
    found: list[int] = []
    while since + len(found) < end:
        answer = await client.pull(since + len(found), topic=TOPIC, maxMsgNums=PULL_COUNT)
        found += [
            one.store_timestamp_ms - int(one.properties["TIMER_DUE_MS"])
            for one in decode_records(answer.body)
        ]
    return found


async def send_beside(client: RawClient, latencies: list[float]) -> None:
    """Send at a steady rate until cancelled."""
    while True:
        began = time.perf_counter()
        await client.send(BODY, topic=BESIDE)
        latencies.append(time.perf_counter() - began)
        await asyncio.sleep(max(0.0, 1 / SENDS_A_SECOND - (time.perf_counter() - began)))


async def send_timers(address: str, due_ms: Iterator[int]) -> None:
    """Send a timer for each of these times over a few connections, several at a time."""
    clients = [RawClient(address, client_id=f"127.0.0.1@{n}") for n in range(4)]

    async def some(client: RawClient) -> None:
        for at_ms in due_ms:
            await client.send(BODY, topic=TOPIC, TIMER_DELIVER_MS=at_ms)

    await asyncio.gather(*(some(clients[n % len(clients)]) for n in range(SENDERS)))
    for client in clients:
        await client.close()


async def have_left(client: RawClient, end: int) -> None:
    """Until the topic has so many."""

    async def are_there() -> bool:
        return await end_of(client, TOPIC) >= end

    await eventually(are_there, f"{end} have left", within_s=300)


async def rush(address: str, process_id: int) -> None:
    """100,000 due in one second, while sends go on; then a normal rate."""
    client = RawClient(address)
    for topic in (TOPIC, BESIDE):
        await client.make_topic(topic)
    due_ms = (now_ms() // SECOND_MS + RUSH_AFTER_S) * SECOND_MS
    await send_timers(address, iter([due_ms + n % SECOND_MS for n in range(RUSH)]))
    left_s = (due_ms - now_ms()) / SECOND_MS
    print(f"{RUSH} timers sent {left_s:.0f} s before the first is due")
    latencies: list[float] = []
    await asyncio.sleep(max(left_s - 2, 0))
    beside = asyncio.create_task(send_beside(RawClient(address), latencies))
    cpu_s = cpu_seconds(process_id)
    await have_left(client, RUSH)
    beside.cancel()
    cpu_s = cpu_seconds(process_id) - cpu_s
    late = await late_ms(client, RUSH)
    left_s = max(late) / SECOND_MS
    print(f"the last of them left {left_s:.2f} s after it was due; bar {TIMERS_RUSH}")
    print(f"early: {sum(one < 0 for one in late)}; CPU of the engine {cpu_s:.1f} s")
    print(
        f"{len(latencies)} sends beside: median {sorted(latencies)[len(latencies) // 2]:.4f} s, "
        f"longest {max(latencies):.3f} s"
    )
    begin_ms, normal = now_ms() + 5 * SECOND_MS, NORMAL_A_SECOND * NORMAL_S
    step_ms = SECOND_MS // NORMAL_A_SECOND
    await send_timers(address, iter([begin_ms + n * step_ms for n in range(normal)]))
    await have_left(client, RUSH + normal)
    late = sorted(await late_ms(client, RUSH + normal, since=RUSH))
    print(
        f"{NORMAL_A_SECOND} a second: median {late[normal // 2]} ms late, 99th percentile "
        f"{late[normal * 99 // 100]} ms; bar {TIMER_P99}; early: {sum(one < 0 for one in late)}"
    )
    await client.close()


async def fill(total: int, folder: Path) -> None:
    """Have so many wait for one hour, and print the memory of this process."""
    config = StoreConfig(root=str(folder), mapped_file_size_commit_log_bytes=1 << 30)
    store = await open_store(config)
    wheel = WheelBench(store, HandClock(), folder)
    await wheel.wheel.follow_log()
    begin_ms = (START_MS // HOUR_MS + 1) * HOUR_MS
    for number in range(total):
        store.put(parked(draft(BODY), begin_ms + number * 7919 % HOUR_MS))
        if number % 2000 == 0:
            await wheel.turn()
    await wheel.turn()
    wheel.clock.value_ms = begin_ms - 11 * SECOND_MS
    assert list(wheel.wheel.due()) == [], "nothing is due, and the hour has moved down"
    assert wheel.wheel.figures().dequeue_lag == total
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(*(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS")))
    await store.close()


def memory(totals: list[int]) -> None:
    """A table, a process for each number."""
    first: list[float] = []
    for total in totals:
        with tempfile.TemporaryDirectory(prefix="tidemark-timers-") as folder:
            command = [sys.executable, "-m", "bench.timers", "--fill", str(total), folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        anonymous, resident = map(float, done.stdout.split())
        first = first or [anonymous, resident]
        print(
            f"{total:>11} wait: {anonymous:6.1f} MiB anonymous ({anonymous / first[0]:.3f}), "
            f"{resident:6.1f} MiB resident ({resident / first[1]:.3f}); bar {TIMERS_MEMORY_RATIO}",
            flush=True,
        )


def main() -> None:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.timers")
    parser.add_argument("--memory", type=int, nargs="+", help="so many wait, one after the other")
    parser.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        asyncio.run(fill(int(options.fill[0]), Path(options.fill[1])))
    elif options.memory:
        memory(options.memory)
    else:
        with tempfile.TemporaryDirectory() as folder, our_engine(Path(folder)) as engine:
            asyncio.run(rush(engine.broker, engine.process.pid))


if __name__ == "__main__":
    main()
