"""Why a group is behind, played: our broker, our producer, our consumers, and what gold says.

Each group has a topic and a trouble of its own; all run at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.broker.cluster import broker_config, cluster
from tests.integration.client.cluster_users import (
    producing,
)
from tests.pipelines.gold_lake import gold
from tests.pipelines.live_play import (
    SAMPLES,
    Stage,
    Working,
    causes_of,
    send_at_once,
    send_evenly,
    shipped,
)

pytestmark = pytest.mark.timeout(120)
Rows = list[dict[str, Any]]
BACKLOGS = (("full", 150), ("held", 300), ("many", 250))
"""Topics with messages that wait before anybody consumes."""


async def play(folder: Path) -> None:
    """Eight seconds of five troubles and a calm group."""
    calm, full, held, slow, many, late = (Working() for _ in range(6))
    full.takes_s, held.takes_s, many.takes_s, late.takes_s = 0.2, 0.3, 0.2, 0.05
    settings = SAMPLES | {"default_topic_queue_nums": 2}
    async with cluster(broker_config(folder, log_bytes=64 << 20, **settings)) as running:
        name_server = running.name_server_address
        await running.client().make_topic("many")
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(producing(name_server, "p"))
            for topic, count in (("calm", 4), ("slow", 4), ("late", 4), *BACKLOGS):
                await send_at_once(producer, topic, count)
            plays: tuple[tuple[str, Working, dict[str, Any]], ...] = (
                ("calm", calm, {}),
                ("full", full, {"consume_concurrency": 2}),
                ("held", held, {"queue_messages_max": 4, "pull_batch_max": 2}),
                ("slow", slow, {}),
                ("many", many, {"consume_concurrency": 4}),
                ("many", many, {"consume_concurrency": 4}),
                ("late", late, {"consume_concurrency": 2}),
            )
            stage = Stage(name_server)
            for name, listener, more in plays:
                await stack.enter_async_context(stage.member(name, listener, **more))
            steady = [
                asyncio.create_task(send_evenly(producer, topic, a_second=20, for_s=8))
                for topic in ("calm", "slow", "late")
            ]
            await asyncio.sleep(3.5)
            slow.takes_s, late.takes_s = 1.5, 0.4
            await send_at_once(producer, "slow", 200)
            await send_at_once(producer, "late", 300)
            await asyncio.gather(*steady)


@pytest.fixture(scope="module")
def lag_causes(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What lag_causes says of the play."""
    folder = tmp_path_factory.mktemp("why-behind")
    asyncio.run(play(folder))
    return gold(shipped(folder / "store", folder / "lake"), "lag_causes")


def test_a_group_that_keeps_up_is_not_behind_for_any_reason(lag_causes: Rows) -> None:
    assert causes_of(lag_causes, "g-calm") == set()


def one(lag_causes: Rows, group: str, cause: str) -> dict[str, Any]:
    """The last row of a cause."""
    found = [row for row in lag_causes if (row["group"], row["cause"]) == (group, cause)]
    assert found, f"{group}: {sorted((row['cause'], row['evidence']) for row in lag_causes)}"
    return found[-1]


def test_a_pool_of_two_listeners_is_saturated(lag_causes: Rows) -> None:
    row = one(lag_causes, "g-full", "LISTENERS_SATURATED")
    assert (row["measured"], row["expected"], row["share_percent"]) == (2, 2, 100)
    assert "A call takes 2" in row["evidence"]


def test_pulls_rest_since_windows_hold_too_many_messages(lag_causes: Rows) -> None:
    row = one(lag_causes, "g-held", "FLOW_CONTROL_COUNT")
    assert (row["topic"], row["unit"]) == ("held", "ms of rest a minute")
    assert row["measured"] >= 1000
    assert "LISTENERS_SATURATED" not in causes_of(lag_causes, "g-held"), (
        "16 of 20 listeners have nothing"
    )


def test_a_listener_that_became_slow_is_named_with_what_it_took_before(lag_causes: Rows) -> None:
    row = one(lag_causes, "g-slow", "SLOW_LISTENER")
    assert row["measured"] >= 1500
    assert row["expected"] < 500
    assert row["topic"] == "slow"


def test_the_second_of_two_members_has_no_queue_of_a_topic_with_one(lag_causes: Rows) -> None:
    row = one(lag_causes, "g-many", "FEWER_QUEUES_THAN_MEMBERS")
    assert (row["measured"], row["expected"], row["share_percent"]) == (1, 2, 50)


def test_a_burst_is_named_with_what_was_usual(lag_causes: Rows) -> None:
    row = one(lag_causes, "g-late", "BURST")
    assert row["measured"] >= 200
    assert row["expected"] <= 60
    assert "BURST" not in causes_of(lag_causes, "g-full")
