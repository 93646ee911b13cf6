"""Handles recall requests, which cancel messages that are still waiting for delivery.

Place in the walk: the answer to a send that waits has a handle; who sends it back here has the
message cancelled, by a record that waits for the same second as the message. The first of the two
in the log counts, so a success means that the message does not appear, unless it already has.

RocketMQ's recallMessageEnable is false unless it is set, and so it is here. Absent on purpose: the
time wheel, which finds what a record cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.identity import BrokerNode
from engine.broker.sending.durability import Durability, broker_takes_nothing
from engine.broker.sending.timers import Handle, Timers, handle_in
from engine.broker.topics.topics import Topics
from engine.delay.wheel.timer_records import DUE_MS_MAX
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from engine.protocol.names import PERM_WRITE
from engine.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.runtime.clock import Clock
from engine.store import MessageDraft

RECALL_TAG = "_RECALL_TAG_"


@dataclass(slots=True, kw_only=True, eq=False)
class RecallHandlers(Handlers):
    """Cancels messages that wait."""

    clock: Clock
    durability: Durability
    node: BrokerNode
    timers: Timers
    topics: Topics

    @serves(RequestCode.RECALL_MESSAGE)
    def recall(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """RECALL_MESSAGE (370)."""
        header = RecallMessageRequestHeader.decode(request.fields)
        config = self.node.config
        if not config.recall_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: recallMessageEnable=false",
            )
        self.node.check_master()
        if not config.broker_permission & PERM_WRITE:
            raise broker_takes_nothing(config)
        self.topics.require(header.topic)
        handle = handle_in(header.recall_handle)
        for said, meant, name in (
            (handle.topic, header.topic, "topic"),
            (handle.broker_name, config.broker_name, "broker"),
        ):
            if said != meant:
                raise RequestRefused(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"recall failed, {name} not match: the handle is of {said}, not of {meant}",
                )
        now_ms = self.clock.now_ms()
        if not now_ms < handle.at_ms <= DUE_MS_MAX:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"recall failed, timestamp invalid: the message is due by {handle.at_ms}, and it "
                f"is {now_ms}",
            )
        draft = self.timers.park(self._draft(peer, header, handle), handle.at_ms)
        put = self.durability.put(draft)
        self.timers.announce(draft, put.physical_offset)
        answer = RecallMessageResponseHeader(msg_id=handle.unique_key)
        response = request.respond(ResponseCode.SUCCESS, fields=answer.encode())
        return self.durability.answer_put(peer, request, response, end_offset=put.end_offset)

    def _draft(
        self, peer: Peer, header: RecallMessageRequestHeader, handle: Handle
    ) -> MessageDraft:
        """The record that cancels, as RocketMQ's."""
        properties = {
            PROPERTY_TAGS: RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
            PROPERTY_UNIQ_KEY: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.at_ms),
            PROPERTY_PRODUCER_GROUP: header.producer_group or "",
        }
        return MessageDraft(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=encode_properties(properties),
            born_timestamp_ms=self.clock.now_ms(),
            born_host=peer.address,
            store_host=self.node.address,
        )
