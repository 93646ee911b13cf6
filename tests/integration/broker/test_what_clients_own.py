"""What a client registers is its account's: half messages of its topics, its client id, replies.

Everybody here has an account and speaks to one broker, each over a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.client import ClientConfig, TransactionProducer
from engine.client.transaction_producer import TransactionState
from engine.foundation.units import KIB, MIB
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import reply_topic
from engine.remoting import Handler, Peer, RpcClient
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Accounts, Permission
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime
from engine.store import MessageDraft
from tests.integration.broker.cluster import broker_config, cluster, eventually
from tests.integration.broker.guarded import ACCESS, BARE, READER, RIVAL, ROOT, SHOP, WRITER

REPLIES = reply_topic("DefaultCluster")
QUICK = {
    "transaction_timeout_ms": 200,
    "transaction_check_interval_ms": 50,
    "transaction_op_batch_interval_ms": 50,
}


def with_replies(access: Access) -> Access:
    """The same accounts, each allowed to send replies: what that is worth is tested here."""
    accounts = [
        account
        if account.admin
        else Account(
            account.credentials,
            topic_perms={**account.topic_perms, REPLIES: Permission.PUB},
            group_perms=account.group_perms,
        )
        for account in access.accounts
    ]
    return Access(accounts=tuple(accounts))


class Client:
    """One connection of an account; what the broker pushes is kept, and taken."""

    def __init__(self, address: str, credentials: Credentials | None, client_id: str) -> None:
        self.address, self.client_id = address, client_id
        self.pushed: list[RemotingCommand] = []
        self.takes: dict[int, Handler] = {
            Code.CHECK_TRANSACTION_STATE: self._keep,
            Code.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take,
        }
        self.rpc = RpcClient(system_runtime(), self.takes, credentials=credentials)

    def _keep(self, _peer: Peer, request: RemotingCommand) -> None:
        self.pushed.append(request)

    def _take(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.pushed.append(request)
        return request.respond(ResponseCode.SUCCESS)

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, texts, body)
        return await self.rpc.invoke(self.address, request, timeout_ms=20_000)

    async def heartbeat(self, *producer_groups: str, consumer_group: str = "") -> RemotingCommand:
        consumers = [
            {
                "groupName": consumer_group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [],
            }
        ]
        fields = {
            "clientID": self.client_id,
            "producerDataSet": [{"groupName": name} for name in producer_groups],
            "consumerDataSet": consumers if consumer_group else [],
        }
        return await self.ask(Code.HEART_BEAT, json.dumps(fields).encode())

    async def send(
        self, topic: str, body: bytes, code: int = Code.SEND_MESSAGE, **properties: str
    ) -> RemotingCommand:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        return await self.ask(
            code,
            body,
            producerGroup="p",
            topic=topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=4 if "TRAN_MSG" in properties else 0,
            bornTimestamp=int(time.time() * 1000),
            flag=0,
            properties=text,
        )

    async def reply(self, asker: str, correlation_id: str) -> RemotingCommand:
        words = {"REPLY_TO_CLIENT": asker, "CORRELATION_ID": correlation_id}
        return await self.send(REPLIES, b"reply", Code.SEND_REPLY_MESSAGE, **words)


class Clients:
    """Everybody who is connected to one broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.all: list[Client] = []

    def of(self, credentials: Credentials | None, client_id: str) -> Client:
        self.all.append(Client(self.address, credentials, client_id))
        return self.all[-1]


@asynccontextmanager
async def guarded(folder: Path, access: Access = ACCESS, **settings: Any) -> AsyncIterator[Clients]:
    async with cluster(broker_config(folder, access=access, **settings)) as running:
        clients = Clients(running.broker.address)
        root = clients.of(ROOT if access.accounts else None, "root")
        for topic in ("orders", "private"):
            made = {"topic": topic, "defaultTopic": "TBW102", "perm": 6, "topicSysFlag": 0}
            made |= {"readQueueNums": 1, "writeQueueNums": 1, "topicFilterType": "SINGLE_TAG"}
            answer = await root.ask(Code.UPDATE_AND_CREATE_TOPIC, **made, order=False)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        yield clients
        for client in clients.all:
            await client.rpc.close()


def refused(answer: RemotingCommand, words: str) -> bool:
    return answer.code == ResponseCode.NO_PERMISSION and words in str(answer.remark)


# ---- half messages ----------------------------------------------------------------------------


async def test_a_half_message_is_asked_about_among_those_who_may_write_its_topic(
    tmp_path: Path,
) -> None:
    """Everybody can name the group; the question holds the message."""
    async with guarded(tmp_path, **QUICK) as clients:
        strangers = [clients.of(each, f"{each.access_key}@1") for each in (RIVAL, READER, BARE)]
        for stranger in strangers:
            assert (await stranger.heartbeat("sellers")).code == ResponseCode.SUCCESS
        seller = clients.of(SHOP, "shop@1")
        await seller.heartbeat("sellers")
        sent = await seller.send("orders", b"secret", TRAN_MSG="true", PGROUP="sellers")
        assert sent.code == ResponseCode.SUCCESS

        async def asked_thrice() -> bool:
            return len(seller.pushed) >= 3

        await eventually(asked_thrice, "the seller is asked in every round")
        assert decode_record(bytes(seller.pushed[0].body)).body == b"secret"
        assert [stranger.pushed for stranger in strangers] == [[], [], []]


async def test_a_right_that_was_taken_away_ends_the_questions(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS, **QUICK)) as running:
        clients = Clients(running.broker.address)
        writer, shop = clients.of(WRITER, "writer@1"), clients.of(SHOP, "shop@1")
        await clients.of(ROOT, "root").send("orders", b"first")
        await writer.heartbeat("sellers")
        await shop.send("orders", b"secret", TRAN_MSG="true", PGROUP="sellers")

        async def asked() -> bool:
            return bool(writer.pushed)

        await eventually(asked, "the writer is asked")
        left = [each for each in ACCESS.accounts if each.credentials is not WRITER]
        running.broker.state.gate.take(Accounts(left))
        before = len(writer.pushed)
        await asyncio.sleep(0.6)
        assert len(writer.pushed) == before
        await shop.heartbeat("sellers")

        async def asked_instead() -> bool:
            return bool(shop.pushed)

        await eventually(asked_instead, "who may still write is asked")
        assert len(writer.pushed) == before
        for client in clients.all:
            await client.rpc.close()


async def test_replies_that_nobody_takes_have_a_share(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=64 * MIB)) as running:
        clients = Clients(running.broker.address)
        asker, replier, other = (clients.of(None, name) for name in ("asker", "replier", "other"))
        asker.takes[Code.PUSH_REPLY_MESSAGE_TO_CLIENT] = asker._keep
        await asker.heartbeat("askers")
        words = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "one"}

        def reply(client: Client, size_bytes: int) -> asyncio.Task[RemotingCommand]:
            body = bytes(size_bytes)
            return asyncio.create_task(client.send(REPLIES, body, Code.SEND_REPLY_MESSAGE, **words))

        large = 4 * MIB - 16 * KIB
        waiting = [reply(replier, large) for _ in range(4)]

        async def all_wait() -> bool:
            return len(asker.pushed) == 4

        await eventually(all_wait, "four replies wait for the asker")
        refused = await reply(replier, large)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "try again" in (refused.remark or "")
        elsewhere = reply(other, large)

        async def other_waits() -> bool:
            return len(asker.pushed) == 5

        await eventually(other_waits, "who has little under way is not refused")
        await asker.rpc.close()
        for answer in await asyncio.gather(*waiting, elsewhere):
            assert answer.code == ResponseCode.SYSTEM_ERROR, "stored, and not pushed"
        assert (await reply(replier, large)).code == ResponseCode.SYSTEM_ERROR, "there is room"
        for client in clients.all:
            await client.rpc.close()


async def test_a_woken_pull_gets_nothing_once_the_accounts_have_changed(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        state, clients = running.broker.state, Clients(running.broker.address)
        reader = clients.of(READER, "reader@1")
        await clients.of(ROOT, "root@1").send("orders", b"first")
        waits = {"consumerGroup": "orders-group", "topic": "orders", "maxMsgNums": 9, "sysFlag": 6}
        waits |= {"commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*"}
        pulls = [
            asyncio.create_task(
                reader.ask(
                    Code.PULL_MESSAGE, **waits, queueId=queue_id, queueOffset=at, subVersion=0
                )
            )
            for queue_id, at in ((0, 1), (1, 0))
        ]

        async def both_wait() -> bool:
            return state.holds.count == 2

        await eventually(both_wait, "both pulls wait")
        left = [each for each in ACCESS.accounts if each.credentials is not READER]
        drafts = [
            MessageDraft("orders", queue_id, b"secret", "", 1, "127.0.0.1:1", "127.0.0.1:2")
            for queue_id in (0, 1)
        ]

        def change(_arrived: object) -> None:
            """One pull is woken by now and the other waits."""
            if not state.gate.changes:
                assert state.holds.count == 1
                state.gate.take(Accounts(left))
                asyncio.get_running_loop().call_soon(state.store.put, drafts[1])

        state.store.on_arrival(change)
        state.store.put(drafts[0])
        for answer in await asyncio.gather(*pulls):
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert not answer.body
            assert "ask again" in (answer.remark or "")
        for client in clients.all:
            await client.rpc.close()


async def test_our_own_producer_signs_what_it_answers_when_it_is_asked(tmp_path: Path) -> None:
    """Its answer goes back over the connection of the question, not by way of a call."""
    said: list[str] = []

    def execute(_message: Message, _argument: object) -> TransactionState:
        return TransactionState.UNKNOWN

    def check(message: MessageExt) -> TransactionState:
        said.append(message.message_id)
        return TransactionState.COMMIT

    config = broker_config(tmp_path, access=ACCESS, **QUICK, transaction_check_max=3)
    async with cluster(config, access=ACCESS) as running:
        await Client(running.broker.address, ROOT, "root").send("orders", b"first")
        producer = TransactionProducer(
            system_runtime(),
            ClientConfig(
                namesrv_addresses=(running.name_server_address,),
                credentials=SHOP,
                heartbeat_first_ms=50,
            ),
            "sellers",
            execute=execute,
            check=check,
        )
        await producer.start()
        sent = await producer.send_in_transaction(Message("orders", b"in the end"))
        reader = Client(running.broker.address, READER, "reader@1")

        async def committed() -> bool:
            ends = [
                await reader.ask(Code.GET_MAX_OFFSET, topic="orders", queueId=queue_id)
                for queue_id in range(4)
            ]
            return sum(int(end.fields["offset"]) for end in ends) == 2

        await eventually(committed, f"{sent} is committed by the answer")
        await producer.stop()
        assert said
        await reader.rpc.close()


# ---- client ids -------------------------------------------------------------------------------


def lock_body(group: str, client_id: str) -> bytes:
    queue = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
    fields = {"consumerGroup": group, "clientId": client_id, "mqSet": [queue]}
    return json.dumps(fields).encode()


@pytest.mark.parametrize("thief", [READER, ROOT], ids=["another account", "an administrator"])
async def test_a_client_id_is_its_accounts_while_its_client_is_connected(
    tmp_path: Path, thief: Credentials
) -> None:
    async with guarded(tmp_path) as clients:
        owner = clients.of(SHOP, "shop@1")
        await owner.heartbeat("sellers", consumer_group="orders-group")
        body = lock_body("orders-group", "shop@1")
        assert (await owner.ask(Code.LOCK_BATCH_MQ, body)).code == ResponseCode.SUCCESS
        taker = clients.of(thief, "shop@1")
        for answer in (
            await taker.heartbeat("sellers"),
            await taker.heartbeat("its-own"),
            await taker.heartbeat(consumer_group="orders-group"),
            await taker.ask(Code.UNREGISTER_CLIENT, clientID="shop@1", producerGroup="sellers"),
            await taker.ask(
                Code.UNREGISTER_CLIENT, clientID="shop@1", consumerGroup="orders-group"
            ),
            await taker.ask(Code.LOCK_BATCH_MQ, body),
            await taker.ask(Code.UNLOCK_BATCH_MQ, body),
        ):
            assert refused(answer, "another account goes by it"), answer.remark
        root = clients.of(ROOT, "tool")
        listed = await root.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="sellers")
        assert [one["clientId"] for one in json.loads(listed.body)["connectionSet"]] == ["shop@1"]
        members = await owner.ask(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="orders-group")
        assert json.loads(members.body)["consumerIdList"] == ["shop@1"]


async def test_a_client_id_is_free_when_its_last_connection_has_ended(tmp_path: Path) -> None:
    async with guarded(tmp_path) as clients:
        first, second = clients.of(SHOP, "a@1"), clients.of(SHOP, "a@1")
        for own in (first, second):  # The same account comes back as it likes.
            assert (await own.heartbeat("sellers")).code == ResponseCode.SUCCESS
        other = clients.of(READER, "a@1")
        await second.rpc.close()
        await asyncio.sleep(0.1)
        assert refused(await other.heartbeat("sellers"), "goes by it"), "the first is there"
        await first.rpc.close()

        async def is_free() -> bool:
            return (await other.heartbeat("sellers")).code == ResponseCode.SUCCESS

        await eventually(is_free, "the id is free")
        again = clients.of(SHOP, "a@1")
        assert refused(await again.heartbeat("sellers"), "goes by it"), "it is the other's now"


async def test_a_connection_that_goes_by_another_id_lets_its_former_one_go(tmp_path: Path) -> None:
    async with guarded(tmp_path) as clients:
        client, other = clients.of(SHOP, "a@1"), clients.of(READER, "a@1")
        await client.heartbeat("sellers")
        client.client_id = "b@1"
        await client.heartbeat("sellers")
        assert (await other.heartbeat("sellers")).code == ResponseCode.SUCCESS
        other.client_id = "b@1"
        assert refused(await other.heartbeat("sellers"), "goes by it")


@pytest.mark.parametrize("access", [ACCESS, Access()], ids=["with accounts", "without"])
async def test_a_client_leaves_by_the_connection_by_which_it_came(
    tmp_path: Path, access: Access
) -> None:
    async with guarded(tmp_path, access) as clients:
        credentials = SHOP if access.accounts else None
        client, same = clients.of(credentials, "a@1"), clients.of(credentials, "b@1")
        await client.heartbeat("sellers", consumer_group="orders-group")
        leave = {"clientID": "a@1", "producerGroup": "sellers"}
        leave["consumerGroup"] = "orders-group"
        root = clients.of(ROOT if access.accounts else None, "tool")

        async def listed() -> list[int]:
            return [
                (await root.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="sellers")).code,
                (
                    await client.ask(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="orders-group")
                ).code,
            ]

        here, gone = [ResponseCode.SUCCESS] * 2, [ResponseCode.SYSTEM_ERROR] * 2
        assert (await same.ask(Code.UNREGISTER_CLIENT, **leave)).code == ResponseCode.SUCCESS
        assert await listed() == here
        assert (await client.ask(Code.UNREGISTER_CLIENT, **leave)).code == ResponseCode.SUCCESS
        assert await listed() == gone


# ---- replies ----------------------------------------------------------------------------------


async def ask_in_orders(clients: Clients) -> Client:
    asker = clients.of(SHOP, "shop@1")
    await asker.heartbeat("askers")
    words = {"REPLY_TO_CLIENT": "shop@1", "CORRELATION_ID": "7"}
    assert (await asker.send("orders", b"question", **words)).code == ResponseCode.SUCCESS
    return asker


async def test_a_reply_comes_from_who_could_read_the_question_and_from_nobody_else(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, with_replies(ACCESS)) as clients:
        asker = await ask_in_orders(clients)
        for credentials, correlation_id, may in (
            (READER, "7", True),
            (SHOP, "7", True),
            (ROOT, "7", True),
            (WRITER, "7", False),
            (RIVAL, "7", False),
            (BARE, "7", False),
            (READER, "8", False),
            (ROOT, "8", False),
        ):
            before = len(asker.pushed)
            replier = clients.of(credentials, "replier")
            answer = await replier.reply("shop@1", correlation_id)
            where = (credentials.access_key, correlation_id, answer.remark)
            assert (answer.code == ResponseCode.SUCCESS) is may, where
            assert may or refused(answer, "has no question to reply to"), where
            assert len(asker.pushed) == before + may
            assert str(Code(asker.pushed[0].code).name) == "PUSH_REPLY_MESSAGE_TO_CLIENT"


async def test_nobody_makes_a_question_for_another_to_reply_to_it(tmp_path: Path) -> None:
    """The rival asks in its own topic, in the name of the shop's client, and replies itself."""
    async with guarded(tmp_path, with_replies(ACCESS)) as clients:
        victim, rival = clients.of(SHOP, "shop@1"), clients.of(RIVAL, "rival@1")
        await victim.heartbeat("askers")
        words = {"REPLY_TO_CLIENT": "shop@1", "CORRELATION_ID": "7"}
        await rival.send("private", b"question", **words)
        answer = await rival.reply("shop@1", "7")
        assert refused(answer, "has no question to reply to"), answer.remark
        assert victim.pushed == []


async def test_a_reply_is_no_half_message_and_no_committed_one(tmp_path: Path) -> None:
    """Its sender's sysFlag does not say what the broker alone says."""
    async with cluster(broker_config(tmp_path)) as running:
        client = Client(running.broker.address, None, "c")
        fields = {"producerGroup": "p", "topic": REPLIES, "defaultTopic": "TBW102"}
        fields |= {"defaultTopicQueueNums": "4", "queueId": "0", "bornTimestamp": "7"}
        for number, sys_flag in enumerate((4, 8, 12, 2)):
            stored = await client.ask(
                Code.SEND_REPLY_MESSAGE, b"x", **fields, sysFlag=sys_flag, flag=0
            )
            assert stored.fields["queueOffset"] == str(number), "each has its place"
            record = running.broker.state.store.record_at(int(stored.fields["msgId"][16:], 16))
            assert record is not None
            assert decode_record(record).sys_flag & 0xE == 0
        await client.rpc.close()
