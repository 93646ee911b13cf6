"""Queue offsets that a power cut makes a broker give again: both messages are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.broker.config import BrokerConfig
from engine.protocol.codes import RequestCode
from engine.store import FlushDiskType
from tests.integration.broker.cluster import RawClient, broker_config, cluster, eventually
from tests.integration.broker.power_cut import (
    after_the_cut,
    before_the_cut,
    carried_tails,
    unsynced,
)
from tests.integration.broker.spooled import spooled

SAMPLES = {"sample_interval_ms": 100}
KEPT, LOST = 3, 4
"""Messages that the log keeps of the first life, and that it loses."""


async def send(client: RawClient, names: list[str], topic: str = "orders") -> None:
    for name in names:
        more = {"UNIQ_KEY": name} if name else {}
        await client.send(topic=topic, **more)


async def lose_pulled_messages(folder: Path, names: list[str]) -> BrokerConfig:
    """Messages are pulled that a power cut takes; the configuration of the broker after it."""
    config = broker_config(folder, **SAMPLES)
    async with before_the_cut(config) as (running, cut):
        client = running.client("reader@1")
        await client.make_topic("orders")
        await client.heartbeat("g", ("orders",))
        await send(client, [f"kept-{number}" for number in range(KEPT)])
        await client.pull(0, topic="orders", group="g")
        cut.log_is_synced_up_to_here()
        await send(client, names)
        await client.pull(KEPT, topic="orders", group="g")
        await cut.spool_is_synced_up_to_here(("orders", KEPT + len(names) - 1))
    return after_the_cut(config)


async def reused_rows(config: BrokerConfig, count: int) -> list[dict[str, Any]]:
    """The rows of reused_offsets, once there are so many."""

    async def are_there() -> bool:
        return len(spooled(Path(config.store.root), "reused_offsets")) >= count

    await eventually(are_there, f"{count} reused offsets are reported")
    return spooled(Path(config.store.root), "reused_offsets")


async def test_both_messages_of_an_offset_are_reported_when_another_one_gets_it(
    tmp_path: Path,
) -> None:
    config = await lose_pulled_messages(tmp_path, [f"lost-{number}" for number in range(LOST)])
    async with cluster(config) as running:
        client = running.client("producer@1")
        await send(client, [f"new-{number}" for number in range(LOST - 1)])
        assert spooled(Path(config.store.root), "reused_offsets") == []
        await send(client, ["new-last"])
        assert await reused_rows(config, 1) == [
            {
                "group": "g",
                "topic": "orders",
                "queue_id": 0,
                "offset": KEPT + LOST - 1,
                "queue_end": KEPT,
                "message_id_before": "lost-3",
                "message_id": "new-last",
                "client_id": "reader@1",
            }
        ]


async def test_of_messages_that_their_broker_named_both_are_reported(tmp_path: Path) -> None:
    config = await lose_pulled_messages(tmp_path, ["", ""])
    async with cluster(config) as running:
        await send(running.client("producer@1"), ["", ""])
        [row] = await reused_rows(config, 1)
        assert len({row["message_id_before"], row["message_id"], None}) == 3


async def test_a_lost_message_waits_over_further_lives_for_its_offset(tmp_path: Path) -> None:
    config = await lose_pulled_messages(tmp_path, ["lost"])
    async with cluster(config):
        pass
    async with cluster(config) as running:
        await send(running.client("producer@1"), ["lost"])
        [row] = await reused_rows(config, 1)
        assert (row["message_id_before"], row["message_id"]) == ("lost", "lost")
    async with cluster(config) as running:
        await send(running.client("producer@1"), ["more"])
    assert len(spooled(Path(config.store.root), "reused_offsets")) == 1


async def test_offsets_of_a_topic_that_is_made_again_are_its_own(tmp_path: Path) -> None:
    config = await lose_pulled_messages(tmp_path, ["lost"])
    async with cluster(config) as running:
        client = running.client("producer@1")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        await client.make_topic("orders")
        await send(client, ["new-0", "new-1"])
    async with cluster(config) as running:
        await send(running.client("producer@1"), [f"more-{number}" for number in range(KEPT)])
    assert spooled(Path(config.store.root), "reused_offsets") == []


async def test_what_was_synced_before_it_was_pulled_is_not_carried(tmp_path: Path) -> None:
    config = broker_config(tmp_path, flush=FlushDiskType.SYNC_FLUSH, **SAMPLES)
    await send_one_and_sample(config, pulls=True)
    assert carried_tails(Path(config.store.root)) == []


async def test_what_nobody_has_pulled_may_be_given_again_without_a_word(tmp_path: Path) -> None:
    config = unsynced(broker_config(tmp_path, **SAMPLES))
    await send_one_and_sample(config, pulls=False)
    assert carried_tails(Path(config.store.root)) == []


async def send_one_and_sample(config: BrokerConfig, *, pulls: bool) -> None:
    async with cluster(config) as running:
        client = running.client("reader@1")
        await client.make_topic("orders")
        await client.heartbeat("g", ("orders",))
        await send(client, ["one"])
        await client.pull(0 if pulls else 1, topic="orders", group="g")

        async def is_sampled() -> bool:
            rows = spooled(Path(config.store.root), "group_watermarks")
            return any(row["max_offset"] == 1 and row["last_puller"] for row in rows)

        await eventually(is_sampled, "the marks are reported")
