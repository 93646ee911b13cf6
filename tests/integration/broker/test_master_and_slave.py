"""A slave copies its master: the log, and the tables that are not in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.broker.config import BrokerRole
from engine.foundation.errors import ConfigError
from engine.protocol.bodies_admin import HaRuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import GROUP, TOPIC, broker_config, eventually
from tests.integration.broker.master_and_slaves import log_of, replicated
from tests.integration.broker.spooled import spooled, spooled_in_order
from tests.store_support import bodies_of


async def test_a_slave_has_log_queues_topics_groups_and_offsets(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        for number in range(20):
            answer = await client.send(b"%d" % number, queue_id=number % 4)
            assert answer.code == ResponseCode.SUCCESS
        await client.heartbeat()
        await client.commit(3, queue_id=1)
        await stage.caught_up()
        assert stage.slave is not None
        ours, theirs = stage.master.broker.state, stage.slave.state
        assert log_of(theirs.store) == log_of(ours.store)

        async def same_tables() -> bool:
            return (
                theirs.offsets.committed(GROUP, TOPIC, 1) == 3
                and theirs.topics.find(TOPIC) == ours.topics.find(TOPIC)
                and theirs.group_configs.names() == ours.group_configs.names()
                and theirs.store.queues() == ours.store.queues()
            )

        await eventually(same_tables, "the slave has the tables")


async def test_a_sync_master_says_so_when_no_slave_has_the_message(tmp_path: Path) -> None:
    async with replicated(tmp_path, slave_timeout_ms=300) as stage:
        client = stage.master.client()
        await stage.caught_up()
        assert (await client.send(b"both have it")).code == ResponseCode.SUCCESS
        await stage.stop_slave()
        answer = await client.send(b"the master alone")
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert "not yet on enough slaves" in (answer.remark or "")
        await stage.start_slave()
        await stage.caught_up()
        assert (await client.send(b"both again")).code == ResponseCode.SUCCESS


async def test_an_async_master_does_not_wait(tmp_path: Path) -> None:
    async with replicated(
        tmp_path, BrokerRole.ASYNC_MASTER, ha_listen_port=0, slave_timeout_ms=300
    ) as stage:
        await stage.stop_slave()
        answer = await stage.master.client().send(b"the master alone")
        assert answer.code == ResponseCode.SUCCESS


async def test_a_slave_takes_no_message_and_names_its_state(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.send(b"first")
        await stage.caught_up()
        assert stage.slave is not None
        client.address = stage.slave.address
        assert (await client.send(b"to the slave")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await client.ask(RequestCode.GET_BROKER_HA_STATUS)
        status = HaRuntimeInfo.decode(answer.body)
        assert not status.master
        assert status.ha_client_runtime_info.activated
        client.address = stage.master.broker.address

        async def in_sync() -> bool:
            answer = await client.ask(RequestCode.GET_BROKER_HA_STATUS)
            status = HaRuntimeInfo.decode(answer.body)
            return status.in_sync_slave_nums == 1 and status.ha_connection_info[0].diff == 0

        await eventually(in_sync, "the master counts its slave")


async def test_a_slave_reports_no_facts_of_its_masters_queues(tmp_path: Path) -> None:
    def reported(node: str) -> set[str]:
        return {table for _, table, _ in spooled_in_order(tmp_path / node / "store")}

    async with replicated(tmp_path, telemetry=True, sample_interval_ms=50) as stage:
        await stage.master.client().send(b"once")
        await stage.caught_up()

        async def are_sampled() -> bool:
            return "queue_watermarks" in reported("master")

        await eventually(are_sampled, "the master reports its queues")
        await asyncio.sleep(0.3)
        assert reported("slave") == {"lifecycle"}
    kinds = [row["kind"] for row in spooled(tmp_path / "slave" / "store", "lifecycle")]
    assert kinds == ["SNAPSHOT", "RECOVERY", "ROLE_CHANGE", "BOOT", "SHUTDOWN"]


async def test_queues_say_how_far_they_are_on_a_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path, slave_timeout_ms=200) as stage:
        client = stage.master.client()
        store = stage.master.broker.state.store
        for number in range(4):
            await client.send(b"%d" % number)
        marks = store.marks_of(TOPIC, 0)
        assert marks is not None
        assert (marks.replicated_offset, marks.max_offset) == (4, 4)
        await stage.stop_slave()
        await client.send(b"the master alone")
        marks = store.marks_of(TOPIC, 0)
        assert marks is not None
        assert (marks.replicated_offset, marks.max_offset) == (4, 5)


async def test_what_the_master_deletes_goes_on_its_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.make_topic("short-lived")
        await client.send(b"a", topic="short-lived")
        assert stage.slave is not None
        topics = stage.slave.state.topics

        async def is_there() -> bool:
            return topics.find("short-lived") is not None

        async def is_gone() -> bool:
            return topics.find("short-lived") is None

        await eventually(is_there, "the slave has the topic")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="short-lived")
        await eventually(is_gone, "the slave has deleted the topic")


async def test_a_topic_made_again_at_once_has_its_new_life_on_the_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.make_topic("again")
        for number in range(5):
            await client.send(b"old %d" % number, topic="again")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="again")
        await client.make_topic("again")
        for number in range(3):
            await client.send(b"new %d" % number, topic="again")
        assert stage.slave is not None
        store = stage.slave.state.store

        async def is_new() -> bool:
            return bodies_of(store, "again") == [b"new 0", b"new 1", b"new 2"]

        await eventually(is_new, "the slave has the new life alone")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"broker_role": BrokerRole.SLAVE}, "a brokerId of 1 or more"),
        ({"broker_id": 1}, "0 for ASYNC_MASTER"),
        ({"broker_role": BrokerRole.SLAVE, "broker_id": 1}, "a name server"),
        ({"in_sync_replicas": 0}, "1 to 17"),
    ],
)
def test_roles_that_cannot_be_are_refused(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        broker_config(tmp_path, **settings)


async def test_many_sends_at_once_are_all_on_the_slave(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.caught_up()
        client = stage.master.client()
        answers = await asyncio.gather(
            *(client.send(b"%d" % number * 50, queue_id=number % 4) for number in range(300))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert stage.slave is not None
        assert log_of(stage.slave.state.store) == log_of(stage.master.broker.state.store)
