"""The faults: each begins, holds for a while, and is over when it returns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode
from tests.chaos import kill_points
from tests.chaos.member import KILL, SLOW, order
from tests.chaos.network import Host, Network
from tests.chaos.site import SMALL_DISK, Site
from tests.chaos.wires import Weather
from tests.integration.broker.broker_group import BrokerGroup, Copies, Member
from tests.integration.broker.cluster import eventually

REACHED_WITHIN_S: Final = 15
HOLD_S: Final = (2.0, 7.0)
DEAD_S: Final = (0.5, 2.0)
"""How long a broker is away that was killed at a point."""
FULL_S: Final = (10.0, 15.0)
"""Long enough for the files that were made ahead to be full."""
SLOW_SYNC_S: Final = 0.3
BEHIND_BYTES_MAX: Final = 256 * 1024
"""Who lacks no more follows, while others send."""


class NotReached(Exception):
    """Nobody came to a kill point."""


def orders_of(member: Member) -> Path:
    """The folder of what its machine is ordered."""
    return member.log.with_suffix(".orders")


@dataclass
class Victims:
    """Whom a fault may meet."""

    group: Copies
    site: Site
    chance: random.Random
    leader: Member

    @property
    def network(self) -> Network:
        return self.site.network

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


async def _killed_at(
    victims: Victims, member: Member, point: str, lead_there: Callable[[], Awaitable[None]]
) -> None:
    """A member kills itself when it comes to a point. Raises NotReached."""
    orders = orders_of(member)
    order(orders, KILL, point)
    try:
        await lead_there()
        is_killed = await member.ended(within_s=REACHED_WITHIN_S)
    finally:
        (orders / KILL).unlink()
        victims.network.heal()
    if not is_killed:
        raise NotReached
    await asyncio.sleep(victims.chance.uniform(*DEAD_S))
    await member.begin()
    await member.ready()


async def killed_at_work(point: str, victims: Victims) -> None:
    await _killed_at(victims, victims.chance.choice(victims.group.members), point, _nothing)


async def killed_when_elected(point: str, victims: Victims) -> None:
    member = victims.chance.choice(victims.followers)
    await _killed_at(victims, member, point, partial(_hand_over, victims, member))


async def killed_at_hand_over(point: str, victims: Victims) -> None:
    await _killed_at(
        victims,
        victims.leader,
        point,
        partial(_hand_over, victims, victims.chance.choice(victims.followers)),
    )


async def killed_at_cut(point: str, victims: Victims) -> None:
    async def come_back_from_apart() -> None:
        others = [victims.host(one) for one in victims.followers]
        victims.network.part(victims.host(victims.leader), others)
        await _linked(victims)

    await _killed_at(victims, victims.leader, point, come_back_from_apart)


async def _nothing() -> None:
    pass


async def _hand_over(victims: Victims, to: Member) -> None:
    """Order it; whoever is killed meanwhile answers nothing."""
    client = victims.group.client(victims.leader.address)
    assert isinstance(victims.group, BrokerGroup)
    name = victims.group.names[victims.group.members.index(to)]
    with suppress(TidemarkError):
        await client.ask(RequestCode.CHANGE_REPLICA, action="TRANSFER", member=name)
    await client.close()


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


async def _disturbed(weather: Weather, victims: Victims) -> None:
    others = [victims.host(one) for one in victims.followers]
    victims.network.disturb(victims.host(victims.leader), others, weather)
    await _linked(victims)


async def _slow_disk(victims: Victims, member: Member) -> None:
    order(orders_of(member), SLOW, f"{SLOW_SYNC_S}")
    await victims.hold()
    (orders_of(member) / SLOW).unlink()


async def leaders_disk_slow(victims: Victims) -> None:
    await _slow_disk(victims, victims.leader)


async def followers_disk_slow(victims: Victims) -> None:
    await _slow_disk(victims, victims.chance.choice(victims.followers))


async def _full_disk(victims: Victims) -> None:
    await asyncio.to_thread(victims.site.disk.fill)
    await asyncio.sleep(victims.chance.uniform(*FULL_S))
    victims.site.disk.free()


async def leaders_disk_full(victims: Victims) -> None:
    await _led_by(victims, victims.group.members[SMALL_DISK])
    await _full_disk(victims)


async def followers_disk_full(victims: Victims) -> None:
    await _led_by(victims, victims.group.members[SMALL_DISK - 1])
    await _full_disk(victims)


async def _led_by(victims: Victims, member: Member) -> None:
    async def leads() -> bool:
        victims.leader = await victims.group.leader()
        if victims.leader is not member:
            await _hand_over(victims, member)
        return victims.leader is member

    await eventually(leads, f"{member.address} leads", within_s=REACHED_WITHIN_S)


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
    "leader's link late": (
        "packets between it and the followers take 50 to 250 ms each way, in any order",
        partial(_disturbed, Weather(late_s=(0.05, 0.25))),
    ),
    "leader's link lossy": (
        "of the packets between it and the followers 15 % are lost",
        partial(_disturbed, Weather(lost=0.15)),
    ),
    "leader's disk slow": ("each sync takes 300 ms longer", leaders_disk_slow),
    "follower's disk slow": ("each sync takes 300 ms longer", followers_disk_slow),
    "leader's disk full": ("for 10 to 15 s", leaders_disk_full),
    "follower's disk full": ("for 10 to 15 s", followers_disk_full),
}
"""By name: what it is, and how it is done."""
KILL_POINTS: Final[dict[str, tuple[str, Callable[[Victims], Awaitable[None]]]]] = {
    f"killed: {name}": (point.what, partial(how, name))
    for points, how in (
        (kill_points.AT_WORK, killed_at_work),
        (kill_points.WHEN_ELECTED, killed_when_elected),
        (kill_points.AT_HAND_OVER, killed_at_hand_over),
        (kill_points.AT_CUT, killed_at_cut),
    )
    for name, point in points.items()
}
"""The same, of a broker that is killed at a point."""


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
