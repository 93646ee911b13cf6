"""A half message that cannot be read any more keeps no broker from starting, and no other
transaction from its end.

Rows D4, C7.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.codes import ResponseCode
from tests.integration.broker.cluster import broker_config, cluster, eventually
from tests.integration.broker.spooled import spooled
from tests.integration.broker.transactor import COMMIT, OP_TOPIC, Transactor, kept

BODY_AT = 88


@pytest.mark.parametrize(
    ("within", "to"),
    [(0, bytes(8)), (84, b"\x7f\xff\xff\xff"), (BODY_AT + 6 + 20, b"\xff\xff"), (0, bytes(200))],
)
async def test_a_damaged_half_message_is_passed_over_and_reported(
    tmp_path: Path, within: int, to: bytes
) -> None:
    slow = {"transaction_check_interval_ms": 60_000, "transaction_timeout_ms": 50_000}
    async with cluster(broker_config(tmp_path, **slow)) as running:
        producer = Transactor(running.client())
        first, bad, last = [await producer.begin(f"half {number}") for number in range(3)]
    log = next((tmp_path / "store" / "commitlog").glob("0*0"))
    with log.open("r+b") as file:
        file.seek(bad.physical_offset + within)
        file.write(to)
    async with cluster(broker_config(tmp_path, **slow)) as running:
        client = running.client()
        producer = Transactor(client)
        for half in (first, last):
            assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert [one.body for one in await kept(client)] == [b"half 0", b"half 2"]
    reported = spooled(tmp_path / "store", "lifecycle")
    (row,) = [one for one in reported if one["kind"] == "UNREADABLE_MESSAGE"]
    assert "message 1 of RMQ_SYS_TRANS_HALF_TOPIC" in row["detail"]


async def test_a_damaged_note_of_ends_is_passed_over_and_reported(tmp_path: Path) -> None:
    quick = {"transaction_op_batch_interval_ms": 50, "transaction_timeout_ms": 5000}
    async with cluster(broker_config(tmp_path, **quick)) as running:
        client = running.client()
        producer = Transactor(client)
        open_half = await producer.begin("half 0")
        half = await producer.begin("half 1")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        store = running.broker.state.store

        async def noted() -> bool:
            return store.max_offset(OP_TOPIC, 0) > 0

        await eventually(noted, "the end is noted")
        await client.send(b"behind", topic="other")
        (unit,) = store.queue_units(OP_TOPIC, 0, 0, 1) or []
    log = next((tmp_path / "store" / "commitlog").glob("0*0"))
    with log.open("r+b") as file:
        file.seek(unit[0])
        file.write(bytes(60))
    async with cluster(broker_config(tmp_path, **quick)) as running:
        client = running.client()
        assert (await Transactor(client).end(open_half, COMMIT)).code == ResponseCode.SUCCESS
        assert [one.body for one in await kept(client)] == [b"half 1", b"half 0"], "each once"
    reported = spooled(tmp_path / "store", "lifecycle")
    assert [one for one in reported if one["kind"] == "UNREADABLE_MESSAGE"]
