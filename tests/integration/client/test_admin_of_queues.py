"""`tidemark admin` on single queues and messages, on lists and on the whole cluster, as typed,
against an engine in a process of its own (row C1): what RocketMQ's tools do as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.hashes import tags_code
from tests.integration.client.cluster_users import Seen, consuming, eventually
from tests.integration.client.typed_commands import answered, done, refused, tidemark
from tests.interop.our_engine import OurEngine, our_engine

TOPIC, GROUP = "adminqueues", "queue-group"
EACH = 3


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    """An engine with a topic of two queues, three messages in each, and a group at their ends."""
    with our_engine(tmp_path_factory.mktemp("admin-queues")) as running:
        done(running, "topic", "create", TOPIC, "--queues", "2")
        done(running, "topic", "create", "adminempty", "--queues", "1")
        done(running, "group", "create", GROUP)
        done(running, "message", "send", TOPIC, "hello", "--tag", "even", "--count", str(2 * EACH))
        done(running, "offset", "reset", GROUP, TOPIC, "latest")
        yield running


def test_a_sent_message_is_where_the_command_says(engine: OurEngine) -> None:
    words = ("--queue", "1", "--broker", "broker-a", "--key", "k1 k2", "--property", "city=Bern")
    done(engine, "topic", "create", "adminsent", "--queues", "2")
    (sent,) = answered(engine, "message", "send", "adminsent", "hello", "--tag", "odd", *words)
    assert (sent["queue"], sent["status"], sent["offset"]) == (1, "SEND_OK", 0)
    assert sent["cost_ms"] >= 0
    whole = answered(engine, "message", "by-id", sent["id"])
    assert (whole["topic"], whole["queue"], whole["body"]) == ("adminsent", 1, "hello")
    assert whole["property city"] == "Bern"
    (found,) = answered(engine, "message", "by-key", "adminsent", "k2")
    assert (found["unique_key"], found["tag"]) == (sent["unique_key"], "odd")


def test_messages_of_one_size_go_to_the_queues_in_turn(engine: OurEngine) -> None:
    done(engine, "topic", "create", "adminturns", "--queues", "2")
    sent = answered(engine, "message", "send", "adminturns", "--size", "70", "--count", "3")
    assert [(row["queue"], row["offset"]) for row in sent] == [(0, 0), (1, 0), (0, 1)]
    assert answered(engine, "message", "by-id", sent[0]["id"])["body"] == "a" * 70


def test_messages_are_read_from_an_offset_on(engine: OurEngine) -> None:
    place = (TOPIC, "broker-a", "1")
    (one,) = answered(engine, "message", "by-offset", *place, "1")
    assert (one["queue"], one["offset"], one["body"]) == (1, 1, "hello")
    more = answered(engine, "message", "by-offset", *place, "1", "--count", "9")
    assert [row["offset"] for row in more] == [1, 2]


def test_the_units_of_a_queue_say_where_its_messages_are(engine: OurEngine) -> None:
    units = answered(engine, "topic", "units", TOPIC, "broker-a", "0")
    assert [row["offset"] for row in units] == [0, 1, 2]
    assert {row["tag_code"] for row in units} == {tags_code("even")}
    (message,) = answered(engine, "message", "by-offset", TOPIC, "broker-a", "0", "2")
    whole = answered(engine, "message", "by-id", message["id"])
    assert units[2]["physical_offset"] == whole["physical_offset"]
    some = answered(engine, "topic", "units", TOPIC, "broker-a", "0", "--from", "1", "--count", "1")
    assert some == [units[1]]
    beyond = done(engine, "topic", "units", TOPIC, "broker-a", "0", "--from", "7")
    assert beyond == "nothing from 7 on: offsets 0 to 3\n"
    assert answered(engine, "topic", "units", "adminempty", "broker-a", "0") == []
    asked = tidemark(engine, "topic", "units", TOPIC, "broker-a", "0", "--group", GROUP)
    assert f"{GROUP}@{TOPIC} is not online!" in asked.stdout


def test_queues_are_shared_out_as_members_would_share_them(engine: OurEngine) -> None:
    rows = answered(engine, "topic", "allocate", TOPIC, "c2", "c1", "c3")
    assert [(row["client"], row["queue"]) for row in rows] == [("c1", 0), ("c2", 1), ("c3", None)]
    assert "names that differ" in refused(engine, "topic", "allocate", TOPIC, "c1", "c1")


def test_the_order_of_a_topic_is_set_returned_in_routes_and_deleted(engine: OurEngine) -> None:
    assert answered(engine, "topic", "order", TOPIC) == []
    setting = [{"topic": TOPIC, "order": "broker-a:2"}]
    assert answered(engine, "topic", "order", TOPIC, "--set", "broker-a:2") == setting
    assert answered(engine, "namesrv", "values", "ORDER_TOPIC_CONFIG") == [
        {"key": TOPIC, "value": "broker-a:2"}
    ]
    assert answered(engine, "topic", "order", TOPIC) == setting
    assert answered(engine, "topic", "order", TOPIC, "--delete") == []


def test_a_group_goes_on_at_an_offset_of_one_queue(engine: OurEngine) -> None:
    done(engine, "offset", "set", GROUP, TOPIC, "broker-a", "1", "2")
    rows = answered(engine, "broker", "progress", "broker-a")
    mine = [row for row in rows if (row["group"], row["topic"]) == (GROUP, TOPIC)]
    assert [(row["queue"], row["consumer_offset"], row["lag"]) for row in mine] == [
        (0, 3, 0),
        (1, 2, 1),
    ]
    (short,) = [row for row in answered(engine, "group", "progress") if row["group"] == GROUP]
    assert (short["members"], short["queues"], short["lag"]) == (0, 2, 1)
    assert "not in consume queue range [0-3]" in refused(
        engine, "offset", "set", GROUP, TOPIC, "broker-a", "1", "4"
    )


async def test_a_stored_message_is_given_to_a_member_of_a_group(engine: OurEngine) -> None:
    seen = Seen()
    (message,) = await asyncio.to_thread(
        answered, engine, "message", "by-offset", TOPIC, "broker-a", "0", "1"
    )
    async with consuming(engine.name_server, "direct-group", {TOPIC: seen}) as consumer:
        await eventually(lambda: len(seen.messages) == 2 * EACH, "all is read")
        said = await asyncio.to_thread(
            answered,
            engine,
            "message",
            "consume",
            message["id"],
            "direct-group",
            consumer.client_id,
        )
        assert said["result"] == "CR_SUCCESS"
    given = [one.offset_message_id for one in seen.messages]
    assert given.count(message["id"]) == 2


def test_topics_and_groups_are_loaded_from_the_files_of_rocketmqs_tools(
    engine: OurEngine, tmp_path: Path
) -> None:
    topics = written(
        tmp_path / "topics.json",
        [
            {"topicName": "listA", "readQueueNums": 2, "writeQueueNums": 3, "perm": 4},
            {"topicName": "listB"},
        ],
    )
    assert done(engine, "topic", "load", topics) == "listA, listB: on broker-a\n"
    (shown,) = answered(engine, "topic", "show", "listA")
    assert (shown["read_queues"], shown["write_queues"], shown["perm"]) == (2, 3, "r")
    groups = written(tmp_path / "groups.json", [{"groupName": "listed", "retryMaxTimes": 4}])
    assert done(engine, "group", "load", groups) == "listed: on broker-a\n"
    assert answered(engine, "group", "show", "listed")["retryMaxTimes"] == 4
    wrong = written(tmp_path / "wrong.json", [{"topicName": "listC"}, {"name": "listD"}])
    assert "each with topicName" in refused(engine, "topic", "load", wrong)
    illegal = written(tmp_path / "illegal.json", [{"topicName": "listC"}, {"topicName": "a/b"}])
    assert "illegal characters" in refused(engine, "topic", "load", illegal)
    assert "TOPIC_NOT_EXIST" in refused(engine, "topic", "show", "listC")


def written(path: Path, entries: list[dict[str, Any]]) -> str:
    path.write_text(json.dumps(entries))
    return str(path)


def test_a_cluster_is_exported_in_the_words_of_its_lists(engine: OurEngine, tmp_path: Path) -> None:
    metadata = json.loads(done(engine, "cluster", "export", "metadata"))["broker-a"]
    topics = {one["topicName"]: one for one in metadata["topics"]}
    assert topics[TOPIC]["readQueueNums"] == 2
    assert not [name for name in topics if name.startswith(("%RETRY%", "RMQ_SYS_", "TBW102"))]
    assert GROUP in {one["groupName"] for one in metadata["groups"]}
    assert done(engine, "topic", "load", written(tmp_path / "all.json", metadata["topics"]))
    assert done(engine, "group", "load", written(tmp_path / "groups.json", metadata["groups"]))
    assert json.loads(done(engine, "cluster", "export", "metadata"))["broker-a"] == metadata
    configs = json.loads(done(engine, "cluster", "export", "configs"))
    assert configs["broker-a"]["brokerName"] == "broker-a"
    target = tmp_path / "metrics.json"
    done(engine, "cluster", "export", "metrics", "--to", str(target))
    assert int(json.loads(target.read_text())["broker-a"]["commitLogMaxOffset"]) > 0


def test_a_broker_reports_that_nobody_copies_its_log(engine: OurEngine) -> None:
    slaves = answered(engine, "broker", "ha", "broker-a")
    assert (slaves["master"], slaves["slaves"], slaves["slaves_in_sync"]) == (True, 0, 0)
    assert slaves["log_end"] == int(
        answered(engine, "broker", "status", "broker-a")["commitLogMaxOffset"]
    )


def test_a_topic_gets_attributes_and_keeps_them(engine: OurEngine) -> None:
    done(engine, "topic", "create", "admintyped", "--attributes", "+message.type=FIFO")
    done(engine, "topic", "create", "admintyped", "--queues", "9")
    (shown,) = answered(engine, "topic", "show", "admintyped")
    assert (shown["attributes"], shown["write_queues"]) == ("message.type=FIFO", 9)


def test_a_route_names_the_cluster(engine: OurEngine) -> None:
    (route,) = answered(engine, "topic", "route", TOPIC)
    assert (route["cluster"], route["broker"]) == ("DefaultCluster", "broker-a")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("topic", "units", TOPIC, "broker-a", "9"), "queue=9 is not allowed: 0 to 1"),
        (("topic", "units", "nowhere", "broker-a", "0"), "broker-a has no topic nowhere"),
        (("topic", "units", TOPIC, "broker-z", "0"), "one of broker-a"),
        (("topic", "allocate", "nowhere", "c1"), "no route leads to topic nowhere"),
        (("topic", "create", "fine", "--attributes", "message.type"), "attribute format is wrong"),
        (("topic", "order", TOPIC, "--set", "broker-a"), "broker:queues such as"),
        (("topic", "order", TOPIC, "--set", "broker-a:0"), "broker:queues such as"),
        (("topic", "order", "unordered", "--delete"), "no name server has unordered"),
        (("topic", "load", "/no/such.json"), "No such file"),
        (("message", "send", "nowhere", "x"), "create it first"),
        (("message", "send", TOPIC), "either a text or --size"),
        (("message", "send", TOPIC, "x", "--size", "3"), "either a text or --size"),
        (("message", "send", TOPIC, "x", "--queue", "9"), "may be written: broker-a 0 to 1"),
        (("message", "send", TOPIC, "x", "--property", "city"), "allowed: key=value"),
        (("message", "by-offset", TOPIC, "broker-a", "0", "3"), "0 to 2"),
        (("message", "by-offset", "adminempty", "broker-a", "0", "0"), "the queue is empty"),
        (("message", "consume", "xyz", GROUP, "c"), "message id 'xyz'"),
        (("offset", "set", GROUP, TOPIC, "broker-a", "9", "0"), "queue=9 is not allowed"),
        (("offset", "set", "nobody", TOPIC, "broker-a", "0", "0"), "nobody does not exist"),
        (("broker", "ha", "broker-z"), "one of broker-a"),
        (("cluster", "export", "configs", "--to", "/no/such/file"), "a file that can be written"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    engine: OurEngine, words: tuple[str, ...], part: str
) -> None:
    assert part in refused(engine, *words)
