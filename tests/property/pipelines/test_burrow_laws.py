"""Laws of Burrow's storage and rules: shifted in time, scaled in offsets, played in another order
of queues, the verdicts are the same; and a ring of slots, written as Burrow links it, keeps the
same commits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from pipelines.rules.burrow.evaluator import (
    Commit,
    GroupStatus,
    Partition,
    Status,
    evaluate_group,
    evaluate_partition,
)
from pipelines.rules.burrow.storage import Storage, StorageSettings

NOW_S = 1_700_000_000


@dataclass(frozen=True)
class End:
    partition: int
    offset: int


@dataclass(frozen=True)
class Report:
    partition: int
    offset: int
    order: int
    age_ms: int
    """Before now."""


@dataclass(frozen=True)
class Story:
    """Events of a topic of three partitions, and the settings they meet."""

    events: tuple[End | Report, ...]
    settings: StorageSettings
    allowed_lag: int
    minimum_complete: float

    def statuses(self, *, now_s: int = NOW_S, factor: int = 1) -> GroupStatus:
        storage = Storage(self.settings)
        for event in self.events:
            if isinstance(event, End):
                storage.add_end_offset(
                    "sales", event.partition, offset=event.offset * factor, partition_count=3
                )
            else:
                storage.add_commit(
                    *("orders", "sales", event.partition),
                    offset=event.offset * factor,
                    order=event.order,
                    timestamp_ms=now_s * 1000 - event.age_ms,
                    now_s=now_s,
                )
        return evaluate_group(
            storage.fetch("orders", now_s=now_s),
            now_s=now_s,
            allowed_lag=self.allowed_lag * factor,
            minimum_complete=self.minimum_complete,
        )


offsets = st.integers(0, 200)
partitions = st.integers(0, 2)
events = st.one_of(
    st.builds(End, partitions, offsets),
    st.builds(Report, partitions, offsets, st.integers(0, 30), st.integers(0, 700_000)),
)
stories = st.builds(
    Story,
    events=st.lists(events, min_size=5, max_size=60).map(tuple),
    settings=st.builds(
        StorageSettings, intervals=st.integers(1, 6), min_distance_s=st.sampled_from([0, 1, 60])
    ),
    allowed_lag=st.integers(0, 20),
    minimum_complete=st.sampled_from([0.0, 0.5, 1.0]),
)


def shape(judged: GroupStatus) -> dict[str, object]:
    """The verdicts, without offsets and times."""
    return {
        "status": judged.status,
        "complete": judged.complete,
        "max_lag": judged.max_lag,
        "partitions": {
            key: (one.status, one.complete, one.start and one.start.order)
            for key, one in judged.partitions.items()
        },
    }


@given(stories, st.integers(-1_000_000, 1_000_000_000))
def test_a_story_at_another_time_has_the_same_verdicts(story: Story, shift_s: int) -> None:
    assert shape(story.statuses(now_s=NOW_S + shift_s)) == shape(story.statuses())


@given(stories, st.integers(2, 10**12))
def test_a_story_with_all_offsets_multiplied_has_the_same_verdicts(
    story: Story, factor: int
) -> None:
    bigger = story.statuses(factor=factor)
    assert shape(bigger) == shape(story.statuses())
    assert bigger.total_lag == story.statuses().total_lag * factor


@given(stories)
def test_partitions_do_not_know_of_each_other(story: Story) -> None:
    """Played partition after partition instead of mixed, each keeps what it kept."""
    apart = sorted(story.events, key=lambda event: event.partition)
    # The topic is known from the first end on: which commit makes the group plays no part.
    again = replace(story, events=tuple(apart))
    mixed = story.statuses().partitions
    for key, one in again.statuses().partitions.items():
        assert mixed[key] == one


@given(stories)
def test_a_group_sums_its_partitions_up(story: Story) -> None:
    judged = story.statuses()
    ones = list(judged.partitions.values())
    assert judged.total_lag == sum(one.current_lag for one in ones)
    if judged.max_lag is not None:
        assert judged.partitions[judged.max_lag].current_lag == max(o.current_lag for o in ones)
    if ones:
        assert judged.status is min(Status.ERR, max(one.status for one in ones))
    assert set(judged.shown(show_all=False)) == {
        key for key, one in judged.partitions.items() if one.status is not Status.OK
    }


@given(stories)
def test_no_verdict_is_made_where_nothing_waits_or_too_little_is_known(story: Story) -> None:
    for one in story.statuses().partitions.values():
        if one.current_lag <= story.allowed_lag or one.complete < story.minimum_complete:
            assert one.status is Status.OK


@given(
    st.lists(st.tuples(offsets, st.integers(0, 50)), min_size=1, max_size=8),
    st.lists(offsets, min_size=1, max_size=5),
    st.integers(1, 50),
    st.integers(0, 4000),
)
def test_what_blanks_a_ring_begins_with_plays_no_part(
    rows: list[tuple[int, int]], ends: list[int], lag: int, pause_s: int
) -> None:
    commits = tuple(
        Commit(offset, number, (NOW_S + number) * 1000, behind)
        for number, (offset, behind) in enumerate(rows)
    )
    now_s = NOW_S + pause_s
    full = evaluate_partition(Partition(commits, tuple(ends), lag), now_s=now_s)
    blank = evaluate_partition(Partition((None, None, *commits), tuple(ends), lag), now_s=now_s)
    assert full.status is blank.status
    assert (full.complete, full.start, full.end) == (1.0, blank.start, blank.end)


class LinkedRing:
    """A ring as Burrow links it: a circle of slots and a pointer to the next to be written."""

    def __init__(self, slots: int, min_distance_ms: int) -> None:
        self.slots: list[Commit | None] = [None] * slots
        self.next = 0
        self.min_distance_ms = min_distance_ms

    def back(self, slot: int) -> int:
        return (slot - 1) % len(self.slots)

    def store(self, commit: Commit) -> None:
        newest, oldest = self.slots[self.back(self.next)], self.slots[self.next]
        if newest is not None and oldest is not None and oldest.order >= commit.order:
            return
        if newest is None or newest.order < commit.order:
            self._write(commit, insert=None, extend=self.next)
            return
        here = self.next
        while True:
            before = self.back(here)
            earlier = self.slots[before]
            if earlier is None or before == self.next:
                self._write(replace(commit, lag=None), insert=before, extend=None)
                return
            if earlier.order == commit.order:
                return
            if earlier.order < commit.order:
                self._write(replace(commit, lag=None), insert=here, extend=self.next)
                return
            here = before

    def _write(self, commit: Commit, *, insert: int | None, extend: int | None) -> None:
        target = insert if insert is not None else extend
        assert target is not None
        before = self.slots[self.back(target)]
        if (
            before is not None
            and before.order < commit.order
            and commit.timestamp_ms - before.timestamp_ms < self.min_distance_ms
        ):
            self.slots[self.back(target)] = replace(commit, timestamp_ms=before.timestamp_ms)
            return
        if insert is not None and extend is not None:
            slot = extend
            while slot != insert:
                self.slots[slot] = self.slots[self.back(slot)]
                slot = self.back(slot)
        self.slots[target] = commit
        if extend is not None:
            self.next = (extend + 1) % len(self.slots)

    def oldest_first(self) -> list[Commit]:
        order = [(self.next + step) % len(self.slots) for step in range(len(self.slots))]
        return [commit for slot in order if (commit := self.slots[slot]) is not None]


@given(
    slots=st.integers(1, 6),
    min_distance_s=st.sampled_from([0, 1, 3]),
    reports=st.lists(
        st.tuples(offsets, st.integers(0, 25), st.integers(0, 12_000)), min_size=1, max_size=40
    ),
)
def test_a_list_keeps_what_a_linked_ring_keeps(
    slots: int, min_distance_s: int, reports: list[tuple[int, int, int]]
) -> None:
    storage = Storage(StorageSettings(intervals=slots, min_distance_s=min_distance_s))
    storage.add_end_offset("sales", 0, offset=100, partition_count=1)
    linked = LinkedRing(slots, min_distance_s * 1000)
    for offset, order, timestamp_ms in reports:
        storage.add_commit(
            *("orders", "sales", 0),
            offset=offset,
            order=order,
            timestamp_ms=timestamp_ms,
            now_s=0,
        )
        linked.store(Commit(offset, order, timestamp_ms, max(0, 100 - offset)))
    kept = storage.fetch("orders", now_s=0)
    assert kept is not None
    assert list(kept["sales", 0].commits) == linked.oldest_first()
