"""A Raft group of which one member is killed at a point of the founding, and begins again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Final

from tests.chaos.faults import orders_of
from tests.chaos.kill_points import AT_FOUNDING
from tests.chaos.member import KILL, order
from tests.chaos.site import Site

REACHED_WITHIN_S: Final = 30
AWAY_S: Final = (0.0, 1.0)

_log = logging.getLogger("chaos")


async def founded(site: Site, point: str, number: int, chance: random.Random) -> float:
    """How long nobody led after the kill; in the end all are founders, and one leads."""
    group = site.group(f"founding-{point.replace(' ', '-')}-{number}")
    victim = chance.choice(group.members)
    order(orders_of(victim), KILL, point)
    try:
        parties = (*group.name_servers, *group.members)
        await asyncio.gather(*(one.begin() for one in parties))
        is_killed = await victim.ended(within_s=REACHED_WITHIN_S)
        assert is_killed, f"nobody came to {point}"
        killed_s = time.monotonic()
        (orders_of(victim) / KILL).unlink()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await victim.begin()
        await asyncio.gather(*(one.ready() for one in parties))
        await group.named_leader()
        led_s = time.monotonic()
        await group.settled()
        states = [await one.state() for one in group.members]
        assert all(one is not None and one.reason == "a voter" for one in states), states
    finally:
        await group.close()
    _log.info("killed: %s: one leads after %.2f s", point, led_s - killed_s)
    return led_s - killed_s


async def all_founded(site: Site, rounds: int, chance: random.Random) -> dict[str, list[float]]:
    """Each point so often: how long nobody led."""
    return {
        point: [await founded(site, point, number, chance) for number in range(rounds)]
        for point in AT_FOUNDING
    }
