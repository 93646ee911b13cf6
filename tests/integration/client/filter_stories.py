"""Stories of consumers that want some messages only (row D3); see `stories`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.client import MessageSelector
from engine.foundation.errors import RequestRefused
from engine.protocol.message import MessageQueue
from tests.integration.client.cluster_users import (
    Seen,
    consumer_config,
    consuming,
    eventually,
    producing,
    text,
)
from tests.integration.client.stories import Cluster, Story, make_topic


async def only_messages_with_a_wanted_tag_arrive(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PyTags", cluster.name_server
    await make_topic(cluster, topic, queues=1)
    async with producing(ns, "py_tags") as producer:
        for number, tag in enumerate(["A", "B", "C", "A", "AaAa", "BBBB", ""]):
            properties = {"TAGS": tag} if tag else {}
            await producer.send(text(topic, f"{number}", **properties))
    seen = Seen()
    async with consuming(
        *(ns, "py_tags_c", {topic: seen}),
        expression="A || AaAa",
        config=consumer_config(pull_suspend_ms=1000),
    ) as consumer:
        queue = MessageQueue(topic, "broker-a", 0)
        await eventually(lambda: consumer.offsets.in_memory(queue) == 7, "all is passed")
        # BBBB has the hash of AaAa: the broker lets it through, the client does not.
        assert sorted(seen.bodies) == ["0", "3", "4"]
        assert consumer.windows[queue].filtered_count == 1


async def only_messages_a_selector_matches_arrive(cluster: Cluster, folder: Path) -> None:
    topic, ns = "PySelected", cluster.name_server
    await make_topic(cluster, topic, queues=1)
    async with producing(ns, "py_selected") as producer:
        for number in range(6):
            color = {"color": "red"} if number % 2 else {}
            await producer.send(text(topic, f"{number}", n=f"{number}", TAGS="A", **color))
    seen, queue = Seen(), MessageQueue(topic, "broker-a", 0)
    async with consuming(
        *(ns, "py_selected_c", {topic: seen}),
        expression=MessageSelector.by_sql("n > 2 AND (color = 'red' OR n = 4) AND TAGS = 'A'"),
        config=consumer_config(pull_suspend_ms=1000),
    ) as consumer:
        await eventually(lambda: consumer.offsets.in_memory(queue) == 6, "all is passed")
        assert sorted(seen.bodies) == ["3", "4", "5"]
        assert consumer.windows[queue].filtered_count == 0, "the broker sent nothing else"
    with pytest.raises(RequestRefused, match="23"):
        async with consuming(
            *(ns, "py_selected_c", {topic: seen}), expression=MessageSelector.by_sql("n >")
        ):
            pass


FILTER_STORIES: tuple[Story, ...] = (
    only_messages_with_a_wanted_tag_arrive,
    only_messages_a_selector_matches_arrive,
)
"""Every story of filters."""
