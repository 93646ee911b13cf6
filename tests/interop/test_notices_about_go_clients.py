"""How soon people hear of Go clients of a real RocketMQ that is observed each ten seconds.

`tidemark observe`, `pipeline run` and `alerts run` with a webhook, as a user starts them, on a
RocketMQ 5.5.0: a member whose listener never returns, another one whose client says that it holds
nothing, and a group whose only member is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from demo.processes import Actor, stop_all, tidemark
from engine.client import Producer
from engine.protocol.message import Message
from pipelines.lake.lake import Lake, whole_table
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.java_clients import JavaChecks
from tests.interop.ledger_consumers import SILENT_GO, Consumers, LedgerConsumer
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.test_observed_go_clients import STUCK, at_hand, go_member
from tests.interop.test_observed_rocketmq import _sent, observer

STUCK_TOPIC, GONE_TOPIC, EMPTY_TOPIC = "notice-stuck", "notice-gone", "notice-empty"
STUCK_GROUP, GONE_GROUP, EMPTY_GROUP = "g-stuck", "g-gone", "g-empty"
STALL_TOLD_WITHIN_S, GONE_TOLD_WITHIN_S, GOLD_WITHIN_S = 90, 60, 60
HEARD_WITHIN_S: Final = 180
"""Beyond it a rule is taken to be silent."""
STALLED: Final = ("QueueStalled", "QueueFrozen")
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_by = ["alertname"]
group_wait = "0s"
group_interval = "1s"
"""


@contextmanager
def watched(home: Path, ledger: Ledger) -> Iterator[Path]:
    """`pipeline run` and `alerts run` on the lake that an observer fills."""
    lake, logs, telling = home / "lake", home / "logs", home / "telling.toml"
    logs.mkdir()
    telling.write_text(TELLING.format(url=ledger.url))
    driver = ("pipeline", "run", "--lake", str(lake), "--no-upkeep", "--checks-every", "0")
    words = ("alerts", "run", "--lake", str(lake), "--receivers", str(telling))
    database = ("--database", f"sqlite:///{home / 'tidemark.db'}")
    actors = [
        Actor("alerting", tidemark(*words, *database), logs),
        Actor("pipeline", tidemark(*driver), logs),
    ]
    try:
        for actor in reversed(actors):
            actor.start()
        yield lake
    finally:
        stop_all(actors)


async def heard(ledger: Ledger, rules: tuple[str, ...], group: str, since_s: float) -> float:
    """How long after `since_s` the webhook had a notice that one of the rules fires."""
    while time.time() < since_s + HEARD_WITHIN_S:
        for request in ledger.received:
            for one in request.decoded["alerts"]:
                labels = one["labels"]
                if labels["alertname"] in rules and labels.get("group") == group:
                    took_s = time.time() - since_s
                    summary = one["annotations"]["summary"]
                    sys.stdout.write(f"{labels['alertname']} after {took_s:.0f} s: {summary}\n")
                    return took_s
        await asyncio.sleep(0.2)
    raise AssertionError(f"nothing of {rules} about {group} within {HEARD_WITHIN_S} s")


async def in_gold(lake: Path, group: str, topic: str, since_s: float) -> float:
    """How long after `since_s` gold had a stalled window of the group on the topic."""
    home = Lake.at(str(lake))
    while time.time() < since_s + HEARD_WITHIN_S:
        if home.exists(home.gold("stalled_windows")):
            rows = whole_table(home.table(home.gold("stalled_windows"))).to_pylist()
            of = [row for row in rows if (row["group"], row["topic"]) == (group, topic)]
            found = [row for row in of if row["rule"] == "STALLED"]
            if found:
                took_s = time.time() - since_s
                said = {(row["rule"], row["kind"]) for row in found}
                sys.stdout.write(f"gold after {took_s:.0f} s: {said}\n")
                return took_s
        await asyncio.sleep(0.5)
    raise AssertionError(f"gold has no stall of {group} within {HEARD_WITHIN_S} s")


def held(lake: Path, group: str, topic: str) -> list[int]:
    """How many messages its client said that it holds of a queue, each time that changed."""
    home = Lake.at(str(lake))
    rows = whole_table(home.table(home.bronze("client_windows"))).to_pylist()
    return [
        row["held_count"]
        for row in rows
        if (row["group"], row["topic"]) == (group, topic) and row["answered"]
    ]


@dataclass
class Playing:
    """What a story has: who makes members, who sends, who is notified, and what ends with it."""

    consumers: Consumers
    names: str
    producer: Producer
    ledger: Ledger
    home: Path
    stack: ExitStack

    async def member(self, client: str, group: str, topic: str) -> LedgerConsumer:
        """A member that is there, of a topic that has had its first message."""
        await eventually(lambda: _sent(self.producer, topic), topic, within_s=60)
        names = self.names
        made = self.consumers.made(client, names, group, topic, orderly=False, policy="FIRST")
        member = self.stack.enter_context(go_member(made))
        await eventually(member.is_ready, f"{group} is there", within_s=60)
        return member

    async def lake(self) -> Path:
        """Judged and watched from now on; gold has its first states."""
        lake = self.stack.enter_context(watched(self.home, self.ledger))
        await eventually((lake / "gold" / "group_state").exists, "gold has states", within_s=240)
        return lake


@asynccontextmanager
async def playing(
    rocketmq: RealRocketMQ, checks: JavaChecks, home: Path
) -> AsyncIterator[Playing | None]:
    """An observed RocketMQ with a webhook beside it; None without a Go toolchain."""
    consumers = at_hand(checks, home)
    if consumers is None:
        yield None
        return
    with ExitStack() as stack:
        ledger = stack.enter_context(receiving())
        stack.enter_context(observer(rocketmq, home, period_s=10))
        async with producing(rocketmq.name_server, "notice-producer") as producer:
            yield Playing(consumers, rocketmq.name_server, producer, ledger, home, stack)


async def goes_on(producer: Producer, topic: str) -> None:
    """Three messages a second, until cancelled."""
    while True:
        await producer.send(Message(topic, b"quick"))
        await asyncio.sleep(0.33)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_stuck_go_member_and_the_end_of_another_are_reported_in_time(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    async with playing(apache_rocketmq, java_checks, tmp_path) as story:
        if story is None:
            return
        await story.member("go", STUCK_GROUP, STUCK_TOPIC)
        gone = await story.member("go", GONE_GROUP, GONE_TOPIC)
        await story.lake()
        flow = asyncio.create_task(goes_on(story.producer, GONE_TOPIC))
        await asyncio.sleep(45)
        await story.producer.send(Message(STUCK_TOPIC, STUCK))
        stalled_s = await heard(story.ledger, STALLED, STUCK_GROUP, time.time())
        gone.end(kill=True)
        gone_s = await heard(story.ledger, ("ConsumersGone",), GONE_GROUP, time.time())
        flow.cancel()
    assert stalled_s <= STALL_TOLD_WITHIN_S
    assert gone_s <= GONE_TOLD_WITHIN_S


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_stuck_go_member_that_says_it_holds_nothing_is_reported_in_time(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    async with playing(apache_rocketmq, java_checks, tmp_path) as story:
        if story is None:
            return
        await story.member(SILENT_GO, EMPTY_GROUP, EMPTY_TOPIC)
        lake = await story.lake()
        await asyncio.sleep(45)
        await story.producer.send(Message(EMPTY_TOPIC, STUCK))
        came_s = time.time()
        gold_s, reported_s = await asyncio.gather(
            in_gold(lake, EMPTY_GROUP, EMPTY_TOPIC, came_s),
            heard(story.ledger, STALLED, EMPTY_GROUP, came_s),
        )
    said = held(lake, EMPTY_GROUP, EMPTY_TOPIC)
    sys.stdout.write(f"held by its client's account: {said}\n")
    assert said, "its client answers"
    assert not any(said), "it says that it holds nothing"
    assert gold_s <= GOLD_WITHIN_S
    assert reported_s <= STALL_TOLD_WITHIN_S
