"""The faults: each begins, holds for a while, and is over when it returns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.network import Host, Network
from tests.integration.broker.broker_group import BrokerGroup, Member

HOLD_S: Final = (2.0, 7.0)
BEHIND_BYTES_MAX: Final = 256 * 1024
"""Who lacks no more follows, while others send."""


@dataclass
class Victims:
    """Whom a fault may meet."""

    group: BrokerGroup
    network: Network
    chance: random.Random
    leader: Member

    @property
    def followers(self) -> list[Member]:
        return [one for one in self.group.members if one is not self.leader]

    def host(self, member: Member) -> Host:
        return self.network.hosts[self.group.members.index(member)]

    @property
    def name_server_hosts(self) -> list[Host]:
        return self.network.hosts[len(self.group.members) :]

    async def hold(self) -> None:
        await asyncio.sleep(self.chance.uniform(*HOLD_S))


async def _killed(victims: Victims, *members: Member) -> None:
    for one in members:
        await one.kill()
    await victims.hold()
    for one in members:
        await one.begin()
    await asyncio.gather(*(one.ready() for one in members))


async def _stopped(victims: Victims, member: Member) -> None:
    member.pause()
    await victims.hold()
    member.resume()


async def _linked(victims: Victims) -> None:
    await victims.hold()
    victims.network.heal()


async def leader_killed(victims: Victims) -> None:
    await _killed(victims, victims.leader)


async def follower_killed(victims: Victims) -> None:
    await _killed(victims, victims.chance.choice(victims.followers))


async def majority_killed(victims: Victims) -> None:
    await _killed(victims, victims.leader, victims.chance.choice(victims.followers))


async def all_killed(victims: Victims) -> None:
    await _killed(victims, *victims.group.members)


async def leader_stopped(victims: Victims) -> None:
    await _stopped(victims, victims.leader)


async def follower_stopped(victims: Victims) -> None:
    await _stopped(victims, victims.chance.choice(victims.followers))


async def leader_apart(victims: Victims) -> None:
    others = [victims.host(one) for one in victims.followers]
    victims.network.part(victims.host(victims.leader), others)
    await _linked(victims)


async def leader_not_heard(victims: Victims) -> None:
    others = [victims.host(one) for one in victims.followers]
    victims.network.cut(victims.host(victims.leader), others)
    await _linked(victims)


async def follower_not_heard(victims: Victims) -> None:
    member = victims.chance.choice(victims.followers)
    victims.network.cut(victims.host(member), [victims.host(victims.leader)])
    await _linked(victims)


async def follower_apart(victims: Victims) -> None:
    member = victims.chance.choice(victims.followers)
    others = [victims.host(one) for one in victims.group.members if one is not member]
    victims.network.part(victims.host(member), others)
    await _linked(victims)


async def leader_alone(victims: Victims) -> None:
    others = [victims.host(one) for one in victims.followers]
    near, far = victims.name_server_hosts
    victims.network.part(victims.host(victims.leader), [*others, far])
    for one in others:
        victims.network.part(one, [near])
    await _linked(victims)


async def leader_slow(victims: Victims) -> None:
    victims.network.slow(victims.host(victims.leader))
    await _linked(victims)


FAULTS: Final[dict[str, tuple[str, Callable[[Victims], Awaitable[None]]]]] = {
    "leader killed": ("SIGKILL; it comes back", leader_killed),
    "follower killed": ("SIGKILL; it comes back", follower_killed),
    "majority killed": ("SIGKILL of the leader and a follower", majority_killed),
    "all killed": ("SIGKILL of all three", all_killed),
    "leader stopped": ("SIGSTOP, then SIGCONT", leader_stopped),
    "follower stopped": ("SIGSTOP, then SIGCONT", follower_stopped),
    "leader apart": ("no packet between it and the followers", leader_apart),
    "leader not heard": ("its packets do not arrive at the followers", leader_not_heard),
    "follower apart": ("no packet between it and the others", follower_apart),
    "follower not heard": ("its packets do not arrive at the leader", follower_not_heard),
    "leader alone": ("with one name server that reaches nobody else", leader_alone),
    "leader slow": ("what it sends leaves by 200 kbit/s", leader_slow),
}
"""By name: what it is, and how it is done."""


async def is_whole(group: BrokerGroup) -> bool:
    """Does one lead, and do the others follow it closely?"""
    states = await asyncio.gather(*(one.state() for one in group.members))
    if any(one is None for one in states):
        return False
    found = [one for one in states if one is not None]
    roles = sorted(one.role for one in found)
    ends = [one.log_synced for one in found]
    terms = {one.highest_epoch for one in found}
    is_level = max(ends) - min(ends) <= BEHIND_BYTES_MAX
    return roles == ["MASTER", "SLAVE", "SLAVE"] and len(terms) == 1 and is_level
