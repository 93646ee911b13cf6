"""Topics that were made again between two looks and ended no lower by the second: the observer asks
when their first message was stored, once their broker's topic table has moved or it was started.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.protocol.bodies import TopicOffset
from engine.protocol.codes import RequestCode as Code
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    BORN_MS,
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)

ORDERS, OTHER = ("orders", 0), ("other", 3)
ASKED = Code.GET_EARLIEST_MSG_STORETIME


def lives(cluster: PlayedCluster, broker: PlayedBroker) -> list[tuple[str, str]]:
    """What was reported of topics."""
    rows = cluster.reported(broker, "lifecycle")
    return [(row["kind"], row["topic"]) for row in rows if row["topic"] is not None]


def make_again(broker: PlayedBroker) -> None:
    """Delete the topic, make it again and send more messages to it than it had."""
    broker.queues[ORDERS] = TopicOffset(0, 34, BORN_MS + 9_000)
    broker.first_ms[ORDERS] = BORN_MS + 8_000
    broker.topics_version += 1


def empty_and_start(broker: PlayedBroker) -> None:
    """The same for a store that was emptied: the version of a new table may be any."""
    make_again(broker)
    broker.topics_version -= 1
    broker.booted_ms += 7_000


@pytest.mark.parametrize("happens", [make_again, empty_and_start], ids=["deleted", "emptied"])
async def test_a_topic_that_ends_higher_than_before_is_another_by_its_first_message(
    tmp_path: Path, happens: Callable[[PlayedBroker], None]
) -> None:
    broker = PlayedBroker("theirs")
    broker.queues[OTHER] = TopicOffset(0, 7, BORN_MS)
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await cluster.says_at_last(broker, "queue_watermarks", "max_offset", wanted=(7,))
        assert broker.asked[ASKED] == 0
        happens(broker)

        async def is_found() -> bool:
            return len(lives(cluster, broker)) == 2 and broker.asked[ASKED] == 2

        await eventually(is_found, "it is another one, and each topic was asked")
        looks = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

        async def was_looked_on() -> bool:
            return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > looks + 2

        await eventually(was_looked_on, "later looks")
        assert lives(cluster, broker) == [("TOPIC_GONE", "orders"), ("TOPIC_MADE_AGAIN", "orders")]
        assert broker.asked[ASKED] == 2


async def test_a_queue_that_retention_cut_while_it_was_asked_is_the_same_one(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("theirs")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await cluster.says_at_last(broker, "queue_watermarks", "max_offset", wanted=(20,))
        make_again(broker)
        broker.queues[ORDERS] = TopicOffset(5, 34, BORN_MS + 9_000)
        await cluster.says_at_last(broker, "queue_watermarks", "max_offset", wanted=(34,))

        async def was_asked() -> bool:
            return broker.asked[ASKED] > 0

        await eventually(was_asked, "it was asked")
        looks = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

        async def was_looked_on() -> bool:
            return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > looks + 2

        await eventually(was_looked_on, "later looks")
        assert lives(cluster, broker) == []
