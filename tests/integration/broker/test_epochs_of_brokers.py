"""A master begins an epoch before it acknowledges anything in it; its slave has the same list."""

from __future__ import annotations

from pathlib import Path

from engine.broker.broker import Broker
from engine.broker.config import BrokerRole
from engine.protocol.bodies_admin import EpochEntryCache
from engine.protocol.codes import RequestCode, ResponseCode
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient, broker_config
from tests.integration.broker.master_and_slaves import replicated


async def epochs_at(address: str) -> EpochEntryCache:
    client = RawClient(address)
    answer = await client.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    await client.rpc.close()
    assert answer.code == ResponseCode.SUCCESS
    return EpochEntryCache.decode(answer.body)


async def test_a_master_that_did_not_stop_cleanly_begins_an_epoch_where_its_log_ends(
    tmp_path: Path,
) -> None:
    settings = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 1}
    begins = [0]
    for life, is_clean in enumerate((False, True, False), 1):
        broker = Broker(system_runtime(), broker_config(tmp_path, **settings))
        await broker.start()
        state = broker.state
        assert [one.begin for one in state.store.epochs.entries] == begins, f"life {life}"
        assert state.node.term == len(begins)
        assert (await RawClient(broker.address).send(b"one more")).code == ResponseCode.SUCCESS
        await broker.stop()
        if not is_clean:
            Path(state.node.config.store.abort_path).write_bytes(b"1")
            begins.append(state.store.physical_max)


async def test_a_slave_has_the_epochs_of_its_master_and_tools_see_them(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        ours = await epochs_at(stage.master.broker.address)
        theirs = await epochs_at(stage.slave.address)
        assert [(one.epoch, one.start_offset, one.end_offset) for one in ours.epoch_list] == [
            (1, 0, 2**63 - 1)
        ]
        assert theirs.epoch_list == ours.epoch_list
        assert (ours.broker_id, theirs.broker_id) == (0, 1)
        assert ours.max_offset == theirs.max_offset == stage.slave.state.store.physical_max
        assert not stage.slave.state.store.epochs.leads


async def test_a_broker_that_never_had_a_slave_has_no_epoch(tmp_path: Path) -> None:
    broker = Broker(system_runtime(), broker_config(tmp_path))
    await broker.start()
    listed = (await epochs_at(broker.address)).epoch_list
    assert [(one.epoch, one.start_offset) for one in listed] == [(0, 0)]
    assert broker.state.node.term == 0
    assert not (tmp_path / "store" / "config" / "epochs.json").exists()
    await broker.stop()
