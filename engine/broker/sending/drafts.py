"""Converts a producer's message into a draft that is ready to be stored.

Place in the walk: between a send's checks and its put. The broker adds what its answers and its
readers need: region, trace mark, cluster, and a UNIQ_KEY where the producer gave none.

Invariant: a message that is accepted leaves room for the copies that its retries will need. Absent
on purpose: queues (target_queues), kinds of messages (handlers/send).
"""

from __future__ import annotations

from engine.broker.identity import BrokerNode
from engine.broker.sending.retry_copies import is_redrive
from engine.broker.sending.timers import Timers
from engine.delay import Delays
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.copy_room import ROOMY_BYTES, fits_a_record, fits_with_copies, without_room
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.message_ids import UniqueIds
from engine.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_ON,
    PROPERTY_UNIQ_KEY,
    decode_properties,
    encode_properties,
    whole_number,
)
from engine.remoting import Peer
from engine.runtime.clock import Clock
from engine.store import MessageDraft
from engine.store.record_reading import MULTI_TAGS

REGION = "DefaultRegion"


class Drafts:
    """The drafts of one broker's messages."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        clock: Clock,
        delays: Delays[int],
        timers: Timers,
        unique_ids: UniqueIds,
    ) -> None:
        self._node = node
        self._clock = clock
        self._delays = delays
        self.timers = timers
        """The rules for messages that name a moment."""
        self._unique_ids = unique_ids
        self._own_properties = {
            PROPERTY_CLUSTER: self._node.config.cluster_name,
            PROPERTY_MSG_REGION: REGION,
            PROPERTY_TRACE_ON: "true",
        }
        self._own_text = encode_properties(self._own_properties)

    def unique_key(self) -> str:
        """A UNIQ_KEY for a message whose producer gave none."""
        return self._unique_ids.next(self._clock.now_ms())

    def check_body(self, length: int) -> None:
        """Raise RequestRefused for a body that is too long."""
        length_max = self._node.config.store.max_message_bytes
        if length > length_max:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its body: {length} bytes, the limit is {length_max}",
            )

    def stored_properties(
        self, text: str, properties: dict[str, str], header: SendMessageRequestHeader
    ) -> tuple[str, str]:
        """The property string as it is stored, with what the broker adds; and the UNIQ_KEY.

        Raises RequestRefused for one that leaves no room for copies. A re-drive may: whatever is a
        dead letter was accepted before, and dies again with all its properties, or with a note.
        """
        added = self._own_text
        if PROPERTY_MSG_REGION in properties or PROPERTY_TRACE_ON in properties:  # A retried one.
            added = encode_properties(
                {name: own for name, own in self._own_properties.items() if name not in properties}
            )
        unique_key = properties.get(PROPERTY_UNIQ_KEY)
        if not unique_key:
            unique_key = self.unique_key()
            added += f"{PROPERTY_UNIQ_KEY}\x01{unique_key}\x02"
        stored = f"{text}\x02{added}" if text and text[-1] != "\x02" else text + added
        length = len(stored) if stored.isascii() else len(stored.encode())
        if length > ROOMY_BYTES:
            whole = decode_properties(stored)
            fits = fits_with_copies(length, whole)
            if not fits and not (is_redrive(header, properties) and fits_a_record(length)):
                why = without_room(length, whole, whole.keys() - properties.keys())
                raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {why}")
        return stored, unique_key

    def draft(
        self,
        peer: Peer,
        header: SendMessageRequestHeader,
        queue_id: int,
        *,
        body: bytes | bytearray | memoryview,
        properties: str,
    ) -> MessageDraft:
        return MessageDraft(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=peer.address,
            store_host=self._node.address,
            flag=header.flag,
            sys_flag=header.sys_flag & ~MULTI_TAGS,  # What the topic says counts.
            reconsume_times=max(0, header.reconsume_times or 0),
        )

    def parked(self, draft: MessageDraft, level: int) -> MessageDraft:
        """The draft of a message that waits at a delay level."""
        return self._delays.park(draft, level)

    def delay_level(self, properties: dict[str, str]) -> int:
        """The delay level asked for, capped at the highest; 0 for none."""
        level = whole_number(properties.get(PROPERTY_DELAY, "0"), 0)
        return min(level, len(self._node.config.store.delay_levels_ms))
