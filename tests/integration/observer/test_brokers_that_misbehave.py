"""Brokers that hang, lie, answer late or die: each costs its own answers, and the one beside it is
watched as ever.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from engine.protocol.codes import RequestCode as Code
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)


async def looked_at(cluster: PlayedCluster, broker: PlayedBroker) -> None:
    """Wait until an answered look has been written."""

    async def is_told() -> bool:
        return bool(cluster.told(broker, "group_watermarks"))

    await eventually(is_told, f"a look at {broker.name}")


async def never(_peer: Peer, _request: RemotingCommand) -> Any:
    await asyncio.Event().wait()


async def test_the_horizon_stays_at_the_last_answered_look_when_the_observer_ends(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster:
        async with observing(cluster, request_timeout_ms=200):
            await looked_at(cluster, broker)
            broker.answers[Code.GET_BROKER_RUNTIME_INFO] = never
            asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

            async def is_silent() -> bool:
                return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + 1

            await eventually(is_silent, "looks are not answered")
            horizon_us = cluster.horizon_us(broker)
        assert cluster.horizon_us(broker) == horizon_us
