"""What the loss of a master would cost, and for how long its slowest slave has been behind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipelines.marts.polled import PERIODS
from pipelines.marts.replication_health import MART
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, computed, facts, only

SLAVE, OTHER, NEWCOMER = "192.0.2.3:40000", "192.0.2.4:40000", "192.0.2.5:40000"
COST = ("replicas", "loss_bytes", "loss_messages", "unknown_reason")
BEHIND = ("slowest_replica", "behind_bytes", "behind_ms")


def mark(at: float, written: int, has: int | None, replica: str | None = SLAVE) -> Row:
    """A master reports one of its slaves."""
    own = {"component": "REPLICA", "action": "REPLICATE", "cause": "SYNC_MASTER"}
    return {"at": at, "written": written, "flushed": has, "replica": replica, **own}


def queue(at: float, messages: int, on_a_slave: int | None, queue_id: int = 0) -> Row:
    """A queue of the master."""
    offsets = {"min_offset": 0, "max_offset": messages, "replicated_offset": on_a_slave}
    return {"at": at, "queue_id": queue_id, "flushed_offset": messages, **offsets}


def shipped(at: float) -> Any:
    """The emitter has reported everything up to this second."""
    row = {"seq_from": 1, "seq_to": 1, "event_time_to": NOON + int(at * SECOND), "rows": []}
    return facts("shipments", {"emitter": "c/b/0/shipper", **row})


def story(
    until: float, *marks: Row, queues: tuple[Row, ...] = (), events: tuple[Row, ...] = ()
) -> Any:
    """Facts up to a moment. Of rows with one moment that of lifecycle is first."""
    tables = {"lifecycle": events, "flush_checkpoints": marks, "queue_watermarks": queues}
    found = {
        table: facts(table, *[{"seq": 10 * row["at"] + place, **row} for row in rows])
        for place, (table, rows) in enumerate(tables.items(), start=4)
    }
    return {**found, "shipments": shipped(until)}


STEPS = st.tuples(st.integers(0, 60), st.integers(0, 900), st.booleans())


def test_the_loss_of_a_master_costs_what_no_slave_has() -> None:
    story_rows = story(
        20,
        *(mark(3, 1000, 400), mark(3, 1000, 900, OTHER)),
        queues=(queue(3, 10, 9), queue(3, 7, 7, 1)),
    )
    rows, _ = computed(MART, story_rows)
    assert only(rows, *COST, "mode", "furthest_replica") == [
        (2, 100, 1, None, "SYNC_MASTER", OTHER)
    ]
    assert only(rows, *BEHIND) == [(SLAVE, 600, 0)]


def test_a_slave_that_hangs_is_behind_since_the_log_grew_beyond_what_it_has() -> None:
    hangs = [mark(at, 1000 + 100 * at, 1100) for at in (5, 15, 25, 35)]
    rows, state = computed(MART, story(40, mark(1, 1100, 1100), *hangs))
    assert [row["behind_ms"] for row in rows] == [0, 10_000, 20_000, 30_000]
    rows, _ = computed(MART, story(60, mark(55, 6500, 6500)), state)
    assert only(rows, *BEHIND) == [(SLAVE, 0, 0)]


def test_of_each_slave_it_is_known_what_it_lacks_and_for_how_long() -> None:
    grew = [mark(at, 1000 + 100 * at, 1000 + 100 * at, OTHER) for at in (1, 5, 15, 25)]
    rows, _ = computed(
        MART,
        story(30, *grew, mark(2, 1100, 1100), mark(26, 3500, 1100), mark(26, 3500, None, NEWCOMER)),
    )
    assert rows[-1]["slaves"] == [
        {"replica": SLAVE, "replicated": 1100, "behind_bytes": 2400, "behind_ms": 20_000},
        {"replica": OTHER, "replicated": 3500, "behind_bytes": 0, "behind_ms": 0},
        {"replica": NEWCOMER, "replicated": None, "behind_bytes": None, "behind_ms": None},
    ]


def test_the_epoch_is_that_of_the_role_that_the_broker_took_last() -> None:
    def role(at: float, term: int | None) -> Row:
        return {"at": at, "kind": "ROLE_CHANGE", "term": term}

    came = {"at": 2, "kind": "REPLICA_JOINED", "address": SLAVE}
    rows, state = computed(MART, story(10, mark(3, 500, 500), events=(role(1, 4), came)))
    assert only(rows, "epoch", "replicas") == [(4, 1)]
    later = (role(11, None), role(22, 9))
    rows, _ = computed(MART, story(30, mark(12, 500, 500), mark(23, 500, 500), events=later), state)
    assert only(rows, "epoch", "replicas") == [(4, 1), (9, 1)]
    rows, _ = computed(MART, story(10, mark(3, 500, 500)))
    assert only(rows, "epoch") == [(None,)]


def test_without_a_slave_or_its_report_the_cost_is_unknown_and_says_why() -> None:
    rows, state = computed(MART, story(10, mark(3, 500, None, None)))
    assert only(rows, *COST) == [(0, None, None, "NO_REPLICA")]
    rows, state = computed(MART, story(20, mark(13, 500, None)), state)
    assert only(rows, *COST) == [(1, None, None, "NOTHING_REPORTED")]
    rows, state = computed(MART, story(30, mark(23, 600, 600)), state)
    assert only(rows, *COST) == [(1, 0, 0, None)]
    lost = {"at": 31, "kind": "REPLICA_LOST", "address": SLAVE}
    rows, _ = computed(MART, story(40, mark(33, 700, 650, OTHER), events=(lost,)), state)
    assert only(rows, *COST, "furthest_replica") == [(1, 50, 0, None, OTHER)]


def test_of_a_watched_master_bytes_are_known_and_messages_are_not() -> None:
    looks = {"emitter": "c/b/0", "seq": 1, "event_us": NOON, "report_each_ms": 10_000}
    given_facts = story(30, mark(3, 1000, 900), mark(13, 1000, 1000))
    given_facts["polled"] = pa.Table.from_pylist([looks], PERIODS)
    rows, _ = computed(MART, given_facts)
    assert only(rows, "loss_bytes", "loss_messages", "unknown_reason", "provenance") == [
        (100, None, None, "OBSERVED"),
        (0, 0, None, "OBSERVED"),
    ]


def test_a_master_that_starts_again_knows_nothing_of_its_slaves() -> None:
    _, state = computed(MART, story(10, mark(3, 500, 500)))
    again = {"at": 12, "kind": "BOOT"}
    rows, _ = computed(MART, story(20, mark(13, 500, None, OTHER), events=(again,)), state)
    assert only(rows, *COST) == [(1, None, None, "NOTHING_REPORTED")]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 900), st.booleans()), max_size=12),
    st.data(),
)
def test_the_rows_are_the_same_however_cycles_are_cut(steps: list[Any], data: Any) -> None:
    marks = [
        mark(at, 1000 + at, 1000 + at - lack, OTHER if is_other else SLAVE)
        for at, lack, is_other in sorted(steps)
    ]
    marks = [{**row, "seq": number} for number, row in enumerate(marks, start=1)]
    whole, _ = computed(MART, story(70, *marks))
    cut = data.draw(st.integers(0, 60))
    first, state = computed(MART, story(cut, *(row for row in marks if row["at"] <= cut)))
    rest, _ = computed(MART, story(70, *(row for row in marks if row["at"] > cut)), state)
    assert first + rest == whole
