"""A topic's page beside a running engine: what the store and the clients' traces add, and whom a
typed text may never make the dashboard connect to.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest
from playwright.sync_api import expect

from dashboards.reads.cluster import Cluster, ClusterStory, WriteQueues
from dashboards.url_state import topic_path
from engine.admin import Admin
from engine.client import Producer, PushConsumer
from engine.protocol.message_ids import offset_message_id
from engine.runtime import system_runtime
from tests.asynchronous import awaited
from tests.dashboards.served import Windows, serving, visiting
from tests.dashboards.test_pages_in_chromium import keep_picture
from tests.dashboards.topic_lake import TOPIC, write_topic_lake
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consumer_config,
    eventually,
    text,
)
from tests.integration.client.stories import make_topic
from tests.interop.our_engine import OurEngine, our_engine

BODY: Final = "card number 4711"
KEY: Final = "order-17"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    with our_engine(tmp_path_factory.mktemp("topic-engine")) as running:
        yield running


@pytest.fixture(scope="module")
def message_id(engine: OurEngine) -> str:
    """A message that was sent, stored, consumed and traced."""
    return awaited(send_and_consume(engine))


async def send_and_consume(engine: OurEngine) -> str:
    await make_topic(engine, TOPIC, queues=2)
    config = replace(client_config(engine.name_server), enable_trace=True)
    seen = Seen()
    consumer = PushConsumer(system_runtime(), config, "billing", consumer=consumer_config())
    consumer.subscribe(TOPIC, "*", seen)
    producer = Producer(system_runtime(), config, "shop")
    await producer.start()
    await consumer.start()
    sent = (await producer.send(text(TOPIC, BODY, KEYS=KEY))).message_id
    await eventually(lambda: seen.messages, "the message")
    await consumer.stop()
    await producer.stop()
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:

        async def is_traced() -> bool:
            return len(await admin.messages.traced_steps(sent)) == 3

        await eventually(is_traced, "three traces")
    return sent


def story_of(engine: OurEngine, words: str) -> ClusterStory:
    return awaited(Cluster(engine.name_server).story(TOPIC, words))


def test_unique_id_key_and_the_brokers_id_name_the_same_message(
    engine: OurEngine, message_id: str
) -> None:
    by_id, by_key = story_of(engine, message_id), story_of(engine, KEY)
    (copy,) = by_id.copies
    assert (copy.message_id, copy.keys, copy.topic, copy.broker) == (
        *(message_id, KEY, TOPIC, "broker-a"),
    )
    assert by_key == by_id
    assert sorted(step.step for step in by_id.traces) == ["consumed", "consuming", "sent"]

    async def stored_as() -> str:
        async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
            (found,) = await admin.messages.find(TOPIC, KEY)
            return found.offset_message_id

    assert story_of(engine, awaited(stored_as())) == by_id


def test_nothing_found_is_an_answer(engine: OurEngine, message_id: str) -> None:
    assert message_id
    story = story_of(engine, "F" * 32)
    assert story == ClusterStory(asked=True, has_trace_topic=True)


def test_an_id_that_names_an_address_of_nobody_is_not_followed(
    engine: OurEngine, message_id: str
) -> None:
    assert message_id
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0.2)
        address = f"127.0.0.1:{stranger.getsockname()[1]}"

        story = story_of(engine, offset_message_id(address, 0))

        assert (story.fault, story.copies) == ("", ())
        with pytest.raises(TimeoutError):
            stranger.accept()


def test_who_may_write_is_asked_of_the_name_server(engine: OurEngine, message_id: str) -> None:
    assert message_id
    route = awaited(Cluster(engine.name_server).route(TOPIC))
    write_queues = WriteQueues("broker-a", 2, True, "DefaultCluster")
    assert (route.brokers, route.reason) == ([write_queues], "")
    assert awaited(Cluster(engine.name_server).route("nowhere")).brokers == []


def test_the_page_shows_sent_stored_consumed_and_no_body(
    windows: Windows,
    engine: OurEngine,
    message_id: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lake = write_topic_lake(tmp_path_factory.mktemp("beside-cluster") / "lake")
    cluster = Cluster(engine.name_server)
    with serving(lake, datetime.now(UTC), cluster) as origin, visiting(windows, origin) as visit:
        visit.open(topic_path(TOPIC))
        visit.page.get_by_label("message id, unique id or key").fill(KEY)
        visit.page.get_by_label("message id, unique id or key").press("Enter")

        steps = visit.page.locator("#topic-trace tbody tr")
        expect(steps).to_have_count(4)
        shown = [row.split("\t")[1] for row in steps.all_inner_texts()]
        assert shown[:2] == ["sent", "stored"]
        assert set(shown) == {"sent", "stored", "consuming", "consumed"}
        expect(steps.nth(0)).to_contain_text("by producer group shop; to")
        expect(visit.page.locator("#topic-trace h2")).to_contain_text(message_id)
        assert BODY not in visit.page.content()
        queues = visit.page.locator("#topic-queues tbody tr")
        expect(queues.nth(0)).to_contain_text("yes")
        expect(queues.nth(2)).to_contain_text("no")
        keep_picture(visit, "topic", "light", "cluster")
        assert visit.faults == []
