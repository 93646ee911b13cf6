"""Hostile messages, and a client that follows what was accepted along every path of a broker: the
delay, the retry, the dead letters, the transaction and its questions, and those of
`accepted_beside`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from engine.admin import Admin
from engine.client.config import ClientConfig
from engine.foundation.limits import PROPERTIES_BYTES_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.copy_room import ROOMY_BYTES
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.properties import decode_properties
from tests.integration.broker import accepted_beside as beside
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, eventually, messages
from tests.integration.broker.transactor import COMMIT, Half, Transactor

RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
RETRIES = 16
"""Of a group that nobody has configured."""

BROKERS_OWN = frozenset(
    (
        *("DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"),
        *("DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
        *("__transactionId__", "CHECK_IMMUNITY_TIME_IN_SECONDS", "CLUSTER"),
    )
)
"""Properties that the broker sets, changes or drops by its rules on one of the paths."""


@dataclass(frozen=True)
class Sent:
    """A message as a client sends it."""

    properties: str = ""
    body: bytes = b"body"
    header: dict[str, Any] = field(default_factory=dict)

    @property
    def meant(self) -> dict[str, str]:
        """What its sender said of it, as any reader understands it."""
        read = decode_properties(self.properties)
        return {name: value for name, value in read.items() if name not in BROKERS_OWN}


def filled(length: int) -> str:
    """Properties of so many bytes."""
    return "long\x01" + "v" * (length - 6) + "\x02"


KNOWN = [
    Sent("a\x01b\x01c\x02"),
    Sent("a\x01b\x01c"),
    Sent("a\x01\x01\x01\x02b\x01c\x02"),
    Sent("\x01v\x02a\x01\x02\x02\x02\x01\x02name only\x02x\x01y\x02"),
    Sent("zero\x01\0\0\0\x02\0\x01v\x02last\x01\0"),
    Sent("TAGS\x01a\x01b\x02KEYS\x01 k  k\x01 \x02UNIQ_KEY\x01u\x01\x01\x02"),
    Sent("TAGS\x01one\x02TAGS\x01two\x02UNIQ_KEY\x01one\x02UNIQ_KEY\x01two\x02"),
    Sent("UNIQ_KEY\x01" + "U" * 30_000 + "\x02"),
    Sent("KEYS\x01" + "K" * 20_000 + "\x02"),
    Sent("UNIQ_KEY\x01" + "u" * 16_000 + "\x02KEYS\x01" + "k" * 16_000 + "\x02"),
    Sent("UNIQ_KEY\x01\U0001f600 ü \r\n{}\"'\x02KEYS\x01\t\n\x02"),
    Sent("REAL_TOPIC\x01../../etc\x02REAL_QID\x01-5\x02"),
    Sent("REAL_TOPIC\x01orders\x02REAL_QID\x01" + "9" * 18 + "\x02"),
    Sent("REAL_QID\x012147483648\x02REAL_TOPIC\x01" + "t" * 300 + "\x02"),
    Sent("RETRY_TOPIC\x01../x\x02ORIGIN_MESSAGE_ID\x01no id\x02DLQ_ORIGIN_TOPIC\x01\x03\x02"),
    Sent("ORIGIN_MESSAGE_ID\x01\x02UNIQ_KEY\x01no origin\x02"),
    Sent("RECONSUME_TIME\x01abc\x02MAX_RECONSUME_TIMES\x01-1\x02WAIT\x01perhaps\x02"),
    Sent("PGROUP\x01no group / at all\x02TRAN_MSG\x01maybe\x02"),
    Sent("TRAN_PREPARED_QUEUE_OFFSET\x01" + "9" * 18 + "\x02TRANSACTION_CHECK_TIMES\x01x\x02"),
    Sent("CLUSTER\x01x\x02MSG_REGION\x01y\x02TRACE_ON\x01z\x02INNER_NUM\x01many\x02"),
    Sent("CONSUME_START_TIME\x01x\x02MIN_OFFSET\x01-\x02MAX_OFFSET\x01-\x02"),
    Sent("__SHARDINGKEY\x01\x01\x02INSTANCE_ID\x01%\x02REPLY_TO_CLIENT\x01nobody\x02"),
    Sent("k\x01" + "ü" * 8000 + "\x02"),
    Sent(filled(PROPERTIES_BYTES_MAX)),
    Sent(filled(ROOMY_BYTES + 2000)),
    Sent(filled(ROOMY_BYTES + 200)),
    Sent(filled(ROOMY_BYTES - 60)),
    Sent(filled(ROOMY_BYTES - 160)),
    Sent(filled(ROOMY_BYTES - 260)),
    Sent(filled(ROOMY_BYTES - 400)),
    Sent("k\x01" + "ü" * 14_900 + "\x02"),
    Sent("".join(f"k{n}\x01{n}\x02" for n in range(2500))),
    Sent(body=b"", header={"flag": INT32_MIN}),
    Sent(body=b"no zlib at all", header={"sysFlag": 1}),
    Sent(body=b"\0" * 600, header={"sysFlag": 0x1 | 0x300}),
    Sent(header={"sysFlag": INT32_MAX & ~0xC, "flag": INT32_MAX}),
    Sent(header={"sysFlag": INT32_MIN}),
    Sent(header={"bornTimestamp": INT64_MIN}),
    Sent(header={"bornTimestamp": INT64_MAX}),
    Sent(header={"bornTimestamp": -1}),
    Sent(header={"reconsumeTimes": INT32_MAX}),
    Sent(header={"reconsumeTimes": INT32_MIN}),
    Sent(header={"reconsumeTimes": -5}),
    Sent(header={"maxReconsumeTimes": INT32_MIN, "reconsumeTimes": -1}),
]


def drawn(chance: Random) -> Sent:
    """A message by chance: pieces of the known ones, cut and put together anew."""
    pieces = [one.properties for one in chance.sample(KNOWN, 3)]
    text = "".join(piece[chance.randrange(len(piece) + 1) :][:2000] for piece in pieces)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice("\x01\x02\0\n =ü\U0001f600%") + text[at:]
    header: dict[str, Any] = {}
    for one in chance.sample(KNOWN, 8):
        header |= one.header
    return Sent(text, chance.randbytes(chance.randrange(50)), header)


def plain(text: str) -> str:
    """The properties without what makes a message wait."""
    marks = ("DELAY", "TRAN_MSG", "CHECK_IMMUNITY_TIME_IN_SECONDS")
    return "".join(
        f"{pair}\x02" for pair in text.split("\x02") if pair.partition("\x01")[0] not in marks
    )


class Paths:
    """Sends, and follows what was accepted along every path."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.producer = Transactor(self.client)
        self.accepted: dict[bytes, Sent] = {}
        self.refused: list[str] = []
        self.resent: dict[int, tuple[Sent, int]] = {}
        """By number: what was sent again, and where its first copy is."""

    async def send(self, kind: str, number: int, sent: Sent, extra: str, **more: Any) -> int | None:
        """Where its record begins; None when it was refused."""
        mark = f"{kind} {number} ".encode()
        text = plain(sent.properties)
        text += "\x02" * (bool(text) and text[-1:] != "\x02") + extra
        header = sent.header | {"properties": text} | more
        answer = await self.client.send(mark + sent.body, **header)
        if answer.code == ResponseCode.SUCCESS:
            self.accepted[mark + sent.body] = Sent(text) if "REPLY_TO_CLIENT" in extra else sent
            return int(answer.fields["msgId"][16:], 16)
        assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER), (
            f"{answer.code} {answer.remark} for {sent}"
        )
        self.refused.append(f"{mark!r}: {answer.remark}")
        return None

    async def send_back(self, offset: int, level: int) -> None:
        answer = await self.client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=offset, group=GROUP, delayLevel=level
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def all_of(self, topic: str, queue_id: int = 0) -> dict[bytes, MessageExt]:
        """What stands in a topic's queue, by body."""
        found: dict[bytes, MessageExt] = {}
        offset = 0
        while True:
            answer = await self.client.pull(offset, topic=topic, group="reader", queue_id=queue_id)
            if answer.code != ResponseCode.SUCCESS:
                return found
            found |= {message.body: message for message in messages(answer)}
            offset = int(answer.fields["nextBeginOffset"])

    def of_kind(self, kind: str) -> set[bytes]:
        return {body for body in self.accepted if body.startswith(kind.encode())}

    async def arrived(self, kind: str, topic: str) -> dict[bytes, MessageExt]:
        """All accepted messages of this kind, when they are in the topic; each as it was sent."""
        wanted = self.of_kind(kind)
        found: dict[bytes, MessageExt] = {}

        async def all_came() -> bool:
            found.clear()
            found.update(await self.all_of(topic))
            return wanted <= set(found)

        await eventually(all_came, f"{kind}: every accepted message is in {topic}")
        for body in wanted:
            self.is_as_sent(body, found[body].properties, topic)
        return {body: found[body] for body in wanted}

    def is_as_sent(self, body: bytes, properties: Mapping[str, str], where: str) -> None:
        """Is what its sender said of this message still said of it?"""
        meant = self.accepted[body].meant
        kept = {name: properties.get(name) for name in meant}
        assert kept == meant, f"{body!r} in {where}"


async def follow(
    client: RawClient, name_server: str, all_sent: list[Sent], *, earlier: Paths | None = None
) -> Paths:
    """Every message along every path; those that were sent again in an `earlier` life once more."""
    paths = Paths(client)
    await client.heartbeat()
    await paths.producer.register()
    await beside.make_topic_stored_once(paths)
    for number, (sent, place) in (earlier.resent if earlier else {}).items():
        await beside.resend(paths, number, sent, place)
    for number, sent in enumerate(all_sent):
        await beside.reply(paths, number, sent)
        await beside.resend(paths, number, sent)
    messages = await follow_walk(paths, all_sent)
    await beside.replies_arrived(paths)
    messages += (await paths.arrived("resent", beside.ONCE)).values()
    admin = Admin(client.runtime, ClientConfig(namesrv_addresses=(name_server,)))
    try:
        await beside.trace(paths, admin, name_server, messages)
        await beside.show(paths, admin, messages)
    finally:
        await admin.close()
    return paths


async def follow_walk(paths: Paths, all_sent: list[Sent]) -> list[MessageExt]:
    """Every message along the walk: delayed, failed, dead, in a transaction. Those in TOPIC."""
    client, producer = paths.client, paths.producer
    for number, sent in enumerate(all_sent):
        await paths.send("delayed", number, sent, "DELAY\x012\x02")
        spent = sent.header.get("reconsumeTimes", 0) > RETRIES
        place = await paths.send("spent" if spent else "failed", number, sent, "")
        if place is not None:
            await paths.send_back(place, 1)
    halves: list[tuple[Half, bytes]] = []
    for number, sent in enumerate(all_sent):
        for kind in ("committed", "rolled back"):
            mark = f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01{kind}{number}\x02"
            # One born long ago is given up without a question, as in RocketMQ.
            born_ms = client.runtime.clock.now_ms()
            place = await paths.send(kind, number, sent, mark, bornTimestamp=born_ms)
            if place is not None:
                record = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=place)
                stored = decode_record(bytes(record.body))
                halves.append((Half(stored.message_id, stored.queue_offset, place), stored.body))

    async def all_asked() -> bool:
        return {body for _, body in halves} <= {one.body for _, one, _ in producer.asked()}

    await eventually(all_asked, "the producer is asked about every half message", within_s=40)
    for half, body in halves:
        if body.startswith(b"committed"):
            answer = await producer.end(half, COMMIT, fromTransactionCheck=True)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    arrived = list((await paths.arrived("delayed", TOPIC)).values())
    for body, message in (await paths.arrived("failed", RETRY)).items():
        assert message.reconsume_times > 0, body
        await paths.send_back(message.physical_offset, -1)
    await paths.arrived("failed", DLQ)
    await paths.arrived("spent", DLQ)
    for body in paths.of_kind("committed"):
        paths.accepted[body] = Sent(
            "".join(
                f"{n}\x01{v}\x02" for n, v in paths.accepted[body].meant.items() if n != "UNIQ_KEY"
            )
        )
    arrived += (await paths.arrived("committed", TOPIC)).values()
    assert not set(await paths.all_of(TOPIC)) & paths.of_kind("rolled back")
    return arrived


QUICK = {
    "transaction_op_batch_interval_ms": 50,
    "transaction_timeout_ms": 200,
    "transaction_check_interval_ms": 100,
    "transaction_check_max": 1000,
}
"""Settings with which transactions are asked about within a moment."""
