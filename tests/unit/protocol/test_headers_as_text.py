"""Custom headers: required fields, ranges, names on the wire, and the one-letter form."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol import headers, headers_admin, headers_client
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.header_fields import RequestHeader

CASES = Path(__file__).parents[2] / "cases"
EXCHANGES: list[dict[str, Any]] = json.loads((CASES / "wire_samples.json").read_text("utf-8"))[
    "exchanges"
]
QUEUE = {"topic": "T", "queueId": "1"}


def captured(code: RequestCode) -> dict[str, str]:
    return next(
        message["fields"]
        for exchange in EXCHANGES
        if exchange["requestCode"] == code
        for message in exchange["messages"]
        if message["kind"] == "request"
    )


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_one_letter_headers_come_back_letter_by_letter(code: RequestCode) -> None:
    fields = captured(code)
    header = headers.SendMessageRequestHeader.decode_v2(fields)
    assert (header.topic, header.broker_name) == ("TopicCap", "broker-a")
    assert header.batch is (code == RequestCode.SEND_BATCH_MESSAGE)
    assert header.encode_v2() == fields


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.PULL_MESSAGE, headers.PullMessageRequestHeader),
        (RequestCode.QUERY_MESSAGE, headers.QueryMessageRequestHeader),
        (RequestCode.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader),
        (RequestCode.UPDATE_CONSUMER_OFFSET, headers.UpdateConsumerOffsetRequestHeader),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, headers.CreateTopicRequestHeader),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader),
        (RequestCode.GET_MAX_OFFSET, headers.QueueRequestHeader),
        (RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessageRequestHeader),
        (RequestCode.UNREGISTER_CLIENT, headers.UnregisterClientRequestHeader),
        (RequestCode.CONSUMER_SEND_MSG_BACK, headers.ConsumerSendMessageBackRequestHeader),
        (RequestCode.END_TRANSACTION, headers.EndTransactionRequestHeader),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, headers.GroupRequestHeader),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, headers.DeleteSubscriptionGroupRequestHeader),
        (RequestCode.GET_CONSUME_STATS, headers.ConsumeStatsRequestHeader),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, headers.ResetOffsetRequestHeader),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, headers.ConsumerRunningInfoRequestHeader),
        (RequestCode.QUERY_CONSUME_QUEUE, headers.QueryConsumeQueueRequestHeader),
        (RequestCode.PUT_KV_CONFIG, headers.PutKvConfigRequestHeader),
    ],
)
def test_captured_headers_come_back_but_for_fields_nobody_reads(
    code: RequestCode, header: type[RequestHeader]
) -> None:
    fields = captured(code)
    written = header.decode(fields).encode()
    known = set(header.__struct_encode_fields__)
    assert {name: value for name, value in fields.items() if name in known}.items() <= (
        written.items()
    )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"topic": "T"}, "queueId"),
        ({"queueId": "1"}, "topic"),
        (QUEUE | {"queueId": "one"}, "queueId"),
        (QUEUE | {"queueId": ""}, "queueId"),
        (QUEUE | {"queueId": "1.5"}, "queueId"),
        (QUEUE | {"queueId": str(2**31)}, "queueId"),
        (QUEUE | {"queueId": "9" * 400}, "queueId"),
        (QUEUE | {"committed": "maybe"}, "committed"),
    ],
)
def test_a_bad_header_is_refused_by_the_name_of_its_field(
    fields: dict[str, str], named: str
) -> None:
    with pytest.raises(RequestRefused, match=named) as refused:
        headers.QueueRequestHeader.decode(fields)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_a_bad_header_of_a_response_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="offset"):
        headers.OffsetResponseHeader.decode({"offset": "far"})


def test_unknown_fields_are_passed_over_and_none_is_left_out() -> None:
    header = headers.QueueRequestHeader.decode(QUEUE | {"ns": "x", "committed": "TRUE"})
    assert header.committed is True
    assert header.encode() == QUEUE | {"committed": "true"}
    header.committed = None
    assert header.encode() == QUEUE


def test_every_header_is_found_under_one_name() -> None:
    found = [
        name
        for room in (headers_admin, headers_client)
        for name, kind in inspect.getmembers(room, inspect.isclass)
        if kind.__module__ == room.__name__ and not name.startswith("_")
    ]
    assert len(found) == len(set(found))
    assert set(found) <= vars(headers).keys()
