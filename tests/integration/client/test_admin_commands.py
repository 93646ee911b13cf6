"""`tidemark admin` as a user types it, against an engine in a process of its own (row C1, A4, E1).

Every command answers a table for people and, with `--json`, the same rows for programs; what is
refused is one sentence on standard error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.admin import Admin
from engine.client import Producer
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consuming,
    eventually,
    producing,
    text,
)
from tests.integration.client.typed_commands import answered, refused, tidemark
from tests.interop.our_engine import OurEngine, our_engine

TOPIC, GROUP = "adminorders", "admin-group"
MESSAGES = 6
RETRIES = 3


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    """An engine with one topic of two queues, three messages in each, and one group."""
    with our_engine(tmp_path_factory.mktemp("admin-engine")) as running:
        made = tidemark(running, "topic", "create", TOPIC, "--queues", "2")
        assert made.exit_code == 0, made.output
        assert tidemark(running, "group", "create", GROUP, "--retries", "3").exit_code == 0
        asyncio.run(fill(running))
        yield running


async def fill(engine: OurEngine) -> None:
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:

        async def is_known() -> bool:
            return await admin.topics.route(TOPIC) is not None

        await eventually(is_known, "the name server knows the topic")
    async with producing(engine.name_server, "admin-producers") as producer:
        for number in range(MESSAGES):
            message = text(TOPIC, f"body {number}", KEYS=f"key{number}", TAGS="even")
            await producer.send(message, queue=MessageQueue(TOPIC, "broker-a", number % 2))


def test_the_cluster_and_its_broker_report_themselves(engine: OurEngine) -> None:
    (broker,) = answered(engine, "cluster", "list")
    assert (broker["cluster"], broker["broker"], broker["address"]) == (
        "DefaultCluster",
        "broker-a",
        engine.broker,
    )
    assert (broker["state"], broker["version"]) == ("up", "V5_5_0")
    assert int(answered(engine, "broker", "status", "broker-a")["commitLogMaxOffset"]) > 0
    config = answered(engine, "broker", "config", "broker-a", "--key", "brokerName")
    assert config == {"brokerName": "broker-a"}


async def flags_of(engine: OurEngine, topic: str) -> tuple[int, bool, int]:
    """(write queues, order, system flag)"""
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
        config = (await admin.topics.configs(topic))["broker-a"]
        return config.write_queue_nums, config.order, config.topic_sys_flag


def test_an_existing_topic_keeps_its_order_and_system_flags_unless_they_are_given(
    engine: OurEngine,
) -> None:
    for words, expected in (
        (("-q", "1"), (1, False, 0)),
        (("-q", "1", "--order", "--sys-flag", "2"), (1, True, 2)),
        (("-q", "2"), (2, True, 2)),
        (("-q", "3", "--no-order"), (3, False, 2)),
        (("-q", "3", "--sys-flag", "0"), (3, False, 0)),
    ):
        answer = tidemark(engine, "topic", "create", "adminordered", *words)
        assert answer.exit_code == 0, answer.output
        assert asyncio.run(flags_of(engine, "adminordered")) == expected, words


def test_a_topic_is_listed_shown_routed_and_counted(engine: OurEngine) -> None:
    assert {"topic": TOPIC} in answered(engine, "topic", "list")
    (shown,) = answered(engine, "topic", "show", TOPIC)
    assert (shown["read_queues"], shown["write_queues"], shown["perm"]) == (2, 2, "rw")
    (route,) = answered(engine, "topic", "route", TOPIC)
    assert (route["address"], route["broker_id"]) == (engine.broker, 0)
    status = answered(engine, "topic", "status", TOPIC)
    assert [(row["queue"], row["max_offset"], row["messages"]) for row in status] == [
        (0, 3, 3),
        (1, 3, 3),
    ]
    table = tidemark(engine, "topic", "status", TOPIC).stdout.splitlines()
    assert table[0].split() == [
        *("broker", "queue", "min_offset", "max_offset", "messages", "last_stored"),
    ]
    assert re.fullmatch(r"broker-a +0 +0 +3 +3 +\S+Z", table[2])


def test_a_topic_changes_its_permission_and_goes(engine: OurEngine) -> None:
    assert tidemark(engine, "topic", "create", "admingone", "-q", "1").exit_code == 0
    assert tidemark(engine, "topic", "perm", "admingone", "r").exit_code == 0
    (shown,) = answered(engine, "topic", "show", "admingone")
    assert (shown["perm"], shown["read_queues"]) == ("r", 1)
    asked = tidemark(engine, "topic", "delete", "admingone")
    assert asked.exit_code == 1, "nobody said yes"
    assert answered(engine, "topic", "show", "admingone")
    assert tidemark(engine, "topic", "delete", "admingone", "--yes").exit_code == 0
    assert "TOPIC_NOT_EXIST" in refused(engine, "topic", "show", "admingone")


def test_a_group_is_created_changed_and_deleted(engine: OurEngine) -> None:
    assert answered(engine, "group", "show", GROUP)["retryMaxTimes"] == RETRIES
    rows = {row["group"]: row for row in answered(engine, "group", "list")}
    assert rows[GROUP]["retries"] == RETRIES
    assert tidemark(engine, "group", "create", "short-lived").exit_code == 0
    assert tidemark(engine, "group", "delete", "short-lived", "--offsets", "--yes").exit_code == 0
    assert "knows the group short-lived" in refused(engine, "group", "show", "short-lived")


def test_offsets_are_reset_to_a_time_and_progress_says_so(engine: OurEngine) -> None:
    moved = answered(engine, "offset", "reset", GROUP, TOPIC, "latest")
    assert [row["offset"] for row in moved] == [3, 3]
    progress = answered(engine, "group", "progress", GROUP, "--topic", TOPIC)
    assert [(row["broker_offset"], row["consumer_offset"], row["lag"]) for row in progress] == [
        (3, 3, 0),
        (3, 3, 0),
    ]
    assert tidemark(engine, "offset", "reset", GROUP, TOPIC, "earliest").exit_code == 0
    lag = tidemark(engine, "group", "progress", GROUP, "--topic", TOPIC).stdout
    assert lag.splitlines()[-1] == "lag 6, inflight 0"


def test_a_group_goes_on_where_another_one_is(engine: OurEngine) -> None:
    assert tidemark(engine, "group", "create", "copied").exit_code == 0
    assert answered(engine, "offset", "reset", GROUP, TOPIC, "latest")
    done = tidemark(engine, "offset", "clone", GROUP, "copied", TOPIC)
    assert done.stdout == f"group copied goes on where {GROUP} is in 2 queues of {TOPIC}\n"
    progress = answered(engine, "group", "progress", "copied", "--topic", TOPIC)
    assert [row["consumer_offset"] for row in progress] == [3, 3]
    assert "group nobody has no offset in any queue" in refused(
        engine, "offset", "clone", "nobody", "copied", TOPIC
    )


def test_offsets_of_one_topic_are_previewed_and_deleted(engine: OurEngine) -> None:
    assert tidemark(engine, "group", "create", "once").exit_code == 0
    done = tidemark(engine, "offset", "clone", GROUP, "once", TOPIC)
    assert done.exit_code == 0, done.output
    expected = [
        {"broker": "broker-a", "queue": queue_id, "offset": 3, "unread": 0} for queue_id in (0, 1)
    ]
    assert answered(engine, "offset", "delete", "once", TOPIC, "--dry-run") == expected
    assert len(answered(engine, "group", "progress", "once")) == 2, "a preview deletes nothing"
    asked = tidemark(engine, "offset", "delete", "once", TOPIC)
    assert (asked.exit_code, "Delete the offsets of group once" in asked.stdout) == (1, True)
    done = tidemark(engine, "offset", "delete", "once", TOPIC, "--yes")
    assert done.stdout == f"the offsets of group once on {TOPIC} are deleted, in 2 queues\n"
    assert answered(engine, "group", "progress", "once") == []
    assert "nothing to delete" in refused(engine, "offset", "delete", "once", TOPIC, "--yes")


def test_what_comes_in_and_goes_out_is_counted(engine: OurEngine) -> None:
    rows = answered(engine, "topic", "stats", TOPIC)
    assert {row["broker"] for row in rows} == {"broker-a"}
    assert all(row["in_24h"] >= MESSAGES for row in rows)


def test_messages_are_found_by_key_by_id_and_by_time(engine: OurEngine) -> None:
    (found,) = answered(engine, "message", "by-key", TOPIC, "key3")
    assert (found["body"], found["queue"], found["offset"]) == ("body 3", 1, 1)
    by_unique = answered(engine, "message", "by-key", TOPIC, found["unique_key"], "--unique")
    assert by_unique == [found]
    every = answered(engine, "message", "by-time", TOPIC)
    assert [row["body"] for row in every] == [f"body {number}" for number in (0, 2, 4, 1, 3, 5)]
    assert (
        answered(engine, "message", "by-time", TOPIC, "--queue", "1", "--count", "2") == every[3:5]
    )
    assert answered(engine, "message", "by-time", TOPIC, "--to", "2001-01-01") == []
    whole = answered(engine, "message", "by-id", found["id"])
    assert (whole["body"], whole["property KEYS"]) == ("body 3", "key3")


async def test_members_of_a_group_and_producers_are_reported_while_they_are_online(
    engine: OurEngine,
) -> None:
    seen, name_server = Seen(), engine.name_server
    async with (
        producing(name_server, "admin-online") as producer,
        consuming(name_server, "admin-members", {TOPIC: seen}) as consumer,
    ):
        await producer.send(text(TOPIC, "one more"))
        await eventually(lambda: len(seen.messages) > MESSAGES, "all is consumed")
        one = await asyncio.to_thread(answered, engine, "group", "connections", "admin-members")
        assert [(row["client_id"], row["language"]) for row in one] == [
            (consumer.client_id, "PYTHON")
        ]
        assert f"{TOPIC}:*" in one[0]["subscription"]
        held = await asyncio.to_thread(answered, engine, "group", "running", "admin-members")
        assert [row["queue"] for row in held if row["topic"] == TOPIC] == [0, 1]
        producers = await asyncio.to_thread(answered, engine, "group", "producers")
        assert "admin-online" in {row["group"] for row in producers}
        groups = await asyncio.to_thread(answered, engine, "topic", "groups", TOPIC)
        assert {"group": "admin-members"} in groups


def test_the_trace_of_a_message_names_who_sent_it(engine: OurEngine) -> None:
    unique_key = asyncio.run(send_traced(engine))
    (step,) = answered(engine, "message", "trace", unique_key)
    assert (step["step"], step["group"], step["success"]) == ("sent", "admin-traced", True)
    assert answered(engine, "message", "trace", "F" * 32) == []


async def send_traced(engine: OurEngine) -> str:
    """One message whose trace is stored; its unique key."""
    config = replace(client_config(engine.name_server), enable_trace=True)
    producer = Producer(system_runtime(), config, "admin-traced")
    await producer.start()
    try:
        sent = (await producer.send(text(TOPIC, "traced"))).message_id
    finally:
        await producer.stop()
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:

        async def is_traced() -> bool:
            return bool(await admin.messages.traces(sent))

        await eventually(is_traced, "the trace is stored")
    return sent


def test_a_broker_loses_and_gets_the_write_permission(engine: OurEngine) -> None:
    assert tidemark(engine, "broker", "wipe-write", "broker-a").exit_code == 0
    assert answered(engine, "topic", "route", TOPIC)[0]["perm"] == "r"
    assert tidemark(engine, "broker", "add-write", "broker-a").exit_code == 0
    assert answered(engine, "topic", "route", TOPIC)[0]["perm"] == "rw"


def test_a_broker_cleans_and_changes_a_setting(engine: OurEngine) -> None:
    assert tidemark(engine, "broker", "clean").exit_code == 0
    changed = tidemark(engine, "broker", "set", "broker-a", "fileReservedTime=48")
    assert changed.exit_code == 0, changed.output
    config = answered(engine, "broker", "config", "broker-a", "--key", "fileReservedTime")
    assert config == {"fileReservedTime": "48"}
    assert "allowed: key=value" in refused(engine, "broker", "set", "broker-a", "fileReservedTime")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("topic", "status", "nowhere"), "17 TOPIC_NOT_EXIST: no broker has the topic nowhere"),
        (("topic", "route", "nowhere"), "no route leads to topic nowhere"),
        (("topic", "create", "a/b"), "illegal characters"),
        (("topic", "create", "fine", "--perm", "x"), "perm='x' is not allowed: r, w or rw"),
        (("topic", "create", "fine", "-q", "0"), "29 INVALID_PARAMETER: topic fine"),
        (("topic", "create", "fine", "-b", "broker-z"), "--broker='broker-z'"),
        (("group", "connections", "nobody"), "206 CONSUMER_NOT_ONLINE"),
        (("group", "running", "nobody"), "nobody is online of group nobody"),
        (("group", "progress", "nobody"), "26 SUBSCRIPTION_GROUP_NOT_EXIST"),
        (("message", "by-id", "xyz"), "message id 'xyz'"),
        (("message", "by-key", "nowhere", "k"), "no route leads to topic nowhere"),
        (("message", "by-time", TOPIC, "--from", "soon"), "time='soon' is not allowed"),
        (("offset", "clone", GROUP, "copied", "nowhere"), "no route leads to topic nowhere"),
        (("topic", "stats", "nowhere"), "no broker has the topic nowhere"),
        (("offset", "reset", GROUP, "nowhere", "latest"), "no route leads to topic nowhere"),
        (("broker", "status", "broker-z"), "one of broker-a"),
        (("cluster", "list", "-n", "127.0.0.1:1"), "is it running, and is the address right?"),
        (("cluster", "list", "-n", "here"), "host:port"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    engine: OurEngine, words: tuple[str, ...], part: str
) -> None:
    assert part in refused(engine, *words)


def test_a_topic_that_exists_keeps_its_queues_unless_fewer_are_forced(engine: OurEngine) -> None:
    name = "adminkept"
    assert tidemark(engine, "topic", "create", name, "-q", "3").exit_code == 0
    kept = tidemark(engine, "topic", "create", name, "--perm", "r")
    assert kept.stdout.startswith(f"topic {name}: 3 queues, perm r, on "), kept.stderr
    (shown,) = answered(engine, "topic", "show", name)
    assert (shown["read_queues"], shown["write_queues"]) == (3, 3)
    fewer = tidemark(engine, "topic", "create", name, "-q", "2")
    assert fewer.exit_code == 1
    assert f"topic shrink {name} --queues 2" in fewer.stderr
    forced = tidemark(engine, "topic", "create", name, "-q", "2", "--force")
    assert forced.stdout.startswith(f"topic {name}: 2 queues, perm rw, on "), forced.stderr
