"""How long messages wait, with an error, where they may not be read, or not all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.observer.polling import MESSAGES_A_LOOK
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from pipelines.base.settings import Evaluation
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import PlayedBroker, observing, played_cluster
from tests.needed_steps import needed_for
from tests.pipelines.partition import bronze_of, run

WAITED_MS = 60_000


ACL_1_WORDS = "org.apache.rocketmq.acl.common.AclException: No default permission for topic:orders"


@pytest.mark.parametrize(
    ("code", "words"),
    [(ResponseCode.NO_PERMISSION, "no"), (ResponseCode.SYSTEM_ERROR, ACL_1_WORDS)],
)
async def test_how_long_they_wait_is_estimated_once_for_each_offset(
    code: ResponseCode, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, home = PlayedBroker("broker-a"), tmp_path / "home"
    stored_ms = system_runtime().clock.now_ms() - WAITED_MS
    broker.store(
        "orders", *(MessageExt("orders", b"x", store_timestamp_ms=stored_ms) for _ in range(3))
    )
    broker.groups = {"g": {("orders", 0): 1}}
    broker.answers[Code.PULL_MESSAGE] = lambda _, ask: ask.respond(code, words)
    async with played_cluster(home, broker) as cluster, observing(cluster):

        async def is_reported() -> bool:
            rows = cluster.reported(broker, "group_watermarks")
            return any(row["store_time_at_committed"] for row in rows)

        await eventually(is_reported, "how long the message waits is reported")
        assert f"{words}; the account lacks a right: Sub on Topic:*" in caplog.text
        asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

        async def has_looked_on() -> bool:
            return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + 5

        await eventually(has_looked_on, "further looks")
        assert broker.asked[Code.QUERY_CONSUME_TIME_SPAN] == 1
        known = [
            row
            for row in cluster.reported(broker, "group_watermarks")
            if row["store_time_error_ms"]
        ]
    error_ms = known[0]["store_time_error_ms"]
    assert abs(known[0]["store_time_at_committed"] // 1000 - stored_ms) <= error_ms
    assert "how long messages wait" not in caplog.text
    Shipper(
        system_runtime(), f"{home}/c1/broker-a/observer/spool", str(tmp_path / "lake"), {}
    ).ship_all()
    gold = run(needed_for("consumer_lag"), bronze_of(tmp_path / "lake"), Evaluation())
    row = next(row for row in gold["consumer_lag"] if row["time_lag_ms"])
    assert row["provenance"] == "INTERPOLATED"
    assert row["time_lag_error_ms"] == row["error_ms"] + error_ms
    assert abs(row["time_lag_ms"] - WAITED_MS) < 20_000


async def test_where_more_wait_than_a_look_reads_the_ends_show_the_others(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    topics = [f"t{number}" for number in range(MESSAGES_A_LOOK + 3)]
    now_ms = system_runtime().clock.now_ms

    def store() -> int:
        stored_ms = now_ms()
        for topic in topics:
            broker.store(topic, MessageExt(topic, b"x", store_timestamp_ms=stored_ms))
        return stored_ms

    store()
    broker.groups = {"g": {(topic, 0): 1 for topic in topics}}
    async with played_cluster(tmp_path / "home", broker) as cluster, observing(cluster):

        def is_reported(end: int) -> dict[str, dict[str, Any]]:
            """The first row of each topic with that end."""
            rows = cluster.reported(broker, "group_watermarks")
            return {row["topic"]: row for row in reversed(rows) if row["max_offset"] == end}

        async def all_are_known() -> bool:
            return is_reported(1).keys() == set(topics)

        await eventually(all_are_known, "all queues are known, and nothing waits")
        stored_ms = store()

        async def all_wait() -> bool:
            return is_reported(2).keys() == set(topics)

        await eventually(all_wait, "a message waits in each")
        rows = is_reported(2).values()
    assert all(row["store_time_at_committed"] is not None for row in rows)
    errors_ms = [row["store_time_error_ms"] or 0 for row in rows]
    assert sum(map(bool, errors_ms)) >= 3, "not all were read"
    for row, error_ms in zip(rows, errors_ms, strict=True):
        assert abs(row["store_time_at_committed"] // 1000 - stored_ms) <= error_ms
