"""Rows C1 and C4: what a tool has read of topics and groups is still so after SIGKILL, at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.runtime.clock import SystemClock
from tests.failing_disk import FailingDisk
from tests.integration.broker.cluster import GROUP, RawClient, bodies, broker_config, cluster
from tests.integration.broker.processes import Started, party, talk
from tests.integration.telemetry.killable_engine import SMALL
from tests.store_support import runtime_on

TOPIC_FIELDS = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 3,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
    "attributes": "+message.tag.filter=BITMAP",
}


@contextmanager
def broker(folder: Path) -> Iterator[Started]:
    options = ("--store", str(folder / "store"), "--port", "0", *SMALL)
    with party(folder / "broker.log", "broker", *options) as started:
        yield started


async def make_topic(client: RawClient) -> None:
    made = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC_FIELDS)
    assert made.code == ResponseCode.SUCCESS


async def make_group(client: RawClient) -> None:
    body = json.dumps({"groupName": "payers", "retryMaxTimes": 2}).encode()
    made = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert made.code == ResponseCode.SUCCESS


async def delete_both(client: RawClient) -> None:
    deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
    assert deleted.code == ResponseCode.SUCCESS
    deleted = await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="payers")
    assert deleted.code == ResponseCode.SUCCESS


async def topic_of(client: RawClient) -> dict[str, object] | None:
    shown = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="orders")
    return json.loads(shown.body) if shown.code == ResponseCode.SUCCESS else None


async def groups(client: RawClient) -> dict[str, dict[str, object]]:
    shown = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table: dict[str, dict[str, object]] = json.loads(shown.body)["subscriptionGroupTable"]
    return table


def test_topics_and_groups_survive_a_kill_right_after_the_answer(tmp_path: Path) -> None:
    for order in (make_topic, make_group):
        with broker(tmp_path) as started:
            talk(started.address, order)
            started.kill()
    with broker(tmp_path) as started:
        topic = talk(started.address, topic_of)
        assert topic is not None
        assert (topic["writeQueueNums"], topic["attributes"]) == (
            3,
            {"message.tag.filter": "BITMAP"},
        )
        assert talk(started.address, groups)["payers"]["retryMaxTimes"] == 2


def test_what_was_deleted_stays_deleted_after_a_kill_right_after_the_answer(
    tmp_path: Path,
) -> None:
    async def make_both(client: RawClient) -> None:
        await make_topic(client)
        await make_group(client)

    for order in (make_both, delete_both):
        with broker(tmp_path) as started:
            talk(started.address, order)
            started.kill()
    with broker(tmp_path) as started:
        assert talk(started.address, topic_of) is None
        assert "payers" not in talk(started.address, groups)


def test_a_group_deleted_with_its_offsets_has_none_after_a_kill_right_after_the_answer(
    tmp_path: Path,
) -> None:
    async def read(client: RawClient) -> None:
        await client.send()
        await client.heartbeat()
        await client.pull(0)
        answer = await client.commit(1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def delete(client: RawClient) -> None:
        deleted = await client.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True
        )
        assert deleted.code == ResponseCode.SUCCESS

    async def offset(client: RawClient) -> str | None:
        return (await client.committed()).fields.get("offset")

    with broker(tmp_path) as started:
        talk(started.address, read)
        started.stop()
    with broker(tmp_path) as started:
        assert talk(started.address, offset) == "1"
        talk(started.address, delete)
        started.kill()
    with broker(tmp_path) as started:
        assert talk(started.address, offset) is None
        assert GROUP not in talk(started.address, groups)


def test_a_topic_made_by_its_first_send_survives_a_kill_right_after_the_answer(
    tmp_path: Path,
) -> None:
    async def send(client: RawClient) -> None:
        assert (await client.send(b"first", topic="made-on-demand")).code == ResponseCode.SUCCESS

    async def pull(client: RawClient) -> list[bytes]:
        return bodies(await client.pull(0, topic="made-on-demand"))

    for life in range(5):  # The window is short: one try might pass by luck.
        folder = tmp_path / f"life-{life}"
        folder.mkdir()
        with broker(folder) as started:
            talk(started.address, send)
            started.kill()
        with broker(folder) as started:
            assert talk(started.address, pull) == [b"first"]


async def test_a_deletion_is_answered_when_it_is_on_disk_and_not_before(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with cluster(broker_config(tmp_path), runtime_on(disk, SystemClock())) as running:
        client = running.client()
        await make_topic(client)
        await make_group(client)
        for code, what in (
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "payers"}),
        ):
            disk.hold_syncs = asyncio.Event()
            deletion = asyncio.ensure_future(client.ask(code, **what))
            await asyncio.wait([deletion], timeout=0.5)
            is_early = deletion.done()
            disk.hold_syncs.set()
            assert not is_early, what
            assert (await deletion).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("level", [0, -1])
async def test_a_send_back_that_makes_a_topic_is_answered_when_the_topic_is_on_disk(
    tmp_path: Path, level: int
) -> None:
    """Its queues bring a topic back over a kill, its number of queues and attributes they do not.
    The retry topic is made by the group's heartbeat, the topic of its dead letters by the first.
    """
    disk, makes_topic = FailingDisk(), level == -1
    config = broker_config(tmp_path, telemetry=False)
    async with cluster(config, runtime_on(disk, SystemClock())) as running:
        client = running.client()
        await client.heartbeat()
        sent = await client.send()
        await running.broker.services.persistence.save_settings()
        disk.hold_syncs = asyncio.Event()
        back = asyncio.ensure_future(
            client.ask(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                group=GROUP,
                offset=int(sent.fields["msgId"][16:], 16),
                delayLevel=level,
            )
        )
        await asyncio.wait([back], timeout=0.5)
        is_early = back.done()
        disk.hold_syncs.set()
        assert (await back).code == ResponseCode.SUCCESS
        assert is_early is not makes_topic
