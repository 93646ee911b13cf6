"""A step of the event loop costs what it is about, never what the broker's tables hold: counted in
instructions, with tables long enough to distinguish linear from constant.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from engine.broker.groups.consumer_filters import ConsumerFilters
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.members import ClientChannel
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, Table, encoded_table
from engine.broker.pulling.long_poll import HeldPull, HeldPulls
from engine.broker.stats.broker_stats import NORMAL, BrokerStats
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import counted, stepped
from engine.foundation.limits import (
    LOOP_STEP_ANSWERS_MAX,
    LOOP_STEP_ENTRIES_MAX,
    MEMBERS_LISTED_MAX,
)
from engine.protocol.bodies import ConsumerData, DataVersion, SubscriptionData, TopicConfig
from engine.protocol.message import MessageQueue
from tests.steps import STEP_INSTRUCTIONS_MAX, instructions, instructions_by_step

FEW, MANY = 20, 2000
SLACK = 1.2
"""A dictionary that grew, or a longer number, may cost an instruction more."""


class End:
    """One end of a connection; its identity counts here, and that it is open."""

    closed = False


def member(number: int) -> tuple[End, ClientChannel]:
    end = End()
    return end, ClientChannel(f"c{number:05}", end, "JAVA", 513)  # type: ignore[arg-type]


def subscribed(group: str, topic: str = "T") -> ConsumerData:
    return ConsumerData(
        group_name=group,
        subscription_data_set=[SubscriptionData.build(topic, "*", sub_version=1)],
    )


def lost_among_groups(count: int) -> Callable[[], object]:
    groups = ConsumerGroups()
    ends = []
    for number in range(count):
        end, channel = member(number)
        groups.register(subscribed(f"g{number}"), channel, now_ms=0)
        ends.append(end)
    return lambda: groups.lost(ends[count // 2])  # type: ignore[arg-type]


def lost_among_members(count: int) -> Callable[[], object]:
    groups = ConsumerGroups()
    ends = []
    for number in range(MEMBERS_LISTED_MAX + count):
        end, channel = member(number)
        groups.register(subscribed("g"), channel, now_ms=0)
        ends.append(end)
    return lambda: groups.lost(ends[count // 2])  # type: ignore[arg-type]


def heard_among_members(count: int) -> Callable[[], object]:
    groups = ConsumerGroups()
    for number in range(count):
        groups.register(subscribed("g"), member(number)[1], now_ms=0)
    one = member(count // 2)[1]
    return lambda: groups.register(subscribed("g"), one, now_ms=1)


def lost_among_producers(count: int) -> Callable[[], object]:
    producers = ProducerGroups()
    ends = []
    for number in range(count):
        end, channel = member(number)
        producers.register(f"p{number}", channel, now_ms=0)
        ends.append(end)
    return lambda: producers.lost(ends[count // 2])  # type: ignore[arg-type]


def reader_gone(count: int) -> Callable[[], object]:
    readers = Readers(1)
    for number in range(count):
        readers.arrived((f"g{number}", "T", 0), f"c{number}", now_ms=1)
    return lambda: readers.release(f"g{count // 2}", f"c{count // 2}")


def selectors_of_a_group(count: int) -> Callable[[], object]:
    filters = ConsumerFilters()
    for number in range(count):
        data = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92")
        filters.register(f"g{number}", [data], now_ms=0)
    return lambda: filters.unregister(f"g{count // 2}", now_ms=1)


def topics_of_a_group(count: int) -> Callable[[], object]:
    offsets = ConsumerOffsets()
    for number in range(count):
        offsets.commit(f"g{number}", f"T{number}", 0, 1, now_ms=1)
    return lambda: (offsets.topics_of("g7"), offsets.groups_of("T7"))


def leases_that_hold(count: int) -> Callable[[], object]:
    locks = QueueLocks()
    for number in range(count):
        locks.lock(f"g{number}", "c", [MessageQueue("T", "b", number)], now_ms=number)
    return lambda: list(locks.drop_expired(count))


class Litter:
    """Hangs together in a circle, and runs instructions of its own when it is collected."""

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        sum(number for number in range(100))


def test_what_others_left_to_be_collected_is_not_counted() -> None:
    def work() -> None:
        """Makes enough objects for a collection, when one is allowed."""
        assert [[] for _ in range(10_000)]

    alone = instructions(work)
    gc.disable()
    litter = [Litter() for _ in range(100)]
    del litter
    gc.enable()
    assert instructions(work) == alone
    assert gc.isenabled()


def test_what_never_ran_before_is_counted_like_what_did() -> None:
    def inner() -> int:
        return sum(number for number in range(100))

    def work() -> None:
        inner()

    first = instructions(work)
    assert first == instructions(work)
    assert first > 200, "nor is any frame within it left out"


@pytest.mark.parametrize(
    "scene",
    [
        lost_among_groups,
        lost_among_members,
        heard_among_members,
        lost_among_producers,
        reader_gone,
        selectors_of_a_group,
        topics_of_a_group,
        leases_that_hold,
    ],
)
def test_it_costs_as_much_among_many_as_among_few(
    scene: Callable[[int], Callable[[], object]],
) -> None:
    assert instructions(scene(MANY)) <= SLACK * instructions(scene(FEW))


def offsets_reported(count: int) -> ConsumerOffsets:
    offsets = ConsumerOffsets()
    for number in range(count):
        offsets.commit(f"g{number}", f"T{number % 100}", 0, 1, now_ms=1)
    return offsets


def offsets_copied(count: int) -> Iterator[None]:
    return stepped(offsets_reported(count).snapshot({}))


def offsets_encoded(count: int) -> Iterator[None]:
    table: Table = {}
    list(offsets_reported(count).snapshot(table))
    return encoded_table([], table, {})


def offsets_persisted(count: int) -> Iterator[None]:
    offsets, table = offsets_reported(count), Table()
    list(offsets.snapshot(table))
    return stepped(offsets.mark_persisted(table))


def groups_encoded(count: int) -> Iterator[None]:
    configs = GroupConfigs(auto_create=True)
    for number in range(count):
        configs.find(f"g{number}")
    return configs.encoded([], {})


def counts_sampled(count: int) -> Iterator[None]:
    traffic = BrokerStats(lambda: 0)
    for number in range(count):
        traffic.put(f"T{number}", NORMAL, 1, 1)
        traffic.got(f"g{number}", "T", 1, 1)
    return traffic.sample(3_600_000, wall_ms=3_600_000)


def silence_looked_for(count: int) -> Iterator[object]:
    groups = ConsumerGroups()
    for number in range(count):
        groups.register(subscribed(f"g{number % 7}"), member(number)[1], now_ms=0)
    return stepped(groups.silent(1, 10), LOOP_STEP_ANSWERS_MAX // 50)


def silent_producers_forgotten(count: int) -> Iterator[object]:
    producers = ProducerGroups()
    for number in range(count):
        producers.register(f"p{number % 7}", member(number)[1], now_ms=number % 2)
    return stepped(producers.expire(11, 10), LOOP_STEP_ANSWERS_MAX)


def topics_encoded(count: int) -> Iterator[None]:
    topics = Topics()
    for number in range(10 * count):
        topics.put(TopicConfig(f"T{number}"))
    return topics.encoded([], DataVersion())


def pulls_held(count: int) -> Iterator[object]:
    holds = HeldPulls()
    for number in range(count):
        holds.hold(
            HeldPull(
                group="g",
                topic="T",
                queue_id=number % 2,
                queue_offset=0,
                wanted=None,
                matches=None,
                deadline_ms=number,
                gone=lambda: False,
                resume=lambda: None,
            )
        )
    return holds.due(count // 3, lambda topic, queue_id: 0)


@pytest.mark.parametrize(
    "work",
    [
        *(offsets_copied, offsets_encoded, offsets_persisted),
        *(groups_encoded, counts_sampled, pulls_held),
        *(silence_looked_for, silent_producers_forgotten, topics_encoded),
    ],
)
def test_a_long_table_is_gone_through_in_steps_of_one_size(
    work: Callable[[int], Iterator[object]],
) -> None:
    short = instructions_by_step(work(2 * LOOP_STEP_ENTRIES_MAX))
    long = instructions_by_step(work(8 * LOOP_STEP_ENTRIES_MAX))
    assert len(long) > 3 * len(short) - 3, "more entries are more steps"
    assert max(long) <= SLACK * max(short) + 4000, "not longer ones"
    assert max(long) <= STEP_INSTRUCTIONS_MAX


def test_a_pull_that_is_due_leaves_once_however_many_steps_it_takes_to_find_it() -> None:
    woken = [pull for some in pulls_held(3000) for pull in some]  # type: ignore[attr-defined]
    assert sorted(pull.deadline_ms for pull in woken) == list(range(1001))


def test_entries_that_come_several_at_a_time_are_steps_of_no_more_than_one_batch_too_many() -> None:
    noted: list[int] = []

    def batches() -> Iterator[int]:
        for count in (1, 125, 125, 1, 300, 2):
            noted.append(count)
            yield count

    steps = [sum(noted) for _ in counted(batches(), 250)]

    assert steps == [251, 552]
    assert sum(noted) == 554, "what is left after the last step is done as well"
