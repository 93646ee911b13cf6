"""Every request code against every kind of sender, over TCP: who is let in, how others are refused.

The table below is the contract; it is written down apart from the engine's own. A code that is
missing here fails the test, so that nobody adds a request without saying who may send it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.broker.handlers.query import LOOKED_AT_BYTES_MAX
from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.remoting.accounts import NOT_GENUINE, NOT_SIGNED
from engine.runtime import system_runtime
from tests.integration.broker.cluster import broker_config, cluster, eventually, messages
from tests.integration.broker.every_request import is_refused, request_body, request_fields
from tests.integration.broker.guarded import ACCESS, GUESSER, ROOT, SHOP, STRANGER, Caller
from tests.integration.broker.guarded import WATCHER as WATCHER_ACCOUNT

TOPIC = {
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE),
    *(Code.SEND_REPLY_MESSAGE_V2, Code.RECALL_MESSAGE, Code.SEARCH_OFFSET_BY_TIMESTAMP),
    *(Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME),
    Code.QUERY_MESSAGE,
}
GROUP = {Code.GET_CONSUMER_LIST_BY_GROUP, Code.UNREGISTER_CLIENT}
TOPIC_AND_GROUP = {
    *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET),
    *(Code.UPDATE_CONSUMER_OFFSET, Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.ACK_MESSAGE),
    *(Code.CHANGE_MESSAGE_INVISIBLETIME, Code.NOTIFICATION, Code.POLLING_INFO, Code.POP_ROLLBACK),
    *(Code.QUERY_ASSIGNMENT, Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
}
STORED = {Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION}
ANY_ACCOUNT = {Code.GET_ROUTEINFO_BY_TOPIC, Code.CHECK_CLIENT_CONFIG}
WATCHER = {
    *(Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CONFIG),
    *(Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_TOPIC_CONFIG, Code.GET_TOPIC_STATS_INFO),
    *(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_CONSUMER_CONNECTION_LIST),
    *(Code.GET_CONSUMER_RUNNING_INFO, Code.QUERY_CONSUME_TIME_SPAN, Code.QUERY_DATA_VERSION),
    Code.GET_BROKER_HA_STATUS,
}
"""All of them read; nothing is changed by any."""
ADMIN = set(Code) - TOPIC - GROUP - TOPIC_AND_GROUP - STORED - ANY_ACCOUNT

Table = list[str]


async def wrong_answers(
    address: str, allowed: tuple[str, str, int], forbidden: tuple[str, str, int]
) -> Table:
    """Each cell of the table in which the answer is not the one agreed."""
    wrong: Table = []
    for sender, credentials, words in (
        ("unsigned", None, NOT_SIGNED),
        ("unknown key", STRANGER, NOT_GENUINE),
        ("wrong key", GUESSER, NOT_GENUINE),
    ):
        caller = Caller(address, credentials)
        for code in Code:
            answer = await caller.ask(code, **request_fields(*allowed))
            if (answer.code, answer.remark) != (ResponseCode.NO_PERMISSION, words):
                wrong.append(f"{code.name} {sender}: {answer.code} {answer.remark}")
        await caller.close()
    shop, root = Caller(address, SHOP), Caller(address, ROOT)
    for code in Code:
        for names, may in ((allowed, code not in ADMIN), (forbidden, code in ANY_ACCOUNT)):
            body = request_body(code, names[0], names[1])
            answer = await shop.ask(code, body, **request_fields(*names))
            if is_refused(answer) is may:
                wrong.append(f"{code.name} shop {names}: {answer.code} {answer.remark}")
    for code in Code:
        answer = await root.ask(code)
        if is_refused(answer):
            wrong.append(f"{code.name} administrator: {answer.code} {answer.remark}")
    watcher = Caller(address, WATCHER_ACCOUNT)
    for code in Code:
        body = request_body(code, allowed[0], allowed[1])
        answer = await watcher.ask(code, body, **request_fields(*allowed))
        if is_refused(answer) is (code in WATCHER | ANY_ACCOUNT):
            wrong.append(f"{code.name} watcher: {answer.code} {answer.remark}")
    for party in (shop, root, watcher):
        await party.close()
    return wrong


async def test_every_code_of_a_broker_is_for_those_who_may(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        address, root = running.broker.address, Caller(running.broker.address, ROOT)
        offsets = []
        for topic in ("orders", "private"):
            fields = request_fields(topic, "p") | {"properties": "KEYS\x01k\x02"}
            sent = await root.ask(Code.SEND_MESSAGE, b"x", **fields)
            assert sent.code == ResponseCode.SUCCESS, sent.remark
            offsets.append(int(sent.fields["msgId"][16:], 16))
        await root.close()
        wrong = await wrong_answers(
            address,
            ("orders", "orders-group", offsets[0]),
            ("private", "private-group", offsets[1]),
        )
        assert not wrong, "\n".join(wrong)


async def test_every_code_of_a_name_server_is_for_those_who_may() -> None:
    server = NameServer(system_runtime(), NameServerConfig(port=0, access=ACCESS))
    address = f"127.0.0.1:{await server.start()}"
    wrong = [
        line
        for line in await wrong_answers(
            address, ("orders", "orders-group", 0), ("private", "private-group", 0)
        )
        if not line.startswith(
            tuple(f"{code.name} {who}" for code in STORED for who in ("shop", "watcher"))
        )
    ]  # A name server stores no message whose topic could be looked up.
    await server.stop()
    assert not wrong, "\n".join(wrong)


def names_of_a_topic_in_other_fields() -> Iterator[tuple[Code, dict[str, object]]]:
    """Requests that name a topic of the sender's where the gate looks, and another beside it."""
    mine, other = request_fields("orders", "orders-group"), {"topic": "private"}
    yield Code.SEND_MESSAGE_V2, {k: v for k, v in mine.items() if k != "topic"} | other
    yield Code.SEND_BATCH_MESSAGE, {k: v for k, v in mine.items() if k != "topic"} | other
    yield Code.SEND_MESSAGE, mine | {"b": "private"}


async def test_a_second_topic_in_a_request_is_not_the_one_that_is_used(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        root = Caller(running.broker.address, ROOT)
        await root.ask(Code.SEND_MESSAGE, b"x", **request_fields("private", "p"))
        shop = Caller(running.broker.address, SHOP)
        for code, fields in names_of_a_topic_in_other_fields():
            body = b"" if code is not Code.SEND_BATCH_MESSAGE else batch_of_one()
            answer = await shop.ask(code, body, **fields)
            assert answer.code == ResponseCode.SUCCESS, (code.name, answer.remark)
        end = await root.ask(Code.GET_MAX_OFFSET, topic="private", queueId=0)
        assert end.fields["offset"] == "1", "nothing of the shop's is there"
        await root.close()
        await shop.close()


async def test_a_key_of_one_topic_does_not_find_messages_of_another_with_the_same_hash(
    tmp_path: Path,
) -> None:
    """Java's hash of `Aa#k` is that of `BB#k`, so the index alone would answer with both."""
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"of Aa", topic="Aa", KEYS="k")
        await client.send(b"of BB", topic="BB", KEYS="k")
        for topic in ("Aa", "BB"):
            found = await client.ask(Code.QUERY_MESSAGE, **request_fields(topic, "g"))
            [message] = messages(found)
            assert (message.topic, message.body) == (topic, b"of " + topic.encode())


async def test_long_messages_of_another_topic_with_the_same_hash_cost_little(
    tmp_path: Path,
) -> None:
    """Of 64 such records of four megabytes each question would read them all."""
    async with cluster(broker_config(tmp_path)) as running:
        client, store = running.client(), running.broker.state.store
        await client.send(b"of Aa", topic="Aa", KEYS="k")
        long = bytes(900_000)
        for _ in range(40):
            await client.send(long, topic="BB", KEYS="k")
        read = []
        record_at = store.record_at
        store.record_at = lambda at: read.append(at) or record_at(at)  # type: ignore[func-returns-value,method-assign,assignment]
        found = await client.ask(Code.QUERY_MESSAGE, **request_fields("Aa", "g"))
        assert len(read) * len(long) < LOOKED_AT_BYTES_MAX + 2 * len(long)
        assert found.code == ResponseCode.QUERY_NOT_FOUND
        assert "among the newest" in (found.remark or "")
        assert found.fields["moreExist"] == "true"


async def test_no_configuration_that_is_returned_holds_a_secret(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        root = Caller(running.broker.address, ROOT)
        for code in (Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO):
            answer = await root.ask(code)
            assert answer.code == ResponseCode.SUCCESS
            assert b"canary" not in bytes(answer.body)
        await root.close()


def batch_of_one() -> bytes:
    body = b"x"
    return b"".join(
        number.to_bytes(4, "big") for number in (4 * 5 + len(body) + 2, 0, 0, 0, len(body))
    ) + body + b"\0\0"  # fmt: skip


async def test_without_accounts_what_is_for_administrators_is_for_this_machine_only(
    tmp_path: Path,
) -> None:
    nobody = type(ACCESS)(admin_networks=("192.0.2.0/24",))
    async with cluster(broker_config(tmp_path, access=nobody)) as running:
        caller = Caller(running.broker.address, None)
        refused = [code for code in Code if is_refused(await caller.ask(code))]
        assert refused == [code for code in Code if code in ADMIN]
        await caller.close()
    async with cluster(broker_config(tmp_path / "other")) as running:
        caller = Caller(running.broker.address, None)
        assert not [code for code in Code if is_refused(await caller.ask(code))]
        await caller.close()


async def test_a_property_does_not_lead_a_delayed_or_half_message_to_another_topic(
    tmp_path: Path,
) -> None:
    """The broker keeps the topic of what it delays in a property; nobody else's is believed."""
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        root, shop = (Caller(running.broker.address, each) for each in (ROOT, SHOP))
        await root.ask(Code.SEND_MESSAGE, b"x", **request_fields("private", "p"))
        led = "REAL_TOPIC\x01private\x02REAL_QID\x010\x02"
        fields = request_fields("orders", "p")
        delayed = fields | {"properties": f"{led}DELAY\x011\x02{led}"}
        answer = await shop.ask(Code.SEND_MESSAGE, b"delayed", **delayed)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        half = fields | {"properties": f"{led}TRAN_MSG\x01true\x02PGROUP\x01p\x02{led}"}
        answer = await shop.ask(Code.SEND_MESSAGE, b"half", **half | {"sysFlag": 4})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        place = {
            "commitLogOffset": int(answer.fields["msgId"][16:], 16),
            "tranStateTableOffset": answer.fields["queueOffset"],
            "msgId": answer.fields["msgId"],
        }
        ended = await shop.ask(Code.END_TRANSACTION, **fields | place | {"commitOrRollback": 8})
        assert ended.code == ResponseCode.SUCCESS, ended.remark

        async def both_have_arrived() -> bool:
            end = await root.ask(Code.GET_MAX_OFFSET, topic="orders", queueId=0)
            return end.fields.get("offset") == "2"

        await eventually(both_have_arrived, "both messages in orders")
        end = await root.ask(Code.GET_MAX_OFFSET, topic="private", queueId=0)
        assert end.fields["offset"] == "1"
        await root.close()
        await shop.close()
