"""Tracks group members across polls, including subscriptions, addresses and responsiveness.

Place in the walk: under `facts`, which has one for each group. Pure: time comes with the looks.

A broker learns this from heartbeats; here `polling` asks one member after the other. So members
count as at odds only by answers given since the last of them said something new.

Invariant: each state of a group's subscriptions is reported once, and so is each shared id; silence
is reported again only after `again_ms`. Absent on purpose: what members hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.foundation.limits import SILENT_KINDS_MAX
from engine.foundation.observing import GroupWatermark, LifecycleEvent, RebalanceEvent
from engine.foundation.units import SECOND_MS
from engine.observer.poll_result import Member
from engine.protocol.bodies import TopicOffset
from engine.protocol.reported_subscriptions import (
    QueuesOf,
    Subscription,
    disagreement,
    how_to_agree,
)

TOGETHER_MS: Final = 130 * SECOND_MS
"""A broker closes a connection without heartbeats after 120 s, and looks each ten: of two that were
there for longer than that neither was left behind by a client that connected anew.
"""
ADDRESSES_KEPT_MAX: Final = 4
"""Of a client id: those that were left last."""


@dataclass(slots=True)
class Addresses:
    """Where a client id connects from."""

    since_ms: dict[str, int] = field(default_factory=dict)
    """Those that are there now, and the look that saw each first."""
    left: dict[str, None] = field(default_factory=dict)
    """Those that were left for another one, oldest first."""
    is_shared: bool = False

    def see(self, found: Iterable[str], at_ms: int) -> tuple[str, str] | None:
        """Take note of what a look found; two of them, when it shows only now that two processes
        bear the id. A client that connects anew leaves its old connection for good: so one that
        comes back shows it, and two that stay.
        """
        now = {one: self.since_ms.get(one, at_ms) for one in found}
        back = [one for one in now if one not in self.since_ms and one in self.left]
        gone = [one for one in self.since_ms if one not in now]
        stay = [one for one, since_ms in now.items() if at_ms - since_ms >= TOGETHER_MS]
        pair = None
        if back:
            others = [one for one in (*self.since_ms, *self.left) if one not in back]
            pair = (others[0], back[0]) if others else None
        elif len(stay) > 1:
            pair = (stay[0], stay[1])
        for one in gone:
            self.left.pop(one, None)
            self.left[one] = None
        for one in [*self.left][: max(0, len(self.left) - ADDRESSES_KEPT_MAX)]:
            del self.left[one]
        self.since_ms = now
        if pair is None or self.is_shared:
            return None
        self.is_shared = True
        return pair


@dataclass(slots=True)
class _Said:
    """What a member subscribes to, as it said last."""

    subscription: Subscription
    at_ms: int


@dataclass(slots=True)
class GroupSeen:
    """A group, as the broker and its members knew it at the look before."""

    members: dict[str, None] | None = None
    """None: not asked yet."""
    unknown_reason: str | None = None
    """Why nobody knows now who is there; `members` are those that were known last."""
    generation: int = 0
    message_model: str | None = None
    topics: tuple[str, ...] = ()
    """The topics it subscribes to, as the broker says."""
    addresses: dict[str, Addresses] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """Language and version of each client."""
    said: dict[str, _Said] = field(default_factory=dict)
    last_said: Subscription | None = None
    said_anew_ms: int = 0
    """When a member said last what it had not said before."""
    reported: tuple[str, ...] = ()
    """Members at odds, as they were reported last."""

    def connected(
        self, group: str, found: Mapping[str, Iterable[str]], at_ms: int
    ) -> Iterator[RebalanceEvent]:
        """These members are connected from these addresses; what of it is shared."""
        self.addresses = {one: self.addresses.get(one, Addresses()) for one in found}
        for client_id, addresses in found.items():
            pair = self.addresses[client_id].see(addresses, at_ms)
            if pair is None:
                continue
            yield RebalanceEvent(
                group,
                client_id,
                "CLIENT_ID_SHARED",
                inferred=False,
                generation=self.generation,
                before=[pair[0]],
                after=[pair[1]],
                reason=(
                    f"{client_id} is connected from {pair[0]} and {pair[1]}: two processes bear "
                    "one client id and read the same queues; give each an instanceName of its own"
                ),
            )

    @property
    def member_count(self) -> int | None:
        """How many are there; None: not asked yet, or not known now."""
        is_known = self.members is not None and self.unknown_reason is None
        return len(self.members or ()) if is_known else None

    def left(self, client_id: str) -> None:
        """A member is gone."""
        self.said.pop(client_id, None)

    def subscribes(
        self, group: str, client_id: str, subscription: Subscription, at_ms: int
    ) -> Iterator[RebalanceEvent]:
        """A member says what it subscribes to; nothing: it does not say."""
        if not subscription or self.members is None or client_id not in self.members:
            return
        before = self.said.get(client_id)
        if before is not None and before.subscription == subscription:
            before.at_ms = at_ms
            return
        known = {one.subscription for one in self.said.values()}
        # Of one that comes to others it is reported whether it differs from theirs.
        was = None if before is None and self.said else self.last_said
        if before is not None:
            was = before.subscription
        self.said[client_id] = _Said(subscription, at_ms)
        self.last_said = subscription
        if subscription not in known:
            self.said_anew_ms = at_ms
        if was is not None and was != subscription:
            yield RebalanceEvent(
                group,
                client_id,
                "SUBSCRIPTION_CHANGED",
                inferred=False,
                generation=self.generation,
                before=list(was),
                after=list(subscription),
            )

    def subscriptions(self) -> list[Subscription] | None:
        """What each member subscribes to; None: not all of them have said so since one of them said
        something new, or some are connected where nobody can ask.
        """
        if self.unknown_reason is not None:
            return None
        members = list(self.members or {})
        answers = [self.said[one] for one in members if one in self.said]
        current = [one.subscription for one in answers if one.at_ms >= self.said_anew_ms]
        return current if len(current) == len(members) else None

    def conflict(self, group: str, queues_of: QueuesOf) -> Iterator[RebalanceEvent]:
        """Members subscribe differently, or alike again: said once per state of it."""
        if not self.said:
            self.reported = ()
            return
        newest = {one.subscription for one in self.said.values() if one.at_ms >= self.said_anew_ms}
        spoken: dict[Subscription, list[str]] = {}
        for client_id, one in sorted(self.said.items()):
            spoken.setdefault(one.subscription, []).append(client_id)
        if len(spoken) > 1 and len(newest) < 2:
            return  # Who is at odds may have changed its mind since it was asked.
        found = disagreement(spoken)
        if found == self.reported:
            return
        before, self.reported = self.reported, found
        rarest = min(spoken.values(), key=len)
        yield RebalanceEvent(
            group,
            rarest[0],
            "SUBSCRIPTION_CONFLICT",
            inferred=False,
            generation=self.generation,
            before=before,
            after=found,
            reason=how_to_agree(found, spoken, queues_of),
        )


SAYS_NOTHING = "SAYS_NOTHING"


class SilentMembers:
    """Which kinds of clients of which groups were reported to say nothing, and when."""

    def __init__(self, again_ms: int, count_max: int = SILENT_KINDS_MAX) -> None:
        self._again_ms = again_ms
        self._count_max = count_max
        self._reported_ms: dict[tuple[str, str], int] = {}

    def of(self, member: Member, kind: str | None, at_ms: int) -> Iterator[LifecycleEvent]:
        """A member has answered with nothing; `kind`: its language and version, None: not known."""
        group, client_id = member
        words = client_id if kind is None else f"a client in {kind}"
        key = (group, words)
        before_ms = self._reported_ms.pop(key, None)
        if before_ms is not None and at_ms - before_ms < self._again_ms:
            self._reported_ms[key] = before_ms
            return
        while len(self._reported_ms) >= self._count_max:
            del self._reported_ms[next(iter(self._reported_ms))]
        self._reported_ms[key] = at_ms
        yield LifecycleEvent(SAYS_NOTHING, f"{words} says nothing of what it holds", group=group)


BROADCASTING: Final = "BROADCASTING"


def broadcast_mark(
    key: tuple[str, str, int], ends: TopicOffset, known: GroupSeen
) -> GroupWatermark:
    """The mark of a queue of such a group: where the queue ends, and how many members there are."""
    return GroupWatermark(
        *key,
        pulled=None,
        processed=None,
        committed=None,
        persisted=None,
        committed_state="NONE",
        store_time_at_committed_ms=None,
        min_offset=ends.min_offset,
        max_offset=ends.max_offset,
        last_store_time_ms=ends.last_update_timestamp_ms or None,
        last_puller=None,
        lock_holder=None,
        last_pull_time_ms=None,
        last_commit_time_ms=None,
        reports=0,
        message_model=BROADCASTING,
        members=known.member_count,
        members_unknown_reason=known.unknown_reason,
    )
