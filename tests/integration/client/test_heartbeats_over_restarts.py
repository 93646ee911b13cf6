"""Row B1: heartbeats that leave subscriptions out, over restarts of the broker."""

from __future__ import annotations

import signal
from pathlib import Path

from engine.client.connection.connection import ClusterConnection
from engine.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from engine.runtime import system_runtime
from tests.integration.broker.cluster import broker_config, cluster
from tests.integration.client.cluster_users import Seen, consuming, eventually, producing, text
from tests.integration.client.heartbeat_stories import (
    FULL,
    SHORT,
    Said,
    second_version,
    what_heartbeats_say,
)
from tests.integration.client.stories import make_topic
from tests.integration.client.test_polling_over_restarts import Restartable
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine, free_port


async def killed_and_started_again(engine: KillableEngine, said: Said) -> None:
    """The first heartbeat of the new life says all."""
    await engine.end(signal.SIGKILL)
    before = len(said.lines)
    await eventually(
        lambda: any("failed, the next one tries again" in line for line in said.lines[before:]),
        "a heartbeat that nobody took",
    )
    answered = len(said.forms())
    await engine.start()
    await eventually(lambda: len(said.forms()) > answered, "heartbeats again")
    assert said.forms()[answered] == FULL


async def test_a_killed_broker_is_sent_all_again_and_goes_on_handing_out(tmp_path: Path) -> None:
    engine, seen = KillableEngine(tmp_path, *SMALL), Seen()
    await engine.start()
    client = second_version(engine.namesrv)

    async def is_consumed(body: str) -> None:
        async with producing(engine.namesrv, "p") as producer:
            await producer.send(text("tide", body))
        await eventually(lambda: body in seen.bodies, body)

    try:
        await make_topic(Restartable(engine), "tide", queues=2)
        with what_heartbeats_say() as said:
            async with consuming(engine.namesrv, "short", {"tide": seen}, client=client):
                await is_consumed("before")
                await eventually(lambda: said.forms()[-3:] == [SHORT] * 3, "short ones")
                await killed_and_started_again(engine, said)
                await is_consumed("after")
                await eventually(lambda: said.forms()[-3:] == [SHORT] * 3, "short ones again")
    finally:
        await engine.end(signal.SIGKILL)


async def test_a_broker_that_restarts_between_two_heartbeats_is_sent_all_by_the_next(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, port=free_port())
    subscriptions = [SubscriptionData.build("orders", "*")]
    consumer = ConsumerData("orders-group", subscription_data_set=subscriptions)
    with what_heartbeats_say() as said:
        async with cluster(config) as running:
            client = running.client()
            await client.send()
            connection = ClusterConnection(
                system_runtime(),
                second_version(running.name_server_address),
                describe=lambda: HeartbeatData("c1", consumer_data_set=[consumer]),
            )

            async def known() -> bool:
                await connection.routes.refresh("orders")
                return bool(connection.routes.broker_addresses(masters_only=True))

            await eventually(known, "a route")
            await connection.heartbeat()
            await connection.heartbeat()
            await connection.heartbeat(in_full=True)
            assert said.forms() == [FULL, SHORT, FULL]
        async with cluster(config) as running:
            await connection.heartbeat()
            assert said.forms()[3:] == [FULL]
            group = running.broker.state.groups.of("orders-group")
            assert group is not None
            assert list(group.subscriptions) == ["orders"]
            await connection.heartbeat()
            assert said.forms()[4:] == [SHORT]
            await connection.stop()
