"""Derives from broker polls the facts that the broker would report about itself.

Place in the walk: `Look` after `Look` → facts → spool. Pure: time comes with the looks.

A poll differs from a report. A consume offset that has moved was committed at some moment between
two looks: its row says the later one. What the broker's disk knows is taken to be what was
committed PERSISTED_AFTER_MS before, as the broker writes its offsets each 5 s. An offset of 0 is a
broker's word for "none" as well: it counts as an offset as long as the first message of the queue
is there, where both mean the same. What nobody answered is null.

Invariant: a mark is emitted when it differs from the last one emitted, and in each snapshot; a
snapshot ends when every topic has been asked since it began. Members and owners are emitted when
they differ from the look before. Absent on purpose: asking, rows, and seq.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.admin.api.groups import QueueProgress
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, WINDOWS_TOLD_MAX
from engine.foundation.observing import (
    ClientWindow,
    ConsumeStats,
    DelayLevel,
    FlushDone,
    GroupWatermark,
    LifecycleEvent,
    OffsetReport,
    OwnedQueue,
    PopWatermark,
    QueueWatermark,
    RebalanceEvent,
    Redelivery,
    RetryStep,
    UnreadDeletion,
    committed_state,
)
from engine.foundation.units import MILLISECOND_US, MINUTE_MS, SECOND_MS
from engine.observer.believable import is_name
from engine.observer.failed_messages import is_of_failed, steps_of
from engine.observer.members_seen import BROADCASTING, GroupSeen, SilentMembers, broadcast_mark
from engine.observer.offsets_seen import Commits, Pulls, deleted_unread, fall_of
from engine.observer.own_figures import FiguresSeen
from engine.observer.poll_result import Look, Member, Place, unread_by_topic
from engine.observer.pop_marks import PopMarks
from engine.observer.roles_seen import RolesSeen
from engine.observer.topics_seen import TopicsSeen, lite_topics_in, of_topics
from engine.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, TopicConfig, TopicOffset
from engine.protocol.left_topics import LeftTopics
from engine.protocol.names import PERM_READ
from engine.protocol.reported_subscriptions import meant
from engine.telemetry.members.answers import (
    consume_threads,
    is_orderly,
    stack_of,
    taken_whole,
    window_of,
)
from engine.telemetry.members.client_clocks import ClientClocks
from engine.telemetry.members.emitted import EmittedStats, EmittedWindows, stats_of

QUEUES_WATCHED_MAX: Final = 100_000
"""Of one broker; nothing is reported of those beyond."""
SNAPSHOT_EACH_MS: Final = 10 * MINUTE_MS
STANDS_AFTER_MS: Final = 30 * SECOND_MS
"""A head that was there for so long is a reason to ask where its listener stands."""
STACKS_EACH_MS: Final = 10 * MINUTE_MS
"""A member is asked for its stacks no more often: it stops a Java client for milliseconds."""
STACKS_A_LOOK: Final = 5
SKEW_TOLD_MS: Final = SECOND_MS
"""The broker's age is reported to a second."""

CLUSTERING: Final = "CLUSTERING"

Key = tuple[str, str, int]
"""(group, topic, queue_id)"""
Emitted = (
    LifecycleEvent
    | QueueWatermark
    | GroupWatermark
    | OffsetReport
    | UnreadDeletion
    | RebalanceEvent
    | Redelivery
    | ClientWindow
    | ConsumeStats
    | RetryStep
    | FlushDone
    | DelayLevel
    | PopWatermark
)


@dataclass(slots=True)
class _Owner:
    client_id: str
    last_pull_ms: int | None
    pulled: int | None
    unfinished: int | None = None
    """The first offset that it has not finished, by its own account."""


class Facts:
    """The facts that were emitted of one broker, and the next ones."""

    def __init__(
        self,
        observed_by: str,
        period_ms: int,
        broker_name: str,
        *,
        earlier: Mapping[Key, int] | None = None,
        roles: Mapping[str, int] | None = None,
        name_servers: str | None = None,
        lives: TopicsSeen | None = None,
    ) -> None:
        """`earlier`, `roles`, `lives`: as the broker's life before knew them last."""
        self.roles = RolesSeen(roles)
        self._lives = TopicsSeen() if lives is None else lives
        self._lived = self._lives.lived
        self.made_again: set[str] = set()
        """Topics that are gone, or found to be other ones, at the newest look."""
        self._name_servers = name_servers
        self._address: str | None = None
        self._earlier = dict(earlier or {})
        """Of those that were not seen in this life yet."""
        self._observed_by = observed_by
        self._period_ms = period_ms
        self._broker_name = broker_name
        self._skew_ms: int | None = None
        self._is_emitted = False
        self._queues: dict[Place, QueueWatermark] = {}
        self._ends: dict[Place, TopicOffset] = {}
        self._commits: dict[Key, Commits] = {}
        self._emitted: dict[Key, GroupWatermark] = {}
        self._owners: dict[Key, _Owner] = {}
        self._pulls: dict[Key, Pulls] = {}
        self._groups: dict[str, GroupSeen] = {}
        self._listed: frozenset[str] = frozenset()
        """Groups that the broker listed last."""
        self._snapshot_from_ms: int | None = None
        self._emitted_since: dict[Place | Key, None] = {}
        """Marks that were reported since the newest snapshot began."""
        self._topics: Mapping[str, TopicConfig] = {}
        """As the broker listed them last."""
        self.is_full = False
        """Are there more queues than are watched?"""
        self._windows, self._clocks = EmittedWindows(SNAPSHOT_EACH_MS), ClientClocks()
        self._unplaced: dict[Key, ClientWindow] = {}
        """Windows of members on queues whose first mark of the group is not emitted yet."""
        self._stacks_asked_ms: dict[Member, int] = {}
        """When each member was asked for its stacks."""
        self._figures = FiguresSeen()
        self._popped = PopMarks()
        self._silent = SilentMembers(SNAPSHOT_EACH_MS)
        self._left = LeftTopics()
        self._stats = EmittedStats(rest_ms=2 * period_ms, interval_ms=SNAPSHOT_EACH_MS)

    def of(
        self, look: Look, *, snapshot_from_ms: int | None, losses: int = 0
    ) -> Iterator[Emitted | None]:
        """The facts of a look; in a snapshot that began then all marks once, changed or not. None:
        so many marks were looked at that others should run before the next.

        losses: how often reported rows were lost so far, -1 while they are: what members said then
        is reported again at their next answer.
        """
        if snapshot_from_ms is not None and snapshot_from_ms != self._snapshot_from_ms:
            self._snapshot_from_ms = snapshot_from_ms
            self._emitted_since.clear()
        yield from self._observed(look)
        yield from self.roles.change(look.roles)
        yield from self._gone(look)
        if look.topics is not None:
            self._topics = look.topics
        for place, ends in look.ends.items():
            if place in self._ends or len(self._ends) < QUEUES_WATCHED_MAX:
                self._ends[place] = ends
            else:
                self.is_full = True
        yield from self._queue_marks(look, in_snapshot=snapshot_from_ms is not None)
        for group, reason in look.members_unknown.items():
            self._groups.setdefault(group, GroupSeen()).unknown_reason = reason
        for group, connection in look.connections.items():
            yield from self._membership(group, connection, look.at_ms, look.proxy_of)
        topics = {topic for topic, _ in self._ends}
        for member, info in look.running.items():
            if info.says_nothing:
                yield from self._silent.of(member, self._kind_of(member), look.at_ms)
                continue
            yield from self._held(member, info, look, losses=losses)
            yield from self._worked(member, info, topics, look.at_ms, losses=losses)
        for group in dict.fromkeys((*look.connections, *(group for group, _ in look.running))):
            if group in self._groups:
                yield from self._groups[group].conflict(group, self._queues_of)
        yield from self._leave(look)
        yield from self._figures.of(look.figures, look.delays_ms, look.at_ms)
        yield from self._group_marks(look, in_snapshot=snapshot_from_ms is not None)
        yield from self._broadcast_marks(in_snapshot=snapshot_from_ms is not None)
        yield from self._popped.of(look, snapshot_from_ms=snapshot_from_ms)
        for failed in look.failed:
            yield from steps_of(failed)

    def _leave(self, look: Look) -> Iterator[LifecycleEvent]:
        """Topics that groups have left: no mark of theirs is reported any more."""
        for group, known in self._groups.items():
            if not known.members:
                self._left.pause(group)
            elif known.message_model != BROADCASTING:
                unread = unread_by_topic(look.progress.get(group, {}))
                yield from self._left.look(group, known.subscriptions(), unread, look.at_ms)

    def _kind_of(self, member: Member) -> str | None:
        group, client_id = member
        return self._groups[group].kinds.get(client_id) if group in self._groups else None

    def ends(self, at_ms: int) -> Iterator[Emitted]:
        """Facts that nothing of the broker is there any more."""
        nothing = Look(
            at_ms, 0, None, progress={}, topics={}, groups=frozenset(), address=self._address
        )
        yield from self._gone(nothing)

    def offsets(self) -> dict[Key, int]:
        """Consume offsets as they were seen last, for the broker's next life."""
        seen = {key: one.offset for key, one in self._commits.items() if one.offset is not None}
        return {**self._earlier, **seen}

    def lives(self) -> TopicsSeen:
        """What was seen of topics, for the broker's next life."""
        self._lives.broker_began(self._ends)
        return self._lives

    def wanted_stacks(self, now_ms: int) -> list[Member]:
        """Members to be asked where their listeners stand: they count as asked."""
        wanted: list[Member] = []
        for group, known in self._groups.items():
            for client_id in known.members or ():
                if len(wanted) >= STACKS_A_LOOK:
                    return wanted
                member = (group, client_id)
                asked_ms = self._stacks_asked_ms.get(member)
                if asked_ms is not None and now_ms - asked_ms < STACKS_EACH_MS:
                    continue
                standing = self._windows.standing(*member, since_ms=now_ms - STANDS_AFTER_MS)
                if standing and not self._windows.has_stack(*member, standing):
                    self._stacks_asked_ms[member] = now_ms
                    wanted.append(member)
        return wanted

    def _observed(self, look: Look) -> Iterator[LifecycleEvent]:
        moved = (
            look.skew_ms is not None
            and self._skew_ms is not None
            and abs(look.skew_ms - self._skew_ms) > SKEW_TOLD_MS
        )
        moved = moved or look.address != self._address
        if self._is_emitted and not moved:
            return
        self._is_emitted, self._skew_ms, self._address = True, look.skew_ms, look.address
        yield LifecycleEvent(
            "OBSERVED",
            f"{self._broker_name} is asked each {self._period_ms} ms by {self._observed_by}",
            observed_by=self._observed_by,
            report_each_ms=self._period_ms,
            skew_ms=look.skew_ms,
            address=look.address,
            name_servers=self._name_servers,
        )

    def _gone(self, look: Look) -> Iterator[LifecycleEvent | RebalanceEvent | ClientWindow]:
        """Topics and groups that the broker lists no more, and topics that are other ones."""
        if look.topics is not None:
            listed = look.topics.keys() | lite_topics_in(look.progress)
            self._earlier = {key: at for key, at in self._earlier.items() if key[1] in listed}
        changes = list(self._lives.changes(look, self._ends))
        yield from changes
        self.made_again = of_topics(changes)
        if self.made_again:
            self._forget_topics(self.made_again)
        here = look.progress
        if look.groups is not None:
            for group in sorted(self._listed - look.groups - here.keys()):
                yield LifecycleEvent("GROUP_GONE", f"{group} is listed no more", group=group)
                if group in self._groups:
                    yield from self._membership(group, None, look.at_ms)
                    del self._groups[group]
                    self._left.forget(group)
                self._forget([key for key in self._emitted if key[0] == group])
            self._listed = look.groups
        self._listed |= here.keys()
        # Without an offset it is as one that was never there: it begins anew when it has one again.
        self._forget([key for key in self._commits if key[1:] not in here.get(key[0], {})])

    def _forget_topics(self, topics: Container[str]) -> None:
        """No offset of theirs means anything any more."""
        for place in [place for place in self._ends if place[0] in topics]:
            del self._ends[place]
            self._queues.pop(place, None)
        known = {**self._emitted, **self._commits, **self._pulls, **self._owners}
        self._forget([key for key in known if key[1] in topics])
        self._earlier = {key: at for key, at in self._earlier.items() if key[1] not in topics}
        self._windows.forget_topics(topics)
        self._unplaced = {key: one for key, one in self._unplaced.items() if key[1] not in topics}
        self._lived.other_life(topics)

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._commits.pop(key, None)
            self._pulls.pop(key, None)
            self._emitted.pop(key, None)
            self._owners.pop(key, None)

    def _queue_marks(self, look: Look, *, in_snapshot: bool) -> Iterator[QueueWatermark | None]:
        ends_of = self._ends if in_snapshot else look.ends
        for count, (place, ends) in enumerate(ends_of.items(), 1):
            if count % LOOP_STEP_ENTRIES_MAX == 0:
                yield None
            mark = QueueWatermark(
                *place,
                min_offset=ends.min_offset,
                max_offset=ends.max_offset,
                flushed_offset=None,
                replicated_offset=None,
                last_store_time_ms=ends.last_update_timestamp_ms or None,
                readable=self._is_readable(place),
            )
            is_due = in_snapshot and place not in self._emitted_since
            if is_due or self._queues.get(place) != mark:
                self._queues[place] = mark
                self._emitted_since[place] = None
                yield mark

    def _queues_of(self, topic: str) -> int | None:
        config = self._topics.get(topic)
        return None if config is None else config.read_queue_nums

    def _is_readable(self, place: Place) -> bool:
        """May anybody read it? Nobody said otherwise of a topic that was not listed yet."""
        topic, queue_id = place
        config = self._topics.get(topic)
        if config is None:
            return True
        return queue_id < config.read_queue_nums and bool(config.perm & PERM_READ)

    def _group_marks(
        self, look: Look, *, in_snapshot: bool
    ) -> Iterator[GroupWatermark | OffsetReport | UnreadDeletion | ClientWindow | None]:
        count = 0
        for group, rows in look.progress.items():
            for place, progress in rows.items():
                count += 1
                if count % LOOP_STEP_ENTRIES_MAX == 0:
                    yield None
                ends = self._ends.get(place)
                if ends is None:  # Nobody has asked yet where its queue begins.
                    continue
                if (group, place[0]) in self._left:
                    self._forget([(group, *place)])
                    continue
                if place[0] in self.made_again and look.may_precede(place, progress, ends):
                    continue
                key = (group, *place)
                path, before = "OBSERVED", self._earlier.pop(key, None)
                if key in self._commits:
                    before = None if self._was_beyond(key) else self._commits[key].offset
                elif before is not None:
                    path = "RESTORE"  # The broker has begun with it.
                mark = self._mark(key, progress, ends, look)
                fall = fall_of(mark, before, path)
                if fall is not None:
                    yield fall
                deletion = deleted_unread(self._emitted.get(key), mark)
                if deletion is not None:
                    yield deletion
                is_due = in_snapshot and key not in self._emitted_since
                if is_due or mark.reports or self._emitted.get(key) != mark:
                    self._emitted[key] = replace(mark, reports=0)
                    self._emitted_since[key] = None
                    yield mark
                held = self._unplaced.pop(key, None)
                if held is not None:  # A window before the first mark speaks of no known queue.
                    yield held

    def _was_beyond(self, key: Key) -> bool:
        """Was its offset beyond the end of its queue, so that it was of no message of it?"""
        mark = self._emitted.get(key)
        return mark is not None and (mark.committed or 0) > mark.max_offset

    def _broadcast_marks(self, *, in_snapshot: bool) -> Iterator[GroupWatermark | None]:
        """Of groups whose members keep their own offsets: nobody else knows how far they are."""
        for group, known in self._groups.items():
            if known.message_model != BROADCASTING or known.members is None:
                continue  # One whose members have left stays what it was.
            wanted = {topic for topic in known.topics if not is_of_failed(topic)}
            for count, (place, ends) in enumerate(self._ends.items(), 1):
                if count % LOOP_STEP_ENTRIES_MAX == 0:
                    yield None
                key = (group, *place)
                if place[0] not in wanted or key in self._commits:
                    continue
                mark = broadcast_mark(key, ends, known)
                if (in_snapshot and key not in self._emitted_since) or self._emitted.get(
                    key
                ) != mark:
                    self._emitted[key] = mark
                    self._emitted_since[key] = None
                    self._unplaced.pop(key, None)
                    yield mark

    def _mark(
        self, key: Key, progress: QueueProgress, ends: TopicOffset, look: Look
    ) -> GroupWatermark:
        group, topic, queue_id = key
        end = max(progress.broker_offset, 0)
        is_none = progress.consumer_offset <= 0 < ends.min_offset
        committed = None if is_none else max(progress.consumer_offset, 0)
        if key not in self._commits:
            self._commits[key] = Commits(committed, seen=deque([(look.at_ms, committed)]))
        commit = self._commits[key]
        has_moved = commit.see(committed, look.at_ms)
        owner, known = self._owners.get(key), self._groups.get(group)
        pulled = progress.pull_offset if progress.pull_offset > 0 else None
        if owner is not None and owner.pulled is not None:
            pulled = max(pulled or 0, owner.pulled)
        if pulled is not None:  # Of a member that was asked after the broker.
            pulled = min(pulled, end)
        if pulled is not None and committed is not None:  # Beyond the end both are of another life.
            pulled = max(pulled, committed) if committed <= end else None
        state = committed_state(
            committed, ends.min_offset, end, readable=self._is_readable((topic, queue_id))
        )
        stored_ms = error_ms = None
        if state == "EXACT" and committed is not None:
            stored_ms = look.stored_ms.get((topic, queue_id, committed))
            estimate = look.estimates.get(key)
            if stored_ms is None and estimate is not None and estimate.offset == committed:
                stored_ms, error_ms = estimate.stored_ms, estimate.error_ms
        return GroupWatermark(
            *key,
            pulled=pulled,
            processed=None,
            committed=committed,
            persisted=commit.persisted,
            committed_state=state,
            store_time_at_committed_ms=stored_ms,
            min_offset=min(ends.min_offset, end),
            max_offset=end,
            last_store_time_ms=ends.last_update_timestamp_ms or None,
            last_puller=None if owner is None else owner.client_id,
            lock_holder=None,
            last_pull_time_ms=None if owner is None else owner.last_pull_ms,
            last_commit_time_ms=commit.moved_ms,
            reports=1 if has_moved else 0,
            message_model=None if known is None else known.message_model,
            members=None if known is None else known.member_count,
            store_time_error_ms=error_ms,
            members_unknown_reason=None if known is None else known.unknown_reason,
            began=owner.unfinished if owner is not None and committed is None else None,
        )

    def _membership(
        self,
        group: str,
        connection: ConsumerConnection | None,
        at_ms: int,
        proxy_of: Mapping[Member, str] | None = None,
    ) -> Iterator[RebalanceEvent | ClientWindow]:
        known = self._groups.setdefault(group, GroupSeen())
        known.unknown_reason = None
        clients = [] if connection is None else connection.connection_set
        addresses: dict[str, list[str]] = {}
        for one in clients:
            addresses.setdefault(one.client_id, []).append(one.client_addr)
        members = {one.client_id: one for one in clients}
        known.kinds = {one.client_id: f"{one.language} {one.version}" for one in clients}
        now: dict[str, None] = dict.fromkeys(addresses)
        before, known.members = known.members or {}, now
        if connection is not None:
            # Others (LITE_SELECTIVE of 5.5) share offsets as well, and no reader knows the word.
            model = connection.message_model
            known.message_model = model if model in (None, BROADCASTING) else CLUSTERING
            known.topics = tuple(filter(is_name, connection.subscription_table))
        came, left = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
        for client_id in (*came, *left):
            known.generation += 1
            has_joined = client_id in now
            owned = [] if has_joined else self._owned(group, client_id)
            proxy = (proxy_of or {}).get((group, client_id))
            yield RebalanceEvent(
                group,
                client_id,
                "JOINED" if has_joined else "LEFT",
                inferred=False,
                generation=known.generation,
                before=sorted(before),
                after=sorted(now),
                queues=None if has_joined else [self._owned_queue(key) for key in owned],
                reason=None if has_joined else "NOT_CONNECTED",
                language=members[client_id].language if has_joined else None,
                client_version=members[client_id].version if has_joined else None,
                proxy=proxy,
                subscription=None if proxy is None else _subscription(connection),
            )
            if not has_joined:
                for window in self._windows.forget(group, client_id):
                    if window is not None:
                        self._unplaced.pop((group, window.topic, window.queue_id), None)
                        yield window
                self._stats.forget(group, client_id)
                self._clocks.forget(client_id)
                self._stacks_asked_ms.pop((group, client_id), None)
                for key in owned:
                    del self._owners[key]
                known.left(client_id)
                self._lived.left((group, client_id))
        yield from known.connected(group, addresses, at_ms)

    def _owned(self, group: str, client_id: str) -> list[Key]:
        return [
            key
            for key, owner in self._owners.items()
            if key[0] == group and owner.client_id == client_id
        ]

    def _owned_queue(self, key: Key) -> OwnedQueue:
        commit, owner = self._commits.get(key), self._owners.get(key)
        return OwnedQueue(
            key[1],
            key[2],
            None if commit is None else commit.offset,
            None if owner is None else owner.pulled,
        )

    def _held(
        self, member: Member, info: ConsumerRunningInfo, look: Look, *, losses: int
    ) -> Iterator[RebalanceEvent | ClientWindow | Redelivery | OffsetReport]:
        """A member's answer: which queues it reads, and what it holds of them."""
        at_ms, epoch = look.at_ms, look.boot_ms * MILLISECOND_US
        group, client_id = member
        if group in self._groups:
            subscription = tuple(sorted(meant(one) for one in info.subscription_set))
            yield from self._groups[group].subscribes(group, client_id, subscription, at_ms)
        held: dict[Place, None] = {}
        stacks, standing = None, list[Place]()
        if info.jstack is not None:
            stacks = consume_threads(info.jstack)
            standing = self._windows.standing(*member, since_ms=at_ms - STANDS_AFTER_MS)
        orderly, whole = is_orderly(info), taken_whole(info)
        ahead_ms = self._clocks.ahead_ms(client_id, info, at_ms)
        for queue, process_queue in sorted(info.mq_table.items()):
            place = (queue.topic, queue.queue_id)
            if queue.broker_name != self._broker_name or place not in self._ends:
                continue
            held[place] = None
            window = window_of(
                *(group, client_id, queue, process_queue),
                orderly=orderly,
                takes_all=whole.get(queue.topic),
                ahead_ms=ahead_ms,
            )
            if place in standing:
                window.stack = stack_of(process_queue, stacks)
            goes_on = self._lived.holds(window, process_queue, self._ends[place])
            if goes_on is not None:
                yield goes_on
            if not process_queue.dropped:
                yield from self._read_by((group, *place), client_id, window)
                yield from self._pulled_again(window, epoch)
            is_news = self._windows.is_news(window, at_ms, losses=losses)
            if (group, *place) not in self._emitted and len(self._unplaced) < WINDOWS_TOLD_MAX:
                self._unplaced[group, *place] = window
                is_news &= place not in look.progress.get(group, ())  # Its mark comes in this look.
            if is_news:
                yield window
        for gone in self._windows.given_up(group, client_id, held):
            if gone is not None:
                self._unplaced.pop((group, gone.topic, gone.queue_id), None)
                yield gone

    def _pulled_again(self, window: ClientWindow, epoch: int) -> Iterator[Redelivery]:
        if window.first_held is None or window.last_held is None:
            return
        key = window.group, window.topic, window.queue_id
        again = self._pulls.setdefault(key, Pulls()).see(
            *(window.client_id, window.first_held, window.last_held),
            end=self._ends[key[1:]].max_offset,
        )
        if again is not None:
            yield Redelivery(
                *key,
                again.from_offset,
                again.to_offset,
                client_id=window.client_id,
                previous_client_id=again.previous_client_id,
                broker_epoch_before=epoch,
                delivered_count=None,
            )

    def _worked(
        self,
        member: Member,
        info: ConsumerRunningInfo,
        topics: Container[str],
        at_ms: int,
        *,
        losses: int,
    ) -> Iterator[ConsumeStats]:
        """How it works on topics that are here: others may have any name."""
        figures = {topic: one for topic, one in info.status_table.items() if topic in topics}
        for stats in stats_of(*member, info, figures):
            if self._stats.is_news(stats, at_ms, losses=losses):
                yield stats

    def _read_by(self, key: Key, client_id: str, window: ClientWindow) -> Iterator[RebalanceEvent]:
        before = self._owners.get(key)
        pulled = None if window.last_held is None else window.last_held + 1
        if pulled is None:
            pulled = window.client_committed
        generation = self._groups[key[0]].generation if key[0] in self._groups else 0
        if before is None or before.client_id != client_id:
            queues = [self._owned_queue(key)]
            if before is not None:
                yield RebalanceEvent(
                    key[0],
                    before.client_id,
                    "REVOKED",
                    inferred=True,
                    generation=generation,
                    queues=queues,
                )
            yield RebalanceEvent(
                key[0], client_id, "ASSIGNED", inferred=True, generation=generation, queues=queues
            )
        unfinished = window.client_committed
        if unfinished is None:
            unfinished = window.first_held
        self._owners[key] = _Owner(client_id, window.last_pull_time_ms, pulled, unfinished)


def _subscription(connection: ConsumerConnection | None) -> list[str]:
    subscriptions = {} if connection is None else connection.subscription_table
    return sorted(meant(one) for one in subscriptions.values() if is_name(one.topic))
