"""Dead-letter administration: listing, re-driving and discarding.

A re-driven message goes back to its own group alone (%RETRY%group), with all its tries before it:
other groups that had taken it do not get it twice. UNIQ_KEY, RETRY_TOPIC and ORIGIN_MESSAGE_ID
stay.

Invariant: a decision is one write (`protocol/dead_letters`), so a crash leaves a message decided or
not, never lost; an order that is repeated skips what is decided. Two people who decide at the same
moment may both succeed: delivery is at least once. Absent on purpose: deciding; the command line
and the dashboard do. Row E2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from engine.admin.api.messages import MessageAdmin
from engine.admin.api.offsets import OffsetAdmin
from engine.admin.api.requests import AdminRequests
from engine.admin.api.topics import TopicAdmin
from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.limits import (
    DEAD_LETTERS_READ_MAX,
    DECISION_WHO_BYTES_MAX,
    DECISION_WHY_BYTES_MAX,
    MESSAGE_ID_CHARS_MAX,
    PROPERTIES_BYTES_MAX,
)
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.compression import compressed_again
from engine.protocol.copy_room import brokers_bytes, noted_properties, pair_bytes, properties_bytes
from engine.protocol.dead_letters import (
    DISCARDS_TOPIC,
    PROPERTY_DEAD_GROUP,
    PROPERTY_DEAD_MESSAGE_ID,
    PROPERTY_DEAD_RECONSUME_TIMES,
    PROPERTY_DECIDED_BY,
    PROPERTY_DECIDED_WHY,
    PROPERTY_REDRIVEN_FROM,
)
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.names import Perm, dlq_topic, retry_topic
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_LEFT_OUT,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
)

PRODUCER_GROUP = "TIDEMARK_DLQ"
READ_COUNT = 32
NOT_REDRIVEN = (
    *(PROPERTY_DELAY, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID),
    PROPERTY_TRANSACTION_PREPARED,
)
"""Where the message waited before it died; and that it began a transaction, which has ended: a
committed message keeps the property, by which a broker would refuse its copy or make it a half one.
"""

WAITING, REDRIVEN, DISCARDED = "WAITING", "REDRIVEN", "DISCARDED"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good, and what was decided about it."""

    group: str
    queue: MessageQueue
    message: MessageExt
    fate: str
    """WAITING, REDRIVEN or DISCARDED."""
    decided_by: str | None = None
    decided_why: str | None = None

    @property
    def origin_topic(self) -> str:
        """The topic it was first sent to."""
        return self.message.properties.get(PROPERTY_RETRY_TOPIC, self.message.topic)

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id under which somebody may know it."""
        property_of = self.message.properties.get
        known = (property_of(PROPERTY_UNIQ_KEY), property_of(PROPERTY_ORIGIN_MESSAGE_ID))
        return (self.message.offset_message_id, *(one for one in known if one))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Which dead letters are meant; a field that is None asks nothing."""

    message_id: str | None = None
    """UNIQ_KEY, offset message id, or id of the first try."""
    origin_topic: str | None = None
    tag: str | None = None
    key: str | None = None
    begin_ms: int | None = None
    """Dead since then, in ms since 1970."""
    end_ms: int | None = None
    with_decided: bool = False
    """Those that are re-driven or discarded already as well."""

    def wants(self, letter: DeadLetter) -> bool:
        """Is it meant, whatever was decided about it?"""
        message = letter.message
        dead_ms = message.store_timestamp_ms
        return (
            (self.message_id is None or self.message_id in letter.ids)
            and self.origin_topic in (None, letter.origin_topic)
            and self.tag in (None, message.tags)
            and (self.key is None or self.key in (message.keys or "").split())
            and (self.begin_ms is None or dead_ms >= self.begin_ms)
            and (self.end_ms is None or dead_ms < self.end_ms)
        )


@dataclass(slots=True, eq=False)
class DeadLetterAdmin:
    """Questions and orders about dead letters."""

    requests: AdminRequests
    _: KW_ONLY
    topics: TopicAdmin
    offsets: OffsetAdmin
    messages: MessageAdmin

    async def find(
        self, group: str, query: DeadLetterQuery, *, count_max: int = DEAD_LETTERS_READ_MAX
    ) -> list[DeadLetter]:
        """The group's dead letters that `query` means, oldest first, at most `count_max`.

        Raises RequestRefused when a broker's part of them may not be read, saying what to do.
        """
        found: list[DeadLetter] = []
        for queue in await self._all_queues(dlq_topic(group)):
            await self._collect(group, queue, query, found, count_max=count_max)
        return sorted(found, key=lambda letter: letter.message.store_timestamp_ms)[:count_max]

    async def redrive(
        self, letter: DeadLetter, *, who: str, why: str, leave_out: bool = False
    ) -> None:
        """Give the message to its group once more, with all its tries before it.

        Raises RequestRefused (MESSAGE_ILLEGAL) for one that lacks properties of its message, or
        whose properties no record holds with the decision. With `leave_out` it goes all the same,
        as much of it as a record holds, with a note of what it lacks and who has that.
        """
        _check_decision(letter, who, why)
        message = letter.message
        properties = _redriven_properties(letter, who, why, leave_out=leave_out)
        queue = MessageQueue(retry_topic(letter.group), letter.queue.broker_name, 0)
        body, sys_flag = compressed_again(bytes(message.body), message.sys_flag)
        await self._send_to(queue, message, properties, body=body, sys_flag=sys_flag)

    async def discard(self, letter: DeadLetter, *, who: str, why: str) -> None:
        """Mark the message as given up; it stays readable until retention ends."""
        _check_decision(letter, who, why)
        message, queue = letter.message, letter.queue
        properties = {
            PROPERTY_KEYS: message.offset_message_id,
            PROPERTY_DEAD_GROUP: letter.group,
            PROPERTY_DEAD_MESSAGE_ID: _short_id(message),
            PROPERTY_DEAD_RECONSUME_TIMES: str(message.reconsume_times),
            PROPERTY_RETRY_TOPIC: letter.origin_topic,
            PROPERTY_DECIDED_BY: who,
            PROPERTY_DECIDED_WHY: why,
        }
        await self._make_discards_topic(queue)
        place = MessageQueue(DISCARDS_TOPIC, queue.broker_name, 0)
        await self._send_to(place, message, properties, body=b"")

    async def redrive_all(
        self,
        letters: Sequence[DeadLetter],
        *,
        who: str,
        why: str,
        per_second: float,
        leave_out: bool = False,
        on_each: Callable[[DeadLetter], None] = lambda _letter: None,
    ) -> int:
        """Re-drive one after the other, at most `per_second`; how many. `on_each` hears of each.

        Raises RequestRefused when all are done but those that no copy carries whole (`redrive`).
        """
        if not 0 < per_second <= SECOND_MS:
            raise ConfigError("per_second", per_second, f"more than 0, at most {SECOND_MS}")
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        refusals: list[RequestRefused] = []
        for letter in letters:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_s = max(due_s, loop.time() - 1) + 1 / per_second
            try:
                await self.redrive(letter, who=who, why=why, leave_out=leave_out)
            except RequestRefused as refused:
                if refused.code != ResponseCode.MESSAGE_ILLEGAL:
                    raise
                refusals.append(refused)
            else:
                on_each(letter)
        if refusals:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{len(letters) - len(refusals)} are re-driven, {len(refusals)} stay dead letters; "
                f"the first: {refusals[0].remark}",
            )
        return len(letters)

    async def _collect(
        self,
        group: str,
        queue: MessageQueue,
        query: DeadLetterQuery,
        found: list[DeadLetter],
        *,
        count_max: int,
    ) -> None:
        """Add what one queue holds to `found`."""
        offset, end = await self.offsets.min_offset(queue), await self.offsets.max_offset(queue)
        while offset < end and len(found) < count_max:
            messages = await self.messages.read(queue, offset, count_max=READ_COUNT)
            if not messages:
                return
            offset = messages[-1].queue_offset + 1
            for message in messages:
                letter = DeadLetter(group, queue, message, WAITING)
                if query.wants(letter):
                    letter = await self._with_fate(letter)
                    if query.with_decided or letter.fate == WAITING:
                        found.append(letter)

    async def _with_fate(self, letter: DeadLetter) -> DeadLetter:
        """The letter with what was decided about it, if anything was."""
        redriven = await self._redriven_copy(letter)
        if redriven is not None:
            return _decided(letter, REDRIVEN, redriven)
        for record in await self.messages.query(DISCARDS_TOPIC, letter.message.offset_message_id):
            return _decided(letter, DISCARDED, record)
        return letter

    async def _redriven_copy(self, letter: DeadLetter) -> MessageExt | None:
        """The copy that was re-driven from the letter, if one was.

        Later re-drives of the same message and all their tries have its UNIQ_KEY too, and one
        answer holds the newest only: so the question is asked again for what is older.
        """
        message, offset_id = letter.message, letter.message.offset_message_id
        end_ms = 2**63 - 1
        while True:
            copies = await self.messages.query(
                retry_topic(letter.group),
                message.message_id,
                begin_ms=message.store_timestamp_ms - SECOND_MS,  # The index knows seconds.
                end_ms=end_ms,
                is_unique_key=True,
            )
            for copy in copies:
                if copy.properties.get(PROPERTY_REDRIVEN_FROM) == offset_id:
                    return copy
            if not copies:
                break
            oldest_ms = {copy.store_host: copy.store_timestamp_ms for copy in reversed(copies)}
            end_ms = min(end_ms - SECOND_MS, max(oldest_ms.values()) - 1)
        return None

    async def _all_queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of the topic, none when nothing ever died; where one broker's may not be
        read, no other's are: whoever decides would believe that these are all.
        """
        route = await self.topics.route(topic)
        if route is None:
            return []
        shut = {one.broker_name: one.perm for one in route.queue_datas if not one.perm & Perm.READ}
        if shut:
            perms = ", ".join(f"perm {perm} on {name}" for name, perm in sorted(shut.items()))
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"{topic} has {perms}, which has no read bit; allow it first (tidemark admin topic "
                f"perm '{topic}' rw, or mqadmin updateTopicPerm -c CLUSTER -t '{topic}' -p 6)",
            )
        await self.requests.routes.refresh(topic)
        return sorted(
            MessageQueue(topic, one.broker_name, number)
            for one in route.queue_datas
            for number in range(one.read_queue_nums)
        )

    async def _make_discards_topic(self, queue: MessageQueue) -> None:
        route = await self.topics.route(DISCARDS_TOPIC)
        there = [] if route is None else [data.broker_name for data in route.queue_datas]
        if queue.broker_name not in there:
            address = await self.requests.routes.find_master(queue)
            await self.topics.create(address, DISCARDS_TOPIC, read_queues=1, write_queues=1)

    async def _send_to(
        self,
        queue: MessageQueue,
        of: MessageExt,
        properties: dict[str, str],
        *,
        body: bytes,
        sys_flag: int = 0,
    ) -> None:
        address = await self.requests.routes.find_master(queue)
        await self.requests.send(
            address,
            queue,
            body,
            properties,
            producer_group=PRODUCER_GROUP,
            born_timestamp_ms=of.born_timestamp_ms,
            sys_flag=sys_flag,
            flag=of.flag,
        )


def _redriven_properties(
    letter: DeadLetter, who: str, why: str, *, leave_out: bool
) -> dict[str, str]:
    """The properties of a re-driven copy. Raises RequestRefused for one that would lack some."""
    message = letter.message
    kept = {name: v for name, v in message.properties.items() if name not in NOT_REDRIVEN}
    decision = {
        PROPERTY_WAIT: "true",
        PROPERTY_REDRIVEN_FROM: message.offset_message_id,
        PROPERTY_UNIQ_KEY: message.message_id,  # By this the copy is found, so all have one.
        PROPERTY_DECIDED_BY: who,
        PROPERTY_DECIDED_WHY: why,
    }
    properties = kept | decision
    noted, left_out = noted_properties(
        properties,
        decision.keys() | {PROPERTY_RETRY_TOPIC, PROPERTY_ORIGIN_MESSAGE_ID},
        whole_in=f"dead letter {message.offset_message_id}",
        room_bytes=brokers_bytes(properties),
    )
    lacking = message.properties.get(PROPERTY_LEFT_OUT)
    if leave_out or not (left_out or lacking):
        return noted
    faults = [f"it lacks what its message had ({lacking})"] if lacking else []
    if left_out:
        whole, longest = (
            properties_bytes(kept),
            max(kept, key=lambda one: pair_bytes(one, kept[one])),
        )
        added = properties_bytes(properties) - whole + brokers_bytes(properties)
        faults.append(
            f"its properties have {whole} bytes, a re-drive adds {added} for who decided and why, "
            f"the limit is {PROPERTIES_BYTES_MAX}; the longest is {longest[:40]!r} with "
            f"{pair_bytes(longest, kept[longest])} bytes"
        )
    raise RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"dead letter {message.offset_message_id} cannot be re-driven whole: "
        f"{'; '.join(faults)}. Re-drive what it has, with a note of the rest, by --leave-out, or "
        "send its body anew and discard it",
    )


def _short_id(message: MessageExt) -> str:
    """Its UNIQ_KEY, or the broker's id for one that has none, or one of any length."""
    unique_key = message.uniq_key
    is_short = unique_key is not None and len(unique_key.encode()) <= MESSAGE_ID_CHARS_MAX
    return unique_key if unique_key and is_short else message.offset_message_id


def _decided(letter: DeadLetter, fate: str, record: MessageExt) -> DeadLetter:
    property_of = record.properties.get
    return DeadLetter(
        letter.group,
        letter.queue,
        letter.message,
        fate,
        property_of(PROPERTY_DECIDED_BY),
        property_of(PROPERTY_DECIDED_WHY),
    )


def _check_decision(letter: DeadLetter, who: str, why: str) -> None:
    """Raise ConfigError for a decision without a person or a reason, or a second one."""
    for key, value, bytes_max in (
        ("who", who, DECISION_WHO_BYTES_MAX),
        ("why", why, DECISION_WHY_BYTES_MAX),
    ):
        if not value.strip() or any(ord(char) < 32 for char in value):
            raise ConfigError(key, value, "some words in one line: the decision carries them")
        if len(value.encode()) > bytes_max:
            raise ConfigError(key, f"{value[:32]}…", f"at most {bytes_max} bytes")
    if letter.fate != WAITING:
        raise ConfigError(
            "message", letter.message.message_id, f"one that is not {letter.fate.lower()} already"
        )
