"""Row E4: what a listener fails at comes again by a schedule, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from engine.client import ConsumeConcurrentlyStatus, ConsumeContext, PushConsumer, RetryQueue
from engine.client.retry_queue import COUNT, GROUP, ORIGIN, TYPE
from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.amounts import kills as kills_of
from tests.integration.client.cluster_users import (
    LATER,
    SUCCESS,
    client_config,
    consumer_config,
    eventually,
    producing,
    text,
)
from tests.integration.client.retry_queue_process import DELAYS_MS
from tests.integration.client.typed_commands import done
from tests.interop.our_engine import OurEngine, our_engine

ROOT = Path(__file__).parents[3]
MESSAGES = 12


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    with our_engine(tmp_path_factory.mktemp("retry-engine")) as running:
        yield running


async def make(engine: OurEngine, *topics: str) -> None:
    for topic in topics:
        await asyncio.to_thread(done, engine, "topic", "create", topic, "--queues", "1")


class Business:
    """The process with listener and retry queue, and what its listener saw over all its lives."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.seen: list[dict[str, Any]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def live(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", sys.executable, "-m"),
            *("tests.integration.client.retry_queue_process", *self.words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):
                self.seen.append(json.loads(line))

    async def die(self) -> None:
        assert self._process is not None
        assert self._reading is not None
        self._process.kill()
        await self._process.wait()
        await self._reading

    def tries(self) -> dict[str, list[int]]:
        """Body → counts of its tries, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for one in self.seen:
            found[one["body"]].append(one["count"])
        return found


@kills_of(3, in_full=10)
async def test_every_message_comes_as_often_as_it_fails_over_kills(
    engine: OurEngine, kills: int
) -> None:
    """Two of three tries fail. Nothing is lost; what comes twice has one id and one key."""
    topic, retries = f"work-{kills}", f"work-{kills}-retries"
    await make(engine, topic, retries)
    business = Business(engine.name_server, topic, retries, f"business-{kills}", "2")
    await business.live()
    sent_ms: dict[str, int] = {}
    async with producing(engine.name_server, "retry-producers") as producer:
        for number in range(MESSAGES):
            sent_ms[f"m{number}"] = time.time_ns() // 1_000_000
            await producer.send(text(topic, f"m{number}", TAGS=f"t{number}"))
    for number in range(kills):
        seen = len(business.seen)
        await eventually(
            lambda seen=seen: len(business.seen) > seen, f"it works after {number} kills"
        )
        await asyncio.sleep(0.11 * (number % 4))
        await business.die()
        await business.live()
    await eventually(
        lambda: (
            len(business.tries()) == MESSAGES
            and all(2 in counts for counts in business.tries().values())
        ),
        "each succeeds in the end",
        within_s=60,
    )
    await business.die()
    for body, counts in business.tries().items():
        assert set(counts) == {0, 1, 2}, body
    for one in business.seen:
        assert one["tag"] == "t" + one["body"][1:]
        assert one["at_ms"] >= sent_ms[one["body"]] + sum(DELAYS_MS[: one["count"]])
    copies = {(one["body"], one["count"]): (one["id"], one["key"]) for one in business.seen}
    for one in business.seen:
        assert copies[one["body"], one["count"]] == (one["id"], one["key"])


class Shop:
    """A retry queue in this process, with groups whose listeners fail at everything."""

    def __init__(self, engine: OurEngine, topic: str, delays_ms: Sequence[int]) -> None:
        runtime, config = system_runtime(), client_config(engine.name_server, heartbeat_ms=500)
        self.seen: dict[str, list[MessageExt]] = defaultdict(list)
        self.queue = RetryQueue(
            runtime,
            config,
            f"{topic}-retries",
            delays_ms=delays_ms,
            consumer=consumer_config(rebalance_ms=300),
        )
        self.consumers: list[PushConsumer] = []
        for group, answer in ((f"{topic}-fails", LATER), (f"{topic}-works", SUCCESS)):
            own = client_config(engine.name_server, heartbeat_ms=500, instance_name=group)
            consumer = PushConsumer(runtime, own, group, consumer=consumer_config(rebalance_ms=300))
            consumer.subscribe(topic, "*", self.queue.listener(group, self._sees(group, answer)))
            self.consumers.append(consumer)

    def _sees(self, group: str, answer: ConsumeConcurrentlyStatus) -> Any:
        def listen(messages: Sequence[MessageExt], _: ConsumeContext) -> ConsumeConcurrentlyStatus:
            self.seen[group.rpartition("-")[2]] += messages
            return answer

        return listen

    async def __aenter__(self) -> Self:
        await self.queue.start()
        for consumer in self.consumers:
            await consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for consumer in self.consumers:
            await consumer.stop()
        await self.queue.stop()


async def test_a_message_that_always_fails_is_given_up_and_other_groups_see_it_once(
    engine: OurEngine,
) -> None:
    await make(engine, "shop", "shop-retries", "shop-retries-given-up")
    async with Shop(engine, "shop", (100, 200)) as shop:
        async with producing(engine.name_server, "shop-producers") as producer:
            await producer.send(text("shop", "a", TAGS="t", KEYS="k", colour="red"))
        given_up: list[MessageExt] = []
        reader = PushConsumer(
            system_runtime(),
            client_config(engine.name_server, instance_name="reader"),
            "shop-reader",
            consumer=consumer_config(rebalance_ms=300),
        )

        def take(messages: Sequence[MessageExt], _: ConsumeContext) -> ConsumeConcurrentlyStatus:
            given_up.extend(messages)
            return SUCCESS

        reader.subscribe("shop-retries-given-up", "*", take)
        await reader.start()
        await eventually(lambda: bool(given_up), "it is given up", within_s=30)
        await reader.stop()
        failed = [one.properties.get(COUNT) for one in shop.seen["fails"]]
        assert failed == [None, "1", "2"]
        assert [one.properties.get(COUNT) for one in shop.seen["works"]] == [None]
        assert {one.properties.get("colour") for one in shop.seen["fails"]} == {"red"}
        (last,) = given_up
        said = last.properties
        assert (said[TYPE], said[COUNT], said[ORIGIN]) == ("given-up", "2", "shop")
        assert (said[GROUP], last.tags, last.keys) == ("shop-fails", "t", "k")
        assert shop.seen["fails"][1].properties[TYPE] == "normal"


async def test_what_cannot_be_stored_is_not_acknowledged(engine: OurEngine) -> None:
    """The retry topic's broker takes no writes: the message stays with its own."""
    await make(engine, "closed", "closed-retries")
    await asyncio.to_thread(done, engine, "topic", "perm", "closed-retries", "r")
    async with Shop(engine, "closed", (100,)) as shop:
        async with producing(engine.name_server, "closed-producers") as producer:
            await producer.send(text("closed", "a"))
        await eventually(lambda: bool(shop.seen["fails"]), "it fails")
        await asyncio.to_thread(done, engine, "topic", "perm", "closed-retries", "rw")
        await eventually(
            lambda: any(one.properties.get(COUNT) == "1" for one in shop.seen["fails"]),
            "RocketMQ's own retry brings it, and then the retry queue does",
            within_s=60,
        )


@pytest.mark.parametrize("delays_ms", [(), (100, 0)])
def test_a_schedule_that_is_none_is_refused(delays_ms: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="at least one, each of 1 ms or more"):
        RetryQueue(system_runtime(), client_config("127.0.0.1:1"), "t", delays_ms=delays_ms)
