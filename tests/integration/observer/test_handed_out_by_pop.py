"""What POP groups of a watched broker were handed out and have not acknowledged, as its checkpoints
say, look by look; or why nobody knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.observer.pop_reading import IN_A_STORE
from engine.observer.proxies import HEARTBEAT_GROUP
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.protocol.names import TIMER_TOPIC
from engine.runtime import system_runtime
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    ok,
    played_cluster,
)

REVIVE_LOG = "rmq_sys_REVIVE_LOG_c1"
INVISIBLE_MS = 600_000


def record(tag: str, **given: Any) -> MessageExt:
    """A checkpoint or an acknowledgement of g, as the broker's timer stores it."""
    body = json.dumps({"c": "g", "t": "orders", "q": 0, "so": 0, **given}).encode()
    return MessageExt("", body, {"TAGS": tag, "REAL_TOPIC": REVIVE_LOG})


def reading_by_pop() -> PlayedBroker:
    """A broker whose group g was handed out ten messages of orders and has acknowledged seven."""
    broker = PlayedBroker("broker-a")
    at_ms = system_runtime().clock.now_ms()
    broker.store(REVIVE_LOG, MessageExt("", b"", {}))
    checkpoint = record("ck", d=list(range(10)), n=10, pt=at_ms, it=INVISIBLE_MS, bm=0)
    broker.store(TIMER_TOPIC, checkpoint, *(record("ack", ao=one, pt=at_ms) for one in range(7)))
    return broker


async def newest(
    cluster: PlayedCluster, broker: PlayedBroker, *names: str, wanted: tuple[Any, ...]
) -> None:
    """Wait until the newest row of the queue says this."""
    await cluster.says_at_last(broker, "pop_watermarks", *names, wanted=wanted)


async def test_what_is_out_is_reported_with_its_offsets_and_acknowledgements_look_by_look(
    tmp_path: Path,
) -> None:
    broker = reading_by_pop()
    figures = ("popped", "max_offset", "unacknowledged", "invisible_ms", "unknown_reason")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await newest(cluster, broker, *figures, wanted=(10, 20, 3, INVISIBLE_MS, None))
        (row,) = cluster.reported(broker, "pop_watermarks")
        assert row["unacknowledged_ranges"] == [[7, 10]]
        broker.store(TIMER_TOPIC, record("ack", ao=8, pt=row["handed_out_since"] // 1_000))
        await newest(cluster, broker, "unacknowledged", "acknowledged", "expired", wanted=(2, 1, 0))


async def test_a_broker_that_keeps_its_checkpoints_in_a_store_leaves_it_unknown_with_that_reason(
    tmp_path: Path,
) -> None:
    broker = reading_by_pop()
    broker.groups["g"]["%RETRY%g_orders", 0] = 0
    broker.store("%RETRY%g_orders", MessageExt("", b"", {"ORIGIN_GROUP": "g"}))
    broker.answers[Code.GET_BROKER_CONFIG] = lambda _, request: ok(
        request, b"popConsumerKVServiceEnable=true\n"
    )
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        wanted = (None, IN_A_STORE)
        await newest(cluster, broker, "unacknowledged", "unknown_reason", wanted=wanted)
        rows = cluster.reported(broker, "pop_watermarks")
    assert {row["topic"] for row in rows} == {"orders", "%RETRY%g_orders"}
    assert {row["unacknowledged"] for row in rows} == {None}


async def test_checkpoints_that_may_not_be_read_leave_it_unknown_and_cost_nothing_else(
    tmp_path: Path,
) -> None:
    broker = reading_by_pop()
    broker.groups["g"]["%RETRY%g_orders", 0] = 0
    broker.store("%RETRY%g_orders", MessageExt("", b"", {"ORIGIN_GROUP": "g"}))
    usual = broker.usual[Code.PULL_MESSAGE]
    broker.answers[Code.PULL_MESSAGE] = lambda peer, request: (
        request.respond(ResponseCode.NO_PERMISSION, "no")
        if request.fields["topic"] == TIMER_TOPIC
        else usual(peer, request)
    )
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):

        async def is_reported() -> bool:
            return bool(cluster.reported(broker, "pop_watermarks"))

        await eventually(is_reported, "a row")
        reasons = {row["unknown_reason"] for row in cluster.reported(broker, "pop_watermarks")}
        marks = cluster.reported(broker, "group_watermarks")
    assert all("the account lacks a right: Sub on Topic:*" in reason for reason in reasons)
    assert {row["group"] for row in marks} == {"g"}


async def test_a_broker_that_nobody_reads_by_pop_is_not_asked_for_its_timer(tmp_path: Path) -> None:
    broker = PlayedBroker("broker-a")
    read: list[str] = []
    usual = broker.usual[Code.PULL_MESSAGE]
    broker.answers[Code.PULL_MESSAGE] = lambda peer, request: (
        read.append(request.fields["topic"]) or usual(peer, request)
    )
    broker.store(TIMER_TOPIC, MessageExt("", b"somebody's delayed message", {}))
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

        async def are_over() -> bool:
            return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + 3

        await eventually(are_over, "some looks")
        assert not cluster.reported(broker, "pop_watermarks")
    assert TIMER_TOPIC not in read


async def test_the_first_that_reads_by_pop_is_seen_at_once_where_a_proxy_serves(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    broker.members[HEARTBEAT_GROUP] = {"192.0.2.2@DEFAULT": {}}
    broker.store(TIMER_TOPIC)
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

        async def are_over() -> bool:
            return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + 3

        await eventually(are_over, "some looks before anybody reads by POP")
        at_ms = system_runtime().clock.now_ms()
        checkpoint = record("ck", d=[0, 1], n=2, pt=at_ms, it=INVISIBLE_MS, bm=0)
        broker.store(TIMER_TOPIC, checkpoint, record("ack", ao=0, pt=at_ms))
        figures = ("unacknowledged", "acknowledged", "unknown_reason")
        await newest(cluster, broker, *figures, wanted=(1, 1, None))


@pytest.mark.parametrize("count", [100, 1_000])
async def test_however_many_records_have_come_all_are_taken_in(tmp_path: Path, count: int) -> None:
    broker = reading_by_pop()
    at_ms = system_runtime().clock.now_ms()
    broker.groups["g"]["orders", 0] = 20
    broker.store(
        TIMER_TOPIC,
        *(
            record("ck", so=10, d=[0], n=1, pt=at_ms + number, it=INVISIBLE_MS, bm=0)
            for number in range(count)
        ),
        record("ack", ao=10, pt=at_ms + count - 1),
    )
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await newest(cluster, broker, "unacknowledged", wanted=(3,))
