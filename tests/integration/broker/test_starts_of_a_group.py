"""Row C11: what clients remember counts after a node of a Raft group was killed and leads again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from engine.broker.replicating.agreed_tables import FILE_NAME
from engine.protocol.codes import ResponseCode
from tests.integration.broker.cluster import Cluster, broker_config, cluster, eventually
from tests.integration.broker.spooled import spooled
from tests.integration.telemetry.killable_engine import free_port


async def test_a_kill_takes_nothing_that_a_reader_of_a_group_may_remember(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path, raft_enable=True, raft_peers=(f"n0-127.0.0.1:{free_port()}",), raft_self_id="n0"
    )
    async with cluster(config) as first:
        client = first.client()

        async def is_sent() -> bool:
            return (await client.send()).code == ResponseCode.SUCCESS

        await eventually(is_sent, "the only node leads")
        await client.heartbeat()
        assert (await client.send()).code == ResponseCode.SUCCESS
        assert (await client.commit(1)).code == ResponseCode.SUCCESS
    # As SIGKILL leaves it soon after a start: no snapshot of tables, and not stopped.
    (tmp_path / "store" / "config" / FILE_NAME).unlink(missing_ok=True)
    (tmp_path / "store" / "abort").touch()
    async with cluster(config) as second:
        client = second.client()
        await client.heartbeat()

        async def is_answered() -> bool:
            return (await client.pull(2)).code != ResponseCode.PULL_RETRY_IMMEDIATELY

        await eventually(is_answered, "the only node leads again")
        answer = await client.pull(2)
        assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
        assert (await client.commit(2)).code == ResponseCode.SUCCESS


async def test_a_node_that_leads_again_at_once_ends_nothing_that_it_reported(
    tmp_path: Path,
) -> None:
    config = broker_config(
        tmp_path, raft_enable=True, raft_peers=(f"n0-127.0.0.1:{free_port()}",), raft_self_id="n0"
    )
    for _ in range(2):
        async with cluster(config) as running:
            await eventually(partial(leads, running), "the only node leads")
    rows = spooled(tmp_path / "store", "lifecycle")
    assert [row["role"] for row in rows if row["kind"] == "ROLE_CHANGE"].count("MASTER") == 2
    empty = [row for row in rows if (row["detail"] or "").startswith("another node")]
    assert empty == []


async def leads(running: Cluster) -> bool:
    return running.broker.state.node.is_master
