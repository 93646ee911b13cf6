"""Timer administration: listing, cancelling and relocating pending timers.

Place in the walk: beside it. What waits is read in the topic of timers, and how far deliveries are
is asked, of our broker as of Apache's.

Invariant: a list that is cut says so. Absent on purpose: RocketMQ's files (`timer_files`).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.api.messages import MessageAdmin
from engine.admin.api.requests import AdminRequests
from engine.admin.api.topics import TopicAdmin
from engine.foundation.limits import TIMERS_READ_MAX
from engine.protocol.codes import RequestCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.names import TIMER_TOPIC
from engine.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DUE_MS,
    PROPERTY_TIMER_ORIGIN,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_REPLACES,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    TIMERS,
)
from engine.protocol.timer_files import CheckPoint
from engine.protocol.timers import (
    MARKS_FIELD,
    DeliveredTimers,
    PendingTimer,
    PendingTimers,
    due_ms_of,
)

PRODUCER_GROUP = "TIDEMARK_TIMERS"
RECALL_TAG = "_RECALL_TAG_"
READ_COUNT = 32
NOT_SENT = (
    *(PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_TIMER_OUT_MS, PROPERTY_TIMER_DUE_MS),
    *(PROPERTY_TIMER_ORIGIN, PROPERTY_TIMER_REPLACES, PROPERTY_TIMER_ROLL_TIMES),
    *TIMERS,
)
"""What says how a message waited before: the next broker writes its own."""


@dataclass(frozen=True, slots=True)
class TimerList:
    """What waits on one broker."""

    timers: list[PendingTimer]
    """By time."""
    check: CheckPoint
    last: MessageExt | None
    """The newest record in the topic of timers."""
    is_cut: bool
    """Are there more records than were read?"""


class TimerAdmin:
    """Questions and orders about messages that wait for their time."""

    def __init__(
        self, requests: AdminRequests, *, topics: TopicAdmin, messages: MessageAdmin
    ) -> None:
        self._requests = requests
        self._topics = topics
        self._messages = messages

    async def pending(
        self, broker_name: str, address: str, *, read_max: int = TIMERS_READ_MAX
    ) -> TimerList:
        """What waits on the broker at this address. RequestRefused where it has no timers."""
        queue = MessageQueue(TIMER_TOPIC, broker_name, 0)
        found, last, read = PendingTimers(), None, 0
        place = (await self._topics.status_at(address, TIMER_TOPIC))[queue]
        offset, end = place.min_offset, place.max_offset
        while offset < end and read < read_max:
            some = await self._messages.read(queue, offset, count_max=READ_COUNT, address=address)
            if not some:
                break
            for record in some:
                found.add(record)
            offset, last = some[-1].queue_offset + 1, some[-1]
            read += len(some)
        answer = await self._requests.ask(address, RequestCode.GET_TIMER_CHECK_POINT, {})
        check = CheckPoint.from_bytes(bytes(answer.body))
        delivered = DeliveredTimers.from_answer(check.delivered_ms, answer.fields.get(MARKS_FIELD))
        return TimerList(found.waiting(delivered), check, last, offset < end)

    async def cancel(self, broker_name: str, address: str, timer: PendingTimer) -> None:
        """Cancel a timer; it does not appear, unless it has by the time this is stored.

        Raises RequestRefused for one that is due by now, or has no unique key.
        """
        properties = {
            PROPERTY_TAGS: RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: f"{timer.topic}+{timer.unique_key}",
            PROPERTY_UNIQ_KEY: timer.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(timer.out_ms + 1),
            PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP,
        }
        queue = MessageQueue(timer.topic, broker_name, timer.queue_id)
        await self._requests.send(
            address,
            queue,
            b"0",
            properties,
            producer_group=PRODUCER_GROUP,
            born_timestamp_ms=self._requests.clock.now_ms(),
        )

    async def has_appeared(self, timer: PendingTimer) -> bool:
        """Was it delivered by any broker of its topic?"""
        found = await self._messages.query(timer.topic, timer.unique_key, is_unique_key=True)
        return any(due_ms_of(one.properties) == timer.due_ms for one in found)

    async def send_again(self, queue: MessageQueue, record: MessageExt) -> None:
        """Have a message wait on this queue's broker that waited elsewhere; its body is as it was
        stored. Raises RequestRefused.
        """
        kept = {name: v for name, v in record.properties.items() if name not in NOT_SENT}
        due = {PROPERTY_TIMER_DELIVER_MS: str(due_ms_of(record.properties))}
        address = await self._requests.routes.find_master(queue)
        await self._requests.send(
            address,
            queue,
            record.body,
            kept | due,
            producer_group=PRODUCER_GROUP,
            born_timestamp_ms=record.born_timestamp_ms,
            sys_flag=record.sys_flag,
            flag=record.flag,
            reconsume_times=record.reconsume_times,
        )
