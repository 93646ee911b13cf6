"""The observer finds what stands still on a real Apache RocketMQ 4.9.7 as on a 5.5."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from demo.rocketmq import Installation, configure_log
from engine.protocol.message import Message
from pipelines.base.settings import Evaluation
from pipelines.marts.declared import steps
from provision import jars, java
from provision.places import earlier_rocketmq_jars
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.real_rocketmq import DIES_WITH_THE_TESTS, RealRocketMQ, real_rocketmq
from tests.interop.test_observed_rocketmq import (
    _sent,
    check_that_all_ends_are_reported,
    check_that_failures_are_reported,
    check_that_the_stuck_one_is_found,
    observer,
    played,
)
from tests.pipelines.partition import bronze_of, run
from tests.shipped_alerts import fired


@pytest.fixture(scope="module")
def earlier_rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRocketMQ]:
    """A 4.9.7 for all tests of this module."""
    wrong = jars.faults(jars.read_pins(jars.EARLIER_ROCKETMQ.pins), earlier_rocketmq_jars())
    assert not wrong, f"run `make test-earlier-rocketmq`, which brings them: {wrong[0]}"
    folder = tmp_path_factory.mktemp("earlier-rocketmq")
    with real_rocketmq(folder, jars=earlier_rocketmq_jars()) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_stuck_listener_of_an_earlier_rocketmq_is_found(
    earlier_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await played(earlier_rocketmq, tmp_path)
    check_that_the_stuck_one_is_found(tmp_path)
    assert_nothing_was_refused(tmp_path)


def assert_nothing_was_refused(folder: Path) -> None:
    """Every kind of question has had an answer that counts."""
    said = (folder / "observer.log").read_text()
    assert "asked for" not in said, said


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_all_ends_of_an_earlier_rocketmq_are_reported(
    earlier_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await check_that_all_ends_are_reported(earlier_rocketmq, tmp_path)
    assert_nothing_was_refused(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_retries_dead_letters_rewinds_and_broadcasts_of_an_earlier_rocketmq_are_reported(
    earlier_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    await check_that_failures_are_reported(earlier_rocketmq, tmp_path)


JAVA_TOPIC, JAVA_GROUP = "observed-java", "observed-java-stuck"


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_java_client_of_an_earlier_rocketmq_reports_where_its_listener_stands(
    earlier_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    """Its first message never ends: what it holds is reported, and the stack of the listener."""
    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"
    command = java_consumer(tmp_path)
    command += [earlier_rocketmq.name_server, JAVA_GROUP, JAVA_TOPIC, "java-1"]
    command += [str(tmp_path / "ledger.jsonl"), "--freezes-on", "halt"]
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(
            producing(earlier_rocketmq.name_server, "observed")
        )
        first = Message(JAVA_TOPIC, b"first")
        first.keys = "halt"
        await producer.send(first)
        stack.enter_context(running(command, tmp_path / "java.log"))
        stack.enter_context(observer(earlier_rocketmq, tmp_path, ships=False))
        await eventually((home / "spool").exists, "the observer's first look", within_s=60)

        def stacks() -> list[str]:
            windows = spooled(home, "client_windows")
            return [row["stack"] for row in windows if row["group"] == JAVA_GROUP and row["stack"]]

        await eventually(lambda: bool(stacks()), "the stack of the listener", within_s=150)
    assert "DemoConsumer" in stacks()[0]
    (window, *_) = [row for row in spooled(home, "client_windows") if row["group"] == JAVA_GROUP]
    assert window["client_id"] == "127.0.0.1@java-1"


KILLED_TOPIC, KILLED_GROUP = "observed-killed", "observed-java-killed"


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_java_consumer_of_an_earlier_rocketmq_that_is_killed_has_left_what_it_held(
    earlier_rocketmq: RealRocketMQ, tmp_path: Path
) -> None:
    """It is killed over its messages, once a look has seen what it holds."""
    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"
    command = java_consumer(tmp_path)
    command += [earlier_rocketmq.name_server, KILLED_GROUP, KILLED_TOPIC, "java-1"]
    command += [str(tmp_path / "ledger.jsonl"), "--freezes-on", "halt"]

    def events() -> list[str]:
        rows = spooled(home, "rebalance_events") if (home / "spool").exists() else []
        return [row["kind"] for row in rows if row["group"] == KILLED_GROUP]

    def pulled() -> bool:
        rows = spooled(home, "group_watermarks")
        return any(row["pulled"] for row in rows if row["group"] == KILLED_GROUP)

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(
            producing(earlier_rocketmq.name_server, "observed")
        )
        await eventually(lambda: _sent(producer, KILLED_TOPIC), "the broker makes the topic")
        stack.enter_context(observer(earlier_rocketmq, tmp_path))
        consumer = stack.enter_context(running(command, tmp_path / "java.log"))
        await eventually(lambda: "ASSIGNED" in events(), "it reads", within_s=90)
        for number in range(40):
            message = Message(KILLED_TOPIC, b"order")
            message.keys = "halt" if number < 20 else ""
            await producer.send(message)
        await eventually(pulled, "a look sees what it holds", within_s=90)
        consumer.kill()
        await eventually(lambda: "LEFT" in events(), "it is gone", within_s=90)
    (left,) = [
        row
        for row in spooled(home, "rebalance_events")
        if row["group"] == KILLED_GROUP and row["kind"] == "LEFT"
    ]
    assert (left["client_id"], left["reason"]) == ("127.0.0.1@java-1", "NOT_CONNECTED")
    gold = run(steps(), bronze_of(tmp_path / "lake"), Evaluation())
    risks = [row for row in gold["duplicate_risk_windows"] if row["group"] == KILLED_GROUP]
    assert {row["outcome"] for row in risks} == {"POSSIBLE"}
    assert max(row["at_risk_messages"] for row in risks) > 0
    assert {one for one in fired(gold) if one[1] == KILLED_GROUP} == set(), "it is away for seconds"


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process, killed at the end."""
    with log.open("w") as out:
        process = subprocess.Popen([*DIES_WITH_THE_TESTS, *command], stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def java_consumer(folder: Path) -> list[str]:
    """Command line of a consumer on the client library of that version."""
    java_home = java.find(with_compiler=True)
    assert java_home is not None, java.missing(with_compiler=True)
    installation = Installation(java_home, earlier_rocketmq_jars())
    source = Path(__file__).parents[2] / "demo" / "java" / "DemoConsumer.java"
    installation.compile([source], folder / "classes")
    configure_log(folder)
    return installation.program_command(folder, "DemoConsumer")
