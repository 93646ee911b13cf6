"""Offsets written piece by piece, while groups go on reporting and topics are deleted: the file and
what the broker believes to be in it are the same, and the marks that are reported follow both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.broker.groups.readers import QueueKey
from engine.broker.offsets import consumer_offsets as offsets_module
from engine.broker.offsets.consumer_offsets import (
    ConsumerOffsets,
    Table,
    encoded_table,
    from_document,
)
from engine.foundation.errors import RequestRefused
from engine.protocol.fastjson import loads

GROUPS, TOPICS, QUEUES = ("g", "h"), ("T", "U", "V"), (0, 1)
KEYS = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.sampled_from(QUEUES))


class SnapshotsUnderReports(RuleBasedStateMachine):
    """A table, a file, and a pipeline that knows only the keys that are reported as moved."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = ConsumerOffsets()
        self.file: Table = {}
        self.table: Table | None = None
        self.pieces: list[bytes] = []
        self.steps: Iterator[None] = iter(())
        self.going: dict[str, Iterator[None]] = {}
        """Topics and groups that are being forgotten."""
        self.reported: dict[QueueKey, tuple[int | None, int | None]] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(offsets_module, "LOOP_STEP_ENTRIES_MAX", 2)

    def teardown(self) -> None:
        self.patch.undo()

    @rule(key=KEYS, offset=st.integers(0, 9))
    def report(self, key: QueueKey, offset: int) -> None:
        with self.refused_while_it_goes(key):
            self.offsets.commit(*key, offset, now_ms=1)

    @rule(key=KEYS, offset=st.integers(0, 9))
    def reset(self, key: QueueKey, offset: int) -> None:
        with self.refused_while_it_goes(key):
            self.offsets.reset(*key, offset)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        if topic not in self.going:  # A deletion is asked for once at a time.
            self.going[topic] = self.offsets.forget_topic(topic)

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        if group not in self.going:
            self.going[group] = self.offsets.forget_group(group)

    @precondition(lambda self: self.going)
    @rule(choice=st.integers(0, 4))
    def forget_more(self, choice: int) -> None:
        name = list(self.going)[choice % len(self.going)]
        if next(self.going[name], self) is self:
            del self.going[name]
            assert not [pair for pair in self.offsets.pairs() if name in pair]

    @contextmanager
    def refused_while_it_goes(self, key: QueueKey) -> Iterator[None]:
        group, topic, _ = key
        if group in self.going or topic in self.going:
            with pytest.raises(RequestRefused, match="is being deleted"):
                yield
        else:
            yield

    @precondition(lambda self: self.table is None and self.offsets.changed)
    @rule()
    def begin(self) -> None:
        self.table, self.pieces = {}, []
        self.steps = chain(
            self.offsets.snapshot(self.table), encoded_table(self.pieces, self.table, {"n": 1})
        )
        next(self.steps, None)

    @precondition(lambda self: self.table is not None)
    @rule(is_written=st.booleans())
    def step(self, is_written: bool) -> None:
        assert self.table is not None
        if next(self.steps, self) is not self:
            return
        if is_written:
            document = loads(b"".join(self.pieces))
            assert isinstance(document, dict)
            self.file = from_document(document)
            list(self.offsets.mark_persisted(self.table))
        else:
            self.offsets.changed = True
        self.table = None

    @rule()
    def sample(self) -> None:
        for key in self.offsets.take_moved():
            self.reported[key] = (self.offsets.committed(*key), self.offsets.persisted(*key))

    @invariant()
    def what_counts_as_persisted_is_in_the_file(self) -> None:
        for group in GROUPS:
            for topic in TOPICS:
                for queue_id in QUEUES:
                    found = self.file.get((topic, group), {}).get(queue_id)
                    assert self.offsets.persisted(group, topic, queue_id) == found

    @invariant()
    def an_unchanged_table_is_the_file(self) -> None:
        if not self.offsets.changed and self.table is None:
            table = {
                pair: dict(self.offsets.queues(*pair[::-1]))
                for pair in self.offsets.pairs()
                if self.going.keys().isdisjoint(pair)
            }
            assert table == self.file

    @invariant()
    def nothing_is_answered_of_what_goes(self) -> None:
        for group, topic, queue_id in self.offsets.keys():  # noqa: SIM118
            answered = self.offsets.answered(group, topic, queue_id)
            assert (answered is None) == bool({group, topic} & self.going.keys())

    @invariant()
    def topics_and_groups_know_each_other(self) -> None:
        pairs = {(topic, group) for group, topic, _ in self.offsets.keys()}  # noqa: SIM118
        assert pairs == {(t, g) for g in GROUPS for t in self.offsets.topics_of(g)}
        assert pairs == {(t, g) for t in TOPICS for g in self.offsets.groups_of(t)}

    @invariant()
    def each_difference_is_reported_once_more(self) -> None:
        moved = self.offsets._moved
        for group in GROUPS:
            for topic in TOPICS:
                for queue_id in QUEUES:
                    key = (group, topic, queue_id)
                    now = (self.offsets.committed(*key), self.offsets.persisted(*key))
                    assert self.reported.get(key, (None, None)) == now or key in moved


SnapshotsUnderReports.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestSnapshotsUnderReports = SnapshotsUnderReports.TestCase


def test_an_offset_that_was_persisted_has_moved() -> None:
    offsets, table, key = ConsumerOffsets(), Table(), ("g", "T", 0)
    offsets.commit(*key, 5, now_ms=1)
    offsets.take_moved()
    list(offsets.snapshot(table))
    list(offsets.mark_persisted(table))
    assert offsets.take_moved() == {key: None}
    assert offsets.persisted(*key) == 5


def test_what_changes_while_it_is_copied_is_not_persisted() -> None:
    offsets, table, key = ConsumerOffsets(), Table(), ("g", "T", 0)
    offsets.commit(*key, 5, now_ms=1)
    list(offsets.snapshot(table))
    offsets.commit(*key, 6, now_ms=1)
    list(offsets.mark_persisted(table))
    assert offsets.persisted(*key) == 5
    assert offsets.changed


def test_a_deletion_that_begins_just_after_a_file_was_written_has_it_written_again() -> None:
    offsets, table = ConsumerOffsets(), Table()
    offsets.commit("g", "T", 0, 5, now_ms=1)
    list(offsets.snapshot(table))
    offsets.forget_topic("T")
    assert offsets.changed
