"""Row C5 through a broker: what retention deletes and reports, where a late consumer goes on."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
    messages,
)
from tests.integration.broker.spooled import spooled

LOG_BYTES = 16 * 1024
COUNT = 60
BODY = bytes(1000)


async def first_offset(client: RawClient) -> int:
    answer = await client.ask(RequestCode.GET_MIN_OFFSET, topic=TOPIC, queueId=0)
    return int(answer.fields["offset"])


def grow_old(store: Path) -> None:
    """As if the log's files had last been written long ago."""
    for path in (store / "commitlog").iterdir():
        os.utime(path, (1, 1))


async def fail_one(client: RawClient) -> None:
    """A message whose next delivery is far away."""
    await client.send(b"failed", topic="failing", UNIQ_KEY="failed")
    (failed,) = messages(await client.pull(0, topic="failing", group="slow-group"))
    sent_back = await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=failed.physical_offset,
        group="slow-group",
        delayLevel=2,
        originTopic="failing",
    )
    assert sent_back.code == ResponseCode.SUCCESS, sent_back.remark


async def found(client: RawClient, key: str) -> int:
    answer = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=TOPIC,
        key=key,
        maxNum=8,
        beginTimestamp=0,
        endTimestamp=1 << 60,
    )
    return answer.code


def early_came(client: RawClient) -> Callable[[], Awaitable[bool]]:
    async def came() -> bool:
        return (await client.pull(0, topic="delayed", group="quick-group")).code == 0

    return came


async def test_unconsumed_messages_go_all_the_same_and_their_groups_are_reported(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    config = broker_config(tmp_path, log_bytes=LOG_BYTES, delay_levels_ms=(100, 60_000))
    async with cluster(config) as running:
        client = running.client()
        await client.send(b"early", topic="delayed", DELAY=1)
        await eventually(early_came(client), "the first level delivers")
        await client.send(b"late", topic="delayed", DELAY=2)
        await fail_one(client)
        for number in range(COUNT):
            assert (await client.send(BODY, KEYS=f"k{number}")).code == ResponseCode.SUCCESS
        await client.commit(3)
        await client.commit(COUNT, group="quick-group")
        grow_old(store)
        await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)

        async def moved() -> bool:
            return await first_offset(client) > 3

        await eventually(moved, "the queue's first offset moves")
        kept_from = await first_offset(client)
        assert kept_from < COUNT, "the newest file stays"
        corrected = await client.pull(3)
        assert corrected.code == ResponseCode.PULL_OFFSET_MOVED
        assert corrected.fields["nextBeginOffset"] == str(kept_from)
        assert messages(await client.pull(kept_from))[0].queue_offset == kept_from
        assert await found(client, "k0") == ResponseCode.QUERY_NOT_FOUND
        assert await found(client, f"k{COUNT - 1}") == ResponseCode.SUCCESS
    reported = [row for row in spooled(store, "lifecycle") if row["kind"] == "UNCONSUMED_DELETED"]
    (delayed,) = reported
    assert delayed["detail"].startswith("2 messages that waited in delay level 2, retries among")
    assert [(row["message_id"], row["step"]) for row in spooled(store, "retry_dlq_flow")] == [
        *(("failed", "SENT_BACK"), ("failed", "SCHEDULED"), ("failed", "EXPIRED"))
    ], "a retry that goes before its next delivery has an end, too"
    assert spooled(store, "unread_deletions") == [
        {
            "group": GROUP,
            "topic": TOPIC,
            "queue_id": 0,
            "from_offset": 3,
            "to_offset": kept_from,
            "unread": kept_from - 3,
        }
    ]
    marks = [row for row in spooled(store, "group_watermarks") if row["group"] == GROUP]
    assert (marks[-1]["committed_state"], marks[-1]["min_offset"]) == ("PURGED", kept_from)
    files = [path for path in (store / "commitlog").iterdir() if int(path.name) == 0]
    assert files == [], "the oldest file is gone from the disk"
    async with cluster(config) as running:
        client = running.client()
        assert await first_offset(client) == kept_from
        corrected = await client.pull(3)
        assert corrected.fields["nextBeginOffset"] == str(kept_from)
        assert bodies(await client.pull(kept_from))[0] == BODY
