"""Delivers delayed messages by putting each one into its real topic when it is due.

Place in the walk: behind `delays`, which says what is due; what is put here is read as any message.

Other work of the loop comes between any two steps; steps follow each other until nothing is due.

Invariant: a record that cannot be delivered blocks no other: it is reported and stepped over, and
what can be read of it becomes a dead letter. What the store does not take stays due.

Absent on purpose: when a message is due (`delays`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

from engine.delay.delays import Delays, Due
from engine.delay.waiting_messages import (
    SCHEDULE_GROUP,
    dead_letter_group,
    dead_letter_of,
    legal_place,
)
from engine.foundation.errors import CorruptRecord, LocalProtocolError, StorageError
from engine.foundation.limits import NAMES_REMEMBERED_MAX
from engine.foundation.observing import LifecycleEvent, Observer, RetryStep
from engine.foundation.units import SECOND_MS
from engine.protocol.names import RETRY_PREFIX, dlq_topic
from engine.protocol.properties import (
    PROPERTY_LEFT_OUT,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_UNIQ_KEY,
    decode_properties,
)
from engine.store import MessageDraft, MessageStore
from engine.store.record_reading import check_record, property_value
from engine.store.record_writing import draft_again

FIRST_TICK_MS = 1000
AFTER_FAILURE_MS = 10_000
"""Rhythm of the delivery, RocketMQ's figures."""
NOT_LEADING_MS = 100
"""A node that does not deliver looks again so often whether it shall."""

_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID = f"{PROPERTY_REAL_QUEUE_ID}\x01".encode()
_ANY_LEVEL_MS = (0,)
"""For a check that does not look at the time."""

Origin = tuple[int | None, int | None]
"""Queue and offset in a topic of origin; None: not known."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class DelayService:
    """Puts what is due.

    `make_dead_letter_topic` makes that of a group, when it is not there; `may_deliver`: is
    this node the one that does? `queue_there` says
    where a message for a queue of a topic goes, which may have been taken away meanwhile;
    `origin_of` where the message was first whose copy has these properties.
    """

    store: MessageStore
    delays: Delays[Any]
    _: KW_ONLY
    observer: Observer
    make_dead_letter_topic: Callable[[str], None]
    may_deliver: Callable[[], bool] = lambda: True
    queue_there: Callable[[str, int], int] = lambda _topic, queue_id: queue_id
    origin_of: Callable[[Mapping[str, str]], Origin] = lambda _properties: (None, None)

    async def run(self) -> None:
        """Deliver until cancelled."""
        await asyncio.sleep(FIRST_TICK_MS / SECOND_MS)
        while True:
            if not self.may_deliver():  # What is due stays so: nothing else would pause.
                await asyncio.sleep(NOT_LEADING_MS / SECOND_MS)
                continue
            try:
                await self.deliver_due()
            except StorageError as error:
                _log.warning("delayed messages wait on: %s", error)
                await asyncio.sleep(AFTER_FAILURE_MS / SECOND_MS)
            else:
                await self.delays.wait()

    async def deliver_due(self) -> int:
        """Put every due message under its real topic, step by step; return how many.

        Raises StorageError when the store takes nothing.
        """
        delivered_count, may_deliver = 0, self.may_deliver()
        for due in self.delays.due():
            if not may_deliver:
                break
            if due is None:
                await asyncio.sleep(0)
                may_deliver = self.may_deliver()  # It changes between steps, never in one.
            else:
                delivered_count += self._deliver(due)
        return delivered_count

    def _deliver(self, due: Due) -> bool:
        """Put one message under its real topic; False for one that was stepped over. Hot.

        Raises StorageError when the store takes nothing.
        """
        try:
            request = check_record(due.record, 0, due.physical_offset, _ANY_LEVEL_MS)
            if request is None or request.topic != due.topic:
                raise CorruptRecord(f"what lies at {due.physical_offset} does not wait")
            draft = draft_again(due.record, request)
            # As in RocketMQ, the stored properties keep DELAY, REAL_TOPIC and REAL_QID.
            stored = request.properties
            draft.properties = _with(stored, due.properties)
            place = _place_named(
                property_value(stored, _REAL_TOPIC), property_value(stored, _REAL_QUEUE_ID)
            )
            if place is None:
                raise CorruptRecord("it names no topic and queue that it could be delivered to")
            topic = place[0]
        except CorruptRecord as error:
            self._step_over(due, str(error))
            return False
        if self.store.was_deleted(topic, due.physical_offset):
            _log.info("%s is deleted with topic %s", due.where, topic)
            return False
        draft.topic, draft.queue_id = topic, self.queue_there(*place)
        due.real_topic = topic
        try:
            put = self.store.put(draft)
            due.put_at, due.put_end = put.physical_offset, put.end_offset
        except LocalProtocolError as error:
            self._step_over(due, str(error))
            return False
        if topic.startswith(RETRY_PREFIX):
            self._emit_step(draft, decode_properties(stored.decode()), "DELIVERED", due.delay_ms)
        return True

    def _step_over(self, due: Due, why: str) -> None:
        """Bury what can be read of a record that cannot be delivered, and report it."""
        letter = dead_letter_of(due.record)
        fate = "nothing of it can be read"
        if letter is not None:
            draft, properties = letter
            group = dead_letter_group(properties.get(PROPERTY_REAL_TOPIC, ""))
            self.make_dead_letter_topic(group)
            noted = draft.properties
            assert isinstance(noted, str), "a dead letter has its properties as text"
            draft.properties = noted + due.properties.decode()
            due.real_topic = draft.topic = dlq_topic(group)
            draft.queue_id = 0
            try:
                put = self.store.put(draft)
                due.put_at, due.put_end = put.physical_offset, put.end_offset
                fate = f"what can be read of it is a dead letter of group {group}"
                if PROPERTY_LEFT_OUT in str(draft.properties):
                    fate += f", with a note of what it had no room for ({PROPERTY_LEFT_OUT})"
                if group != SCHEDULE_GROUP:
                    self._emit_step(
                        draft, properties, "DEAD_LETTERED", due.delay_ms, group=group, reason=why
                    )
            except LocalProtocolError as error:
                fate = f"no record can hold what is left of it: {error}"
        _log.error("%s is stepped over: %s; %s", due.where, why, fate)
        detail = f"{due.where}: {why}; {fate}"
        self.observer.observe(LifecycleEvent("UNDELIVERABLE_MESSAGE", detail))

    def _emit_step(
        self,
        draft: MessageDraft,
        properties: Mapping[str, str],
        step: str,
        delay_ms: int,
        *,
        group: str | None = None,
        reason: str | None = None,
    ) -> None:
        queue_id, queue_offset = self.origin_of(properties)
        self.observer.observe(
            RetryStep(
                message_id=properties.get(PROPERTY_UNIQ_KEY),
                origin_topic=properties.get(PROPERTY_RETRY_TOPIC),
                origin_queue_id=queue_id,
                origin_offset=queue_offset,
                group=group or draft.topic.removeprefix(RETRY_PREFIX),
                reconsume_times=draft.reconsume_times,
                step=step,
                delay_ms=delay_ms,
                reason=reason,
            )
        )


@lru_cache(NAMES_REMEMBERED_MAX)
def _place_named(topic: bytes, queue_id: bytes) -> tuple[str, int] | None:
    return legal_place(topic.decode(), queue_id)


def _with(stored: bytes, added: bytes) -> bytes:
    """Properties, with others added behind them."""
    if not added:
        return stored
    return stored + added if stored.endswith(b"\x02") else stored + b"\x02" + added
