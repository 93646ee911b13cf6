"""Groups that read by POP: two figures of each queue, and the reason where one is unknown."""

from __future__ import annotations

from pipelines.marts.pop_progress import MART as POP_PROGRESS
from tests.pipelines.marts.literal_facts import NOON, SECOND, computed, facts, only

FIGURES = ("waiting", "unacknowledged", "acknowledged_max", "invisible_ms", "unknown_reason")


def test_what_waits_and_what_is_out_are_two_figures() -> None:
    mark = {
        "popped": 90,
        "max_offset": 100,
        "unacknowledged": 9,
        "unacknowledged_ranges": [{"from_offset": 81, "to_offset": 90}],
        "handed_out_since": NOON - 3 * SECOND,
        "invisible_ms": 15_000,
        "acknowledged": 5,
        "expired": 2,
    }
    rows, _ = computed(POP_PROGRESS, {"pop_watermarks": facts("pop_watermarks", mark)})
    assert only(rows, *FIGURES) == [(10, 9, 81, 15_000, None)]
    (row,) = rows
    assert row["handed_out_since"].timestamp() == (NOON - 3 * SECOND) / SECOND
    assert row["unacknowledged_ranges"] == [{"from_offset": 81, "to_offset": 90}]


def test_what_is_out_is_unknown_with_its_reason_where_no_checkpoint_can_be_read() -> None:
    mark = {"popped": 90, "max_offset": 100, "unknown_reason": "why", "acknowledged": 0}
    rows, _ = computed(
        POP_PROGRESS, {"pop_watermarks": facts("pop_watermarks", mark | {"expired": 0})}
    )
    assert only(rows, *FIGURES) == [(10, None, None, None, "why")]
