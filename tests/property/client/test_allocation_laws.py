"""Laws of every division of queues: all members together get each queue once, whoever computes
it.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.client.consuming.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from engine.protocol.message import MessageQueue

ROOMS = ("east", "north", "west")
members = st.lists(
    st.builds(
        "{}-{}@{}".format,
        st.sampled_from(ROOMS),
        st.integers(0, 9),
        st.text("abcdef0123456789", min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=9,
    unique=True,
).map(sorted)


def queues(brokers: tuple[str, ...]) -> st.SearchStrategy[list[MessageQueue]]:
    """Sorted, non-empty lists of queues of one topic."""
    queue = st.builds(MessageQueue, st.just("T"), st.sampled_from(brokers), st.integers(0, 15))
    return st.lists(queue, min_size=1, max_size=40, unique=True).map(sorted)


def divide(
    strategy: AllocationStrategy, shared: list[MessageQueue], group: list[str]
) -> dict[str, list[MessageQueue]]:
    return {member: strategy.allocate(member, shared, group) for member in group}


def assert_partition(shares: dict[str, list[MessageQueue]], shared: list[MessageQueue]) -> None:
    given_out = [queue for share in shares.values() for queue in share]
    assert sorted(given_out) == shared


NEARBY_BROKERS = tuple(f"{room}-broker" for room in (*ROOMS, "south"))
WHOLE = st.sampled_from(
    [
        Averagely(),
        AveragelyByCircle(),
        ConsistentHash(),
        MachineRoomNearby(Averagely()),
        MachineRoomNearby(AveragelyByCircle()),
        MachineRoomNearby(ConsistentHash(3)),
    ]
)


@given(strategy=WHOLE, shared=queues(NEARBY_BROKERS), group=members)
def test_the_members_shares_are_a_partition_of_the_queues(
    strategy: AllocationStrategy, shared: list[MessageQueue], group: list[str]
) -> None:
    assert_partition(divide(strategy, shared, group), shared)


@given(strategy=WHOLE, shared=queues(NEARBY_BROKERS), group=members)
def test_a_member_outside_the_group_gets_nothing(
    strategy: AllocationStrategy, shared: list[MessageQueue], group: list[str]
) -> None:
    assert strategy.allocate("stranger", shared, group) == []


@given(
    strategy=st.sampled_from([Averagely(), AveragelyByCircle()]),
    shared=queues(NEARBY_BROKERS),
    group=members,
)
def test_average_shares_differ_by_one_queue_at_most(
    strategy: AllocationStrategy, shared: list[MessageQueue], group: list[str]
) -> None:
    sizes = [len(share) for share in divide(strategy, shared, group).values()]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(shared=queues(("east@a", "north@b", "west@c", "noroom", "a@b@c")), group=members)
def test_machine_room_shares_out_the_queues_of_its_rooms_only(
    shared: list[MessageQueue], group: list[str]
) -> None:
    shares = divide(ByMachineRoom(frozenset({"east", "north"})), shared, group)
    assert_partition(shares, [q for q in shared if q.broker_name in ("east@a", "north@b")])


@given(shared=queues(NEARBY_BROKERS), group=members)
def test_nearby_keeps_a_rooms_queues_in_the_room_while_it_has_a_client(
    shared: list[MessageQueue], group: list[str]
) -> None:
    rooms_with_clients = {member.split("-")[0] for member in group}
    for member, share in divide(MachineRoomNearby(Averagely()), shared, group).items():
        for queue in share:
            room = queue.broker_name.split("-")[0]
            assert room == member.split("-")[0] or room not in rooms_with_clients


@given(shared=queues(NEARBY_BROKERS), group=members.filter(lambda group: len(group) > 1))
def test_consistent_hash_moves_only_the_queues_of_a_member_that_leaves(
    shared: list[MessageQueue], group: list[str]
) -> None:
    before = divide(ConsistentHash(), shared, group)
    leaver, stayers = group[0], group[1:]
    after = divide(ConsistentHash(), shared, stayers)
    for member in stayers:
        assert set(before[member]) <= set(after[member]), f"{leaver} left, {member} lost a queue"
