"""Clients commit on a slave while the master is away: the master that comes back goes on there.

RocketMQ's master overwrites its slave's offsets with its own older ones, and all groups consume
again what they consumed during the outage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.broker import Broker
from engine.broker.offsets.outage_offsets import OutageOffsets
from engine.protocol.bodies_admin import OutageOffset, OutageOffsetList
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient, eventually
from tests.integration.broker.master_and_slaves import Replicated, replicated

GROUPS, QUEUES = ("first", "second"), range(4)
Table = dict[tuple[str, int], int]


def offsets_of(broker: Broker) -> Table:
    offsets = broker.state.offsets
    found = {
        (group, one): offsets.committed(group, TOPIC, one) for group in GROUPS for one in QUEUES
    }
    return {key: offset for key, offset in found.items() if offset is not None}


async def commit(address: str, table: Table) -> None:
    client = RawClient(address)
    for (group, queue_id), offset in table.items():
        answer = await client.commit(offset, queue_id=queue_id, group=group)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await client.rpc.close()


def table(offset: int) -> Table:
    return {(group, one): offset + one for group in GROUPS for one in QUEUES}


async def outage(stage: Replicated) -> None:
    """Twelve messages in each queue, some consumed; then the master is away, and its slave hears of
    more.
    """
    client = stage.master.client()
    for number in range(4 * 12):
        assert (await client.send(b"%d" % number, queue_id=number % 4)).code == ResponseCode.SUCCESS
    for group in GROUPS:
        await client.heartbeat(group)
    await commit(stage.master.broker.address, table(3))
    assert stage.slave is not None
    slave = stage.slave

    async def is_copied() -> bool:
        return offsets_of(slave) == table(3)

    await eventually(is_copied, "the slave has the offsets")
    await stage.caught_up()
    await stage.master.broker.stop()
    await commit(slave.address, table(7))


async def test_a_master_that_comes_back_has_what_was_committed_on_its_slave(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage:
        await outage(stage)
        again = await stage.start_master_again()
        assert offsets_of(again) == table(7), "before its port opened"
        assert stage.slave is not None
        slave = stage.slave
        await commit(again.address, table(8))

        async def is_copied() -> bool:
            return offsets_of(slave) == table(8) and not slave.state.outage_offsets

        seen = [offsets_of(slave)]

        async def is_copied_and_never_less() -> bool:
            seen.append(offsets_of(slave))
            return await is_copied()

        await eventually(is_copied_and_never_less, "the slave follows again")
        assert all(one in (table(7), table(8)) for one in seen), "never less than was committed"


async def test_what_was_committed_on_a_slave_outlives_its_restart(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await outage(stage)
        await stage.stop_slave()
        slave = await stage.start_slave()
        assert len(slave.state.outage_offsets) == len(table(7))
        again = await stage.start_master_again()
        assert offsets_of(again) == table(7)


async def test_a_report_to_the_master_counts_more_than_an_older_one_to_its_slave(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage:
        await outage(stage)
        again = await stage.start_master_again()
        key = ("first", 0)
        await commit(again.address, {key: 9})
        client = RawClient(again.address)
        for age_ms, offset, expected in ((60_000, 5, 9), (-1, 5, 9), (0, 10, 10)):
            one = OutageOffset(group="first", topic=TOPIC, queue_id=0, offset=offset, age_ms=age_ms)
            body = OutageOffsetList(state_version=again.state.node.term, offsets=[one]).encode()
            answer = await client.ask(RequestCode.MERGE_CONSUMER_OFFSETS, body)
            assert answer.code == ResponseCode.SUCCESS
            assert again.state.offsets.committed("first", TOPIC, 0) == expected
        await client.rpc.close()


@pytest.mark.parametrize(("epoch", "offset"), [(99, 8), (1, 10**9)])
async def test_offsets_of_a_later_epoch_or_beyond_the_log_are_not_taken_over(
    tmp_path: Path, epoch: int, offset: int
) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.send(b"the only one")
        one = OutageOffset(group="first", topic=TOPIC, queue_id=0, offset=offset, age_ms=0)
        body = OutageOffsetList(state_version=epoch, offsets=[one]).encode()
        answer = await client.ask(RequestCode.MERGE_CONSUMER_OFFSETS, body)
        is_later = epoch == 99
        assert (answer.code == ResponseCode.SUCCESS) is not is_later
        committed = stage.master.broker.state.offsets.committed("first", TOPIC, 0)
        assert committed == (None if is_later else 1)


def test_a_copy_of_an_older_table_passes_over_what_was_committed_here() -> None:
    outage, key = OutageOffsets(), ("first", TOPIC, 0)
    outage.note(key, 7, steady_ms=1)
    copied = {(TOPIC, "first"): {0: 3, 1: 4}}
    outage.lay_over(copied)
    assert copied == {(TOPIC, "first"): {0: 7, 1: 4}}
    handed = outage.all()
    outage.note(key, 8, steady_ms=2)
    outage.merged(handed)
    assert outage.all()[key].offset == 8, "committed while the master took the other one"
