"""The observer counts what running Java consumers skip of a recreated RocketMQ topic.

The count is what they did not consume of the new life.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demo.rocketmq import Installation, configure_log
from engine.admin import Admin, admin_at
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from pipelines.base.settings import Evaluation
from pipelines.marts.declared import steps
from provision.places import rocketmq_jars
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.java_clients import JavaChecks
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.test_observed_earlier_rocketmq import running
from tests.interop.test_observed_rocketmq import observer
from tests.pipelines.partition import bronze_of, run
from tests.shipped_alerts import fired

SHORT, LONG, AWAY = "anew-short", "anew-long", "anew-away"
"""Topics, and groups of the same names: six messages are sent to the new life of the first and the
third, fourteen to that of the second; the member of the third is away meanwhile.
"""
BEFORE = 10
FRESH_MS = 1_000
ANEW = {SHORT: 6, LONG: 14, AWAY: 6}


@dataclass
class Play:
    """A cluster, its observer and a Java member for each topic."""

    cluster: RealRocketMQ
    checks: JavaChecks
    folder: Path
    admin: Admin
    producer: Any
    members: dict[str, ExitStack] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Of the observer's rows."""
        return self.folder / "home" / "DefaultCluster" / "broker-a" / "observer"

    async def join(self, topic: str) -> None:
        """A member of the topic's group."""
        installation = Installation(self.checks.java_home, rocketmq_jars())
        command = installation.program_command(self.folder, "Member")
        command += [self.cluster.name_server, topic, topic, "*", f"{topic}-1", "push"]
        log = self.folder / f"{topic}-{len(list(self.folder.glob(f'{topic}-*')))}.log"
        self.members.setdefault(topic, ExitStack()).enter_context(running(command, log))
        await eventually(lambda: "ready" in log.read_text(), f"{topic} is read", within_s=90)

    async def make(self, topic: str) -> None:
        """The topic, with one queue."""

        async def is_made() -> bool:
            try:
                await self.admin.topics.create(
                    self.cluster.broker, topic, read_queues=1, write_queues=1
                )
            except TidemarkError:
                return False
            return True

        await eventually(is_made, f"{topic} is made", within_s=60)

    async def send(self, topic: str, body: str, count: int) -> None:
        """So many messages, as soon as there is a route."""

        async def is_sent() -> bool:
            try:
                await self.producer.send(Message(topic, body.encode()))
            except TidemarkError:
                return False
            return True

        for _ in range(count):
            await eventually(is_sent, f"{topic} takes messages", within_s=60)

    async def is_held(self, topic: str) -> bool:
        """Has the topic's member pulled within the last second? The broker holds that for 15 s."""
        info = await self.admin.groups.running_info(
            self.cluster.broker, topic, f"127.0.0.1@{topic}-1"
        )
        pulls_ms = [
            one.last_pull_timestamp_ms
            for queue, one in info.mq_table.items()
            if queue.topic == topic
        ]
        return bool(pulls_ms) and time.time() * 1000 - max(pulls_ms) < FRESH_MS

    def consumed(self, topic: str, body: str) -> set[int]:
        """Offsets of such messages that members say they have consumed."""
        logs = "".join(log.read_text() for log in sorted(self.folder.glob(f"{topic}-*.log")))
        lines = [line.split() for line in logs.splitlines() if line.startswith("consumed ")]
        return {int(line[2]) for line in lines if line[3] == body}

    def lives(self, kind: str) -> set[str]:
        """The topics of which the observer has reported this."""
        return {row["topic"] for row in spooled(self.home, "lifecycle") if row["kind"] == kind}

    def are_at(self, offsets: dict[str, int]) -> bool:
        """Has the observer seen the groups there last?"""
        if not (self.home / "spool").exists():
            return False
        marks = {
            row["group"]: row["committed"]
            for row in spooled(self.home, "group_watermarks")
            if row["topic"] == row["group"]  # Not of its retry topic.
        }
        return marks.items() >= offsets.items()


async def played(play: Play, stack: AsyncExitStack) -> dict[str, int]:
    """How many messages of its topic's new life each group has not consumed."""
    for topic in ANEW:
        await play.make(topic)
    stack.enter_context(observer(play.cluster, play.folder, ships=True))
    for topic in ANEW:
        await play.join(topic)
        stack.enter_context(play.members[topic])
        await play.send(topic, "before", BEFORE)
    before = dict.fromkeys(ANEW, BEFORE)
    await eventually(lambda: play.are_at(before), "all were consumed", within_s=90)
    play.members[AWAY].close()
    for topic, count in ANEW.items():
        if topic != AWAY:  # So that the member does not pull while the queue is empty.
            await eventually(partial(play.is_held, topic), "a new pull is held", within_s=60)
        await play.admin.topics.delete(topic)
        await play.make(topic)
        if topic == LONG:  # Else it grows beyond its earlier end before anybody looks.
            await eventually(lambda: LONG in play.lives("TOPIC_MADE_AGAIN"), "it is seen")
        await play.send(topic, "anew", count)
    await eventually(
        lambda: play.lives("TOPIC_MADE_AGAIN") >= ANEW.keys(), "new lives", within_s=60
    )
    await play.join(AWAY)
    await eventually(lambda: play.are_at(ANEW), "all have gone on", within_s=120)
    return {
        topic: len(set(range(count)) - play.consumed(topic, "anew"))
        for topic, count in ANEW.items()
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_running_consumers_pass_over_of_a_topic_made_again_is_counted(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    configure_log(tmp_path)
    (tmp_path / "classes").symlink_to(java_checks.classes)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_at(apache_rocketmq.name_server))
        producer = await stack.enter_async_context(producing(apache_rocketmq.name_server, "anew"))
        play = Play(apache_rocketmq, java_checks, tmp_path, admin, producer)
        passed = await played(play, stack)
    assert passed == {SHORT: 6, LONG: 10, AWAY: 0}
    gold = run(steps(), bronze_of(tmp_path / "lake"), Evaluation())
    by_group = {row["group"]: row for row in gold["passed_over_messages"] if row["group"] in ANEW}
    assert {group: row["messages"] for group, row in by_group.items()} == passed
    assert {row["provenance"] for row in by_group.values()} == {"OBSERVED"}
    assert {row["topic"] for row in gold["topic_lives"]} >= ANEW.keys()
    assert not [row for row in gold["offset_violations"] if row["group"] in ANEW]
    check_that_no_lag_is_negative(gold)
    alerts = {one for one in fired(gold) if one[1] in ANEW}
    lost = {("MessagesPassedOver", SHORT), ("MessagesPassedOver", LONG)}
    # The last one as long as an offset lies beyond the end.
    assert lost <= alerts <= lost | {("GroupBeyondEnd", SHORT)}


def check_that_no_lag_is_negative(gold: dict[str, list[dict[str, Any]]]) -> None:
    """Of an offset beyond the end it is unknown, and says why."""
    lags = [row for row in gold["consumer_lag"] if row["group"] in ANEW]
    assert [row for row in lags if (row["lag_messages"] or 0) < 0] == []
    beyond = [row for row in lags if (row["committed"] or 0) > row["max_offset"]]
    assert {row["unknown_reason"] for row in beyond} <= {"BEYOND_END"}
    assert {row["lag_messages"] for row in beyond} <= {None}


AT_ONCE = {"anew-longer": 14, "anew-equal": 10, "anew-shorter": 6}
"""Topics, and groups of the same names: so many messages are sent to the new life at once."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_new_life_that_began_and_grew_between_two_looks_is_counted_as_well(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    configure_log(tmp_path)
    (tmp_path / "classes").symlink_to(java_checks.classes)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_at(apache_rocketmq.name_server))
        producer = await stack.enter_async_context(producing(apache_rocketmq.name_server, "anew"))
        play = Play(apache_rocketmq, java_checks, tmp_path, admin, producer)
        for topic in AT_ONCE:
            await play.make(topic)
        stack.enter_context(observer(play.cluster, play.folder, ships=True, period_s=10))
        for topic in AT_ONCE:
            await play.join(topic)
            stack.enter_context(play.members[topic])
            await play.send(topic, "before", BEFORE)
        before = dict.fromkeys(AT_ONCE, BEFORE)
        await eventually(lambda: play.are_at(before), "all were consumed", within_s=90)
        for topic, count in AT_ONCE.items():
            await eventually(partial(play.is_held, topic), "a new pull is held", within_s=60)
            await admin.topics.delete(topic)
            await play.make(topic)
            await play.send(topic, "anew", count)
        await eventually(
            lambda: play.lives("TOPIC_MADE_AGAIN") >= AT_ONCE.keys(), "new lives", within_s=60
        )
        await eventually(lambda: play.are_at(AT_ONCE), "all have gone on", within_s=60)
    lost = {
        topic: len(set(range(count)) - play.consumed(topic, "anew"))
        for topic, count in AT_ONCE.items()
    }
    gold = run(steps(), bronze_of(tmp_path / "lake"), Evaluation())
    rows = [row for row in gold["passed_over_messages"] if row["group"] in AT_ONCE]
    assert lost == {"anew-longer": 10, "anew-equal": 10, "anew-shorter": 6}
    assert {row["group"]: row["messages"] for row in rows} == lost
    assert {row["topic"] for row in gold["topic_lives"]} >= AT_ONCE.keys()
