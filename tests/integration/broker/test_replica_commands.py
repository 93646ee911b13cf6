"""`tidemark admin replica`: who leads, who is behind, and what each change would lose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.admin import Admin, admin_at
from engine.broker.broker import Broker
from engine.broker.config import BrokerRole
from engine.broker.identity import Role
from engine.foundation.errors import ClusterError, RequestRefused
from engine.protocol.codes import ResponseCode
from engine.replication import Following
from tests.integration.broker.cluster import TOPIC, RawClient, eventually
from tests.integration.broker.master_and_slaves import Replicated, log_of, replicated
from tests.store_support import bodies_of, draft
from tidemark import app

BROKER = "broker-a"


@asynccontextmanager
async def admin_of(stage: Replicated) -> AsyncIterator[Admin]:
    async with admin_at(stage.master.name_server_address) as admin:
        yield admin


async def settled(broker: Broker, following: Following) -> None:
    client = broker.services.replication.ha_client

    async def is_so() -> bool:
        return client.following is following

    await eventually(is_so, f"it is {following.name}", within_s=30)


async def test_a_promotion_after_the_masters_death_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage, admin_of(stage) as admin:
        client = stage.master.client()
        for number in range(10):
            await client.send(b"%d" % number)
        master, slave = await admin.replicas.of(BROKER)
        assert master.state is not None
        assert (master.leads, slave.is_in_sync(master.state)) == (True, True)
        assert master.place == slave.place
        await stage.master.broker.stop()
        plan = await admin.replicas.plan(BROKER, broker_role="ASYNC_MASTER", copies=1)
        assert (plan.waited_for, plan.slaves, plan.answered) == (1, 1, 1)
        assert "nothing that was acknowledged is lost" in plan.sentences()[1]
        assert await admin.replicas.promote(plan) == 0
        assert stage.slave is not None
        assert bodies_of(stage.slave.state.store, TOPIC) == [b"%d" % one for one in range(10)]
        assert stage.slave.state.node.term == plan.epoch


async def test_too_few_slaves_are_not_asked_who_has_most(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage, admin_of(stage) as admin:
        await stage.master.client().send(b"one has it, or the other")
        await stage.master.broker.stop()
        with pytest.raises(ClusterError, match=r"1 of 2 slaves of broker-a answer.*2 have to"):
            await admin.replicas.plan(BROKER, broker_role="SYNC_MASTER", copies=2, slaves=2)


async def test_what_an_async_master_may_lose_is_said(tmp_path: Path) -> None:
    async with (
        replicated(tmp_path, BrokerRole.ASYNC_MASTER, ha_listen_port=0) as stage,
        admin_of(stage) as admin,
    ):
        await stage.master.client().send(b"the master alone has it")
        end = stage.master.broker.state.store.physical_max
        plan = await admin.replicas.plan(BROKER, broker_role="ASYNC_MASTER", copies=1)
        assert "hands over without a loss" in plan.sentences()[1]
        assert await admin.replicas.promote(plan) == end, "all of it"
        assert stage.slave is not None
        assert stage.slave.state.node.role is Role.MASTER
        assert stage.master.broker.state.node.role is Role.SLAVE


async def test_a_lost_master_comes_back_as_a_slave_when_its_tail_is_cut(tmp_path: Path) -> None:
    async with replicated(tmp_path, slave_timeout_ms=200) as stage, admin_of(stage) as admin:
        client = stage.master.client()
        await client.send(b"both have it")
        await stage.caught_up()
        assert stage.slave is not None
        common_end = stage.slave.state.store.physical_max
        stage.slave.services.replication._stands_still = True  # It is cut off.
        stage.slave.services.replication.ha_client.leave()
        for number in range(3):
            answer = await client.send(b"the master alone %d" % number)
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        old_end = stage.master.broker.state.store.physical_max
        await stage.master.broker.stop()
        stage.slave.services.replication._stands_still = False
        plan = await admin.replicas.plan(BROKER, broker_role="ASYNC_MASTER", copies=1)
        await admin.replicas.promote(plan)
        new = RawClient(stage.slave.address)
        await new.send(b"of the new one" * 50)
        former = await stage.start_master_again()
        assert former.state.node.role is Role.SLAVE, "somebody leads in its place"
        assert former.state.node.broker_id == 1
        await settled(former, Following.DIVERGED)
        tail = log_of(former.state.store)[common_end:]
        cut = await admin.replicas.cut(former.address)
        assert (cut.begin, cut.end, cut.messages) == (common_end, old_end, 3)
        assert cut.topics == {TOPIC: 3}
        assert former.state.store.physical_max == old_end, "a preview changes nothing"
        with pytest.raises(RequestRefused, match="preview it again"):
            await admin.replicas.cut(former.address, at=common_end - 1)
        done = await admin.replicas.cut(former.address, at=cut.begin)
        assert Path(done.file).read_bytes() == tail
        await settled(former, Following.FOLLOWING)
        await eventually_alike(former, stage.slave)
        assert former.state.store.epochs.entries == stage.slave.state.store.epochs.entries
        assert bodies_of(former.state.store, TOPIC) == [b"both have it", b"of the new one" * 50]
        with pytest.raises(RequestRefused, match="not DIVERGED"):
            await admin.replicas.cut(former.address)
        await new.rpc.close()


async def eventually_alike(one: Broker, other: Broker) -> None:
    async def are_alike() -> bool:
        return one.state.store.physical_max == other.state.store.physical_max

    await eventually(are_alike, "the logs end alike", within_s=30)
    assert log_of(one.state.store) == log_of(other.state.store)


async def test_a_running_master_gives_way_to_one_of_a_greater_epoch(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        await stage.slave.services.leadership.promote(5000, BrokerRole.ASYNC_MASTER, 1)
        node = stage.master.broker.state.node

        async def is_slave() -> bool:
            return (node.role, node.term) == (Role.SLAVE, 5000)

        await eventually(is_slave, "the former master has heard of it")


async def test_a_transfer_loses_nothing_and_clients_go_on(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage, admin_of(stage) as admin:
        assert stage.slave is not None
        former, slave = stage.master.broker, stage.slave
        acknowledged, addresses, over = list[bytes](), [former.address, slave.address], False

        async def send_for_ever() -> None:
            number = 0
            while not over:
                for address in addresses:
                    body = b"%d" % number
                    answer = await clients[address].send(body)
                    number += 1
                    if answer.code == ResponseCode.SUCCESS:
                        acknowledged.append(body)
                await asyncio.sleep(0.005)

        clients = {address: RawClient(address) for address in addresses}
        sending = asyncio.create_task(send_for_ever())
        await settled(slave, Following.FOLLOWING)
        plan = await admin.replicas.transfer(BROKER, to=None, wait_ms=9000)
        before = len(acknowledged)

        async def goes_on() -> bool:
            return len(acknowledged) > before + 20

        await eventually(goes_on, "the new master acknowledges", within_s=30)
        over = True
        await sending
        assert (slave.state.node.role, slave.state.node.term) == (Role.MASTER, plan.epoch)
        assert slave.state.node.config.broker_role is BrokerRole.SYNC_MASTER
        assert (former.state.node.role, former.state.node.broker_id) == (Role.SLAVE, 1)
        assert set(acknowledged) <= set(bodies_of(slave.state.store, TOPIC))
        await eventually_alike(former, slave)
        for client in clients.values():
            await client.rpc.close()


async def test_a_transfer_to_a_slave_that_does_not_catch_up_is_taken_back(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage, admin_of(stage) as admin:
        await stage.caught_up()
        assert stage.slave is not None
        stage.slave.services.replication._stands_still = True
        stage.slave.services.replication.ha_client.leave()
        stage.slave.services.replication.ha_client.following = Following.FOLLOWING
        stage.master.broker.state.store.put(draft(b"not copied"))
        with pytest.raises(ClusterError, match="leads on, in epoch"):
            await admin.replicas.transfer(BROKER, to=None, wait_ms=300)
        node = stage.master.broker.state.node
        assert node.role is Role.MASTER
        assert node.term > 1_700_000_000
        stage.slave.services.replication._stands_still = False
        assert (await stage.master.client().send(b"goes on")).code == ResponseCode.SUCCESS


async def test_commands_show_before_they_change(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        end = stage.slave.state.store.physical_max
        await settled(stage.slave, Following.FOLLOWING)

        async def typed(*words: str, exit_code: int = 0) -> str:
            environment = {"NAMESRV_ADDR": stage.master.name_server_address}
            arguments = ["admin", "replica", *words]
            answer = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment)
            assert answer.exit_code == exit_code, answer.output
            return answer.output

        master, slave = json.loads(await typed("list", "--json"))
        assert (master["role"], slave["role"]) == ("SYNC_MASTER", "SLAVE")
        assert [slave[name] for name in ("epoch", "begin", "end", "behind")] == [1, 0, end, 0]
        assert (slave["in_sync"], slave["state"]) == (True, "FOLLOWING")
        said = await typed("promote", BROKER, "--role", "ASYNC_MASTER")
        assert "which leads and answers, becomes its slave first" in said
        assert "nothing is changed yet" in said
        assert "nothing is changed yet" in await typed("transfer", BROKER)
        assert "refused" in await typed("rebuild", BROKER, stage.slave.address, exit_code=1)
        assert "KING is none of" in await typed("promote", BROKER, "--role", "KING", exit_code=2)
        assert "no slave" in await typed("transfer", BROKER, "--to", "9", "--yes", exit_code=1)
        assert stage.master.broker.state.node.term == 1, "nothing has changed"
        assert "leads broker-a" in await typed("transfer", BROKER, "--yes")
        assert stage.slave.state.node.role is Role.MASTER
        await stage.master.broker.stop()
        (only,) = json.loads(await typed("list", BROKER, "--json"))
        assert only["role"] == "SYNC_MASTER"
