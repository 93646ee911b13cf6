"""A table that is damaged is read from the version before it: what was deleted between the two
stays deleted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.services import Services
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import GROUP, TOPIC, Cluster, RawClient, cluster
from tests.integration.broker.test_deleted_topics import (
    assert_gone,
    config_of,
    delete,
    fill,
    killed,
)
from tests.integration.broker.test_new_lives_of_topics import committed


def services(running: Cluster) -> Services:
    assert running.broker._running is not None
    return running.broker._running.services


async def save(running: Cluster) -> None:
    """As the timer does."""
    await services(running).persistence.save_offsets("TIMER")


def damage(config: BrokerConfig, name: str) -> None:
    """A flipped bit that leaves no JSON, beside a whole .bak."""
    path = Path(config.config_folder) / name
    assert json.loads(Path(f"{path}.bak").read_bytes())
    path.write_bytes(b"!" + path.read_bytes())


async def delete_group(client: RawClient, group: str = GROUP) -> None:
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    answer = await client.ask(code, groupName=group, cleanOffset=True)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def make_group(client: RawClient, group: str) -> None:
    """The table of groups is written, with what it notes of deleted ones."""
    body = json.dumps({"groupName": group}).encode()
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize("saves", [0, 1, 2])
@pytest.mark.parametrize("name", ["consumerOffset.json", "subscriptionGroup.json"])
async def test_a_deleted_group_has_no_offsets_whichever_file_is_damaged(
    tmp_path: Path, name: str, saves: int
) -> None:
    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        client = await fill(running)
        await client.commit(1, topic="other")
        await save(running)
        await delete_group(client)
        for number in range(saves):
            await client.commit(number, group="another", topic="other")
            await save(running)
            await make_group(client, f"made-{number}")
        next_life = killed(config, tmp_path / "second")
    damage(next_life, name)
    async with cluster(next_life) as running:
        assert committed(running) is None


async def test_deleted_offsets_on_one_topic_are_in_neither_version(tmp_path: Path) -> None:
    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        await (await fill(running)).commit(1, group="another", topic="other")
        await save(running)
        await services(running).offset_deletion.delete(GROUP, TOPIC)
        next_life = killed(config, tmp_path / "second")
    damage(next_life, "consumerOffset.json")
    async with cluster(next_life) as running:
        assert committed(running) is None


@pytest.mark.parametrize(
    "name", ["deletedTopics.json", "topics.json", "subscriptionGroup.json", "consumerOffset.json"]
)
async def test_a_deleted_topic_stays_deleted_whichever_table_is_damaged(
    tmp_path: Path, name: str
) -> None:
    config = config_of(tmp_path / "first")
    async with cluster(config) as running:
        client = await fill(running)
        await client.make_topic("third")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="third")
        await delete_group(client, "no-such-group")
        await delete(client)
        await save(running)
        next_life = killed(config, tmp_path / "second")
    damage(next_life, name)
    async with cluster(next_life) as running:
        assert_gone(running)
