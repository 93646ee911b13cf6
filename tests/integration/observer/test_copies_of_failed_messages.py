"""Messages that failed in a cluster that is watched: their copies in retry and dead-letter topics
are read, each once, and reported as the steps they have gone.
"""

from __future__ import annotations

from pathlib import Path

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from pipelines.marts.duplicate_risk_windows import MART as RISKS
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import picked
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)
from tests.pipelines.marts.literal_facts import computed, facts, only

RETRY, DEAD = "%RETRY%g", "%DLQ%g"


def copy(message_id: str, failures: int) -> MessageExt:
    """Of a message of the topic orders that has failed so often."""
    properties = {"UNIQ_KEY": message_id, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F"}
    return MessageExt("", b"body", properties, reconsume_times=failures)


async def steps(
    cluster: PlayedCluster, broker: PlayedBroker, count: int
) -> list[tuple[object, ...]]:
    """The first so many steps that are reported."""

    def is_reported() -> list[tuple[object, ...]]:
        rows = cluster.reported(broker, "retry_dlq_flow")
        return [picked(row, "step", "group", "message_id", "reconsume_times") for row in rows]

    async def are_reported() -> bool:
        return len(is_reported()) >= count

    await eventually(are_reported, f"{count} steps")
    return is_reported()


async def looks(broker: PlayedBroker, count: int) -> None:
    """Wait for so many looks more."""
    asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

    async def are_over() -> bool:
        return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + count

    await eventually(are_over, f"{count} looks")


async def test_a_retry_is_reported_when_its_copy_is_there_and_never_twice(tmp_path: Path) -> None:
    broker = PlayedBroker("broker-a")
    broker.store(RETRY, copy("before", 1))
    broker.groups["g"][RETRY, 0] = 1
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 3)
        broker.store(RETRY, *(copy(f"m{number}", 2) for number in range(40)))
        wanted = [
            (step, "g", f"m{number}", 2)
            for number in range(40)
            for step in ("SENT_BACK", "SCHEDULED", "DELIVERED")
        ]
        assert await steps(cluster, broker, len(wanted)) == wanted
        await looks(broker, 3)
        rows = cluster.reported(broker, "retry_dlq_flow")
    assert len(rows) == len(wanted), "each is reported once, and not what came before the observer"
    assert {row["origin_topic"] for row in rows} == {"orders"}


async def test_the_first_dead_letter_of_a_group_makes_its_topic_and_is_reported(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store(DEAD, copy("poison", 16))
        reported = await steps(cluster, broker, 2)
    assert reported == [("SENT_BACK", "g", "poison", 16), ("DEAD_LETTERED", "g", "poison", 16)]


async def test_a_message_that_is_sent_back_and_delivered_again_is_a_duplicate_of_its_original(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store("orders", *(MessageExt("", b"", {"UNIQ_KEY": one}) for one in ("m0", "m1")))
        broker.store(RETRY, copy("m1", 1), copy("sent-elsewhere", 1))
        await steps(cluster, broker, 6)
        rows = cluster.reported(broker, "retry_dlq_flow")
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    risks, _ = computed(RISKS, {"retry_dlq_flow": facts("retry_dlq_flow", *known)})
    columns = ("cause", "outcome", "message_id", "topic", "queue_id", "from_offset")
    assert only(risks, *columns) == [("SEND_BACK", "CONFIRMED", "m1", "orders", 0, 1)]


async def test_copies_may_say_anything(tmp_path: Path) -> None:
    broker = PlayedBroker("broker-a")
    odd = MessageExt("", b"", {"UNIQ_KEY": "x\n" * 400, "RETRY_TOPIC": "a b"}, reconsume_times=-7)
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store(DEAD, odd, MessageExt("", b"", {}))
        reported = await steps(cluster, broker, 4)
        origins = {row["origin_topic"] for row in cluster.reported(broker, "retry_dlq_flow")}
    assert [one[2:] for one in reported] == [(None, 0)] * 4
    assert origins == {None}


async def test_a_topic_that_may_not_be_read_costs_nothing_else(tmp_path: Path) -> None:
    broker = PlayedBroker("broker-a")
    usual = broker.usual[Code.PULL_MESSAGE]
    broker.answers[Code.PULL_MESSAGE] = lambda peer, request: (
        request.respond(ResponseCode.NO_PERMISSION, "the topic may not be read")
        if request.fields["topic"] == DEAD
        else usual(peer, request)
    )
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store(DEAD, copy("poison", 16))
        broker.store(RETRY, copy("m", 1))
        assert {one[2] for one in await steps(cluster, broker, 3)} == {"m"}


POP_RETRY, POP_RETRY_V2 = "%RETRY%g_orders", "%RETRY%g+orders"


def expired(message_id: str, times: int, **more: str) -> MessageExt:
    """What a broker puts into a retry topic of POP: a copy without RETRY_TOPIC, whose group 5.5.0
    names."""
    properties = {"UNIQ_KEY": message_id, "ORIGIN_GROUP": "g", "1ST_POP_TIME": "1", **more}
    return MessageExt("", b"body", properties, reconsume_times=times)


async def test_an_invisible_time_that_ran_out_is_no_failure_and_of_its_group_and_topic(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store("orders", *(MessageExt("", b"", {"UNIQ_KEY": one}) for one in ("m0", "m1")))
        broker.store(POP_RETRY, expired("m1", 1), expired("m1", 2))
        broker.store(POP_RETRY_V2, expired("m0", 1, ORIGIN_GROUP=""), expired("sent-elsewhere", 1))
        reported = await steps(cluster, broker, 4)
        rows = cluster.reported(broker, "retry_dlq_flow")
    assert set(reported) == {
        ("INVISIBLE_TIME_EXPIRED", "g", "m1", 1),
        ("INVISIBLE_TIME_EXPIRED", "g", "m1", 2),
        ("INVISIBLE_TIME_EXPIRED", "g", "m0", 1),
        ("INVISIBLE_TIME_EXPIRED", "g", "sent-elsewhere", 1),
    }
    places = {picked(row, "message_id", "origin_topic", "origin_offset") for row in rows}
    assert places == {("m0", "orders", 0), ("m1", "orders", 1), ("sent-elsewhere", "orders", None)}


async def test_a_dead_letter_of_a_pop_group_is_of_the_topic_before_its_retry_topic(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looks(broker, 2)
        broker.store(DEAD, MessageExt("", b"", {"UNIQ_KEY": "m", "RETRY_TOPIC": POP_RETRY}))
        await steps(cluster, broker, 2)
        rows = cluster.reported(broker, "retry_dlq_flow")
    assert {picked(row, "group", "origin_topic") for row in rows} == {("g", "orders")}
