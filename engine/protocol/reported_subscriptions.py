"""Compares the subscriptions reported by a group's members and describes any conflict.

Place in the walk: heartbeats (a broker) and running infos (who watches one from outside) → what
each member reported → a conflict in words. Pure.

A table of reports maps a subscription, `topic:expression` sorted, to the client ids that reported
it, sorted. Invariant: nobody is blamed for another spelling of the same tags. Absent on purpose:
which subscription a broker keeps for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice

from engine.foundation.limits import DISAGREEING_MEMBERS_TOLD_MAX
from engine.protocol.bodies import SubscriptionData
from engine.protocol.tag_bits import split_tags

Subscription = tuple[str, ...]
"""`topic:expression` of each topic, sorted."""
Reported = Mapping[Subscription, Sequence[str]]
QueuesOf = Callable[[str], int | None]
"""How many queues of a topic are read; None: that is not known."""


def meant(data: SubscriptionData) -> str:
    """As spelled, but the same for the same tags in another order or with other blanks."""
    if data.is_by_tags and not data.class_filter_mode:
        return f"{data.topic}:{' || '.join(sorted(set(split_tags(data.sub_string))))}"
    return f"{data.topic}:{data.sub_string}"


def rarest_reporters(reported: Reported) -> list[str]:
    """Members whose subscription the fewest others reported, DISAGREEING_MEMBERS_TOLD_MAX at most,
    sorted.
    """
    rarest: list[str] = []
    for _, alike in groupby(sorted(reported.values(), key=len), key=len):
        room = DISAGREEING_MEMBERS_TOLD_MAX - len(rarest)
        if not room:
            break
        rarest += islice(merge(*alike), room)
    return sorted(rarest)


def disagreement(reported: Reported) -> tuple[str, ...]:
    """`client reads topic:expression, ...` of each member when they differ; empty when all reported
    the same. Of very many, the rarest ones.
    """
    if len(reported) < 2:
        return ()
    named = _named_members(reported)
    return tuple(f"{one} reads {', '.join(named[one]) or 'nothing'}" for one in named)


def how_to_agree(found: Sequence[str], reported: Reported, queues_of: QueuesOf) -> str:
    """Who reads what while members subscribe differently, what goes wrong then, and what ends it:
    judged by those that are named, and by what most members reported. `found`: their disagreement;
    empty: they agree again.
    """
    if not found:
        return "all members subscribe alike again"
    named = _named_members(reported)
    most = max(sorted(reported), key=lambda one: (bool(one), len(reported[one])))
    spoken = dict.fromkeys(named.values())
    spoken[most] = None
    readers = Counter(topic for one in spoken for topic in topics_in(one))
    partial = sorted(topic for topic, count in readers.items() if count < len(spoken))
    others = [one for one, subscription in named.items() if subscription != most]
    if partial:
        harm = (
            f"the broker keeps the last heartbeat's subscription for all, pulls of {_and(partial)} "
            "are refused in turn (SUBSCRIPTION_NOT_EXIST), and queues given to a member that does "
            f"not subscribe to their topic are not read{_unread(partial, reported, queues_of)}"
        )
    else:
        harm = (
            "the newest expression filters for all, and what the others want is passed over on "
            "every queue, while offsets go on"
        )
    alike = (
        f"subscribe every member to {_and(sorted({spelled for one in spoken for spelled in one}))}"
        if partial
        else "give every member the same expression"
    )
    fix = f"{alike}, or put {_and(others)} into a group of its own"
    return f"{'; '.join(found)}; {harm}; fix: {fix}"


def _unread(topics: Sequence[str], reported: Reported, queues_of: QueuesOf) -> str:
    """How many queues of each topic nobody reads, were they dealt out evenly to all members; of
    very many subscriptions that is not counted.
    """
    if len(reported) > DISAGREEING_MEMBERS_TOLD_MAX:
        return ""
    members = sum(map(len, reported.values()))
    readers: Counter[str] = Counter()
    for subscription, reporters in reported.items():
        for topic in topics_in(subscription):
            readers[topic] += len(reporters)
    shares = []
    for topic in topics[:DISAGREEING_MEMBERS_TOLD_MAX]:
        without, queues = members - readers[topic], queues_of(topic)
        if queues is None:
            shares.append(f"those of {without} of {members} members of {topic}")
        else:
            shares.append(f"about {round(queues * without / members)} of {queues} of {topic}")
    return f", {_and(shares)}"


def _named_members(reported: Reported) -> dict[str, Subscription]:
    """What the rarest ones reported, in the order of their names."""
    rarest = rarest_reporters(reported)
    wanted, found = set(rarest), dict[str, Subscription]()
    for subscription, reporters in reported.items():
        found |= dict.fromkeys(wanted.intersection(reporters), subscription)
    return {one: found[one] for one in rarest}


def topics_in(subscription: Iterable[str]) -> set[str]:
    """The topics that a subscription names."""
    return {spelled.partition(":")[0] for spelled in subscription}


def _and(names: Sequence[str]) -> str:
    """Joined, of very many the first ones."""
    more = len(names) - DISAGREEING_MEMBERS_TOLD_MAX
    listed = " and ".join(names[:DISAGREEING_MEMBERS_TOLD_MAX])
    return f"{listed} and {more} more" if more > 0 else listed
