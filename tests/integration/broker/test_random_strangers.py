"""Thousands of requests of one account about what belongs to another, drawn at random: nothing that
is the other's is read, moved, stored into, ended, taken or pushed to, whatever is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer, RpcClient
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.integration.broker.every_request import lock_body, request_body, request_fields
from tests.integration.broker.guarded import ACCESS, RIVAL, ROOT, SHOP
from tests.integration.broker.test_random_requests import Draw
from tests.integration.broker.test_what_clients_own import REPLIES, with_replies
from tests.seeds import one_seed

SEED = one_seed()
REQUESTS = int(os.environ.get("TIDEMARK_REQUESTS", "3000"))
UNDER_WAY = 64
CANARY = b"canary-in-a-body"
CLIENT, GROUP = "shop@its-own", "orders-group"
ASKED_BY_THE_BROKER = {Code.GET_CONSUMER_RUNNING_INFO}
"""What a broker asks of its clients by itself."""


@dataclass
class Shop:
    """The victim: a client with a message, a half message, a lock, an offset and a question."""

    running: Cluster
    rpc: RpcClient
    pushed: list[RemotingCommand]
    places: list[int]
    half_offset: int

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, texts, body)
        address = self.running.broker.address
        answer = await self.rpc.invoke(address, request, timeout_ms=20_000)
        assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
        return answer

    def state(self) -> dict[str, object]:
        """All that is the shop's."""
        state = self.running.broker.state
        store, group = state.store, state.groups.of(GROUP)
        return {
            "queues": {
                (topic, queue_id): store.max_offset(topic, queue_id)
                for topic in ("orders", f"%RETRY%{GROUP}", f"%DLQ%{GROUP}")
                for queue_id in range(4)
            },
            "is open": state.transactions.find(self.half_offset) is not None,
            "offsets": [state.offsets.committed(GROUP, "orders", queue) for queue in range(4)],
            "members": None if group is None else group.member_ids(),
            "subscription": None if group is None else group.spelled_subscription(),
            "producers": state.producers.member("sellers", CLIENT) is not None,
            "locked": state.locks.is_held(GROUP, now_ms=state.clock.now_ms()),
            "account": state.client_ids.accounts(CLIENT),
        }


async def a_shop(running: Cluster) -> Shop:
    pushed: list[RemotingCommand] = []

    def keep(_peer: Peer, request: RemotingCommand) -> RemotingCommand:
        pushed.append(request)
        return request.respond(ResponseCode.SUCCESS)

    rpc = RpcClient(system_runtime(), dict.fromkeys(Code, keep), credentials=SHOP)
    shop = Shop(running, rpc, pushed, [], 0)
    root = Shop(running, RpcClient(system_runtime(), credentials=ROOT), [], [], 0)
    for topic in ("orders", "private"):
        await root.ask(Code.SEND_MESSAGE, b"made", **request_fields(topic, "p"))
    await root.rpc.close()
    heartbeat = json.loads(request_body(Code.HEART_BEAT, "orders", GROUP, client_id=CLIENT))
    heartbeat["producerDataSet"] = [{"groupName": "sellers"}]
    await shop.ask(Code.HEART_BEAT, json.dumps(heartbeat).encode())
    await shop.ask(Code.LOCK_BATCH_MQ, json.dumps(lock_body("orders", GROUP, CLIENT)).encode())
    plain = request_fields("orders", GROUP)
    for more in (
        {"properties": f"REPLY_TO_CLIENT\x01{CLIENT}\x02CORRELATION_ID\x017\x02KEYS\x01k1\x02"},
        {"properties": "DELAY\x013\x02"},
        {"properties": "TRAN_MSG\x01true\x02PGROUP\x01sellers\x02UNIQ_KEY\x01k1\x02", "sysFlag": 4},
    ):
        sent = await shop.ask(Code.SEND_MESSAGE, CANARY, **plain | more)
        shop.places.append(int(sent.fields["msgId"][16:], 16))
    shop.half_offset = int(sent.fields["queueOffset"])
    await shop.ask(Code.SEND_MESSAGE, CANARY, **plain | {"queueId": 1})
    for queue_id in (0, 1):  # One of them is locked, which keeps others away by itself.
        fields = {"queueId": queue_id, "commitOffset": 1}
        await shop.ask(Code.UPDATE_CONSUMER_OFFSET, **plain | fields)
    return shop


class Stranger(Draw):
    """Draws what the rival asks: about its own things, the shop's, and both in one request."""

    def __init__(self, seed: int, shop: Shop) -> None:
        super().__init__(seed)
        self.shop = shop

    def request(self) -> RemotingCommand:
        request = super().request()
        if self.chance.random() < 0.6:
            request.fields.update(self.aimed())
        if self.chance.random() < 0.3:
            topic = self.chance.choice(["orders", "private", f"%RETRY%{GROUP}"])
            group = self.chance.choice([GROUP, "private-group"])
            client_id = self.chance.choice([CLIENT, "rival@1"])
            request.body = request_body(request.code, topic, group, client_id=client_id)
        return request

    def aimed(self) -> dict[str, str]:
        """Names and places, some the rival's own and most the shop's."""
        chance, place = self.chance, self.chance.choice(self.shop.places)
        topics = ["private", "orders", "orders", f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", REPLIES]
        group = chance.choice(["private-group", GROUP, GROUP])
        near = place + chance.choice([0, 0, 0, 0, 88, -1, 1])
        properties = f"REPLY_TO_CLIENT\x01{CLIENT}\x02CORRELATION_ID\x017\x02"
        properties += f"DEAD_GROUP\x01{GROUP}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
        fields = request_fields(chance.choice(topics), group, near, client_id=CLIENT)
        fields |= {"properties": properties, "producerGroup": "sellers", "commitOffset": 0}
        fields["queueId"] = chance.choice([0, 1])
        fields |= {"commitOrRollback": chance.choice([8, 12]), "queueOffset": 0, "sysFlag": 4}
        fields |= {"tranStateTableOffset": self.shop.half_offset, "maxMsgNums": 32}
        return {name: str(value) for name, value in fields.items()}


async def ask_as(credentials: Credentials, draw: Stranger) -> dict[int, int]:
    """Ask REQUESTS times; how many answers of each code there were."""
    rpc, places = RpcClient(system_runtime(), credentials=credentials), asyncio.Semaphore(UNDER_WAY)
    address, codes = draw.shop.running.broker.address, dict[int, int]()

    async def one(request: RemotingCommand) -> None:
        async with places:
            answer = await rpc.invoke(address, request, timeout_ms=60_000)
        codes[answer.code] = codes.get(answer.code, 0) + 1
        assert CANARY not in bytes(answer.body), (request.code, request.fields)
        assert (answer.remark or "").isprintable()

    known = RemotingCommand.request(Code.GET_MAX_OFFSET, {"topic": "private", "queueId": "0"})
    await rpc.invoke(address, known, timeout_ms=60_000)  # Long headers are for who is known.
    async with asyncio.TaskGroup() as asking:
        for _ in range(REQUESTS):
            asking.create_task(one(draw.request()))
    await rpc.close()
    return codes


async def test_nothing_of_anothers_is_read_moved_ended_taken_or_pushed_to(tmp_path: Path) -> None:
    never = 24 * 3_600_000  # Nothing of the shop's moves by itself meanwhile.
    config = broker_config(
        tmp_path,
        access=with_replies(ACCESS),
        log_bytes=8 << 20,
        delay_levels_ms=(never,) * 3,
        transaction_check_interval_ms=never,
    )
    async with cluster(config) as running:
        shop = await a_shop(running)
        before = shop.state()
        shop.pushed.clear()  # It was notified of its own joining.
        codes = await ask_as(RIVAL, Stranger(SEED, shop))
        assert codes[ResponseCode.SUCCESS] > REQUESTS // 50, "it does get what is its own"
        assert codes[ResponseCode.NO_PERMISSION] > REQUESTS // 3
        assert shop.state() == before
        assert [one for one in shop.pushed if one.code not in ASKED_BY_THE_BROKER] == []
        await shop.rpc.close()
