"""The gate under whatever a genuine account sends: it lets pass or refuses, and never fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.foundation.errors import RequestRefused, TidemarkError
from engine.protocol.bodies import HeartbeatData
from engine.protocol.codes import RequestCode as Code
from engine.protocol.command import RemotingCommand
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Demand, Permission, topic_demand
from engine.remoting.gate import Gate
from engine.remoting.permissions import DEMANDS, Need
from engine.remoting.signing import Credentials

ROOT, BARE = Credentials("root", "secret-of-root"), Credentials("bare", "secret-of-bare")
OWNER = Credentials("owner", "secret-of-owner")
HELD = "owner@1"
NAMES = (
    *("topic", "b", "consumerGroup", "group", "producerGroup", "clientID", "offset", "properties"),
    *("commitLogOffset", "tranStateTableOffset", "commitOrRollback", "msgId", "delayLevel"),
    *("a", "c", "d", "e", "f", "g", "h", "i", "j", "queueId", "sysFlag", "subscription"),
)
words = st.sampled_from(["orders", "%RETRY%g", "%DLQ%", "", "0", "-1", "9" * 30, HELD, "\ud800"])
fields = st.dictionaries(st.sampled_from(NAMES), words | st.text(max_size=8))
leaves = st.none() | st.booleans() | st.integers() | words | st.text(max_size=5)
keys = st.sampled_from(
    [
        *("clientID", "clientId", "consumerGroup", "topic", "mqSet", "groupName", "queueId"),
        *("producerDataSet", "consumerDataSet", "subscriptionDataSet", "brokerName"),
    ]
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
bodies = st.binary(max_size=20) | values.map(
    lambda value: json.dumps(value).encode("utf-8", "surrogatepass")
)
DEEP = b'{"consumerDataSet":' + b"[" * 100_000


def demand_at(physical_offset: int, permission: Permission) -> Demand:
    return topic_demand("orders", permission)


def gate() -> Gate:
    access = Access(accounts=(Account(ROOT, admin=True), Account(BARE), Account(OWNER)))
    return access.gate(demand_at, lambda client_id: ["owner"] if client_id == HELD else [])


class Near:
    address = "127.0.0.1:1"


def passes(credentials: Credentials, code: int, header: dict[str, str], body: bytes) -> bool:
    request = RemotingCommand.request(code, dict(header), body)
    credentials.sign(request)
    peer: Any = Near()
    try:
        gate().check(peer, request)
    except TidemarkError:
        return False
    return True


@given(st.sampled_from([*DEMANDS, 0, 100, 103]), fields, bodies)
@example(Code.HEART_BEAT, {}, DEEP)
@example(Code.LOCK_BATCH_MQ, {}, DEEP)
@example(Code.QUERY_ASSIGNMENT, {}, DEEP)
@example(Code.HEART_BEAT, {}, b'{"clientID":"\\ud800"}')
@example(Code.END_TRANSACTION, {"commitLogOffset": "\ud800"}, b"")
@example(Code.SEND_MESSAGE_V2, {"d": "\ud800"}, b"")
def test_an_account_without_rights_gets_nothing_that_takes_one(
    code: int, header: dict[str, str], body: bytes
) -> None:
    open_to_all = {code for code, needed in DEMANDS.items() if needed is Need.ANY_ACCOUNT}
    if passes(BARE, code, header, body) and code not in open_to_all:
        # What is left is a client that says of itself that it is there, or leaves.
        if code == Code.HEART_BEAT:
            data = HeartbeatData.decode(body)
            assert (data.consumer_data_set, data.client_id == HELD) == ([], False)
        else:
            assert code == Code.UNREGISTER_CLIENT
            assert not header.get("consumerGroup")
            assert header.get("clientID") != HELD


@given(st.sampled_from([*DEMANDS, 0, 100, 103]), fields, bodies)
def test_an_administrator_is_let_through_but_for_anothers_client_id(
    code: int, header: dict[str, str], body: bytes
) -> None:
    speaks = (Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ)
    if code not in speaks:
        assert passes(ROOT, code, header, body)
    elif code == Code.UNREGISTER_CLIENT:
        assert passes(ROOT, code, header, body) is (header.get("clientID") != HELD)


@pytest.mark.parametrize("name", [HELD, "free"])
def test_who_holds_a_client_id_speaks_for_it(name: str) -> None:
    header = {"clientID": name, "producerGroup": "p"}
    assert passes(OWNER, Code.UNREGISTER_CLIENT, header, b"")
    assert passes(BARE, Code.UNREGISTER_CLIENT, header, b"") is (name == "free")


def test_a_decision_about_dead_letters_takes_a_right_to_their_group() -> None:
    decides = Credentials("decides", "secret")
    account = Account(
        decides,
        topic_perms={"TIDEMARK_DLQ_DISCARDS": Permission.PUB},
        group_perms={"own": Permission.SUB},
    )
    mine = Access(accounts=(Account(ROOT, admin=True), account)).gate(demand_at)

    def may(code: int, group: str) -> bool:
        properties = f"DEAD_GROUP\x01{group}\x02"
        header = {"topic": "TIDEMARK_DLQ_DISCARDS", "properties": properties}
        header |= dict(zip("acdefghj", ("p", "TBW102", "4", "0", "0", "7", "0", "0"), strict=True))
        request = RemotingCommand.request(
            code, header | {"b": "TIDEMARK_DLQ_DISCARDS", "i": properties}, b""
        )
        if code == Code.SEND_MESSAGE:
            request.fields = dict(header)
        else:
            del request.fields["topic"], request.fields["properties"]
        decides.sign(request)
        peer: Any = Near()
        try:
            mine.check(peer, request)
        except RequestRefused:
            return False
        return True

    for code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2):
        assert may(code, "own"), Code(code).name
        assert not may(code, "others"), Code(code).name
    assert not may(Code.SEND_BATCH_MESSAGE, "own")
