"""Each allocation strategy as a consumer's setting: members hold what it gives them, and a strategy
that fails changes nothing.

Feature rows: B4, B5, A12 (rules of pull rebalances).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.client.config import ConsumerConfig, LitePullConfig
from engine.client.consuming.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.process_queue import PULL_EXPIRY_MS
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import ME, in_virtual_time, subscription
from tests.unit.client.test_rebalancing import Member

YOU = "10.0.0.2@you"
QUEUES = [
    MessageQueue("T", broker, number)
    for broker in ("east-a", "east@b", "west-a")
    for number in range(4)
]


def room_by_address(client_id: str) -> str:
    """A resolver of the user's: clients whose address ends in 1 are in the east."""
    return "east" if client_id.split("@", maxsplit=1)[0].endswith("1") else "west"


def room_by_name(broker_name: str) -> str:
    return broker_name[:4]


STRATEGIES: tuple[tuple[AllocationStrategy, str], ...] = (
    (Averagely(), "AVG"),
    (AveragelyByCircle(), "AVG_BY_CIRCLE"),
    (ByConfig((QUEUES[3], QUEUES[7])), "CONFIG"),
    (ByMachineRoom(frozenset({"east"})), "MACHINE_ROOM"),
    (
        MachineRoomNearby(Averagely(), room_by_name, room_by_address),
        "MACHINE_ROOM_NEARBY-AVG",
    ),
    (ConsistentHash(), "CONSISTENT_HASH"),
)


@pytest.mark.parametrize("config", [ConsumerConfig, LitePullConfig])
@pytest.mark.parametrize(("strategy", "name"), STRATEGIES, ids=lambda value: str(value)[:12])
@run_by(in_virtual_time)
async def test_a_member_holds_what_its_strategy_gives_it(
    world: World,
    runtime: Runtime,
    *,
    strategy: AllocationStrategy,
    name: str,
    config: type[ConsumerConfig],
) -> None:
    member = Member(runtime)
    member.state.config = config(allocation=strategy)
    member.topics = {"T": QUEUES[::-1]}
    member.group = [YOU, ME]
    assert await member.rebalancer.rebalance()
    assert strategy.name == name
    expected = strategy.allocate(ME, QUEUES, [ME, YOU])
    assert 0 < len(expected) < len(QUEUES)
    assert sorted(member.state.windows) == sorted(expected)
    if name.startswith("MACHINE_ROOM_NEARBY"):
        assert {queue.broker_name for queue in expected} == {"east-a", "east@b"}


class Whimsical:
    """A user's strategy with a bug for one topic."""

    name = "WHIMSICAL"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if queues[0].topic == "T":
            raise ZeroDivisionError
        return list(queues)


@run_by(in_virtual_time)
async def test_a_strategy_that_fails_for_one_topic_leaves_it_and_the_others_are_divided(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    other = MessageQueue("U", "broker-a", 0)
    member.topics["U"] = [other]
    member.state.subscriptions["U"] = Subscription(subscription("U", "*"), None)
    assert await member.rebalancer.rebalance()
    held = sorted(member.state.windows)
    member.state.config = ConsumerConfig(allocation=Whimsical())
    member.topics["U"] = [other, MessageQueue("U", "broker-a", 1)]
    member.topics["T"] = held[:1]
    assert not await member.rebalancer.rebalance(), "not balanced: tried again soon"
    assert sorted(member.state.windows) == [*held, MessageQueue("U", "broker-a", 1)]


@run_by(in_virtual_time)
async def test_a_queue_that_is_polled_rarely_stays_with_who_polls_it(
    world: World, runtime: Runtime
) -> None:
    member = Member(runtime)
    member.state.consume_type = "CONSUME_ACTIVELY"
    await member.rebalancer.rebalance()
    window = member.state.windows[member.taken_up[0][0]]
    window.last_pull_ms -= PULL_EXPIRY_MS + 1
    await member.rebalancer.rebalance()
    assert window in member.state.windows.values()
    assert not window.dropped
