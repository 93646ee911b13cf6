"""A message's body may hold the bytes of a record. An offset that leads there leads to no message.

Each request that names a stored message is sent with the offset of such a forgery; which requests
those are is read off the header classes, so that a new one fails here until it is attacked, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import headers
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.header_fields import RequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.message_ids import offset_message_id
from engine.protocol.message_record import encode_record
from engine.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from engine.remoting.signing import Credentials
from tests.integration.broker.cluster import Cluster, bodies, broker_config, cluster, eventually
from tests.integration.broker.guarded import ACCESS, READER, RIVAL, ROOT, SHOP, WRITER, Caller

ROOT_FOLDER = Path(__file__).resolve().parents[3]
COMMIT, ROLLBACK = 8, 12
HEAD_BYTES = 88
"""Of a record whose hosts are IPv4: its body begins behind them."""
NO_MESSAGE = "no message begins at physical offset"


@dataclass
class Scene:
    """A guarded broker, and whoever speaks to it."""

    running: Cluster
    callers: dict[str, Caller]

    def caller(self, credentials: Credentials) -> Caller:
        key = credentials.access_key
        if key not in self.callers:
            self.callers[key] = Caller(self.running.broker.address, credentials)
        return self.callers[key]

    async def send(
        self, credentials: Credentials, topic: str, body: bytes, **fields: object
    ) -> RemotingCommand:
        values = {
            "producerGroup": "p",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": 0,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 0,
            "properties": "",
        }
        answer = await self.caller(credentials).ask(Code.SEND_MESSAGE, body, **values | fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def plant(self, topic: str, **forged: Any) -> int:
        """The shop sends a body that is a record; returns the physical offset of that record."""
        place = self.running.broker.state.store.physical_max + HEAD_BYTES
        bytes_of_record = encode_record(a_record(topic, place, **forged))
        sent = await self.send(SHOP, "orders", bytes(bytes_of_record))
        assert int(sent.fields["msgId"][16:], 16) + HEAD_BYTES == place
        return place


def a_record(topic: str, place: int, **more: Any) -> MessageExt:
    host = "127.0.0.1:10911"
    fields: dict[str, Any] = {
        "body": b"forged",
        "properties": {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "evil"},
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": place,
        "born_host": host,
        "store_host": host,
    }
    return MessageExt(topic=topic, **fields | more)


@asynccontextmanager
async def a_scene(folder: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with cluster(broker_config(folder, access=ACCESS, **settings)) as running:
        scene = Scene(running, {})
        for credentials in (SHOP, RIVAL):  # Topics are made by whoever may make them.
            topic = "orders" if credentials is SHOP else "private"
            await scene.send(ROOT, topic, b"first")
        yield scene
        for caller in scene.callers.values():
            await caller.close()


async def begin(scene: Scene, credentials: Credentials, topic: str) -> dict[str, object]:
    """A half message; the fields that end its transaction."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01p-{topic}\x02UNIQ_KEY\x01half\x02"
    sent = await scene.send(credentials, topic, b"half", properties=properties, sysFlag=4)
    place = int(sent.fields["msgId"][16:], 16)
    return ending(topic, int(sent.fields["queueOffset"]), place)


def ending(topic: str, queue_offset: int, place: int) -> dict[str, object]:
    return {
        "topic": topic,
        "producerGroup": f"p-{topic}",
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": place,
        "commitOrRollback": COMMIT,
        "fromTransactionCheck": "false",
        "msgId": "half",
    }


async def test_a_forged_half_message_does_not_end_the_transaction_of_another_account(
    tmp_path: Path,
) -> None:
    async with a_scene(tmp_path) as scene:
        theirs = await begin(scene, RIVAL, "private")
        place = await scene.plant(HALF_TOPIC, queue_offset=theirs["tranStateTableOffset"])
        forged = theirs | {
            "topic": "orders",
            "producerGroup": "evil",
            "commitLogOffset": place,
            "commitOrRollback": ROLLBACK,
        }
        answer = await scene.caller(SHOP).ask(Code.END_TRANSACTION, **forged)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert NO_MESSAGE in str(answer.remark)
        ended = await scene.caller(RIVAL).ask(Code.END_TRANSACTION, **theirs)
        assert ended.code == ResponseCode.SUCCESS, ended.remark

        async def it_came() -> bool:
            end = await scene.caller(RIVAL).ask(Code.GET_MAX_OFFSET, topic="private", queueId=0)
            return end.fields.get("offset") == "2"

        await eventually(it_came, "the rival's own commit counts")


# ---- every request that names a stored message ------------------------------------------------

Attack = Callable[[Scene], Awaitable[RemotingCommand]]


async def end_a_transaction(scene: Scene) -> RemotingCommand:
    place = await scene.plant(HALF_TOPIC)
    fields = {"topic": "orders", "producerGroup": "evil", "tranStateTableOffset": 0}
    fields |= {"commitLogOffset": place, "commitOrRollback": COMMIT, "msgId": "m"}
    return await scene.caller(SHOP).ask(Code.END_TRANSACTION, **fields)


async def send_back(scene: Scene) -> RemotingCommand:
    place = await scene.plant("orders", properties={"RETRY_TOPIC": "private"})
    fields = {"offset": place, "group": "orders-group", "delayLevel": 1}
    return await scene.caller(SHOP).ask(Code.CONSUMER_SEND_MSG_BACK, **fields)


async def view(scene: Scene) -> RemotingCommand:
    place = await scene.plant("orders")
    return await scene.caller(SHOP).ask(Code.VIEW_MESSAGE_BY_ID, offset=place)


async def resume(scene: Scene) -> RemotingCommand:
    place = await scene.plant(CHECK_MAX_TIME_TOPIC)
    message_id = offset_message_id(scene.running.broker.address, place)
    return await scene.caller(ROOT).ask(Code.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)


async def consume_directly(scene: Scene) -> RemotingCommand:
    place = await scene.plant("orders")
    message_id = offset_message_id(scene.running.broker.address, place)
    return await scene.caller(ROOT).ask(
        Code.CONSUME_MESSAGE_DIRECTLY, consumerGroup="orders-group", clientId="c", msgId=message_id
    )


PLACE = "a place in the log"
NO_PLACE = "none: "
FIELDS: Mapping[str, str] = {
    "EndTransactionRequestHeader.commit_log_offset": PLACE,
    "EndTransactionRequestHeader.tran_state_table_offset": NO_PLACE + "compared with the record",
    "EndTransactionRequestHeader.msg_id": NO_PLACE + "a word for the log",
    "ConsumerSendMessageBackRequestHeader.offset": PLACE,
    "ConsumerSendMessageBackRequestHeader.origin_msg_id": NO_PLACE + "not read",
    "ViewMessageRequestHeader.offset": PLACE,
    "ResumeCheckHalfMessageRequestHeader.msg_id": PLACE,
    "ConsumeMessageDirectlyRequestHeader.msg_id": PLACE,
    "CheckTransactionStateRequestHeader.commit_log_offset": NO_PLACE + "asked of clients",
    "CheckTransactionStateRequestHeader.tran_state_table_offset": NO_PLACE + "asked of clients",
    "CheckTransactionStateRequestHeader.msg_id": NO_PLACE + "asked of clients",
    "CheckTransactionStateRequestHeader.offset_msg_id": NO_PLACE + "asked of clients",
    "PullMessageRequestHeader.queue_offset": NO_PLACE + "of a queue",
    "PullMessageRequestHeader.commit_offset": NO_PLACE + "of a queue",
    "UpdateConsumerOffsetRequestHeader.commit_offset": NO_PLACE + "of a queue",
    "ResetOffsetRequestHeader.offset": NO_PLACE + "of a queue",
    "BrokerHeartbeatRequestHeader.max_offset": NO_PLACE + "asked of name servers",
    "BrokerHeartbeatRequestHeader.confirm_offset": NO_PLACE + "asked of name servers",
    "DeleteSubscriptionGroupRequestHeader.clean_offset": NO_PLACE + "yes or no",
}
"""Every field of a request that may lead to a stored message, by its name."""
ATTACKS: Mapping[str, Attack] = {
    "EndTransactionRequestHeader.commit_log_offset": end_a_transaction,
    "ConsumerSendMessageBackRequestHeader.offset": send_back,
    "ViewMessageRequestHeader.offset": view,
    "ResumeCheckHalfMessageRequestHeader.msg_id": resume,
    "ConsumeMessageDirectlyRequestHeader.msg_id": consume_directly,
}


def test_each_field_that_may_lead_to_a_stored_message_is_known_and_attacked() -> None:
    found = {
        f"{name}.{field}"
        for name, kind in vars(headers).items()
        if isinstance(kind, type) and issubclass(kind, RequestHeader)
        for field in kind.__struct_fields__
        if any(word in field for word in ("offset", "msg_id", "message_id", "physical"))
    }
    assert sorted(found ^ FIELDS.keys()) == []
    assert sorted(name for name, what in FIELDS.items() if what is PLACE) == sorted(ATTACKS)


TRUSTED_PLACES: Mapping[str, str] = {
    "engine/broker/transactions/stored_messages.py": "checked there against the open transactions",
    "engine/broker/reporting/retention_losses.py": "places of queue units and of the index",
    "engine/broker/sending/resends.py": "places of queue units and of the index",
    "engine/broker/sending/placement.py": "places of queue units",
    "engine/broker/handlers/query.py": "places of the index",
    "engine/broker/replicating/agreed_tables.py": "places of what dispatch has read",
}
"""Who reads records without asking whether they are messages, and where the places come from."""


def test_only_places_that_the_broker_found_itself_are_read_unproven() -> None:
    readers = {
        str(path.relative_to(ROOT_FOLDER))
        for path in (ROOT_FOLDER / "engine" / "broker").rglob("*.py")
        if ".record_at(" in path.read_text()
    }
    assert sorted(readers ^ TRUSTED_PLACES.keys()) == []


@pytest.mark.parametrize("field", ATTACKS)
async def test_an_offset_inside_a_body_leads_to_no_message(tmp_path: Path, field: str) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await ATTACKS[field](scene)
        assert answer.code == ResponseCode.SYSTEM_ERROR, answer.remark
        assert NO_MESSAGE in str(answer.remark)


async def test_a_half_message_that_is_not_dispatched_yet_can_be_ended(tmp_path: Path) -> None:
    """Its consume queue does not know it; the table of open transactions does. Both requests come
    in one piece of the stream, so that nothing runs between them.
    """
    async with a_scene(tmp_path) as scene:
        store, shop = scene.running.broker.state.store, scene.caller(SHOP)
        await shop.ask(Code.GET_MAX_OFFSET, topic="orders", queueId=0)  # Connected, known.
        fields = ending("orders", 0, store.physical_max)
        _, ended = await asyncio.gather(
            begin(scene, SHOP, "orders"), shop.ask(Code.END_TRANSACTION, **fields)
        )
        assert ended.code == ResponseCode.SUCCESS, ended.remark


async def test_a_message_that_was_not_committed_is_its_producers_alone(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        fields = await begin(scene, SHOP, "orders")
        place = fields["commitLogOffset"]
        for credentials, may in ((WRITER, True), (READER, False), (RIVAL, False)):
            answer = await scene.caller(credentials).ask(Code.VIEW_MESSAGE_BY_ID, offset=place)
            right = ResponseCode.SUCCESS if may else ResponseCode.NO_PERMISSION
            assert answer.code == right, (credentials.access_key, answer.remark)
        back = {"offset": place, "group": "orders-group", "delayLevel": 1}
        for credentials in (SHOP, ROOT):
            answer = await scene.caller(credentials).ask(Code.CONSUMER_SEND_MSG_BACK, **back)
            assert "no consumer has been given it" in str(answer.remark)


async def test_a_property_names_the_real_topic_only_where_the_broker_alone_writes(
    tmp_path: Path,
) -> None:
    """Who may write traces could else say of a trace that it is a message of the rival's."""
    async with a_scene(tmp_path) as scene:
        led = {"properties": "REAL_TOPIC\x01private\x02REAL_QID\x010\x02"}
        sent = await scene.send(ROOT, "RMQ_SYS_TRACE_TOPIC", b"trace", **led)
        place = int(sent.fields["msgId"][16:], 16)
        answer = await scene.caller(RIVAL).ask(Code.VIEW_MESSAGE_BY_ID, offset=place)
        assert answer.code == ResponseCode.NO_PERMISSION, answer.remark


async def test_the_messages_themselves_are_found_as_before(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        sent = await scene.send(SHOP, "orders", b"mine")
        place = int(sent.fields["msgId"][16:], 16)
        shop = scene.caller(SHOP)
        assert bodies(await shop.ask(Code.VIEW_MESSAGE_BY_ID, offset=place)) == [b"mine"]
        back = {"offset": place, "group": "orders-group", "delayLevel": 1}
        taken = await shop.ask(Code.CONSUMER_SEND_MSG_BACK, **back)
        assert taken.code == ResponseCode.SUCCESS, taken.remark
