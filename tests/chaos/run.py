"""Plays faults on a group while clients work, one after the other, and says how it went."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

from engine.protocol.codes import RequestCode
from tests.asynchronous import meanwhile
from tests.chaos.clients import GROUP, JAVAS, OURS, QUEUES, TOPIC, GroupOffsets, working
from tests.chaos.faults import FAULTS, KILL_POINTS, NotReached, Victims, is_whole
from tests.chaos.java import GROUP as JAVA_GROUP
from tests.chaos.record import Record, faults_of
from tests.chaos.site import Site
from tests.integration.broker.cluster import RawClient, eventually, messages
from tests.integration.broker.test_a_group_over_kills import Offsets, check_logs

_log = logging.getLogger("chaos")

REST_S: Final = 1.0
HEALED_WITHIN_S: Final = 90


@dataclass(frozen=True, slots=True)
class Played:
    """A fault that was played."""

    name: str
    begin_s: float
    end_s: float
    ours_s: float
    """The longest time in it, until the group was whole again, without an answer to our senders."""
    javas_s: float
    """The same of Java's."""


@dataclass
class Outcome:
    """What a run found."""

    record: Record
    played: list[Played] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the group did that it may not."""
    offsets_answered: int = 0
    lost: list[float] = field(default_factory=list)
    """When what was lost had been acknowledged."""
    cut: int = 0
    """Messages that rebuilds of a diverged slave reported, and cut."""
    foundings: dict[str, list[float]] = field(default_factory=dict)
    """Kill points of foundings, and how long nobody led then."""


async def stored_in(client: RawClient) -> dict[int, list[bytes]]:
    """Each queue from its begin."""
    stored: dict[int, list[bytes]] = {}
    for queue_id in range(QUEUES):
        found = stored[queue_id] = []
        while (
            answer := await client.pull(len(found), topic=TOPIC, group=GROUP, queue_id=queue_id)
        ).code == 0:
            found += [one.body for one in messages(answer)]
    return stored


async def play(site: Site, seconds: float, seed: int, only: str = "") -> Outcome:
    """Play faults for so long, each kind as often; `only`: those whose names begin so."""
    kinds = [name for name in (*FAULTS, *KILL_POINTS, *KILL_POINTS) if name.startswith(only)]
    record = Record(consumed={GROUP: Counter(), JAVA_GROUP: Counter()})
    chance, outcome = random.Random(seed), Outcome(record)
    group = site.group("group")
    readers = offsets, group_offsets = Offsets(group), GroupOffsets(group)
    stage = site.stage(site.folder / "group", group.namesrvs)
    try:
        await group.start()
        client = site.client((await group.leader()).address)
        for topic, queues in ((TOPIC, QUEUES), (offsets.topic, 1)):
            await make_topic(client, topic, queues)
        await client.close()
        await group.named_leader(TOPIC)
        async with working(stage, record), meanwhile(one.work() for one in readers):
            until_s, names = time.monotonic() + seconds, list[str]()
            while time.monotonic() < until_s:
                await asyncio.sleep(REST_S)
                names = names or chance.sample(kinds, len(kinds))
                name, victims = names.pop(), Victims(group, site, chance, await group.leader())
                fault = partial((FAULTS | KILL_POINTS)[name][1], victims)
                with suppress(NotReached):
                    one = await played(name, fault, partial(is_whole, group), record)
                    outcome.played.append(one)
        await group.settled()
        leader = await group.named_leader(TOPIC)
        client = site.client(leader.address)
        stored = await stored_in(client)
        await client.close()
    except (AssertionError, TimeoutError) as error:
        outcome.faults.append(f"ended early: {error!r}")
        return outcome
    finally:
        await group.close()
    outcome.faults = [*faults_of(record, stored), *group_offsets.fallen]
    outcome.lost = [put.acknowledged_s for put in record.lost(stored)]
    outcome.offsets_answered = len(offsets.answers) + group_offsets.answers
    try:
        check_logs(group.members)
    except AssertionError as error:
        outcome.faults.append(str(error))
    return outcome


async def played(
    name: str,
    fault: Callable[[], Awaitable[None]],
    is_whole: Callable[[], Awaitable[bool]],
    record: Record,
) -> Played:
    """One fault, and the time until all was whole again. Raises NotReached."""
    begin_s = time.monotonic()
    try:
        await fault()
    except NotReached:
        _log.info("%s: not reached", name)
        raise
    await eventually(is_whole, f"whole after {name}", within_s=HEALED_WITHIN_S)
    before_s = time.monotonic()
    await eventually(
        lambda: _all_answered(record, before_s), "sends go on", within_s=HEALED_WITHIN_S
    )
    end_s = time.monotonic()
    gaps_s = [record.longest_gap_s(keys, begin_s, end_s) for keys in (OURS, JAVAS)]
    done = Played(name, begin_s, end_s, *gaps_s)
    took = f"{done.ours_s:.2f} s without, Java's {done.javas_s:.2f} s"
    _log.info("%s: %s, whole after %.1f s", name, took, end_s - begin_s)
    return done


async def _all_answered(record: Record, since_s: float) -> bool:
    newest = reversed(record.acknowledged)
    keys = {key for _, key in takewhile(lambda one: one[0] > since_s, newest)}
    return len(keys) == QUEUES


async def make_topic(client: RawClient, topic: str, queues: int) -> None:
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    assert answer.code == 0, answer
