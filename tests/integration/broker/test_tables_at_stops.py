"""What a stop leaves in the tables: nothing that was settled by then is missing."""

from __future__ import annotations

import json
from pathlib import Path

from engine.protocol.codes import ResponseCode
from engine.store import FlushDiskType
from tests.integration.broker.cluster import GROUP, TOPIC, Cluster, broker_config, cluster
from tests.integration.broker.spooled import spooled
from tests.integration.broker.transactor import (
    COMMIT,
    HALF_TOPIC,
    INTERNAL_GROUP,
    OP_TOPIC,
    ROLLBACK,
    Transactor,
)

NEVER_MS = 600_000


def offsets_in(folder: str) -> dict[str, dict[str, int]]:
    """The offset table on disk."""
    found = json.loads((Path(folder) / "consumerOffset.json").read_text())
    return found["offsetTable"]  # type: ignore[no-any-return]


async def test_a_clean_stop_persists_how_far_transactions_are_settled(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path,
        flush=FlushDiskType.ASYNC_FLUSH,
        flush_consumer_offset_interval_ms=NEVER_MS,
        transaction_op_batch_interval_ms=NEVER_MS,
        transaction_timeout_ms=NEVER_MS + 1,
    )
    async with cluster(config) as running:
        producer = Transactor(running.client())
        store = running.broker.state.store
        for number in range(4):
            half = await producer.begin(f"K{number}")
            ended = await producer.end(half, COMMIT if number % 2 else ROLLBACK)
            assert ended.code == ResponseCode.SUCCESS, ended.remark
    table = offsets_in(config.config_folder)
    assert table[f"{HALF_TOPIC}@{INTERNAL_GROUP}"] == {"0": 4}
    ops = store.max_offset(OP_TOPIC, 0)
    assert table[f"{OP_TOPIC}@{INTERNAL_GROUP}"] == {"0": ops}, "the last one among them"


async def test_a_clean_stop_persists_offsets_of_messages_that_no_timer_has_synced(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, flush_consumer_offset_interval_ms=NEVER_MS)
    async with cluster(config) as running:
        client = running.client()
        await client.heartbeat()
        for _ in range(5):
            await client.send()
        await client.commit(5)
    assert offsets_in(config.config_folder)[f"{TOPIC}@{GROUP}"] == {"0": 5}
    reported = [row["kind"] for row in spooled(Path(config.store.root), "lifecycle")]
    assert "OFFSETS_HELD_BACK" not in reported


async def test_offsets_are_persisted_together_with_the_log_before_them(tmp_path: Path) -> None:
    config = broker_config(tmp_path, flush_consumer_offset_interval_ms=NEVER_MS)
    async with cluster(config) as running:
        client, broker = running.client(), running.broker
        assert broker._running is not None
        await client.heartbeat()
        for _ in range(5):
            await client.send()
        await client.commit(5)
        await broker._running.services.persistence.save_offsets("TIMER")
        assert broker.state.offsets.persisted(GROUP, TOPIC, 0) == 5, "no sync's timer is over"
        assert broker.state.store.synced_offset(TOPIC, 0) == 5


def stand_at(running: Cluster, offset: int) -> None:
    """The group stands there, as a table of another broker may say: no report does."""
    running.broker.state.offsets.place(GROUP, TOPIC, 0, offset)


async def test_a_report_that_is_held_back_another_time_is_reported_again(tmp_path: Path) -> None:
    config = broker_config(tmp_path, flush_consumer_offset_interval_ms=NEVER_MS)
    async with cluster(config) as running:
        client, tables = running.client(), running.broker._running
        assert tables is not None
        await client.heartbeat()
        for offset in (2, 1, 3):
            await client.send()
            stand_at(running, offset)
            await tables.services.persistence.save_offsets("TIMER")
        stand_at(running, 9)
        await tables.services.persistence.save_offsets("TIMER")
    reported = [
        row["detail"]
        for row in spooled(Path(config.store.root), "lifecycle")
        if row["kind"] == "OFFSETS_HELD_BACK"
    ]
    assert [
        f"{GROUP} on queue 0 of {TOPIC} at {at}" in row
        for at, row in zip((1, 3), reported, strict=True)
    ] == [
        True,
        True,
    ], reported


async def test_a_report_of_messages_that_are_not_there_is_held_back_and_reported_once(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, flush_consumer_offset_interval_ms=NEVER_MS)
    async with cluster(config) as running:
        client, tables = running.client(), running.broker._running
        assert tables is not None
        await client.heartbeat()
        for _ in range(5):
            await client.send()
        stand_at(running, 9)
        for _ in range(2):
            await tables.services.persistence.save_offsets("TIMER")
            running.broker.state.offsets.changed = True
        assert running.broker.state.offsets.committed(GROUP, TOPIC, 0) == 9, "as reported"
        assert running.broker.state.offsets.persisted(GROUP, TOPIC, 0) == 5, "as on disk"
    assert offsets_in(config.config_folder)[f"{TOPIC}@{GROUP}"] == {"0": 5}
    (reported,) = [
        row["detail"]
        for row in spooled(Path(config.store.root), "lifecycle")
        if row["kind"] == "OFFSETS_HELD_BACK"
    ]
    assert f"{GROUP} on queue 0 of {TOPIC} at 5 instead of 9" in reported
