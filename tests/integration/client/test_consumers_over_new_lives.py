"""Consumers of ours that keep running while their topic is deleted and made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.client import ConsumeFromWhere
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import Message
from tests.integration.broker.cluster import broker_config, cluster
from tests.integration.client.cluster_users import (
    Seen,
    consumer_config,
    consuming,
    eventually,
    in_order,
    producing,
)

TOPIC, GROUP = "orders", "orders-group"


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "in order"])
async def test_every_message_of_each_life_arrives(tmp_path: Path, *, orderly: bool) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        name_server, tool = running.name_server_address, running.client("127.0.0.1@tool")
        await tool.make_topic(TOPIC)
        seen = Seen(in_order) if orderly else Seen()
        config = consumer_config(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            orderly=orderly,
            pull_error_delay_ms=200,
        )
        async with (
            producing(name_server, "p") as producer,
            consuming(name_server, GROUP, {TOPIC: seen}, config=config),
        ):
            for life, count in enumerate((10, 6, 14, 3)):
                if life:
                    gone = await tool.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
                    assert gone.code == ResponseCode.SUCCESS
                    assert (await tool.make_topic(TOPIC)).code == ResponseCode.SUCCESS
                sent = [f"{life}:{number}" for number in range(count)]
                for body in sent:
                    await producer.send(Message(TOPIC, body.encode()))
                await eventually(lambda: set(sent) <= set(seen.bodies), f"life {life}: {sent}")  # noqa: B023
                committed = running.broker.state.offsets.committed

                await eventually(
                    lambda: committed(GROUP, TOPIC, 0) == count,  # noqa: B023
                    f"the group is at the end of life {life}",
                )
