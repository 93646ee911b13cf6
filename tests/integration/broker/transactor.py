"""A producer of transactions that speaks raw commands to a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from tests.integration.broker.cluster import TOPIC, RawClient, eventually, messages

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "p"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
INTERNAL_GROUP = "CID_RMQ_SYS_TRANS"


@dataclass
class Half:
    """A half message as its producer knows it."""

    key: str
    queue_offset: int
    physical_offset: int


class Transactor:
    """A producer that speaks raw commands."""

    def __init__(self, client: RawClient) -> None:
        self.client = client

    async def begin(self, key: str, **more: object) -> Half:
        """Send a half message born now, with its key as its body."""
        sent = await self.try_begin(key, **more)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        assert sent.fields["transactionId"] == key
        physical_offset = int(sent.fields["msgId"][16:], 16)
        return Half(key, int(sent.fields["queueOffset"]), physical_offset)

    async def try_begin(self, key: str, **more: object) -> RemotingCommand:
        fields = {"PGROUP": GROUP, "TRAN_MSG": "true", "UNIQ_KEY": key, "sysFlag": 4}
        fields["bornTimestamp"] = int(time.time() * 1000)
        return await self.client.send(key.encode(), **(fields | more))

    async def end(self, half: Half, how: int, **more: object) -> RemotingCommand:
        """END_TRANSACTION, two-way."""
        return await self.client.ask(RequestCode.END_TRANSACTION, **self._end(half, how) | more)

    async def end_oneway(self, half: Half, how: int, **more: object) -> None:
        """END_TRANSACTION as RocketMQ's clients send it."""
        fields = {name: str(value).lower() for name, value in self._end(half, how, **more).items()}
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, fields)
        await self.client.rpc.invoke_oneway(self.client.address, request)

    @staticmethod
    def _end(half: Half, how: int, **more: object) -> dict[str, object]:
        return {
            "topic": TOPIC,
            "producerGroup": GROUP,
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.physical_offset,
            "commitOrRollback": how,
            "fromTransactionCheck": False,
            "msgId": half.key,
        } | more

    async def register(self, group: str = GROUP) -> None:
        """HEART_BEAT of a producer: from now on it can be asked."""
        data = {"clientID": self.client.client_id, "producerDataSet": [{"groupName": group}]}
        body = json.dumps(data | {"consumerDataSet": []}).encode()
        assert (await self.client.ask(RequestCode.HEART_BEAT, body)).code == ResponseCode.SUCCESS

    def asked(self) -> list[tuple[Half, MessageExt, Mapping[str, str]]]:
        """Questions so far: the copy they are about, the message in their body, their fields."""
        found: list[tuple[Half, MessageExt, Mapping[str, str]]] = []
        for push in self.client.pushed:
            if push.code == RequestCode.CHECK_TRANSACTION_STATE:
                assert push.is_oneway
                offsets = [int(push.fields[n]) for n in ("tranStateTableOffset", "commitLogOffset")]
                half = Half(push.fields["transactionId"], *offsets)
                found.append((half, decode_record(bytes(push.body)), push.fields))
        return found

    async def question(self, number: int = 1) -> tuple[Half, MessageExt, Mapping[str, str]]:
        """The `number`-th question, when it has come."""

        async def came() -> bool:
            return len(self.asked()) >= number

        await eventually(came, f"question {number}")
        return self.asked()[number - 1]


async def kept(client: RawClient, topic: str = TOPIC) -> list[MessageExt]:
    """What a consumer finds in queue 0 of a topic."""
    answer = await client.pull(0, topic=topic, group="whoever")
    if answer.code == ResponseCode.SUCCESS:
        return messages(answer)
    nothing = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
    assert answer.code in nothing, f"{answer.code}: {answer.remark}"
    return []
