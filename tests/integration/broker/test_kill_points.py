"""Row C11: a broker of a Raft group is killed at named points of its code, under sends: nothing
acknowledged is lost, and the logs are the same. `make chaos` comes to every point, and more often.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.faults import orders_of
from tests.chaos.member import KILL, order, program
from tests.integration.broker.broker_group import HERE, BrokerGroup, Member
from tests.integration.broker.cluster import TOPIC
from tests.integration.broker.test_a_group_over_kills import Offsets, begin, check_logs, working
from tests.integration.broker.test_kills_and_promotions import more_acknowledged, stored_at
from tests.simulation.history import (
    History,
    check_nothing_acknowledged_is_lost,
    check_order_per_queue,
)

POINTS = ("log synced", "record unapplied", "committed")
REACHED_WITHIN_S = 20


def group_with_points(folder: Path) -> BrokerGroup:
    places = [replace(HERE, program=program(folder / f"n{number}.orders")) for number in range(3)]
    return BrokerGroup(folder, places=[*places, HERE, HERE])


async def killed_at(member: Member, point: str) -> None:
    order(orders_of(member), KILL, point)
    assert await member.ended(within_s=REACHED_WITHIN_S), f"nobody came to {point}"
    (orders_of(member) / KILL).unlink()


@pytest.mark.timeout(180)
async def test_a_group_loses_nothing_acknowledged_wherever_a_broker_is_killed(
    tmp_path: Path,
) -> None:
    group, history = group_with_points(tmp_path), History()
    offsets = Offsets(group)
    try:
        await begin(group, offsets)
        async with working(group, history, offsets):
            for number, point in enumerate(POINTS):
                await more_acknowledged(history)
                leader = await group.leader()
                others = [one for one in group.members if one is not leader]
                member = leader if point == "committed" else others[number]
                await killed_at(member, point)
                await more_acknowledged(history)
                await member.begin()
                await member.ready()
        await group.settled()
        stored = await stored_at((await group.named_leader(TOPIC)).address)
        check_nothing_acknowledged_is_lost(history, stored)
        check_order_per_queue(history, stored)
        check_logs(group.members)
    finally:
        await group.close()
