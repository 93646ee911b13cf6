"""Clients come, share queues, report offsets and go; every change is a fact in the spool."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.broker.reporting.client_windows import READS_FOR_MS
from engine.client import PullConsumer
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import client_config

RETRY = f"%RETRY%{GROUP}"


async def members(client: RawClient) -> list[str]:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP)
    return json.loads(answer.body)["consumerIdList"] if answer.body else []


async def until_members(running: Cluster, *expected: str) -> None:
    async def as_expected() -> bool:
        group = running.broker.state.groups.of(GROUP)
        return tuple(group.member_ids() if group else ()) == expected

    await eventually(as_expected, f"the members of {GROUP} are {expected}")


async def test_members_come_and_go_and_the_others_are_notified(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.heartbeat()
        await second.heartbeat()
        assert await members(first) == ["c1", "c2"]
        await first.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)
        assert await members(second) == ["c2"]
        assert len(second.pushed) == 2, "its own coming and the other's going"
        assert {push.fields["consumerGroup"] for push in second.pushed} == {GROUP}
        await second.close()
        await until_members(running)
    events = spooled(tmp_path / "store", "rebalance_events")
    reported = [picked(row, "kind", "client_id", "reason", "generation") for row in events]
    assert [row for row in reported if row[0] in ("JOINED", "LEFT")] == [
        ("JOINED", "c1", None, 1),
        ("JOINED", "c2", None, 2),
        ("LEFT", "c1", "UNREGISTERED", 3),
        ("LEFT", "c2", "CONNECTION_LOST", 4),
    ]


async def test_a_heartbeat_makes_the_retry_topic_of_its_group(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        await running.client("c1").heartbeat()
        retry = running.broker.state.topics.find(RETRY)
        assert retry is not None
        assert (retry.read_queue_nums, retry.perm) == (1, 6)


async def test_a_silent_client_is_expired_and_its_connection_closed(tmp_path: Path) -> None:
    settings = {"client_expiry_ms": 200, "housekeeping_interval_ms": 50}
    async with cluster(broker_config(tmp_path, **settings)) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        await client.pull(0)
        await until_members(running)
    (gone,) = [
        row for row in spooled(tmp_path / "store", "rebalance_events") if row["kind"] == "EXPIRED"
    ]
    assert picked(gone, "client_id", "reason", "after") == ("c1", "HEARTBEAT_EXPIRED", [])
    assert gone["queues"] == [[TOPIC, 0, None, 1]] or gone["queues"] == [(TOPIC, 0, None, 1)]


async def test_members_that_subscribe_differently_overwrite_each_other(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.send(topic="A")
        await first.send(topic="B")
        await first.heartbeat(topics=("A",))
        await second.heartbeat(topics=("B",))
        plain = {"sysFlag": 0, "subVersion": 1}
        lost = await first.pull(0, topic="A", **plain)
        kept = await second.pull(0, topic="B", **plain)
        assert lost.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert kept.code == ResponseCode.SUCCESS
        newer = await second.pull(0, topic="B", sysFlag=0, subVersion=2)
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    changed = [
        picked(row, "client_id", "before", "after")
        for row in spooled(tmp_path / "store", "rebalance_events")
        if row["kind"] == "SUBSCRIPTION_CHANGED"
    ]
    assert changed == [("c1", [], ["A:*"]), ("c2", ["A:*"], ["B:*"])]


async def test_the_groups_own_subscription_filters_its_pulls(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send(b"a", TAGS="TagA")
        await client.send(b"b", TAGS="TagB")
        await client.heartbeat(expression="TagB")
        pulled = await client.pull(0, sysFlag=0, subVersion=1)
        assert bodies(pulled) == [b"b"]


async def test_changed_reports_become_facts_and_unchanged_ones_are_counted(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        for _ in range(5):
            await client.send()
        await client.heartbeat()
        await client.commit(2, trigger="TIMER")
        await client.commit(2, trigger="TIMER")
        await client.pull(2, sysFlag=4 | 1, commitOffset=4)
        await client.commit(1, trigger="SHUTDOWN")
        assert (await client.committed()).fields["offset"] == "1"
    columns = ("offset", "previous_offset", "path", "trigger", "client_id", "accepted")
    reports = spooled(tmp_path / "store", "consume_offsets")
    assert [picked(row, *columns) for row in reports] == [
        (2, None, "COMMIT_RPC", "TIMER", "c1", True),
        (4, 2, "PULL_PIGGYBACK", "UNKNOWN", "c1", True),
        (1, 4, "COMMIT_RPC", "SHUTDOWN", "c1", True),
    ]
    assert {picked(row, "min_offset", "max_offset") for row in reports} == {(0, 5)}
    marks = spooled(tmp_path / "store", "group_watermarks")
    assert sum(row["reports"] for row in marks if row["topic"] == TOPIC) == 4


async def test_a_young_queue_answers_zero_and_a_strict_question_is_not_found(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send()
        strict = await client.committed()
        assert strict.code == ResponseCode.QUERY_NOT_FOUND
        lenient = await client.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0
        )
        assert lenient.fields["offset"] == "0"


async def test_a_queue_that_changes_hands_is_revoked_assigned_and_delivered_again(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        for _ in range(6):
            await first.send()
        await first.heartbeat()
        await second.heartbeat()
        await first.pull(0)
        await first.commit(2)
        assert len(bodies(await second.pull(2))) == 4
    store = tmp_path / "store"
    owners = [
        picked(row, "kind", "client_id", "inferred")
        for row in spooled(store, "rebalance_events")
        if row["kind"] in ("ASSIGNED", "REVOKED")
    ]
    assert owners == [
        ("ASSIGNED", "c1", True),
        ("REVOKED", "c1", True),
        ("ASSIGNED", "c2", True),
    ]
    (again,) = spooled(store, "redeliveries")
    columns = ("from_offset", "to_offset", "client_id", "previous_client_id", "delivered_count")
    assert picked(again, *columns) == (2, 6, "c2", "c1", 4)


async def test_broadcasting_members_read_the_same_queue_without_a_redelivery(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.send()
        for client in (first, second):
            await client.heartbeat(model="BROADCASTING")
        for client in (first, second):
            assert len(bodies(await client.pull(0))) == 1
        assert first.pushed == []
    assert spooled(tmp_path / "store", "redeliveries") == []


QUEUE = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}


async def lock(client: RawClient, code: int = RequestCode.LOCK_BATCH_MQ) -> list[object]:
    """Ask for the order lock of the first queue; those held then."""
    body = {"consumerGroup": GROUP, "clientId": client.client_id, "mqSet": [QUEUE]}
    answer = await client.ask(code, json.dumps(body).encode())
    return json.loads(answer.body)["lockOKMQSet"] if answer.body else []


async def test_order_locks_are_granted_to_one_client_and_reported_in_the_watermarks(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.send()
        await first.pull(0)
        queue = QUEUE
        assert await lock(first) == [queue]
        assert await lock(second) == []
        running.broker.services.reporters.watermarks.emit([(GROUP, TOPIC, 0)])
        await lock(first, RequestCode.UNLOCK_BATCH_MQ)
        assert await lock(second) == [queue]
    marks = spooled(tmp_path / "store", "group_watermarks")
    assert {"c1", "c2"} <= {row["lock_holder"] for row in marks}


async def test_who_lost_its_order_lock_moves_the_offset_no_more(tmp_path: Path) -> None:
    """It was paused for longer than its lease, and reports what it consumed before."""
    async with cluster(broker_config(tmp_path)) as running:
        state = running.broker.state
        state.locks.lease_ms = 300
        late, owner, stranger = (running.client(name) for name in ("late", "owner", "none"))
        for _ in range(8):
            await late.send()
        for client in (late, owner):
            await client.heartbeat()
        assert await lock(late) == [QUEUE]
        assert (await late.commit(3)).remark is None
        await asyncio.sleep(0.4)
        assert (await late.commit(4)).remark is None, "nobody else has taken the queue"
        assert await lock(owner) == [QUEUE]
        assert (await owner.commit(7)).remark is None
        for client in (late, stranger):
            refused = await client.commit(5)
            assert refused.code == ResponseCode.INVALID_PARAMETER, "it waits for the answer"
            assert "client owner holds the order lock" in str(refused.remark)
        await late.pull(5, commitOffset=8, sysFlag=1 | 4)
        assert state.offsets.committed(GROUP, TOPIC, 0) == 7
        await lock(owner, RequestCode.UNLOCK_BATCH_MQ)
        refused = await late.commit(6)
        assert "client late held the order lock of queue 0" in str(refused.remark)
        assert "the offset stays at 7" in str(refused.remark)
        assert (await late.commit(7)).remark is None
        assert await lock(late) == [QUEUE]
        assert (await late.commit(4)).remark is None, "it holds the queue again"
    reports = spooled(tmp_path / "store", "consume_offsets")
    refused_reports = [
        (row["client_id"], row["offset"], row["previous_offset"], row["path"])
        for row in reports
        if not row["accepted"]
    ]
    assert refused_reports == [
        ("late", 5, 7, "COMMIT_RPC"),
        (None, 5, 7, "COMMIT_RPC"),
        ("late", 8, 7, "PULL_PIGGYBACK"),
        ("late", 6, 7, "COMMIT_RPC"),
    ]


async def test_a_tool_hears_that_its_offset_was_passed_over(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        owner, names = running.client("owner"), running.name_server_address
        await owner.send()
        await owner.heartbeat()
        queue = MessageQueue(TOPIC, "broker-a", 0)
        async with Admin(system_runtime(), client_config(names)) as admin:
            await admin.offsets.commit(GROUP, queue, 0)
            assert await lock(owner) == [QUEUE]
            with pytest.raises(RequestRefused, match="client owner holds the order lock"):
                await admin.offsets.commit(GROUP, queue, 1)
            assert await admin.offsets.consume_offset(GROUP, queue) == 0


async def test_a_reset_comes_with_the_next_pull_and_refuses_the_old_owners_reports(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        for _ in range(5):
            await client.send()
        await client.heartbeat()
        await client.commit(5)
        reset = await client.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            topic=TOPIC, group=GROUP, timestamp=0, queueId=0, offset=2, isForce=True,
        )  # fmt: skip
        assert reset.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:2}}'
        )
        late = await client.commit(5)
        assert (late.code, late.remark) == (
            ResponseCode.SUCCESS,
            "Offset has been previously reset",
        )
        answer = await client.pull(5)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert (answer.remark, answer.fields["nextBeginOffset"]) == ("OFFSET_RESET", "2")
        assert len(bodies(await client.pull(2))) == 3
    reports = spooled(tmp_path / "store", "consume_offsets")
    assert [picked(row, "offset", "path", "accepted") for row in reports] == [
        (5, "COMMIT_RPC", True),
        (2, "RESET", True),
        (5, "COMMIT_RPC", False),
    ]


async def test_who_polls_and_commits_learns_that_a_reset_waits(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        for _ in range(5):
            await running.client("c1").send()
        config = client_config(running.name_server_address)
        consumer = PullConsumer(system_runtime(), config, GROUP)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        async with Admin(system_runtime(), config) as admin:
            await consumer.start()
            consumer.update_consume_offset(queue, 4)
            await consumer.persist(queue)
            await admin.offsets.reset_queue(GROUP, queue, 2)
            consumer.update_consume_offset(queue, 5)
            with pytest.raises(RequestRefused, match="previously reset"):
                await consumer.persist(queue)
            assert await admin.offsets.consume_offset(GROUP, queue) == 2
            await consumer.stop()


async def test_a_consumer_is_asked_what_it_holds(tmp_path: Path) -> None:
    settings = {"window_sample_interval_ms": 100}
    async with cluster(broker_config(tmp_path, **settings)) as running:
        client = running.client("c1")
        await client.send()
        client.running_info = {
            f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}': {
                "commitOffset": 7, "cachedMsgMinOffset": 7, "cachedMsgMaxOffset": 9,
                "cachedMsgCount": 2, "cachedMsgSizeInMiB": 0, "droped": False, "locked": True,
                "lastPullTimestamp": 5, "lastConsumeTimestamp": 0, "heldBytes": 20,
                "finishedCount": 1, "heldRanges": [[7, 8], [9, 10]], "filteredCount": 0,
                "headMessageId": "U7", "headSince": 4, "processedOffset": 9,
                "clientCommitted": 7,
            }
        }  # fmt: skip
        await client.heartbeat()

        async def is_reported() -> bool:
            return bool(spooled(tmp_path / "store", "client_windows"))

        await eventually(is_reported, "the client's window is in the spool")
    window = spooled(tmp_path / "store", "client_windows")[0]
    columns = ("client_id", "first_held", "last_held", "held_count", "held_bytes")
    assert picked(window, *columns) == ("c1", 7, 9, 2, 20)
    reported_by_ours = ("finished_count", "head_message_id", "client_committed", "locked")
    assert picked(window, *reported_by_ours) == (1, "U7", 7, True)
    assert [tuple(held) for held in window["held_ranges"]] == [(7, 8), (9, 10)]


async def test_a_consumer_is_asked_once_more_when_it_has_begun_to_read(tmp_path: Path) -> None:
    """Should it die soon, it is known what it had finished."""
    async with cluster(broker_config(tmp_path, window_sample_interval_ms=60_000)) as running:
        client = running.client("c1")
        await client.heartbeat()

        async def asked_as_a_new_member() -> bool:
            return client.asked_count == 1

        await eventually(asked_as_a_new_member, "it is asked as a member")
        await client.send()
        await client.pull(0)
        await client.commit(1)  # Nothing waits: the queue does not look frozen.

        async def asked_again() -> bool:
            return client.asked_count == 2

        await eventually(asked_again, "it is asked a second after it began")


async def test_who_was_answered_where_to_begin_and_gave_the_queue_back_is_soon_known_not_to_hold_it(
    tmp_path: Path,
) -> None:
    """Until then all that its reader pulls may come to it as well."""
    async with cluster(broker_config(tmp_path, window_sample_interval_ms=60_000)) as running:
        reader, passer_by = running.client("reader"), running.client("passer-by")
        await reader.heartbeat()
        await passer_by.heartbeat()
        await reader.send()
        await reader.pull(0)
        await passer_by.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=0
        )

        def given_back() -> list[tuple[str, bool]]:
            rows = spooled(tmp_path / "store", "client_windows")
            return [picked(row, "client_id", "dropped") for row in rows if row["topic"] == TOPIC]

        async def is_reported() -> bool:
            return ("passer-by", True) in given_back()

        await eventually(is_reported, "it says that it does not hold the queue")


async def test_a_consumer_sends_each_broker_offsets_of_its_own_queues_only(tmp_path: Path) -> None:
    """It names the queues of all brokers to each: ordered by two, one retry would be two, and one
    broker's window would be another's.
    """
    async with cluster(broker_config(tmp_path, window_sample_interval_ms=100)) as running:
        client = running.client("c1")
        await client.send()
        await client.pull(0)
        client.running_info = {
            f'{{"brokerName":"{broker}","queueId":0,"topic":"{topic}"}}': {
                "processedOffset": processed, "localRetries": [[5, message_id, 0, 1]],
                "heldRanges": [],
            }
            for broker, topic, processed, message_id in (
                ("broker-a", TOPIC, 1, "own"),
                ("broker-b", TOPIC, 900, "of another broker"),
                ("broker-a", "invented", 9, "of no topic"),
            )
        }  # fmt: skip
        await client.heartbeat()

        async def asked_again() -> bool:
            return client.asked_count >= 3

        await eventually(asked_again, "the client is asked what it holds")
        reading = running.broker.state.readers.of((GROUP, TOPIC, 0))
        assert reading is not None
        assert reading.processed_offset == 1
    windows = spooled(tmp_path / "store", "client_windows")
    assert {row["topic"] for row in windows} == {TOPIC}
    assert len(windows) <= client.asked_count
    retries = spooled(tmp_path / "store", "retry_dlq_flow")
    assert [row["message_id"] for row in retries if row["step"] == "LOCAL_RETRY"] == ["own"]


async def test_a_consumer_whose_queue_looks_frozen_is_asked_at_once(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, window_sample_interval_ms=600_000)) as running:
        frozen, calm = running.client("frozen"), running.client("calm")
        await frozen.send()
        await frozen.heartbeat()
        await calm.heartbeat("other-group")

        async def asked_again() -> bool:
            await frozen.pull(0)  # Pulls go on, the consume offset does not.
            return frozen.asked_count >= 2

        await eventually(asked_again, "the frozen consumer is asked again within seconds")
        assert calm.asked_count == 1, "the other one has its turn in ten minutes"
        await asyncio.sleep(READS_FOR_MS / 1000 + 1.5)  # Pulls have ended as well.
        asked_count = frozen.asked_count
        await asyncio.sleep(2.5)
        assert frozen.asked_count == asked_count, "who does not pull is not frozen"


async def test_the_progress_of_a_group_is_returned_to_tools(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        for _ in range(5):
            await client.send()
        await client.heartbeat()
        await client.pull(0)
        await client.commit(2)
        stats = await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP, topic=TOPIC)
        text = bytes(stats.body).decode()
        assert '{"brokerName":"broker-a","queueId":0,"topic":"orders"}:{"brokerOffset":5' in text
        assert '"consumerOffset":2' in text
        assert '"pullOffset":5' in text
        online = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
        assert json.loads(online.body)["connectionSet"][0]["clientId"] == "c1"
        offline = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="nobody")
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        who = await client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC)
        assert json.loads(who.body) == {"groupList": [GROUP]}
