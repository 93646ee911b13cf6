"""Accepted messages on the paths beside the walk: as replies, sent once more by a producer that
heard no answer, in the traces of those who consumed them, and on the page that shows where one
went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dashboards.formatting import instant, visible
from dashboards.models.message_path import copy_steps, fault_of, in_order, traced_steps
from dashboards.reads.cluster import story_of
from engine.admin import Admin
from engine.client.config import ClientConfig
from engine.client.connection.connection import ClusterConnection
from engine.client.consuming.listeners import ConsumeConcurrentlyStatus, ListenerOutcome
from engine.client.sending.trace import Tracer
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.compression import inflate_bodies
from engine.protocol.headers import ReplyMessageRequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.names import TRACE_TOPIC
from engine.protocol.properties import decode_properties
from engine.protocol.trace import TransactionState, decode_traces
from tests.integration.broker.cluster import GROUP, eventually

if TYPE_CHECKING:
    from tests.integration.broker.accepted_messages import Paths, Sent

ONCE, REPLIES = "stored-once", "DefaultCluster_REPLY_TOPIC"
"""A topic with deduplication, and that of replies."""
TRACE_QUEUES = 8
"""Of the topic that the first trace makes, at most."""


async def reply(paths: Paths, number: int, sent: Sent) -> None:
    """The message as a reply to the client itself."""
    extra = f"REPLY_TO_CLIENT\x01{paths.client.client_id}\x02"
    await paths.send(
        "reply", number, sent, extra, code=RequestCode.SEND_REPLY_MESSAGE, topic=REPLIES
    )


async def replies_arrived(paths: Paths) -> None:
    """Each reply was handed to who asked, and is stored."""
    await paths.arrived("reply", REPLIES)
    handed = {bytes(push.body): push for push in paths.client.replies}
    for body in paths.of_kind("reply"):
        header = ReplyMessageRequestHeader.decode(handed[body].fields)
        paths.is_as_sent(body, decode_properties(header.properties or ""), "the push of a reply")


async def make_topic_stored_once(paths: Paths) -> None:
    """Of one queue, and for resends."""
    made = await paths.client.make_topic(ONCE, "+message.deduplication=true")
    assert made.code == ResponseCode.SUCCESS, made.remark


async def resend(paths: Paths, number: int, sent: Sent, place: int | None = None) -> None:
    """The message twice, or once more when its first copy is known to be at `place`: stored once,
    unless it says that it is a copy on purpose.
    """
    properties = decode_properties(sent.properties)
    extra = (
        "" if properties.get("UNIQ_KEY") else f"UNIQ_KEY\x01once{number}{sent.body[:9].hex()}\x02"
    )
    if place is None:
        place = await paths.send("resent", number, sent, extra, topic=ONCE)
        if place is None:
            return
    again = await paths.send("resent", number, sent, extra, topic=ONCE)
    is_copy = bool(properties.get("ORIGIN_MESSAGE_ID"))
    assert (again == place) is not is_copy, f"{sent}: first at {place}, then at {again}"
    paths.resent[number] = (sent, place)


async def trace(
    paths: Paths, admin: Admin, name_server: str, messages: Sequence[MessageExt]
) -> None:
    """A consumer's traces of these: each is written, can be read, and is found by its message."""
    config = ClientConfig(namesrv_addresses=(name_server,))
    connection = ClusterConnection(paths.client.runtime, config)
    try:
        tracer = Tracer(connection, GROUP, "CONSUME")
        begun = tracer.consuming(messages)
        tracer.consumed(begun, ListenerOutcome(True, ConsumeConcurrentlyStatus.CONSUME_SUCCESS))
        for message in messages:
            tracer.ended_transaction(
                message,
                TransactionState.COMMIT_MESSAGE,
                message_id=message.message_id,
                store_host=message.store_host,
                from_check=True,
            )
        await tracer.write_rest(20_000)
        assert not tracer.lost_count
    finally:
        await connection.stop()
    records = [
        record
        for queue_id in range(TRACE_QUEUES)
        for record in (await paths.all_of(TRACE_TOPIC, queue_id)).values()
    ]
    inflate_bodies(records)
    read = Counter(
        one.message_id for record in records for one in decode_traces(bytes(record.body).decode())
    )
    wanted = Counter(message.message_id.replace("\x01", " ") for message in messages)
    missing = {name for name, count in wanted.items() if read[name] < 3 * count}
    assert not missing, f"{missing} are not traced"
    if records:  # The first has made the topic: a name server hears of it a moment later.
        await eventually(admin.messages.may_be_traced, "the trace topic has a route")
    for message in messages:
        if fault_of(message.message_id) is None:
            assert await admin.messages.traced_steps(message.message_id), message.message_id


async def show(paths: Paths, admin: Admin, messages: Iterable[MessageExt]) -> None:
    """The page of each, by the texts that somebody may search for."""
    for message in messages:
        texts = [message.message_id]
        if message.store_host == paths.client.address:  # An earlier life had another port.
            texts.append(message.offset_message_id)
        for text in texts:
            if fault_of(text) is not None:
                continue
            story = await story_of(admin, message.topic, text)
            assert message.queue_offset in {copy.offset for copy in story.copies}, text
            for step in in_order([*copy_steps(story.copies), *traced_steps(story.traces)]):
                assert instant(step.at)
                assert visible(step.text).encode()
