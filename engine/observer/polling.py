"""Polls one broker for everything that an observer needs, within a time budget.

Place in the walk: admin protocol → `Look`. Cheap questions (how far every group is; the broker's
own figures) come each look; those about one topic, one group, one member or one message take turns
(`questions`), those about what moves or is behind first, as many as there is time for.

Invariant: what cannot be believed (`believable`) is not in the look, and is reported once
(`questions`). Absent on purpose: memory of what was reported (`facts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from engine.admin import Admin
from engine.admin.api.groups import QueueProgress
from engine.foundation.errors import RemoteProtocolError, RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer import proxies
from engine.observer.believable import (
    MEMBERS_A_GROUP_MAX,
    are_ends,
    are_subscriptions,
    is_address,
    is_client,
    is_held,
    is_moment,
    is_name,
    is_progress,
    is_queue,
)
from engine.observer.failed_messages import CopiesRead, MessageKey, Originals
from engine.observer.life_questions import LifeQuestions
from engine.observer.own_figures import delays_ms, own_figures
from engine.observer.poll_result import Look, Member, Place
from engine.observer.pop_marks import pop_seen
from engine.observer.pop_reading import PopReading
from engine.observer.proxies import ProxiesAsked
from engine.observer.question_turns import (
    CONNECTIONS,
    ENDS,
    FAILED,
    FIGURES,
    GROUPS,
    MEMBERS,
    MESSAGES,
    ORIGINALS,
    PROGRESS,
    REPLICAS,
    SETTINGS,
    TIME_SPANS,
    TOPICS,
    Kind,
    Questions,
    Turns,
    lacks_a_right,
)
from engine.observer.replicas_seen import ReplicaFigures, replica_figures
from engine.observer.store_time_estimates import Estimates, Key, PolledEnds, waiting
from engine.observer.topics_seen import offset_in
from engine.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, TopicOffset
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue
from engine.runtime.clock import Clock

TOPICS_A_LOOK: Final = 400
GROUPS_A_LOOK: Final = 200
TOPICS_AT_FIRST: Final = 2_500
GROUPS_AT_FIRST: Final = 750
"""A look, until each was asked once: a large cluster is known within two looks."""
MEMBERS_A_LOOK: Final = 100
MESSAGES_A_LOOK: Final = 200
"""Messages that are read for their store time: each costs the broker a read."""
SPANS_A_LOOK: Final = 200
"""Groups and topics that are asked how long messages wait, where these may not be read."""
RETRY_QUEUES_A_LOOK: Final = 50
COPIES_A_QUESTION: Final = 32
"""Copies of failed messages that are read at once."""
ORIGINALS_A_LOOK: Final = 200
"""Messages that came back whose first place is asked for: each costs the broker a look-up."""
MEMBERS_WATCHED_MAX: Final = 20_000
"""Of one broker; those beyond are not asked what they hold."""
SHARES: Final = (45, 55, 65, 75, 85, 90, 93, 98)
"""Percent of a look's time after which each kind of question gives way to the next."""
MOMENT_DIGITS_MAX: Final = 15
REPLICAS_REST_LOOKS: Final = 60
"""Brokers before 5.0 do not know the question for slaves."""
LISTS_EACH: Final = 6
"""Topics and groups are listed each so many looks."""


class BrokerPoll:
    """The questions to one broker, look by look."""

    def __init__(
        self,
        admin: Admin,
        broker_name: str,
        clock: Clock,
        *,
        cluster: str,
        patience_ms: int,
        proxies: Collection[str] = (),
    ) -> None:
        """`cluster`: as its name servers call it. `patience_ms`: how long a look may take.
        `proxies`: where those of the cluster are.
        """
        self._proxies = tuple(proxies)
        self._proxy_hosts: tuple[str, ...] | None = None
        """Where the broker saw proxies last; None: it never said."""
        self._admin = admin
        self._broker_name = broker_name
        self._clock = clock
        self._patience_ms = patience_ms
        self._questions = Questions(broker_name, clock)
        self._lives = LifeQuestions(admin, cluster, broker_name, self._questions)
        self._looks = 0
        self._listed_topics: dict[str, None] = {}
        self._listed_groups: dict[str, None] = {}
        self._max_of: dict[Place, int] = {}
        self._stored_ms: dict[tuple[str, int, int], int] = {}
        self.topics: dict[str, None] = {}
        """All that are known."""
        self.last_kind: Kind = FIGURES
        """Of the questions without which there is no look."""
        self.topic_turns: Turns[str] = Turns(TOPICS_A_LOOK, first_max=TOPICS_AT_FIRST)
        self._group_turns: Turns[str] = Turns(GROUPS_A_LOOK, first_max=GROUPS_AT_FIRST)
        self._member_turns: Turns[Member] = Turns(MEMBERS_A_LOOK)
        self._message_turns: Turns[Key] = Turns(MESSAGES_A_LOOK)
        self._members: dict[str, list[str]] = {}
        self._delays_ms: dict[int, int] = {}
        self._role: str | None = None
        """By its settings; None: not known."""
        self._replicas_from_look = 0
        """From which look on it is asked for its slaves: one that does not know the question rests.
        """
        self._may_read = True
        """Was the last message that was asked for not refused?"""
        self._estimates = Estimates()
        self._polled = PolledEnds()
        self._span_turns: Turns[tuple[str, str]] = Turns(SPANS_A_LOOK)
        self._copies = CopiesRead()
        self._copy_turns: Turns[Place] = Turns(RETRY_QUEUES_A_LOOK)
        self._originals = Originals()
        self._pop = PopReading(admin, broker_name, self._questions, clock)
        self._original_turns: Turns[MessageKey] = Turns(ORIGINALS_A_LOOK)

    @property
    def is_catching_up(self) -> bool:
        """Was a topic or a group, of those that are known, never asked about yet?"""
        return self.topic_turns.has_new or self._group_turns.has_new

    async def look(self, address: str, *, stacks_of: Collection[Member] = ()) -> Look:
        """Ask the broker at this address, and these members for the stacks of their listeners.
        Raises TidemarkError when it does not answer the questions of each look.
        """
        began_ms, began_steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        self.last_kind = FIGURES
        figures = await self._admin.cluster.figures(address)
        began_at_ms = boot_ms(figures.get("bootTimestamp", ""))
        runs_ms = age_ms(figures.get("runtime", ""))
        answered_ms = (began_ms + self._clock.now_ms()) // 2
        self.last_kind = PROGRESS
        look = Look(
            at_ms=began_ms,
            boot_ms=began_at_ms,
            skew_ms=None if runs_ms is None else began_at_ms + runs_ms - answered_ms,
            progress=await self._progress(address),
            address=address,
            figures=replace(own_figures(figures), replicas=await self._replicas(address)),
        )
        self._polled.seen(look.progress, asked_ms=began_ms, answered_ms=self._clock.now_ms())
        if self._looks % LISTS_EACH == 0:
            try:
                async with asyncio.timeout(self._patience_ms / 3 / SECOND_MS):
                    await self._list(look, address)
            except TimeoutError:
                self._questions.doubted(TOPICS, "slow", "the lists took too long")
        self._looks += 1
        look.delays_ms = self._delays_ms
        behind = {
            group
            for group, rows in look.progress.items()
            if any(one.lag != 0 for one in rows.values())
        }
        rest_ms = max(0, began_steady_ms + self._patience_ms - self._clock.steady_ms())
        # Each kind has its share of the time: one that hangs must not take that of the others.
        ends_ms = [self._clock.steady_ms() + rest_ms * percent // 100 for percent in SHARES]
        await self._ask_ends(look, address, ends_ms[0])
        await self._lives.ask(
            *(look, address, self.topics),
            lambda topic: self._ends_of(address, topic),
            until_ms=ends_ms[1],
        )
        await self._ask_connections(look, address, behind, until_ms=ends_ms[2])
        urgent = [*stacks_of, *(member for member in self._everyone() if member[0] in behind)]
        await self._ask_members(look, address, urgent, stacks_of, until_ms=ends_ms[3])
        await self._ask_store_times(look, address, ends_ms[4])
        await self._read_copies(look, address, ends_ms[5])
        await self._find_originals(look, address, ends_ms[6])
        reason = await self._pop.read(
            address,
            self._listed_topics,
            is_proxied=bool(self._proxy_hosts),
            until_ms=ends_ms[7],
        )
        now_ms = look.at_ms + (look.skew_ms or 0)
        look.popped = pop_seen(look.progress, self._pop.log, now_ms, unknown_reason=reason)
        return look

    async def _list(self, look: Look, address: str) -> None:
        """All topics and groups that the broker has, and the delays of its levels."""
        try:
            topics = await self._admin.topics.configs_at(address)
            look.topics = {name: config for name, config in topics.items() if is_name(name)}
            self._listed_topics = dict.fromkeys(look.topics)
            self._copies.listed(look.topics.keys())
            self._count_odd(TOPICS, len(topics) - len(look.topics))
        except TidemarkError as error:
            self._questions.failed(TOPICS, "", error)
        try:
            groups = await self._admin.groups.configs_at(address)
            look.groups = frozenset(filter(is_name, groups))
            self._listed_groups = dict.fromkeys(sorted(look.groups))
            self._count_odd(GROUPS, len(groups) - len(look.groups))
        except TidemarkError as error:
            self._questions.failed(GROUPS, "", error)
        try:
            settings = await self._admin.cluster.config(address)
            self._delays_ms = delays_ms(settings.get("messageDelayLevel", ""))
            self._role = settings.get("brokerRole")
            self._pop.set_up(settings)
        except TidemarkError as error:
            self._questions.failed(SETTINGS, "", error)

    async def _replicas(self, address: str) -> ReplicaFigures | None:
        """How far its slaves are; None: not known."""
        if self._role is None or self._looks < self._replicas_from_look:
            return None
        try:
            return replica_figures(await self._admin.cluster.ha_status(address), self._role)
        except TidemarkError as error:
            self._replicas_from_look = self._looks + REPLICAS_REST_LOOKS
            self._questions.failed(REPLICAS, "", error)
            return None

    async def _progress(self, address: str) -> dict[str, dict[Place, QueueProgress]]:
        """What can be believed of how far the groups are."""
        found: dict[str, dict[Place, QueueProgress]] = {}
        named: dict[str, bool] = {}
        odd: dict[str, None] = {}
        odd_count = 0
        patience_ms = self._patience_ms // 2
        async for entries in self._admin.groups.progress_in_slices(address, timeout_ms=patience_ms):
            for group, entry in entries:
                if group not in found:
                    if not is_name(group):
                        odd[group] = None
                        continue
                    found[group] = {}
                if entry is None:
                    continue
                queue, one = entry
                topic = queue.topic
                if topic not in named:
                    named[topic] = is_name(topic)
                if named[topic] and is_queue(queue, self._broker_name) and is_progress(one):
                    found[group][topic, queue.queue_id] = one
                else:
                    odd_count += 1
        self._count_odd(PROGRESS, odd_count + len(odd))
        return found

    def _count_odd(self, kind: Kind, count: int) -> None:
        if count:
            self._questions.doubted(
                kind, "odd", f"{count} answers have odd names or figures, and are left out"
            )

    async def _ask_ends(self, look: Look, address: str, until_ms: int) -> None:
        ends = {
            place: one.broker_offset
            for rows in look.progress.values()
            for place, one in rows.items()
        }
        moved = [place[0] for place, end in ends.items() if self._max_of.get(place) != end]
        other = {place[0] for place, end in ends.items() if end < self._max_of.get(place, 0)}
        self._forget_times(other)
        self._max_of = ends
        self.topics = {**self._listed_topics, **dict.fromkeys(topic for topic, _ in ends)}

        async def ask(topic: str) -> None:
            look.ends |= await self._ends_of(address, topic)

        due = self.topic_turns.due(self.topics, urgent=moved)
        await self._questions.each(ENDS, self.topic_turns, due, ask, until_ms=until_ms)

    def forget_topics(self, topics: Collection[str]) -> None:
        """These were made again: their offsets are those of other messages now."""
        self._forget_times(topics)
        if topics:
            self._polled.forget_topics(topics)

    def _forget_times(self, topics: Collection[str]) -> None:
        if not topics:
            return
        self._stored_ms = {key: at for key, at in self._stored_ms.items() if key[0] not in topics}
        self._estimates.forget_topics(topics)

    async def _ends_of(self, address: str, topic: str) -> dict[Place, TopicOffset]:
        """The believable begins and ends of a topic's queues."""
        statuses = await self._admin.topics.status_at(address, topic)
        found = {
            (topic, queue.queue_id): one
            for queue, one in statuses.items()
            if queue.topic == topic and is_queue(queue, self._broker_name) and are_ends(one)
        }
        self._count_odd(ENDS, len(statuses) - len(found))
        return found

    async def _ask_connections(
        self, look: Look, address: str, behind: Collection[str], *, until_ms: int
    ) -> None:
        groups = dict.fromkeys((*look.progress, *self._listed_groups))
        self._members = {name: of for name, of in self._members.items() if name in groups}

        at_proxies = ProxiesAsked(self._admin, self._questions, self._proxies)
        absent: dict[str, None] = {}
        """Groups of which nobody was named."""

        async def ask(group: str) -> None:
            at_broker = await self._connected(address, group)
            if group == proxies.HEARTBEAT_GROUP:
                self._proxy_hosts = proxies.hosts_of(at_broker)
            found = proxies.merged(at_broker, await at_proxies.connected(group))
            look.proxy_of |= {(group, one): at for one, at in found.proxy_of.items()}
            body = found.connection
            if body is None:
                absent[group] = None
                return
            clients = [
                one
                for one in body.connection_set
                if is_client(one.client_id) and is_address(one.client_addr)
            ]
            kept = clients[:MEMBERS_A_GROUP_MAX]
            self._count_odd(CONNECTIONS, len(body.connection_set) - len(kept))
            body.connection_set = kept
            look.connections[group] = body

        due, kind = self._group_turns.due(groups, urgent=behind), CONNECTIONS
        # Among the first, in each look: it says whether others may be connected elsewhere.
        due = list(dict.fromkeys((*due[:1], proxies.HEARTBEAT_GROUP, *due[1:])))
        await self._questions.each(kind, self._group_turns, due, ask, until_ms=until_ms)
        reason = None
        if not at_proxies.is_answered:
            reason = proxies.unreached(self._proxy_hosts or (), self._proxies)
        is_known = at_proxies.is_answered or self._proxy_hosts is not None
        for group in (one for one in absent if one in groups):
            if reason is not None:
                look.members_unknown[group] = reason
            elif is_known:
                look.connections[group] = None
        for group, connection in look.connections.items():
            members = [] if connection is None else connection.connection_set
            names = dict.fromkeys(one.client_id for one in members)
            # A broker passes no question on to a client of a proxy.
            self._members[group] = [one for one in names if (group, one) not in look.proxy_of]

    async def _connected(self, address: str, group: str) -> ConsumerConnection | None:
        """The clients of a group that are connected with the broker; None: nobody."""
        try:
            return await self._admin.groups.connections(address, group)
        except RequestRefused as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return None

    def _everyone(self) -> list[Member]:
        everyone = [(group, name) for group, names in self._members.items() for name in names]
        self._count_odd(MEMBERS, len(everyone[MEMBERS_WATCHED_MAX:]))
        return everyone[:MEMBERS_WATCHED_MAX]

    async def _ask_members(
        self,
        look: Look,
        address: str,
        urgent: Collection[Member],
        stacks_of: Collection[Member],
        *,
        until_ms: int,
    ) -> None:
        async def ask(member: Member) -> None:
            info = await self._admin.groups.running_info(
                address, *member, stacks=member in stacks_of
            )
            look.running[member] = self._believed_info(info)

        due, kind = self._member_turns.due(self._everyone(), urgent=urgent), MEMBERS
        await self._questions.each(kind, self._member_turns, due, ask, until_ms=until_ms)

    def _believed_info(self, info: ConsumerRunningInfo) -> ConsumerRunningInfo:
        """The believable part of a member's answer about this broker's queues."""
        ours = {
            queue: one
            for queue, one in info.mq_table.items()
            if queue.broker_name == self._broker_name
        }
        info.mq_table = {
            queue: one
            for queue, one in ours.items()
            if is_name(queue.topic) and is_queue(queue, self._broker_name) and is_held(one)
        }
        self._count_odd(MEMBERS, len(ours) - len(info.mq_table))
        if not are_subscriptions(info.subscription_set):
            info.subscription_set = []
            self._count_odd(MEMBERS, 1)
        return info

    async def _ask_store_times(self, look: Look, address: str, until_ms: int) -> None:
        offsets = waiting(look.progress)
        wanted = {(key[1], key[2], offset): key for key, offset in offsets.items()}
        self._stored_ms = {key: at for key, at in self._stored_ms.items() if key in wanted}
        unknown = [one for key, one in wanted.items() if key not in self._stored_ms]

        async def ask(waits: Key) -> None:
            _, topic, queue_id = waits
            offset = offsets[waits]
            queue = MessageQueue(topic, self._broker_name, queue_id)
            try:
                found = await self._admin.messages.read(queue, offset, count_max=1, address=address)
            except RequestRefused as error:
                self._may_read = self._may_read and not lacks_a_right(error)
                raise
            self._may_read = True
            for message in found:
                if offset_in(message, topic) == offset and is_moment(message.store_timestamp_ms):
                    self._stored_ms[topic, queue_id, offset] = message.store_timestamp_ms

        # Whose offset moves is not new: those that were asked longest ago come first.
        due, kind = self._message_turns.due(offsets, of=unknown), MESSAGES
        await self._questions.each(kind, self._message_turns, due, ask, until_ms=until_ms)
        look.stored_ms = self._stored_ms
        look.estimates = self._polled.estimates(offsets, self._stored_ms)
        if not self._may_read:
            await self._ask_time_spans(look, address, until_ms)
            look.estimates = {**look.estimates, **self._estimates.known}

    async def _ask_time_spans(self, look: Look, address: str, until_ms: int) -> None:
        """How long messages wait that may not be read."""

        async def ask(pair: tuple[str, str]) -> None:
            asked_ms = self._clock.now_ms()
            spans = await self._admin.groups.time_spans(address, *pair)
            believed = [
                one
                for one in spans
                if one.message_queue.topic == pair[1]
                and is_queue(one.message_queue.queue(), self._broker_name)
            ]
            self._count_odd(TIME_SPANS, len(spans) - len(believed))
            self._estimates.take(
                pair[0],
                look.progress.get(pair[0], {}),
                believed,
                asked_ms=asked_ms,
                answered_ms=self._clock.now_ms(),
            )

        due = self._span_turns.due(self._estimates.wanted(look.progress))
        kind = TIME_SPANS
        await self._questions.each(kind, self._span_turns, due, ask, until_ms=until_ms)

    async def _read_copies(self, look: Look, address: str, until_ms: int) -> None:
        """What has come into the topics of messages that failed."""
        left_out_count = self._copies.seen(look.ends)
        if left_out_count:
            words = f"{left_out_count} copies of failed messages are too many, and are left out"
            self._questions.doubted(FAILED, "many", words)

        async def ask(place: Place) -> None:
            queue = MessageQueue(place[0], self._broker_name, place[1])
            copies = await self._admin.messages.read(
                queue,
                self._copies.next_offset(place),
                count_max=COPIES_A_QUESTION,
                address=address,
            )
            readers = [group for group, rows in look.progress.items() if place in rows]
            look.failed += self._copies.read(place, copies, readers)

        due = self._copy_turns.due(self._copies.unread())
        await self._questions.each(FAILED, self._copy_turns, due, ask, until_ms=until_ms)

    async def _find_originals(self, look: Look, address: str, until_ms: int) -> None:
        """Where messages were first whose copies came."""

        async def ask(key: MessageKey) -> None:
            topic, message_id = key
            found = await self._admin.messages.query(
                topic, message_id, is_unique_key=True, address=address
            )
            self._originals.found(key, found)

        due = self._original_turns.due(self._originals.wanted(look.failed))
        kind = ORIGINALS
        await self._questions.each(kind, self._original_turns, due, ask, until_ms=until_ms)
        look.failed = [self._originals.placed(one) for one in look.failed]


def boot_ms(text: str) -> int:
    """When a broker says that its life began."""
    if not text.isdecimal() or len(text) > MOMENT_DIGITS_MAX:
        raise RemoteProtocolError(f"the broker's bootTimestamp is {text[:80]!r}, not milliseconds")
    return int(text)


def age_ms(runtime: str) -> int | None:
    """How long a broker says that it runs: `[ 0 days, 1 hours, 12 minutes, 3 seconds ]`."""
    units = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
    seconds = 0
    for part in runtime.strip("[] ").split(","):
        number, _, unit = part.strip().partition(" ")
        if not number.isdecimal() or len(number) > 9 or unit not in units:
            return None
        seconds += int(number) * units[unit]
    return seconds * SECOND_MS
