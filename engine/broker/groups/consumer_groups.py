"""Tracks the members and subscriptions of every consumer group, and all changes to them.

Place in the walk: heartbeats enter here; rebalancing clients read the member list, pulls find their
subscription, and the members that stay are notified of departures (rows B1 and B2).

Invariant: the subscription is the group's, not the member's: a heartbeat removes every topic that
it does not contain and adds its own, and a topic's expression is replaced only by a newer version.
RocketMQ does so, and two members that subscribe differently therefore fight; that is evidence, not
something to repair here. What a heartbeat, a farewell or a lost connection costs grows with the
groups of that client, never with those of all. Absent on purpose: offsets, queues, notifications.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.broker.account_quotas import Shares
from engine.broker.groups.members import TOLD_BYTES, ClientChannel, Member, silent_members
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import (
    ACCOUNT_GROUPS_MAX,
    ACCOUNT_MEMBERS_MAX,
    ACCOUNT_SUBSCRIPTION_BYTES_MAX,
    GROUPS_MAX,
    LOOP_STEP_ENTRIES_MAX,
    MEMBERS_LISTED_MAX,
    MEMBERS_MAX,
    SUBSCRIPTION_BYTES_MAX,
)
from engine.protocol.bodies import ConsumerData, SubscriptionData
from engine.protocol.codes import ResponseCode
from engine.protocol.reported_subscriptions import disagreement, meant
from engine.remoting import Peer

BROADCASTING = "BROADCASTING"
GROUPS_LOOKED_AT = 10 * LOOP_STEP_ENTRIES_MAX
"""Groups of which one step asks what they subscribe to: that is a look into a dict."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one member."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    subscription_bytes: int = 0
    """Memory that the subscriptions take."""
    account: str | None = None
    """The account whose member reported them last: they are counted there."""
    reported: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    """The members behind each subscription, sorted: one entry when all agree."""
    reported_changed: bool = False
    """Did `reported` change since it was last looked at whether members disagree?"""
    sorted_ids: list[str] = field(default_factory=list)
    """Client ids of `members`, kept sorted: to sort ten thousand at each heartbeat takes a core."""
    disagreement_emitted: tuple[str, ...] = ()
    """The members' differing subscriptions as they were last reported to the observer."""

    @property
    def broadcasting(self) -> bool:
        """Does every member consume every queue?"""
        return self.message_model == BROADCASTING

    def member_ids(self) -> list[str]:
        """Client ids, sorted."""
        return self.sorted_ids.copy()

    def put(self, member: Member) -> None:
        """Take a member in, or its newest heartbeat."""
        if member.client_id not in self.members:
            insort(self.sorted_ids, member.client_id)
        self.members[member.client_id] = member

    def pop(self, client_id: str) -> Member:
        """The member is gone."""
        member = self.members.pop(client_id)
        del self.sorted_ids[bisect_left(self.sorted_ids, client_id)]
        self.note_reported(client_id, member.subscription, None)
        return member

    def spelled_subscription(self) -> list[str]:
        """`topic:expression` of each subscribed topic, sorted."""
        return _spelled(self.subscriptions.values())

    def note_reported(
        self, client_id: str, before: tuple[str, ...] | None, after: tuple[str, ...] | None
    ) -> None:
        """A member reports `after` where it reported `before`; None: nothing yet, or no more."""
        if before == after:
            return
        self.reported_changed = True
        if before is not None:
            reporters = self.reported[before]
            del reporters[bisect_left(reporters, client_id)]
            if not reporters:
                del self.reported[before]
        if after is not None:
            insort(self.reported.setdefault(after, []), client_id)

    def subscriptions_reported(self) -> list[tuple[str, ...]] | None:
        """What the members subscribe to, each once; None: some have not reported, or report
        nothing, as those do that poll.
        """
        reporters = sum(len(ids) for subscription, ids in self.reported.items() if subscription)
        return list(self.reported) if reporters == len(self.members) else None

    def disagreement(self) -> tuple[str, ...]:
        """`client reads topic:expression, ...` of each member when they differ; empty when all
        that have reported their subscription reported the same. Of very many, the rarest ones.
        """
        return disagreement(self.reported)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a heartbeat changed in one group."""

    joined: bool
    """Is the client a new member?"""
    reconnected: bool
    """Is it an old member on a new connection?"""
    topics_changed: bool
    """Did the set of subscribed topics change?"""
    members_before: Sequence[str] | None
    """None: nobody came, or there are too many to list them (MEMBERS_LISTED_MAX)."""
    members_after: Sequence[str] | None
    subscription_before: Sequence[str]
    subscription_after: Sequence[str]
    generation: int
    members_count: int
    """How many there are now."""
    shared_with: str | None = None
    """Address of the other process that bears the same client id, when it has just shown."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A member that is gone."""

    group: str
    client_id: str
    channel: ClientChannel
    broadcasting: bool
    members_before: Sequence[str] | None
    """None: there are too many to list them (MEMBERS_LISTED_MAX)."""
    members_after: Sequence[str] | None
    generation: int
    members_count: int
    """How many are left."""


class ConsumerGroups:
    """All groups of one broker that have members."""

    def __init__(
        self,
        count_max: int = GROUPS_MAX,
        *,
        members_max: int = MEMBERS_MAX,
        account_members_max: int = ACCOUNT_MEMBERS_MAX,
        subscription_bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        account_subscription_bytes_max: int = ACCOUNT_SUBSCRIPTION_BYTES_MAX,
    ) -> None:
        self._count_max = count_max
        self._names = Shares(count_max, ACCOUNT_GROUPS_MAX)
        """Names of groups that were ever registered, by who was their first member."""
        self._memberships = Shares(members_max, account_members_max)
        self.subscriptions_counter = 0
        """Advances whenever a group comes or goes, or changes what it subscribes to or how."""
        self._bytes = Shares(subscription_bytes_max, account_subscription_bytes_max)
        """Memory that the subscriptions of all groups take, and what their members reported."""
        self._groups: dict[str, ConsumerGroup] = {}
        self._generations: dict[str, int] = {}
        self._fingerprints: dict[str, int] = {}  # Of groups that were ever registered.
        self._of_peer: dict[Peer, dict[tuple[str, str], None]] = {}
        """(group, client id) of each connection's memberships."""
        self._moved: dict[str, None] = {}
        """Groups whose members or message model changed since `take_moved`."""
        self._said_anew: dict[str, None] = {}
        """Groups of which a member came, went, or subscribes to something else, since
        `take_said_anew`.
        """

    @property
    def member_count(self) -> int:
        """Memberships in all groups."""
        return self._memberships.total

    @property
    def subscription_bytes(self) -> int:
        """Memory that the subscriptions of all groups take, and what their members reported."""
        return self._bytes.total

    def of(self, group: str) -> ConsumerGroup | None:
        """The group; None when it has no members."""
        return self._groups.get(group)

    def all(self) -> Iterable[ConsumerGroup]:
        """Every group with members."""
        return self._groups.values()

    def subscribers_of(self, topic: str) -> Iterator[ConsumerGroup | None]:
        """The groups that subscribe to the topic; None ends a step, after GROUPS_LOOKED_AT."""
        for number, group in enumerate(list(self._groups.values()), 1):
            if topic in group.subscriptions:
                yield group
            if not number % GROUPS_LOOKED_AT:
                yield None

    def take_moved(self) -> dict[str, None]:
        """Groups whose members or message model changed since the last call."""
        moved, self._moved = self._moved, {}
        return moved

    def take_said_anew(self) -> dict[str, None]:
        """Groups with a member that came, went or resubscribed since the last call."""
        changed, self._said_anew = self._said_anew, {}
        return changed

    def generation(self, group: str) -> int:
        """Membership changes of the group since this boot."""
        return self._generations.get(group, 0)

    def check_room(
        self,
        heard: Sequence[ConsumerData],
        client_id: str,
        account: str | None,
        *,
        keep_subscription: bool = False,
    ) -> None:
        """Raise RequestRefused when registering all of this would be one group, one member or one
        byte too many, for the broker or for the client's account. Nothing has changed then.
        """
        groups = {data.group_name: self._groups.get(data.group_name) for data in heard}
        named = [name for name in groups if name not in self._generations]
        if excess := self._names.excess(account, len(named)):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"group {named[0]} is one too many: this broker knows {self._count_max} groups, "
                f"and {excess}",
            )
        joined = [
            name
            for name, group in groups.items()
            if group is None or client_id not in group.members
        ]
        if excess := self._memberships.excess(account, len(joined)):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"group {joined[0]} has one member too many: {excess} memberships in consumer "
                "groups; use fewer clients, or fewer groups in each",
            )
        if keep_subscription:
            return
        change = own_change = 0
        for data in heard:
            grown, own_grown = _growth(groups[data.group_name], data, client_id, account)
            change += grown
            own_change += own_grown
        if excess := self._bytes.excess(account, change, own_change=own_change):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"what {client_id} subscribes to takes {max(change, own_change)} bytes more, and "
                f"{excess} bytes for what all groups subscribe to; subscribe to less",
            )

    def register(
        self,
        data: ConsumerData,
        channel: ClientChannel,
        *,
        keep_subscription: bool = False,
        now_ms: int,
    ) -> Registration:
        """Take a heartbeat's word for one group, for which there is room (`check_room`).

        `keep_subscription`: the heartbeat leaves its subscription out because it has not changed.
        """
        name = data.group_name
        group = self._groups.get(name)
        is_new = group is None or channel.client_id not in group.members
        if group is None:
            if name not in self._generations:
                self._names.add(channel.account, 1)
            group = self._groups[name] = ConsumerGroup(
                name, data.consume_type, data.message_model, data.consume_from_where
            )
        client_id = channel.client_id
        subscription_before = group.spelled_subscription()
        member = group.members.get(client_id)
        reported_before = member.subscription if member is not None else None
        reported = reported_before
        if not keep_subscription:
            reported = tuple(sorted(meant(one) for one in data.subscription_data_set))
        members_before = _listed(group) if is_new else None
        group.note_reported(client_id, reported_before, reported)
        if member is None or reported != reported_before:
            self._said_anew[name] = None
        heard = Member(channel, now_ms, channel.account, reported)
        is_shared = member is not None and member.heard_again(heard)
        self._count(member, heard)
        group.put(heard)
        if member is None or member.channel.peer is not channel.peer:
            if member is not None:
                self._let_go(member.channel.peer, name, client_id)
            self._of_peer.setdefault(channel.peer, {})[name, client_id] = None
        if member is None or group.message_model != data.message_model:
            self._moved[name] = None
        if group.message_model != data.message_model:
            self.subscriptions_counter += 1
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        topics_changed = False
        if not keep_subscription:
            self._bytes.add(group.account, -group.subscription_bytes)
            topics_changed = _subscribe(group, data.subscription_data_set)
            self.subscriptions_counter += topics_changed
            group.account = channel.account
            self._bytes.add(group.account, group.subscription_bytes)
        if member is None:
            self._advance(name)
        return Registration(
            joined=member is None,
            reconnected=member is not None and member.channel.peer is not channel.peer,
            topics_changed=topics_changed,
            members_before=members_before,
            members_after=_listed(group) if member is None else None,
            subscription_before=subscription_before,
            subscription_after=group.spelled_subscription(),
            generation=self.generation(name),
            members_count=len(group.members),
            shared_with=heard.former.address if is_shared and heard.former is not None else None,
        )

    def take_fingerprint(self, group: str, fingerprint: int, *, without_subscription: bool) -> bool:
        """Note the fingerprint of a heartbeat; must its sender report its subscription in full?

        Yes when the group's last one was another (RocketMQ), and when subscriptions were left out
        though this broker knows none, as after its restart: nothing could be pulled otherwise.
        """
        known = self._fingerprints.get(group)
        found = self._groups.get(group)
        if known is not None or len(self._fingerprints) < self._count_max:
            self._fingerprints[group] = fingerprint
        changed = known is not None and known != fingerprint
        return changed or (without_subscription and (found is None or not found.subscriptions))

    def unregister(self, group: str, client_id: str) -> Departure | None:
        """The client says farewell; None when it was no member."""
        found = self._groups.get(group)
        if found is None or client_id not in found.members:
            return None
        before = _listed(found)
        member = found.pop(client_id)
        self._count(member, None)
        self._let_go(member.channel.peer, group, client_id)
        if not found.members:
            self.subscriptions_counter += 1
            del self._groups[group]
            self._bytes.add(found.account, -found.subscription_bytes)
        self._moved[group] = self._said_anew[group] = None
        return Departure(
            group=group,
            client_id=client_id,
            channel=member.channel,
            broadcasting=found.broadcasting,
            members_before=before,
            members_after=_listed(found),
            generation=self._advance(group),
            members_count=len(found.members),
        )

    def lost(self, peer: Peer) -> list[Departure]:
        """A connection ended: its client leaves every group, unless it has come back on another."""
        departures = [self.unregister(*one) for one in list(self._of_peer.get(peer, ()))]
        return [departure for departure in departures if departure is not None]

    def silent(self, now_ms: int, expiry_ms: int) -> Iterator[tuple[str, str] | None]:
        """(group, client id) of members that have sent no heartbeat for `expiry_ms`; None after
        each HEARD_LOOKED_AT that have.
        """
        tables = ((group.name, group.members) for group in list(self._groups.values()))
        return silent_members(tables, now_ms - expiry_ms)

    def unregister_silent(
        self, group: str, client_id: str, *, now_ms: int, expiry_ms: int
    ) -> Departure | None:
        """A member that was `silent` leaves; None when it has been heard, or left, since."""
        found = self._groups.get(group)
        member = None if found is None else found.members.get(client_id)
        if member is None or now_ms - member.last_heartbeat_ms <= expiry_ms:
            return None
        return self.unregister(group, client_id)

    def _let_go(self, peer: Peer, group: str, client_id: str) -> None:
        """A membership no longer lives by this connection."""
        held = self._of_peer[peer]
        del held[group, client_id]
        if not held:
            del self._of_peer[peer]

    def _count(self, before: Member | None, after: Member | None) -> None:
        """A membership is `after` what it was `before`; None: not there."""
        if before is not None:
            self._memberships.add(before.account, -1)
            self._bytes.add(before.account, -before.reported_bytes)
        if after is not None:
            self._memberships.add(after.account, 1)
            self._bytes.add(after.account, after.reported_bytes)

    def _advance(self, group: str) -> int:
        generation = self._generations.get(group, 0) + 1
        self._generations[group] = generation
        return generation


def _growth(
    group: ConsumerGroup | None, data: ConsumerData, client_id: str, account: str | None
) -> tuple[int, int]:
    """Bytes that all keep more of a group, and those counted on the account, once a client has
    reported this subscription.
    """
    subscribed = data.subscription_data_set
    wanted = sum(one.weight_bytes for one in subscribed) + sum(
        TOLD_BYTES + len(one.topic) + 1 + len(one.sub_string) for one in subscribed
    )
    if group is None:
        return wanted, wanted
    member = group.members.get(client_id)
    reported_bytes = member.reported_bytes if member is not None else 0
    own_bytes = reported_bytes if member is not None and member.account == account else 0
    if group.account == account:
        own_bytes += group.subscription_bytes
    return wanted - reported_bytes - group.subscription_bytes, wanted - own_bytes


def _listed(group: ConsumerGroup) -> list[str] | None:
    """The members by name, unless that many names in each row would be quadratic in them."""
    return group.member_ids() if len(group.members) <= MEMBERS_LISTED_MAX else None


def _spelled(subscriptions: Iterable[SubscriptionData]) -> list[str]:
    return sorted(f"{data.topic}:{data.sub_string}" for data in subscriptions)


def _subscribe(group: ConsumerGroup, reported: Iterable[SubscriptionData]) -> bool:
    """Make the group subscribe to what one member reported; return whether topics came or went."""
    subscriptions, changed = group.subscriptions, False
    new = {data.topic: data for data in reported}
    for topic, data in new.items():
        old = subscriptions.get(topic)
        if old is None:
            changed = True
        if old is None or data.sub_version > old.sub_version:
            subscriptions[topic] = data
    for topic in [topic for topic in subscriptions if topic not in new]:
        del subscriptions[topic]
        changed = True
    group.subscription_bytes = sum(one.weight_bytes for one in subscriptions.values())
    return changed
