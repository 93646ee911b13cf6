"""A deleted topic stays deleted, whatever ends the broker and whatever is built again: nothing of
it shows by offset, key, id or time, and made again it begins at 0.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_records
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
)
from tests.integration.broker.spooled import spooled

OLD = [b"old %d" % number for number in range(20)]
NEW = [b"new %d" % number for number in range(3)]


def config_of(folder: Path) -> BrokerConfig:
    return broker_config(folder, flush_consumer_offset_interval_ms=100)


def killed(config: BrokerConfig, folder: Path) -> BrokerConfig:
    """A copy of the running broker's store, as SIGKILL would leave it."""
    written = shutil.ignore_patterns("*.tmp")  # The broker goes on, and renames them meanwhile.
    shutil.copytree(config.store.root, config_of(folder).store.root, ignore=written)
    return config_of(folder)


async def fill(running: Cluster) -> RawClient:
    """Twenty messages, consumed and persisted as such, and two of another topic around them."""
    client = running.client()
    await client.heartbeat(GROUP, (TOPIC, "other"))
    await client.send(b"before", topic="other")
    for body in OLD:
        await client.send(body, UNIQ_KEY=body.decode().replace(" ", ""), KEYS="all")
    await client.send(b"behind", topic="other")
    await client.commit(len(OLD))
    running_tables = running.broker._running
    assert running_tables is not None
    await running_tables.services.persistence.save_offsets("TIMER")
    return client


async def delete(client: RawClient) -> None:
    answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def by_key(client: RawClient, key: str) -> list[MessageExt]:
    answer = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=TOPIC,
        key=key,
        maxNum=64,
        beginTimestamp=0,
        endTimestamp=1 << 61,
    )
    return decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []


def assert_gone(running: Cluster) -> None:
    state = running.broker.state
    assert state.topics.find(TOPIC) is None
    assert [topic for topic, _ in state.store.queues() if topic == TOPIC] == []
    assert state.offsets.groups_of(TOPIC) == []
    assert state.store.max_offset("other", 0) == 2, "another topic's messages stay"


def assert_nothing_damaged(config: BrokerConfig) -> None:
    kinds = [row["kind"] for row in spooled(Path(config.store.root), "lifecycle")]
    assert not {"DAMAGED_FILE", "TOPICS_MADE_AGAIN"} & set(kinds), kinds


async def test_a_deleted_topic_stays_deleted_after_a_kill(tmp_path: Path) -> None:
    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        await delete(await fill(running))
        assert_gone(running)
        next_life = killed(config, tmp_path / "second")
    async with cluster(next_life) as running:
        assert_gone(running)
        last_life = killed(next_life, tmp_path / "third")
    assert_nothing_damaged(next_life)
    shutil.rmtree(Path(last_life.store.root) / "consumequeue")
    async with cluster(last_life) as running:
        assert_gone(running)


@pytest.mark.parametrize("lost", ["nothing", "consumequeue", "index", "checkpoint"])
async def test_a_topic_made_again_begins_at_0_and_shows_nothing_of_before(
    tmp_path: Path, lost: str
) -> None:
    async def check(running: Cluster, ids: list[int]) -> None:
        client = running.client()
        store = running.broker.state.store
        assert bodies(await client.pull(0)) == NEW
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, len(NEW))
        assert store.offset_at_time(TOPIC, 0, 0) == 0
        assert {message.body for message in await by_key(client, "all")} <= set(NEW)
        assert await by_key(client, "old3") == []
        for physical_offset in ids:
            seen = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=physical_offset)
            assert seen.code == ResponseCode.SYSTEM_ERROR, f"{physical_offset} is still seen"
        committed = await client.committed()
        assert committed.fields["offset"] == "0", "the group that read it begins at its beginning"

    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        client = await fill(running)
        ids = [message.physical_offset for message in await by_key(client, "all")]
        assert len(ids) == len(OLD)
        await delete(client)
        for body in NEW:
            await client.send(body, KEYS="all")
        await check(running, ids)
        next_life = killed(config, tmp_path / "second")
    gone = Path(next_life.store.root) / lost
    if gone.is_dir():
        shutil.rmtree(gone)
    elif lost != "nothing":
        gone.unlink()
    async with cluster(next_life) as running:
        await check(running, ids)


@pytest.mark.parametrize("older", ["topics.json", "consumerOffset.json"])
async def test_a_table_from_before_a_deletion_brings_nothing_back(
    tmp_path: Path, older: str
) -> None:
    """A kill between the tombstone and the tables, and a .bak that had to be read."""
    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        client = await fill(running)
        before = (Path(config.config_folder) / older).read_bytes()
        assert TOPIC in json.dumps(json.loads(before))
        await delete(client)
        next_life = killed(config, tmp_path / "second")
    (Path(next_life.config_folder) / older).write_bytes(before)
    async with cluster(next_life) as running:
        assert_gone(running)
        for body in NEW:
            await running.client().send(body)
        assert bodies(await running.client().pull(0)) == NEW
    assert_nothing_damaged(next_life)


async def test_deletions_are_kept_apart_over_the_loss_of_their_own_table(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with cluster(config) as running:
        client = await fill(running)
        await delete(client)
    for name in ("deletedTopics.json", "deletedTopics.json.bak"):
        (Path(config.config_folder) / name).unlink()
    async with cluster(config) as running:
        client = running.client()
        await client.send(b"again")
        await delete(client)
        assert running.broker.state.store.tombstones.deletions == 2, "numbers are not reused"
    (reported,) = [
        row["detail"]
        for row in spooled(Path(config.store.root), "lifecycle")
        if row["kind"] == "DAMAGED_FILE"
    ]
    assert "deletedTopics.json and its .bak are gone: 1 topics were deleted" in reported


async def test_a_topic_that_topics_json_lost_is_made_again_from_its_queues_and_reported(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path)
    async with cluster(config) as running:
        client = await fill(running)
        await client.send(b"third queue", queue_id=2)
    path = Path(config.config_folder) / "topics.json"
    document = json.loads(path.read_text())
    del document["topicConfigTable"][TOPIC]
    path.write_text(json.dumps(document))
    async with cluster(config) as running:
        made = running.broker.state.topics.find(TOPIC)
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (3, 3, 6)
        assert bodies(await running.client().pull(0)) == OLD
    (reported,) = [
        row["detail"]
        for row in spooled(Path(config.store.root), "lifecycle")
        if row["kind"] == "TOPICS_MADE_AGAIN"
    ]
    assert f"{TOPIC} (3)" in reported
