"""Topics of a real Apache RocketMQ that are deleted and made again while Java consumers run: what of
the new life they pass over is counted from outside.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from demo.rocketmq import Installation, configure_log
from engine.client.admin import Admin, admin_at
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from pipelines.marts.declared import steps
from pipelines.settings import Evaluation
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
third, fourteen to that of the second; the member of the third is away meanwhile."""
BEFORE = 10
ANEW = {SHORT: 6, LONG: 14, AWAY: 6}


async def sent(producer: Any, topic: str, count: int) -> None:
    """So many messages to the topic's only queue, as soon as there is a route."""

    async def is_sent() -> bool:
        try:
            await producer.send(Message(topic, b"order"))
        except TidemarkError:
            return False
        return True

    for _ in range(count):
        await eventually(is_sent, f"{topic} takes messages")


async def reached(admin: Admin, topic: str, committed: int) -> bool:
    """Has the topic's group committed so far?"""
    found = await admin.groups.consume_stats(topic, topic)
    return [one.consumer_offset for one in found.values()] == [committed]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_what_running_consumers_pass_over_of_a_topic_made_again_is_counted(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    cluster, home = apache_rocketmq, tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"
    configure_log(tmp_path)
    (tmp_path / "classes").symlink_to(java_checks.classes)
    members = {topic: ExitStack() for topic in ANEW}

    async def join(topic: str) -> None:
        command = Installation(java_checks.java_home, rocketmq_jars()).program_command(
            tmp_path, "Member"
        )
        command += [cluster.name_server, topic, topic, "*", f"{topic}-1", "push"]
        log = tmp_path / f"{topic}-{len(list(tmp_path.glob('anew-*')))}.log"
        members[topic].enter_context(running(command, log))
        await eventually(lambda: "ready" in log.read_text(), f"{topic} is read", within_s=90)

    def made_again() -> set[str]:
        told = spooled(home, "lifecycle")
        return {row["topic"] for row in told if row["kind"] == "TOPIC_MADE_AGAIN"}

    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_at(cluster.name_server))
        producer = await stack.enter_async_context(producing(cluster.name_server, "anew"))
        for topic in ANEW:
            stack.enter_context(members[topic])
            await admin.topics.create(cluster.broker, topic, read_queues=1, write_queues=1)
        stack.enter_context(observer(cluster, tmp_path, ships=True))
        for topic in ANEW:
            await join(topic)
            await sent(producer, topic, BEFORE)

        def are_seen() -> bool:
            marks = {row["group"]: row["committed"] for row in spooled(home, "group_watermarks")}
            return all(marks.get(topic) == BEFORE for topic in ANEW)

        await eventually(lambda: (home / "spool").exists() and are_seen(), "all of it", within_s=60)
        members[AWAY].close()
        for topic in ANEW:
            await admin.topics.delete(topic)
            await admin.topics.create(cluster.broker, topic, read_queues=1, write_queues=1)
        await eventually(lambda: made_again() >= ANEW.keys(), "the new lives are seen", within_s=60)
        for topic, count in ANEW.items():
            await sent(producer, topic, count)
        await join(AWAY)
        for topic, count in ANEW.items():
            await eventually(
                lambda topic=topic, count=count: reached(admin, topic, count),
                f"{topic} is at {count}",
                within_s=120,
            )
        await eventually(
            lambda: (
                {
                    row["group"]: row["committed"] for row in spooled(home, "group_watermarks")
                }.items()
                >= ANEW.items()
            ),
            "the last look",
            within_s=30,
        )
    gold = run(steps(), bronze_of(tmp_path / "lake"), Evaluation())
    passed = {row["group"]: row for row in gold["passed_over_messages"] if row["group"] in ANEW}
    assert {
        group: (row["outcome"], row["from_offset"], row["messages"])
        for group, row in passed.items()
    } == {
        SHORT: ("PASSED_OVER", 0, 6),
        LONG: ("PASSED_OVER", 0, 10),
        AWAY: ("READ", 0, 0),
    }
    assert {row["provenance"] for row in passed.values()} == {"OBSERVED"}
    assert "made again at" in passed[SHORT]["evidence"]
    assert {row["topic"] for row in gold["topic_lives"]} >= ANEW.keys()
    lags = [row for row in gold["consumer_lag"] if row["group"] in ANEW]
    assert [row for row in lags if (row["lag_messages"] or 0) < 0] == []
    beyond = [row for row in lags if (row["committed"] or 0) > row["max_offset"]]
    assert {row["unknown_reason"] for row in beyond} <= {"BEYOND_END"}
    alerts = {one for one in fired(gold) if one[1] in ANEW}
    # As long as the offset lies beyond the end.
    assert alerts - {("UnreadMessagesLost", SHORT)} == {
        ("MessagesPassedOver", SHORT),
        ("MessagesPassedOver", LONG),
    }
    assert not [row for row in gold["offset_violations"] if row["group"] in ANEW]
