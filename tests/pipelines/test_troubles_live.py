"""Troubles whose cause a person sees at once, played: what gold says of each, and for how long.

Each group has a topic and a trouble of its own, some have two; all run at the same time.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest

from engine.broker.config import BrokerConfig
from engine.client import ConsumeConcurrentlyStatus, Producer
from engine.client.consuming.allocation import ByConfig
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.properties import PROPERTY_SHARDING_KEY
from engine.runtime.kernel import fetched_bytes
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.integration.client.cluster_users import LATER, SUCCESS, eventually, producing, text
from tests.pipelines.gold_lake import gold
from tests.pipelines.live_play import (
    SAMPLES,
    Stage,
    Working,
    causes_of,
    send_at_once,
    send_evenly,
    shipped,
)

pytestmark = pytest.mark.timeout(120)
Rows = list[dict[str, Any]]
RESIDENT_BYTES = 1 << 20
"""What lies further behind the end of the log is taken to be on disk."""
LARGE_BYTES = 40 << 10
PLAY_S = 9
LAST_S = 1.5
"""The play goes on for so long when most is sent."""
BURST_QUEUES, BURST_OF_QUEUE = 4, 150
CAUGHT_UP_S = 40
LEFT_OUT_S = 30
"""A member is given some time to be given queues before it is reported as left out."""


class Failing(Working):
    """A listener that takes no message before its third try."""

    def answer_to(self, message: MessageExt) -> ConsumeConcurrentlyStatus:
        """See `Working`."""
        return SUCCESS if message.reconsume_times >= 3 else LATER


@dataclass
class SlowOnQueue(Working):
    """A listener that is slow with the messages of one queue."""

    queue_id: int = 0

    def takes_s_of(self, message: MessageExt) -> float:
        """See `Working`."""
        return self.takes_s if message.queue_id == self.queue_id else 0


class StuckAtTheHead(Working):
    """A listener that does not return from the first message, and is done with others at once."""

    def takes_s_of(self, message: MessageExt) -> float:
        """See `Working`."""
        return self.takes_s if message.queue_offset == 0 else 0


class Troubles(Stage):
    """Where all troubles are played."""

    def __init__(self, running: Cluster, producer: Producer, stack: AsyncExitStack) -> None:
        super().__init__(running.name_server_address)
        self.broker_name = "broker-a"
        self.producer = producer
        self.stack = stack

    async def join(self, name: str, listener: Any, **settings: Any) -> Any:
        """A member that stays to the end."""
        return await self.stack.enter_async_context(self.member(name, listener, **settings))

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """One of the broker's."""
        return MessageQueue(topic, self.broker_name, queue_id)

    async def send(
        self, topic: str, queue_id: int, count: int, body: str = "x", **more: str
    ) -> None:
        """So many messages to one queue."""
        for _ in range(count):
            await self.producer.send(text(topic, body, **more), queue=self.queue(topic, queue_id))


async def far_behind(stage: Troubles) -> None:
    """What the group reads lies 10 MB behind the end of the log, and in no memory: the broker gives
    it in small answers.
    """
    await stage.join("cold", Working(), pull_interval_ms=40)


async def one_customer(stage: Troubles) -> None:
    """Nine of ten messages have one key, and so one queue."""
    await stage.join("key", Working(0.1), consume_concurrency=1)
    ends_s = time.monotonic() + PLAY_S
    while time.monotonic() < ends_s:
        for queue_id in (0, 1, *[3] * 8):
            key = "customer-7" if queue_id == 3 else f"customer-{queue_id}"
            await stage.send("key", queue_id, 1, **{PROPERTY_SHARDING_KEY: key})
        await asyncio.sleep(0.3)


async def far_apart(stage: Troubles) -> None:
    """One message of ten is for the group, which takes few on beyond one that is not finished."""
    for number in range(400):
        await stage.send("span", 0, 1, TAGS="B" if number % 10 else "A")
    listener = Working(0.5)
    await stage.join("span", listener, expression="A", consume_concurrency=1, queue_span_max=6)


async def stuck(stage: Troubles) -> None:
    """The first message does not end, those behind it do, until too many would come again."""
    await stage.send("stuck", 0, 300)
    await stage.join("stuck", StuckAtTheHead(PLAY_S + LAST_S), queue_span_max=100)


async def too_large(stage: Troubles) -> None:
    """A few messages fill the client's window of bytes."""
    await stage.send("bytes", 0, 80, "x" * (8 << 10))
    await stage.join("bytes", Working(0.3), consume_concurrency=2, queue_bytes_max=64 << 10)


async def left_out(stage: Troubles) -> None:
    """The division gives one of two members all queues."""
    all_queues = tuple(stage.queue("uneven", queue_id) for queue_id in range(4))
    for part in (all_queues, ()):
        await stage.join("uneven", Working(0.2), consume_concurrency=2, allocation=ByConfig(part))
    await send_at_once(stage.producer, "uneven", 20 * LEFT_OUT_S)


async def failing(stage: Troubles) -> None:
    """Messages fail twice before they are taken, in the way of new ones."""
    await stage.join("retry", Failing(0.02), consume_concurrency=2)
    await send_evenly(stage.producer, "retry", a_second=40, for_s=PLAY_S)


async def restless(stage: Troubles) -> None:
    """A member comes and goes; the other one cannot keep up."""
    await stage.join("flap", Working(0.2), consume_concurrency=2)
    await send_at_once(stage.producer, "flap", 200)
    for _ in range(4):
        async with stage.member("flap", Working(0.2), consume_concurrency=2):
            await asyncio.sleep(0.8)
        await asyncio.sleep(0.4)


async def slow_and_short(stage: Troubles) -> None:
    """Two members, one queue, and calls that became slow."""
    listener = Working(0.02)
    for _ in range(2):
        await stage.join("both", listener, consume_concurrency=2)
    sending = asyncio.create_task(send_evenly(stage.producer, "both", a_second=20, for_s=PLAY_S))
    await asyncio.sleep(3)
    listener.takes_s = 0.8
    await sending


async def over_soon(stage: Troubles) -> None:
    """A lot at once, whatever else the machine does, and caught up with before the end."""
    listener = Working(0.03)
    await stage.join("ends", listener, consume_concurrency=2)
    sending = asyncio.create_task(send_evenly(stage.producer, "ends", a_second=20, for_s=PLAY_S))
    await asyncio.sleep(2.5)
    lot = [text("ends", str(number)) for number in range(BURST_OF_QUEUE)]
    for queue_id in range(BURST_QUEUES):
        await stage.producer.send_batch(lot, queue=stage.queue("ends", queue_id))
    sent = await sending + BURST_QUEUES * len(lot)
    await eventually(
        lambda: len(listener.taken) >= sent, "all of the burst is taken", within_s=CAUGHT_UP_S
    )


async def deserted(stage: Troubles) -> None:
    """The only member leaves, and messages come."""
    async with stage.member("left", Working()):
        await send_at_once(stage.producer, "left", 20)
        await asyncio.sleep(2)
    await send_at_once(stage.producer, "left", 100)


async def suspended(stage: Troubles) -> None:
    """The application suspends its consumer."""
    consumer = await stage.join("paused", Working())
    await send_at_once(stage.producer, "paused", 20)
    await asyncio.sleep(2)
    consumer.pause()
    await send_at_once(stage.producer, "paused", 100)


async def one_slow_queue(stage: Troubles) -> None:
    """All queues are sent the same; the messages of one take long."""
    await stage.join("lagging", SlowOnQueue(4, queue_id=1), queue_messages_max=10, pull_batch_max=5)
    await send_evenly(stage.producer, "lagging", a_second=120, for_s=4)


TROUBLES = (
    *(far_behind, one_customer, far_apart, stuck, too_large, failing, restless, slow_and_short),
    *(over_soon, deserted, suspended, one_slow_queue),
)
ONE_QUEUE = ("span", "stuck", "bytes", "both")
MANY_QUEUES = ("key", "retry", "flap", "ends", "left", "paused", "lagging")


def forget(folder: Path) -> bool:
    """Have the kernel drop the files of a folder from memory, as it does when it needs the room;
    False if their file system keeps all in memory.
    """
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        if str(folder) in line:  # What is mapped is not dropped.
            begin, end = (int(one, 16) for one in line.split()[0].split("-"))
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    read_before = fetched_bytes()
    max(folder.iterdir()).read_bytes()
    return read_before is not None and fetched_bytes() != read_before


async def a_former_life(config: BrokerConfig) -> None:
    """Large messages that nobody consumes yet."""
    async with cluster(config) as running:
        await running.client().make_topic("cold")
        async with producing(running.name_server_address, "p") as producer:
            for _ in range(250):
                await producer.send(Message("cold", token_bytes(LARGE_BYTES)))


async def play(folder: Path) -> bool:
    """Ten seconds, after a former life; was the commit log out of memory by then?"""
    config = broker_config(folder, **SAMPLES)
    config = replace(config, store=replace(config.store, resident_bytes=RESIDENT_BYTES))
    await a_former_life(config)
    async with cluster(config) as running, AsyncExitStack() as stack:
        for topic in ONE_QUEUE:
            await running.client().make_topic(topic)
        producer = await stack.enter_async_context(producing(running.name_server_address, "p"))
        for topic in MANY_QUEUES:
            await send_at_once(producer, topic, 8)
        stage = Troubles(running, producer, stack)
        is_cold = forget(folder / "store" / "commitlog")  # Recovery has read all of it.
        async with asyncio.TaskGroup() as troubles:
            for trouble in TROUBLES:
                troubles.create_task(trouble(stage))
        await asyncio.sleep(LAST_S)
    return is_cold


async def play_at_length(folder: Path) -> None:
    """What is a trouble only when it lasts."""
    async with cluster(broker_config(folder, **SAMPLES)) as running, AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producing(running.name_server_address, "p"))
        await send_at_once(producer, "uneven", 8)
        await left_out(Troubles(running, producer, stack))
        await asyncio.sleep(LEFT_OUT_S)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rows, bool]:
    """What lag_causes says of the plays; was the commit log out of memory?"""
    folders = [tmp_path_factory.mktemp(name) for name in ("troubles", "left-out")]
    is_cold = asyncio.run(play(folders[0]))
    asyncio.run(play_at_length(folders[1]))  # Not beside it: calls would take longer than they do.
    rows = [gold(shipped(one / "store", one / "lake"), "lag_causes") for one in folders]
    return [row for reported in rows for row in reported], is_cold


@pytest.fixture(scope="module")
def lag_causes(played: tuple[Rows, bool]) -> Rows:
    """What lag_causes says of the play."""
    return played[0]


CAUSES = {
    "key": {"HOT_KEY", "HOT_QUEUE", "LISTENERS_SATURATED"},
    "span": {"FLOW_CONTROL_SPAN", "LISTENERS_SATURATED"},
    "stuck": {"FLOW_CONTROL_SPAN"},
    "bytes": {"FLOW_CONTROL_BYTES", "LISTENERS_SATURATED"},
    "uneven": {"MEMBERS_WITHOUT_QUEUES", "LISTENERS_SATURATED"},
    "retry": {"RETRIES", "LISTENERS_SATURATED"},
    "flap": {"REBALANCE_FLAPPING", "LISTENERS_SATURATED"},
    "both": {"SLOW_LISTENER", "FEWER_QUEUES_THAN_MEMBERS", "LISTENERS_SATURATED"},
    "ends": {"BURST", "LISTENERS_SATURATED", "NONE"},
    "left": {"NO_MEMBERS", "STANDING_QUEUES"},
    "paused": {"PAUSED"},
    "lagging": {"LAGGING_QUEUE"},
}
"""What a person would say of each."""
OF_ONE_GROUP = (
    *("HOT_KEY", "HOT_QUEUE", "FLOW_CONTROL_SPAN", "FLOW_CONTROL_BYTES", "PAUSED", "RETRIES"),
    *("MEMBERS_WITHOUT_QUEUES", "FEWER_QUEUES_THAN_MEMBERS", "REBALANCE_FLAPPING", "COLD_READS"),
)


@pytest.mark.parametrize(("name", "causes"), CAUSES.items())
def test_a_trouble_is_named_as_a_person_would(
    lag_causes: Rows, name: str, causes: set[str]
) -> None:
    missing = causes - causes_of(lag_causes, f"g-{name}")
    assert not missing, [row["evidence"] for row in lag_causes if row["group"] == f"g-{name}"]


@pytest.mark.parametrize("cause", OF_ONE_GROUP)
def test_a_cause_is_reported_of_the_group_that_has_it_alone(lag_causes: Rows, cause: str) -> None:
    expected = {f"g-{name}" for name, causes in CAUSES.items() if cause in causes}
    found = {row["group"] for row in lag_causes if row["cause"] == cause}
    assert found <= (expected or {"g-cold"})


def one(lag_causes: Rows, name: str, cause: str) -> dict[str, Any]:
    """The first row of a cause."""
    return next(row for row in lag_causes if (row["group"], row["cause"]) == (f"g-{name}", cause))


def test_reads_of_what_is_no_more_in_memory_are_reported_with_what_came_from_disk(
    played: tuple[Rows, bool],
) -> None:
    lag_causes, is_cold = played
    if not is_cold:  # Their file system keeps all files in memory.
        assert "COLD_READS" not in causes_of(lag_causes, "g-cold")
        return
    *_, row = (
        row for row in lag_causes if (row["group"], row["cause"]) == ("g-cold", "COLD_READS")
    )
    assert (row["topic"], row["unit"]) == ("cold", "bytes read from disk, of those answered")
    assert row["expected"] >= 10 * LARGE_BYTES
    assert row["measured"] >= row["expected"] // 3
    assert f"from {RESIDENT_BYTES:,} bytes behind on" in row["evidence"]
    assert "LISTENERS_SATURATED" not in causes_of(lag_causes, "g-cold")


def test_a_hot_key_is_reported_with_its_part_of_what_waits(lag_causes: Rows) -> None:
    row = one(lag_causes, "key", "HOT_KEY")
    assert (row["topic"], row["queue_id"]) == ("key", 3)
    assert row["share_percent"] >= 50
    assert "waits for one key of" in row["evidence"]
    hot = one(lag_causes, "key", "HOT_QUEUE")
    assert (hot["queue_id"], hot["expected"]) == (3, 25)
    assert hot["measured"] in range(70, 91)


def test_a_queue_whose_head_is_stuck_is_reported_with_what_a_crash_would_bring_again(
    lag_causes: Rows,
) -> None:
    rows = [
        row
        for row in lag_causes
        if (row["group"], row["cause"]) == ("g-stuck", "FLOW_CONTROL_SPAN")
        and row["queue_id"] is not None  # Of none while its client has not said what rests.
    ]
    assert (rows[-1]["topic"], rows[-1]["queue_id"]) == ("stuck", 0)
    said = re.fullmatch(
        r"Group g-stuck pulls less than it could: .* Queue 0 of stuck is not pulled: offset 0 has "
        r"been in a listener of \S+ for (\d+) s, and (\d+) messages behind it are finished or held "
        r"\(queue_span_max\)\. Pulls rested .*",
        rows[-1]["evidence"],
    )
    assert said is not None, rows[-1]["evidence"]
    assert 2 <= int(said[1]) <= PLAY_S + LAST_S
    assert 100 <= int(said[2]) <= 100 + 32, "the span, and a pull"


def test_a_slow_listener_that_is_short_of_queues_is_reported_as_both(lag_causes: Rows) -> None:
    slow, few = (
        one(lag_causes, "both", "SLOW_LISTENER"),
        one(lag_causes, "both", "FEWER_QUEUES_THAN_MEMBERS"),
    )
    assert slow["observed_at"] == few["observed_at"]
    assert slow["measured"] >= 3 * slow["expected"]
    assert (few["measured"], few["expected"]) == (1, 2)


def test_a_cause_that_ended_is_reported_as_over(lag_causes: Rows) -> None:
    of_group = [row for row in lag_causes if row["group"] == "g-ends"]
    assert of_group[-1]["cause"] == "NONE"
    assert [row["cause"] for row in of_group].count("NONE") == 1


@pytest.mark.parametrize("name", ["key", "span", "bytes", "left", "paused", "ends"])
def test_causes_do_not_come_and_go(lag_causes: Rows, name: str) -> None:
    """A cause reported no more is not reported again: figures about a limit are no news. While
    a burst is sent to four queues, and again while it is worked off, one of them may lag behind.
    """
    may_come_again = {"LAGGING_QUEUE"} if name == "ends" else set()
    rows = [row for row in lag_causes if row["group"] == f"g-{name}"]
    ticks = sorted({row["observed_at"] for row in rows})
    by_tick = [{row["cause"] for row in rows if row["observed_at"] == tick} for tick in ticks]
    over: set[str] = set()
    for before, after in pairwise(by_tick):
        over |= before - after - may_come_again
        assert not over & after, by_tick
