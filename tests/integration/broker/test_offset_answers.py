"""Where a broker lets a client go on, and what it knew then: what lies between is consumed twice,
and can be predicted from this row.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.foundation.limits import OFFSET_ANSWERS_TOLD_A_SECOND
from engine.protocol.codes import RequestCode, ResponseCode
from engine.runtime import SystemClock, system_runtime
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, broker_config, cluster
from tests.integration.broker.spooled import picked, spooled

COLUMNS = ("client_id", "told_offset", "committed", "pulled", "last_puller")


def answers(folder: Path) -> list[tuple[Any, ...]]:
    rows = spooled(folder / "store", "offset_answers")
    assert {picked(row, "group", "topic", "queue_id") for row in rows} <= {(GROUP, TOPIC, 0)}
    return [picked(row, *COLUMNS) for row in rows]


async def ask(client: RawClient, *, group: str = GROUP, topic: str = TOPIC) -> None:
    await client.committed(group=group, topic=topic)


async def test_a_hand_over_from_a_stale_offset_is_known_from_the_answer(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        old, new = running.client("old"), running.client("new")
        for _ in range(5):
            await old.send()
        await old.heartbeat()
        await old.pull(0)
        await old.commit(2)
        await new.heartbeat()
        await ask(new)
    assert answers(tmp_path) == [("new", 2, 2, 5, "old")]


async def test_that_there_is_no_offset_is_an_answer_too(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        assert (await client.committed()).code == ResponseCode.QUERY_NOT_FOUND
        asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        young = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked)
        assert young.fields["offset"] == "0"
    assert answers(tmp_path) == [("c1", None, None, None, None), ("c1", 0, None, None, None)]


async def test_a_reset_that_waits_is_what_is_returned(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        for _ in range(5):
            await client.send()
        await client.heartbeat()
        await client.commit(5)
        running.broker.state.offsets.reset(GROUP, TOPIC, 0, 1)
        await ask(client)
    assert answers(tmp_path) == [("c1", 1, 1, None, None)]


async def test_questions_about_what_is_not_here_are_no_rows(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        await ask(client, topic="no-such-topic")
        await ask(client, group="no-such-group")
        await ask(client, group="TOOLS_CONSUMER")
    assert answers(tmp_path) == []


async def test_a_client_that_asks_without_end_is_answered_and_does_not_fill_the_spool(
    tmp_path: Path,
) -> None:
    one_second = replace(system_runtime(), clock=SystemClock(steady_ns=lambda: 0))
    async with cluster(broker_config(tmp_path), one_second) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        await client.commit(1)
        for _ in range(OFFSET_ANSWERS_TOLD_A_SECOND + 50):
            assert (await client.committed()).code == ResponseCode.SUCCESS
    assert len(answers(tmp_path)) == OFFSET_ANSWERS_TOLD_A_SECOND
