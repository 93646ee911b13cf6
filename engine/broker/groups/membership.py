"""Handles members joining or leaving a group: emits facts and notifies the other members.

Place in the walk: heartbeats, farewells, lost connections and expiry all end here; so do the first
pulls of a new reader, from which ownership is inferred. A member that gets a notice
(NOTIFY_CONSUMER_IDS_CHANGED) asks for the member list and rebalances.

A large group rests after a notice for as long as MEMBER_NOTICES_PER_SECOND allows, and the changes
meanwhile become one: otherwise ten thousand members that leave one after the other would cause
fifty million notices.

Invariant: every change of a group's members or topics is reported once to the observer, and each
member that stays is notified after the newest change (not in broadcasting groups, which share no
queues). Absent on purpose: the tables themselves (state), requests (handlers).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.broker.groups.consumer_filters import ConsumerFilters
from engine.broker.groups.consumer_groups import (
    ConsumerGroup,
    ConsumerGroups,
    Departure,
    Registration,
)
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.members import ClientChannel, ClientIds, client_id_of
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.groups.readers import DoubtfulReaders, QueueKey, Readers
from engine.broker.groups.removals import Removals
from engine.broker.identity import BrokerNode
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import ChunkedWork
from engine.foundation.limits import (
    LOOP_STEP_ENTRIES_MAX,
    MEMBER_NOTICES_AT_ONCE,
    MEMBER_NOTICES_EACH_MS,
    MEMBER_NOTICES_PER_SECOND,
    OWNED_QUEUES_TOLD_MAX,
)
from engine.foundation.observing import Observer, OwnedQueue, RebalanceEvent
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import ConsumerData, HeartbeatData
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import retry_topic
from engine.protocol.reported_subscriptions import how_to_agree
from engine.remoting import Peer
from engine.runtime.clock import Clock


@dataclass(slots=True, kw_only=True, eq=False)
class MemberNotices:
    """The groups whose members have to hear of a change."""

    group_configs: GroupConfigs
    groups: ConsumerGroups
    clock: Clock
    work: ChunkedWork
    _rests_until_ms: dict[str, int] = field(default_factory=dict, init=False)
    """By group, on the steady clock; groups that rest no more are forgotten by `run`."""
    _due: dict[str, None] = field(default_factory=dict, init=False)
    """Groups that changed while they rested."""
    _resting: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def want(self, group: ConsumerGroup) -> None:
        """The group changed: notify its members, unless the group's settings forbid it."""
        config = self.group_configs.look(group.name)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        now_ms = self.clock.steady_ms()
        if self._rests_until_ms.get(group.name, now_ms) > now_ms:
            self._due[group.name] = None
            return
        count = len(group.members)
        if count > MEMBER_NOTICES_AT_ONCE:
            rest_ms = min(count * SECOND_MS // MEMBER_NOTICES_PER_SECOND, MEMBER_NOTICES_EACH_MS)
            self._rests_until_ms[group.name] = now_ms + rest_ms
            self._resting.set()
        self.work.add(self._notified(group.name, group.member_ids()))

    async def run(self) -> None:
        """Report what changed while its group rested, until cancelled."""
        clock = self.clock
        while True:
            await self._resting.wait()
            now_ms = clock.steady_ms()
            for group in [one for one, end in self._rests_until_ms.items() if end <= now_ms]:
                del self._rests_until_ms[group]
                found = self.groups.of(group)
                if group in self._due:
                    del self._due[group]
                    if found is not None:
                        self.want(found)
            if self._rests_until_ms:
                rest_ms = min(self._rests_until_ms.values()) - now_ms
                await asyncio.sleep(max(1, rest_ms) / SECOND_MS)
            else:
                self._resting.clear()

    def _notified(self, name: str, member_ids: list[str]) -> Iterator[None]:
        for number, client_id in enumerate(member_ids, 1):
            group = self.groups.of(name)
            member = None if group is None else group.members.get(client_id)
            if member is not None:
                command = RemotingCommand.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}
                )
                command.mark_oneway()
                member.channel.peer.send(command)
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield


_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Membership:
    """Applies what clients say about themselves, and what their connections show."""

    changes: TableChanges
    client_ids: ClientIds
    clock: Clock
    doubtful_readers: DoubtfulReaders
    emit_marks: Callable[[Sequence[QueueKey]], None]
    filters: ConsumerFilters
    group_configs: GroupConfigs
    groups: ConsumerGroups
    node: BrokerNode
    notices: MemberNotices
    """What members still have to hear."""
    observer: Observer
    committed: Callable[[str, str, int], int | None]
    producers: ProducerGroups
    readers: Readers
    removals: Removals
    topics: Topics
    work: ChunkedWork
    _unjudged: dict[str, str] = field(default_factory=dict, init=False)
    """Large groups in which somebody reported another subscription, and who did so last."""
    _is_stopping: bool = field(default=False, init=False)

    def check_room(
        self, data: HeartbeatData, account: str | None, *, keep_subscription: bool
    ) -> None:
        """Raise RequestRefused when there is no room for all that the heartbeat says: then nothing
        of it counts, and nothing has changed.
        """
        heard = [
            one
            for one in data.consumer_data_set
            if self.group_configs.is_to_be_found(one.group_name)
        ]
        self.group_configs.check_room([one.group_name for one in heard])
        self.topics.check_room(
            [
                retry_topic(one.group_name)
                for one in heard
                if self.group_configs.retry_queue_nums(one.group_name) > 0
            ]
        )
        self.groups.check_room(heard, data.client_id, account, keep_subscription=keep_subscription)
        producers = [one.group_name for one in data.producer_data_set]
        self.producers.check_room(producers, data.client_id, account)

    def heartbeat(
        self, channel: ClientChannel, data: ConsumerData, *, keep_subscription: bool
    ) -> bool:
        """Take a consumer's heartbeat for one group; return whether its subscription changed.

        Asks nobody whether there is room for it (`check_room`). A group that has to be created
        first is passed over, as RocketMQ does: its pulls are answered SUBSCRIPTION_GROUP_NOT_EXIST.
        While its settings, or its retry topic, are being deleted they are not made: the next
        heartbeat makes them.
        """
        name = data.group_name
        is_leaving = name in self.group_configs.being_deleted
        config = None if is_leaving else self.group_configs.find(name)
        if config is None and not is_leaving:
            _log.warning(
                "%s: group %s does not exist and is not created by itself "
                "(autoCreateSubscriptionGroup); create it with updateSubGroup",
                *(channel.client_id, data.group_name),
            )
            return False
        if config is not None and config.retry_queue_nums > 0:
            self._make_retry_topic(name, config.retry_queue_nums)
        change = self.groups.register(
            data, channel, keep_subscription=keep_subscription, now_ms=self.clock.steady_ms()
        )
        if not keep_subscription:
            self._select(data)
        self._emit_registration(data.group_name, channel.client_id, change)
        group = self.groups.of(data.group_name)
        assert group is not None, f"{data.group_name} has just got a member"
        self._emit_disagreement(group, channel.client_id)
        if (
            change.joined or change.reconnected or change.topics_changed
        ) and not group.broadcasting:
            self.notices.want(group)
        return change.topics_changed

    def _make_retry_topic(self, group: str, queue_nums: int) -> None:
        topics, topic = self.topics, retry_topic(group)
        if topic in topics.being_deleted:
            return
        _, made = topics.ensure(topic, queue_nums)
        if made:
            self.changes.of_topics()

    def _select(self, data: ConsumerData) -> None:
        """Keep the selectors of a subscription."""
        before = self.filters.counter
        for sentence in self.filters.register(
            data.group_name, data.subscription_data_set, now_ms=self.clock.now_ms()
        ):
            _log.warning("%s", sentence)
        if self.filters.counter != before:
            self.changes.of_settings()

    def farewell(self, group: str, client_id: str) -> None:
        """The client unregistered."""
        departure = self.groups.unregister(group, client_id)
        if departure is not None:
            self._departed(departure, "LEFT", "UNREGISTERED")

    def stop(self) -> None:
        """The broker stops: whose connection ends from now on was not lost."""
        self._is_stopping = True

    def lost(self, peer: Peer, reason: str = "CONNECTION_LOST") -> None:
        """A client's connection ended, or names another client from now on."""
        if self._is_stopping:
            reason = "BROKER_STOPPED"
        self.producers.lost(peer)
        client_id = client_id_of(peer)
        if client_id is not None:
            self.client_ids.release(client_id, peer)
        for departure in self.groups.lost(peer):
            self._departed(departure, "LEFT", reason)

    def expire(self) -> Iterator[None]:
        """Remove clients without heartbeats, and close their connections; one after the other."""
        expiry_ms = self.node.config.client_expiry_ms
        now_ms = self.clock.steady_ms()
        yield from self.producers.expire(now_ms, expiry_ms)
        yield
        if self.filters.forget_old(self.clock.now_ms()):
            self.changes.of_settings()
        yield
        for silent in self.groups.silent(now_ms, expiry_ms):
            if silent is None:
                yield
                continue
            departure = self.groups.unregister_silent(*silent, now_ms=now_ms, expiry_ms=expiry_ms)
            if departure is None:
                continue  # It was heard, or it left, while others were removed.
            self._departed(departure, "EXPIRED", "HEARTBEAT_EXPIRED")
            departure.channel.peer.close(
                f"no heartbeat of {departure.client_id} for {expiry_ms} ms"
            )
            yield

    def reader_changed(self, key: QueueKey, client_id: str, previous: str | None) -> None:
        """A queue of a group was pulled by somebody who did not pull it last."""
        group = key[0]
        if previous is not None:
            doubtful, place = self.doubtful_readers, (key[1], key[2])
            doubtful.arises((group, previous), place, self.clock.steady_ms())
            self._emit_ownership(group, previous, "REVOKED", [key])
        self._emit_ownership(group, client_id, "ASSIGNED", [key])
        if previous is not None:
            self.emit_marks([key])

    def queues_changed(self, topic: str, before: int, after: int) -> None:
        """A topic's readable queues changed: its groups are about to rebalance."""
        self.work.add(self._emit_queues_changed(topic, before, after))

    def _emit_queues_changed(self, topic: str, before: int, after: int) -> Iterator[None]:
        names_before = [f"{topic}:{queue_id}" for queue_id in range(before)]
        names_after = [f"{topic}:{queue_id}" for queue_id in range(after)]
        concerned = [group.name for group in self.groups.all() if topic in group.subscriptions]
        per_step = max(1, LOOP_STEP_ENTRIES_MAX // (1 + (before + after) // 8))
        for number, group in enumerate(concerned, 1):
            self._emit(group, None, "QUEUES_CHANGED", before=names_before, after=names_after)
            if not number % per_step:
                yield

    def _departed(self, departure: Departure, kind: str, reason: str) -> None:
        keys = self.readers.release(departure.group, departure.client_id)
        self._emit(
            *(departure.group, departure.client_id, kind),
            generation=departure.generation,
            before=departure.members_before,
            after=departure.members_after,
            queues=self._owned(keys[:OWNED_QUEUES_TOLD_MAX]),
            reason=reason,
        )
        self.emit_marks(keys)
        group = self.groups.of(departure.group)
        if group is None:
            self.filters.unregister(departure.group, now_ms=self.clock.now_ms())
            self.changes.of_settings()
            self.removals.group_lost(departure.group)
            return
        self._emit_disagreement(group, departure.client_id)
        if not departure.broadcasting:
            self.notices.want(group)

    def judge(self) -> Iterator[None]:
        """Say of large groups whether their members subscribe alike; called each second, because
        that is too much to ask at each of their heartbeats.
        """
        unjudged, self._unjudged = self._unjudged, {}
        for name, client_id in unjudged.items():
            group = self.groups.of(name)
            if group is not None:
                self._emit_disagreement(group, client_id, judged=True)
            yield

    def _emit_disagreement(
        self, group: ConsumerGroup, client_id: str, *, judged: bool = False
    ) -> None:
        """Members that subscribe differently fight: say so once per state of it."""
        if not group.reported_changed:
            return
        if len(group.members) > MEMBER_NOTICES_AT_ONCE and not judged:
            self._unjudged[group.name] = client_id
            return
        group.reported_changed = False
        disagreement = group.disagreement()
        if disagreement == group.disagreement_emitted:
            return
        before, group.disagreement_emitted = group.disagreement_emitted, disagreement
        reason = how_to_agree(disagreement, group.reported, self._queues_of)
        _log.warning("group %s: %s", group.name, reason)
        who = (group.name, client_id)
        self._emit(*who, "SUBSCRIPTION_CONFLICT", before=before, after=disagreement, reason=reason)

    def _queues_of(self, topic: str) -> int | None:
        config = self.topics.find(topic)
        return None if config is None else config.read_queue_nums

    def _emit_registration(self, group: str, client_id: str, change: Registration) -> None:
        emit = partial(self._emit, group, client_id, generation=change.generation)
        if change.joined:
            before, after = change.members_before, change.members_after
            emit("JOINED", before=before, after=after)
        if change.shared_with is not None:
            self._emit_shared(group, client_id, change)
        if change.subscription_before != change.subscription_after:
            before, after = change.subscription_before, change.subscription_after
            emit("SUBSCRIPTION_CHANGED", before=before, after=after)

    def _emit_shared(self, group: str, client_id: str, change: Registration) -> None:
        """Two processes bear one client id: the group takes them for one member, so both read the
        same queues and others are read by nobody.
        """
        found = self.groups.of(group)
        member = None if found is None else found.members.get(client_id)
        here = "unknown" if member is None else member.channel.peer.address
        reason = (
            f"heartbeats of {client_id} come from {change.shared_with} and {here} in turn: two "
            "processes bear one client id and read the same queues; give each an instanceName of "
            "its own"
        )
        _log.warning("group %s: %s", group, reason)
        self._emit(
            *(group, client_id, "CLIENT_ID_SHARED"),
            generation=change.generation,
            before=[str(change.shared_with)],
            after=[here],
            reason=reason,
        )

    def _emit(
        self,
        group: str,
        client_id: str | None,
        kind: str,
        *,
        generation: int | None = None,
        **changed: Any,
    ) -> None:
        """`generation`: that of now, when none is given; `changed`: other fields of the event."""
        now = self.groups.generation(group) if generation is None else generation
        event = RebalanceEvent(group, client_id, kind, inferred=False, generation=now, **changed)
        self.observer.observe(event)

    def _emit_ownership(
        self, group: str, client_id: str, kind: str, keys: Iterable[QueueKey]
    ) -> None:
        self.observer.observe(
            RebalanceEvent(
                group=group,
                client_id=client_id,
                kind=kind,
                inferred=True,
                generation=self.groups.generation(group),
                queues=self._owned(keys),
            )
        )

    def _owned(self, keys: Iterable[QueueKey]) -> list[OwnedQueue]:
        owned = []
        for key in keys:
            group, topic, queue_id = key
            reading = self.readers.of(key)
            owned.append(
                OwnedQueue(
                    topic=topic,
                    queue_id=queue_id,
                    committed=self.committed(group, topic, queue_id),
                    pulled=None if reading is None else reading.pulled_offset,
                )
            )
        return owned
