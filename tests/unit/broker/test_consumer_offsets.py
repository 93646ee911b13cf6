"""The offset table: commits, resets, persisted copies, and its file's form."""

from __future__ import annotations

from typing import Any

import pytest

from engine.broker.offsets.consumer_offsets import (
    ConsumerOffsets,
    Reported,
    Table,
    encoded_table,
    from_document,
)
from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.protocol.bodies import DataVersion
from engine.protocol.fastjson import loads

GROUP, TOPIC = "orders-group", "orders"


def test_a_first_commit_has_no_previous_offset_and_the_next_has_the_first() -> None:
    offsets = ConsumerOffsets()
    first = offsets.commit(GROUP, TOPIC, 0, 10, now_ms=1)
    second = offsets.commit(GROUP, TOPIC, 0, 25, now_ms=2)
    assert (first.previous_offset, first.accepted) == (None, True)
    assert (second.previous_offset, second.accepted) == (10, True)
    assert offsets.committed(GROUP, TOPIC, 0) == 25


def test_a_lower_commit_is_accepted_because_clients_may_rewind() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 100, now_ms=1)
    rewound = offsets.commit(GROUP, TOPIC, 0, 40, now_ms=2)
    assert (rewound.previous_offset, rewound.accepted) == (100, True)
    assert offsets.committed(GROUP, TOPIC, 0) == 40


def test_queues_topics_and_groups_do_not_mix() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 1, now_ms=1)
    offsets.commit(GROUP, TOPIC, 1, 2, now_ms=1)
    offsets.commit(GROUP, "payments", 0, 3, now_ms=1)
    offsets.commit("audit", TOPIC, 0, 4, now_ms=1)
    assert list(offsets.keys()) == [
        (GROUP, TOPIC, 0),
        (GROUP, TOPIC, 1),
        (GROUP, "payments", 0),
        ("audit", TOPIC, 0),
    ]
    assert offsets.topics_of(GROUP) == ["orders", "payments"]
    assert offsets.groups_of(TOPIC) == ["audit", GROUP]


def test_offsets_stop_at_their_limit_and_those_known_go_on() -> None:
    offsets = ConsumerOffsets(count_max=2)
    offsets.load({(TOPIC, GROUP): {0: 1, 1: 1}}, 0)
    for add in (
        lambda: offsets.commit("late", TOPIC, 0, 5, now_ms=1),
        lambda: offsets.reset("late", TOPIC, 0, 5),
        lambda: offsets.place("late", TOPIC, 0, 5),
    ):
        with pytest.raises(RequestRefused, match="group late for queue 0 of orders is one"):
            add()
    assert not offsets.reset_pending("late", TOPIC, 0)
    assert offsets.commit(GROUP, TOPIC, 1, 9, now_ms=1).accepted
    list(offsets.forget_group(GROUP))
    assert offsets.commit("late", TOPIC, 0, 5, now_ms=1).accepted
    assert offsets.commit("late", TOPIC, 1, 5, now_ms=1).accepted
    assert len(list(offsets.keys())) == 2


def test_an_unknown_queue_has_no_offset_rather_than_zero() -> None:
    offsets = ConsumerOffsets()
    assert offsets.committed(GROUP, TOPIC, 7) is None
    assert offsets.answered(GROUP, TOPIC, 7) is None
    assert offsets.persisted(GROUP, TOPIC, 7) is None


def test_a_pending_reset_is_returned_refuses_commits_and_is_taken_once() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 50, now_ms=1)
    assert offsets.reset(GROUP, TOPIC, 0, 5) == 50
    assert offsets.answered(GROUP, TOPIC, 0) == 5
    late_report_of_the_old_owner = offsets.commit(GROUP, TOPIC, 0, 60, now_ms=2)
    assert not late_report_of_the_old_owner.accepted
    assert offsets.committed(GROUP, TOPIC, 0) == 5
    assert offsets.take_reset(GROUP, TOPIC, 0) == 5
    assert offsets.take_reset(GROUP, TOPIC, 0) is None
    assert offsets.commit(GROUP, TOPIC, 0, 6, now_ms=3).accepted


def test_reports_are_counted_until_they_are_taken_unchanged_and_refused_ones_too() -> None:
    offsets = ConsumerOffsets()
    key = (GROUP, TOPIC, 0)
    for now_ms in (5, 6, 7):
        offsets.commit(GROUP, TOPIC, 0, 10, now_ms=now_ms)
    *_, reported = offsets.standing(key)
    assert reported is not None
    assert (reported.count, reported.last_commit_ms) == (3, 7)
    reported.count = 0
    offsets.reset(*key, 5)
    offsets.commit(*key, 11, now_ms=8)
    assert offsets.standing(key) == (5, None, Reported(last_commit_ms=8, count=1))


NOTES = {"dataVersion": {"stateVersion": 0, "timestamp": 9, "counter": 2}}


def document_of(table: Table) -> dict[str, Any]:
    """What a table becomes."""
    pieces: list[bytes] = []
    list(encoded_table(pieces, table, NOTES))
    document = loads(b"".join(pieces))
    assert isinstance(document, dict)
    return document


def snapshot_of(offsets: ConsumerOffsets) -> Table:
    """The table to be written now."""
    table: Table = {}
    list(offsets.snapshot(table))
    return table


def test_persisted_offsets_are_those_of_the_snapshot_that_was_written() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 10, now_ms=1)
    table = snapshot_of(offsets)
    offsets.commit(GROUP, TOPIC, 0, 20, now_ms=2)
    assert offsets.persisted(GROUP, TOPIC, 0) is None
    list(offsets.mark_persisted(table))
    assert offsets.persisted(GROUP, TOPIC, 0) == 10
    assert offsets.committed(GROUP, TOPIC, 0) == 20
    assert offsets.changed


def test_an_unchanged_table_needs_no_new_file() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 10, now_ms=1)
    list(offsets.mark_persisted(snapshot_of(offsets)))
    offsets.commit(GROUP, TOPIC, 0, 10, now_ms=2)
    assert not offsets.changed


def test_the_data_version_advances_every_five_hundred_commits() -> None:
    offsets = ConsumerOffsets()
    for offset in range(499):
        offsets.commit(GROUP, TOPIC, 0, offset, now_ms=1)
    assert offsets.counter == 0
    offsets.commit(GROUP, TOPIC, 0, 499, now_ms=1)
    assert offsets.counter == 1


def test_a_deleted_topic_takes_its_offsets_resets_and_counts_along() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 10, now_ms=1)
    offsets.reset(GROUP, TOPIC, 0, 3)
    list(offsets.forget_topic(TOPIC))
    assert list(offsets.keys()) == []
    assert offsets.answered(GROUP, TOPIC, 0) is None
    assert offsets.standing((GROUP, TOPIC, 0)) == (None, None, None)


def test_the_file_has_rocketmqs_form_and_reads_back() -> None:
    table = {("orders", "orders-group"): {0: 12, 3: 7}, ("%RETRY%g", "g"): {0: 1}}
    document = document_of(table)
    assert document == {
        "dataVersion": {"stateVersion": 0, "timestamp": 9, "counter": 2},
        "offsetTable": {"orders@orders-group": {"0": 12, "3": 7}, "%RETRY%g@g": {"0": 1}},
    }
    assert from_document(document) == table


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({}, "holds no offsetTable"),
        ({"offsetTable": []}, "holds no offsetTable"),
        ({"offsetTable": {"no-separator": {"0": 1}}}, "'no-separator' is not topic@group"),
        ({"offsetTable": {"t@g": {"0": "x"}}}, "'0': 'x', not an offset"),
        ({"offsetTable": {"t@g": {"zero": 1}}}, "'zero': 1, not an offset"),
        ({"offsetTable": {"t@g": {"0": True}}}, "'0': True, not an offset"),
    ],
)
def test_a_file_of_another_form_is_called_damaged(
    document: dict[str, object], complaint: str
) -> None:
    with pytest.raises(CorruptRecord, match=complaint):
        from_document(document)


def merged(own: DataVersion, other: DataVersion) -> int | None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 40, now_ms=1)
    offsets.commit("stays", TOPIC, 0, 7, now_ms=1)
    for _ in offsets.merge({(TOPIC, GROUP): {0: 90}}, other, own):
        pass
    assert offsets.committed("stays", TOPIC, 0) == 7
    return offsets.committed(GROUP, TOPIC, 0)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (DataVersion(1, 9, 900), DataVersion(2, 1, 3), 90),
        (DataVersion(2, 1, 3), DataVersion(1, 9, 900), 40),
        (DataVersion(2, 1, 3), DataVersion(2, 1, 4), 90),
        (DataVersion(2, 1, 3), DataVersion(2, 1, 3), 40),
        (DataVersion(2, 9, 3), DataVersion(2, 1, 4), 90),
        (DataVersion(0, 1, 3), DataVersion(0, 2, 3), 90),
    ],
    ids=["newer term", "older term", "newer counter", "the same", "counter first", "started later"],
)
def test_the_offsets_of_another_node_are_taken_over_when_its_table_is_newer(
    own: DataVersion, other: DataVersion, expected: int
) -> None:
    assert merged(own, other) == expected


def test_a_merge_leaves_what_is_being_deleted_and_goes_on_from_the_greater_counter() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(GROUP, TOPIC, 0, 40, now_ms=1)
    forgetting = offsets.forget_group(GROUP)
    table: Table = {(TOPIC, GROUP): {0: 90}, (TOPIC, "other"): {0: 5}}
    steps = list(offsets.merge(table, DataVersion(2, 1, 77), DataVersion(1, 1, 1)))
    assert len(steps) == 2, "a step each"
    assert offsets.committed("other", TOPIC, 0) == 5
    list(forgetting)
    assert offsets.answered(GROUP, TOPIC, 0) is None
    assert offsets.counter == 77
