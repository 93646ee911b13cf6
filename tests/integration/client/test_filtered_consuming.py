"""Row D3: consumers that want some messages only; what the broker let through in vain is counted.

The story by SQL92 that holds on Apache RocketMQ as well is among the client stories.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.admin import Admin
from engine.client import MessageSelector, PullConsumer
from engine.foundation.errors import RequestRefused
from engine.protocol.message import MessageQueue
from engine.protocol.tag_bits import tag_test, tags_word
from engine.runtime import system_runtime
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consumer_config,
    consuming,
    eventually,
    producing,
    text,
)
from tests.integration.client.pull_stories import polled, polling


class Addresses(NamedTuple):
    """Of a cluster, as stories want them."""

    name_server: str
    broker: str


TOPIC, GROUP = "paint", "painters"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
MANY = [f"t{number}" for number in range(10)]
CROWDED = next(
    tag
    for tag in (f"wanted{number}" for number in count())
    if tag_test([tag], [])(tags_word("||".join(MANY)))
)
"""A tag whose bits are all among those of MANY: the broker cannot see that it is not there."""


@asynccontextmanager
async def paint_shop(folder: Path, attributes: str = "") -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster with the topic on one queue, and its name server."""
    async with cluster(broker_config(folder, window_sample_interval_ms=200)) as running:
        name_server = running.name_server_address
        async with Admin(system_runtime(), client_config(name_server)) as admin:
            await admin.topics.create(
                running.broker.address, TOPIC, read_queues=1, write_queues=1, attributes=attributes
            )

            async def is_known() -> bool:
                return await admin.topics.route(TOPIC) is not None

            await eventually(is_known, "a route of the topic")
        yield running, name_server


async def send(name_server: str, *tags: str) -> None:
    """One message for each, its TAGS as its body too."""
    async with producing(name_server, "p") as producer:
        for tag in tags:
            await producer.send(text(TOPIC, tag or "untagged", **({"TAGS": tag} if tag else {})))


async def test_row_d3_a_consumer_gets_exactly_the_messages_that_carry_a_wanted_tag(
    tmp_path: Path,
) -> None:
    async with paint_shop(tmp_path, "+message.tag.filter=BITMAP") as (_, name_server):
        await send(name_server, "red||big", "||".join(MANY), f"{CROWDED}||big", "big", "")
        seen = Seen()
        async with consuming(
            *(name_server, GROUP, {TOPIC: seen}),
            expression=MessageSelector.by_tag(f"red || {CROWDED}"),
            config=consumer_config(pull_suspend_ms=1000),
        ) as consumer:
            await eventually(lambda: consumer.offsets.in_memory(QUEUE) == 5, "all is passed")
            assert seen.bodies == ["red||big", f"{CROWDED}||big"]
            assert consumer.windows[QUEUE].filtered_count == 1, "MANY came and was dropped"

            def is_reported() -> bool:
                rows = spooled(tmp_path / "store", "client_windows")
                mine = [row for row in rows if row["topic"] == TOPIC]
                columns = ("filtered_count", "held_count", "takes_all")
                return bool(mine) and picked(mine[-1], *columns) == (1, 0, False)

            await eventually(is_reported, "the broker reports what was filtered")


async def test_row_d3_consumers_that_pull_by_themselves_test_each_tag_as_well(
    tmp_path: Path,
) -> None:
    async with paint_shop(tmp_path, "+message.tag.filter=BITMAP") as (running, name_server):
        await send(name_server, "red||big", "||".join(MANY), "big")
        cluster_of = Addresses(name_server, running.broker.address)
        async with polling(
            cluster_of, "pollers", topic=TOPIC, expression=f"red || {CROWDED}"
        ) as polled_by:
            assert await polled(polled_by, 1) == ["red||big"]
        puller = PullConsumer(system_runtime(), client_config(name_server), "pullers")
        await puller.start()
        found = await puller.pull(QUEUE, 0, f"red || {CROWDED}")
        await puller.stop()
        assert [bytes(message.body) for message in found.messages] == [b"red||big"]
        assert found.next_begin_offset == 3


async def test_row_d3_on_a_topic_of_single_tags_a_joined_one_is_one_tag(tmp_path: Path) -> None:
    async with paint_shop(tmp_path) as (_, name_server):
        await send(name_server, "red||big", "red")
        seen = Seen()
        async with consuming(name_server, GROUP, {TOPIC: seen}, expression="red || big"):
            await eventually(lambda: seen.messages, "the single tag")
            assert seen.bodies == ["red"]


async def test_row_d3_a_consumer_whose_broker_evaluates_no_selectors_does_not_start(
    tmp_path: Path,
) -> None:
    async with paint_shop(tmp_path) as (running, name_server):
        with pytest.raises(RequestRefused, match="does not support consumer to filter"):
            async with consuming(
                *(name_server, GROUP, {TOPIC: Seen()}),
                expression=MessageSelector.by_sql("n > 5"),
            ):
                pass
        groups = running.broker.state.groups
        await eventually(lambda: groups.of(GROUP) is None, "it is no member")
