"""Bodies as RocketMQ writes them, and fastjson's liberties."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from engine.protocol import bodies
from engine.protocol.bodies_admin import MessageRequestMode
from engine.protocol.body_codec import (
    CONSUME_FROM_WHERE,
    CONSUME_RESULTS,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    REQUEST_MODES,
    TOPIC_FILTER_TYPES,
    Part,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.fastjson import DEPTH_MAX, dumps, loads
from engine.protocol.message import MessageQueue

CASES = Path(__file__).parents[2] / "cases"
MISC: dict[str, Any] = json.loads((CASES / "misc.json").read_text("utf-8"))
GOLDEN: dict[str, str] = MISC["json_bodies"]
EXCHANGES: list[dict[str, Any]] = json.loads((CASES / "wire_samples.json").read_text("utf-8"))[
    "exchanges"
]
QUEUE_0 = MessageQueue("TopicTest", "broker-a", 0)
QUEUE_1 = MessageQueue("TopicTest", "broker-a", 1)


def captured(code: int, kind: str = "response") -> list[bytes]:
    return [
        message["body"].encode()
        for exchange in EXCHANGES
        if exchange["requestCode"] == code
        for message in exchange["messages"]
        if message["kind"] == kind and message.get("body")
    ]


def test_bare_integer_keys_and_quoted_ones_are_the_same_route() -> None:
    bare = bodies.TopicRouteData.decode(GOLDEN["TopicRouteData"].encode())
    assert bare.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert json.loads(bare.encode())["brokerDatas"][0]["brokerAddrs"]["0"] == "10.0.0.1:10911"
    assert bodies.TopicRouteData.decode(bare.encode()) == bare


def test_offset_files_are_read_pretty_or_not_and_written_as_fastjson_does() -> None:
    expected = {QUEUE_1: 34, QUEUE_0: 12}
    for name in ("offsets.json", "offsets.json(pretty)"):
        assert bodies.decode_local_offsets(GOLDEN[name].encode()) == expected
    assert bodies.encode_local_offsets(expected).decode() == GOLDEN["offsets.json"]


def test_topics_as_json_and_as_text() -> None:
    config = bodies.TopicConfig.decode(GOLDEN["TopicConfig"].encode())
    assert (config.read_queue_nums, config.write_queue_nums, config.order) == (8, 6, True)
    assert config.encode_text() == GOLDEN["TopicConfig.encode"]
    assert bodies.TopicConfig.from_json(config.to_json()) == config
    with pytest.raises(RemoteProtocolError):
        bodies.TopicConfig.decode_text("TopicTest 8 six")


def test_both_forms_of_a_registration() -> None:
    squeezed = bytes.fromhex(GOLDEN["RegisterBrokerBody.compressedHex"])
    decoded = bodies.RegisterBrokerBody.decode(squeezed, compressed=True)
    plain = bodies.RegisterBrokerBody.decode(GOLDEN["RegisterBrokerBody"].encode())
    assert decoded.data_version == plain.data_version == bodies.DataVersion(0, 1700000000000, 3)
    assert plain.topic_config_table["TopicTest"].read_queue_nums == 8
    assert decoded.topic_config_table["TopicTest"].write_queue_nums == 6
    assert zlib.decompress(decoded.encode(compressed=True)) == zlib.decompress(squeezed)
    assert bodies.RegisterBrokerBody.decode(plain.encode()) == plain


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
        zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x02\xff\xfe"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"x" * 100)[:-3],
    ],
)
def test_a_broken_registration_is_refused(broken: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        bodies.RegisterBrokerBody.decode(broken, compressed=True)


def test_a_registration_that_inflates_without_end_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="inflated"):
        bodies.RegisterBrokerBody.decode(zlib.compress(bytes(100 << 20)), compressed=True)


@pytest.mark.parametrize("case", MISC["subscriptions"], ids=lambda c: repr(c["expr"]))
def test_subscriptions_from_expressions(case: dict[str, Any]) -> None:
    if isinstance(case["result"], str):
        with pytest.raises(RequestRefused) as refused:
            bodies.SubscriptionData.build("T", case["expr"])
        assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        return
    data = bodies.SubscriptionData.build("T", case["expr"])
    assert data.sub_string == case["result"]["subString"]
    assert data.tags_set == case["result"]["tagsSet"]
    assert sorted(data.code_set) == sorted(case["result"]["codeSet"])


def test_order_locks() -> None:
    wanted = bodies.LockBatchRequest.decode(GOLDEN["LockBatchRequestBody"].encode())
    assert wanted.mq_set == [QUEUE_0]
    assert json.loads(wanted.encode()) == json.loads(GOLDEN["LockBatchRequestBody"])
    [body] = captured(41)
    granted = bodies.LockBatchResponse.decode(body)
    assert granted.lock_ok_mq_set == [MessageQueue("TopicCap", "broker-a", 2)]
    assert json.loads(granted.encode()) == json.loads(body)


@pytest.mark.parametrize(
    ("code", "kind", "body"),
    [
        (34, "request", bodies.HeartbeatData),
        (38, "response", bodies.ConsumerList),
        (105, "response", bodies.TopicRouteData),
        (106, "response", bodies.ClusterInfo),
        (203, "response", bodies.ConsumerConnection),
        (204, "response", bodies.ProducerConnection),
        (206, "response", bodies.TopicList),
        (300, "response", bodies.GroupList),
        (309, "response", bodies.ConsumeMessageDirectlyResult),
        (351, "response", bodies.TopicConfig),
    ],
)
def test_captured_bodies_come_back_with_nothing_missing(code: int, kind: str, body: Any) -> None:
    samples = captured(code, kind)
    assert samples
    for sample in samples:
        ours = json.loads(body.decode(sample).encode())
        assert contains(ours, loads(sample)), (ours, sample)


def contains(ours: Any, theirs: Any) -> bool:
    """Is everything of `theirs` in `ours`? Ours may say more."""
    if isinstance(theirs, dict):
        return all(key in ours and contains(ours[key], value) for key, value in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(contains, ours, theirs))
    return bool(ours == theirs)


def test_figures_by_queue_are_written_as_they_were_captured() -> None:
    for code, body in ((208, bodies.ConsumeStats), (202, bodies.TopicStatsTable)):
        [sample] = captured(code)
        assert loads(body.decode(sample).encode()) == loads(sample)
        assert b"{{" in body.decode(sample).encode()


def test_what_a_consumer_of_ours_sends_is_read_back() -> None:
    entry = {"commitOffset": 5, "droped": True, "heldRanges": [[5, 7]], "headSince": 9}
    data = bodies.SubscriptionData.build("TopicTest", "a||b", sub_version=1)
    speeds = {"T": bodies.ConsumeStatus(pull_rt=1.5, consume_failed_msgs=3)}
    body = bodies.encode_running_info({"consumerGroup": "g"}, [data], {QUEUE_0: entry}, speeds)
    info = bodies.ConsumerRunningInfo.decode(body)
    assert (info.properties, info.subscription_set) == ({"consumerGroup": "g"}, [data])
    queue_info = info.mq_table[QUEUE_0]
    assert (queue_info.commit_offset, queue_info.dropped, queue_info.held_ranges) == (
        5,
        True,
        [(5, 7)],
    )
    assert (queue_info.head_since_ms, queue_info.finished_count) == (9, None)
    assert info.status_table == speeds


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"null", b"{", b"\xff", b'{"clientID":1}'),
        b'{"clientID":"c","producerDataSet":[{}]}',
    ],
)
def test_a_heartbeat_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        bodies.HeartbeatData.decode(body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ('{"0":"a"}', {"0": "a"}),
        ('{{"b":1,"a":"x"}:2}', {(("a", "x"), ("b", 1)): 2}),
        (" [ 1 , 2.5 , -3e2 , true , false , null ] ", [1, 2.5, -300.0, True, False, None]),
        ('"a\\n\\u6807\\ud83d\\ude00"', "a\n\u6807\U0001f600"),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_fastjsons_text(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    ["", "{", "}", "[1,]", "{,}", '{"a"}', "{a:1}", '{"a":1,}', "01", "1 2", "tru", "'a'",
     '"\\ud800"', '"a', '"\x01"', "9223372036854775808", "1e999", "NaN", "{{}:1", "{{{}:1}:1}",
     "{[1]:1}"],
)  # fmt: skip
def test_text_that_is_none_of_it_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        loads(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{"])
def test_nesting_is_bounded(opening: str) -> None:
    with pytest.raises(RemoteProtocolError):
        loads(opening * 100_000)
    assert loads("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    with pytest.raises(RemoteProtocolError, match="levels"):
        loads("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))


@pytest.mark.parametrize("value", [{1.5: 1}, {None: 1}, object(), float("nan"), "\ud800", b"x"])
def test_what_json_cannot_carry_is_our_fault(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        dumps(value)


@pytest.mark.parametrize(
    ("kind", "body", "field", "names"),
    [
        (bodies.ConsumerData, {"groupName": "g"}, "consumeType", CONSUME_TYPES),
        (bodies.ConsumerData, {"groupName": "g"}, "messageModel", MESSAGE_MODELS),
        (bodies.ConsumerData, {"groupName": "g"}, "consumeFromWhere", CONSUME_FROM_WHERE),
        (bodies.ConsumerConnection, {}, "consumeType", CONSUME_TYPES),
        (bodies.ConsumerConnection, {}, "messageModel", MESSAGE_MODELS),
        (bodies.ConsumerConnection, {}, "consumeFromWhere", CONSUME_FROM_WHERE),
        (bodies.ConsumeMessageDirectlyResult, {}, "consumeResult", CONSUME_RESULTS),
        (bodies.TopicConfig, {"topicName": "t"}, "topicFilterType", TOPIC_FILTER_TYPES),
        (MessageRequestMode, {"topic": "t", "consumerGroup": "g"}, "mode", REQUEST_MODES),
    ],
)
def test_every_enumeration_is_read_by_name_and_by_place(
    kind: type[Part], body: dict[str, Any], field: str, names: tuple[str, ...]
) -> None:
    for place, name in enumerate(names):
        for form in (name, place):
            assert kind.from_json(body | {field: form}).to_json()[field] == name
    for wrong in (-1, len(names), "NO_SUCH_NAME", True if len(names) == 1 else "0x"):
        with pytest.raises(RemoteProtocolError, match="none of"):
            kind.from_json(body | {field: wrong})


@pytest.mark.parametrize("text", ["RUST", 12, 999, "A_LATER_ONE"])
def test_a_language_that_is_not_known_is_no_fault(text: str | int) -> None:
    connection = {"clientId": "c", "clientAddr": "a", "version": 1, "language": text}
    expected = {12: "RUST", 999: "OTHER"}.get(text, text) if isinstance(text, int) else text
    assert bodies.ClientConnection.from_json(connection).language == expected


def test_a_heartbeat_of_the_native_library_is_read() -> None:
    sent = CASES / "native_heartbeat.json"
    data = bodies.HeartbeatData.decode(sent.read_bytes())
    [consumer] = data.consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.consume_from_where in CONSUME_FROM_WHERE
    assert {one.topic for one in consumer.subscription_data_set} >= {"orders"}
