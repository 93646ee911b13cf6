"""The observer reports members at odds, shared client ids and self-pulling members.

They are Java members on a real Apache RocketMQ; a shared id is one that two processes bear.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.rocketmq import Installation, configure_log
from engine.protocol.message import Message
from pipelines.base.settings import Evaluation
from pipelines.marts.declared import steps
from provision.places import rocketmq_jars
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.java_clients import JavaChecks
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.test_observed_earlier_rocketmq import running
from tests.interop.test_observed_rocketmq import _sent, observer
from tests.pipelines.partition import bronze_of, run
from tests.shipped_alerts import fired

TOPIC = "observed-members"
AT_ODDS, SHARED, LITE, HOARDING = "at-odds", "shared", "lite-pull", "lite-hoarding"
MESSAGES = 40
TRUE_AFTER_A_WHILE = {
    ("QueueStalled", HOARDING),
    ("QueueNotPulled", SHARED),
    ("GroupStopped", SHARED),
}
"""What a slow machine finds, too: who hoards stands still, and each of two that bear one id takes
itself for the first of two, so that nobody reads the second half of the queues.
"""


@contextmanager
def member(
    checks: JavaChecks, cluster: RealRocketMQ, folder: Path, group: str, *words: str
) -> Iterator[Path]:
    """`words`: expression, instance and manner of a member; killed at the end. What it says."""
    expression, instance, manner = words
    installation = Installation(checks.java_home, rocketmq_jars())
    command = installation.program_command(folder, "Member")
    command += [cluster.name_server, group, TOPIC, expression, instance, manner]
    log = folder / f"{group}-{len(list(folder.glob(f'{group}*')))}.log"
    with running(command, log):
        yield log


def _are_reported(conflicts: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    conflict, agreed = conflicts
    assert [one.partition(",")[0] for one in conflict["after"]] == [
        "127.0.0.1@java-1 reads %RETRY%at-odds:*",
        "127.0.0.1@java-2 reads %RETRY%at-odds:*",
    ]
    assert agreed["after"] == []
    (row,) = shared
    assert row["client_id"] == "127.0.0.1@one-name"
    assert row["before"] != row["after"]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_members_at_odds_shared_ids_and_pulls_of_their_own_are_reported(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"

    def is_reported(table: str, group: str, **wanted: Any) -> list[dict[str, Any]]:
        rows = spooled(home, table) if (home / "spool").exists() else []
        return [
            row
            for row in rows
            if row["group"] == group and all(row[name] == one for name, one in wanted.items())
        ]

    async def join(stack: ExitStack | AsyncExitStack, *given: str) -> None:
        log = stack.enter_context(member(java_checks, apache_rocketmq, tmp_path, *given))
        await eventually(lambda: "ready" in log.read_text(), f"{given} is there", within_s=90)

    configure_log(tmp_path)
    (tmp_path / "classes").symlink_to(java_checks.classes)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(
            producing(apache_rocketmq.name_server, "observed")
        )
        await eventually(lambda: _sent(producer, TOPIC), "the broker makes the topic")
        stack.enter_context(observer(apache_rocketmq, tmp_path, ships=True))
        second = stack.enter_context(ExitStack())
        await join(second, AT_ODDS, "paid", "java-2", "push")
        for given in (
            (AT_ODDS, "*", "java-1", "push"),
            (SHARED, "*", "one-name", "push"),
            (SHARED, "*", "one-name", "push"),
            (LITE, "*", "lite-1", "lite"),
            (HOARDING, "*", "lite-2", "hoards"),
        ):
            await join(stack, *given)
        for _ in range(MESSAGES):
            await producer.send(Message(TOPIC, b"order"))

        def conflicts() -> list[dict[str, Any]]:
            return is_reported("rebalance_events", AT_ODDS, kind="SUBSCRIPTION_CONFLICT")

        await eventually(lambda: bool(conflicts()), "the conflict is reported", within_s=120)
        second.close()
        await eventually(lambda: len(conflicts()) > 1, "they agree again", within_s=120)

        def lags(group: str) -> int:
            marks = {
                row["queue_id"]: row for row in is_reported("group_watermarks", group, topic=TOPIC)
            }
            return sum(row["max_offset"] - (row["committed"] or 0) for row in marks.values())

        await eventually(
            lambda: is_reported("group_watermarks", LITE) and not lags(LITE), "lite is done"
        )
        await eventually(lambda: lags(HOARDING) > MESSAGES, "the hoarding one is behind")

        def shared() -> list[dict[str, Any]]:
            return is_reported("rebalance_events", SHARED, kind="CLIENT_ID_SHARED")

        await eventually(lambda: bool(shared()), "the shared id is reported", within_s=200)
    _are_reported(conflicts(), shared())
    gold = run(steps(), bronze_of(tmp_path / "lake"), Evaluation())
    alerts = {one for one in fired(gold) if one[1] in (AT_ODDS, SHARED, LITE, HOARDING)}
    named = {("SubscriptionsDiffer", AT_ODDS), ("ClientIdShared", SHARED)}
    assert named <= alerts <= named | TRUE_AFTER_A_WHILE
    for group in (AT_ODDS, LITE, HOARDING):
        assert not is_reported("rebalance_events", group, kind="CLIENT_ID_SHARED")
