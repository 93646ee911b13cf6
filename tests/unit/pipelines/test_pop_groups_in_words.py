"""A group that reads by POP, in words: from gold alone, with what cannot be known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl

from pipelines import tm
from pipelines.sentences.pop_groups import PopGroup, pop_group
from tests.alert_stories import NOON
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.gold_lake import compute

STORE = "its broker keeps checkpoints in a store that nobody can ask"


def row(
    queue_id: int, unacknowledged: int | None, at_s: int = 0, **more: object
) -> dict[str, object]:
    """A row of the group's queue."""
    return {
        "cluster": "c",
        "broker": "b",
        "group": "g",
        "topic": "t",
        "queue_id": queue_id,
        "observed_at": NOON + timedelta(seconds=at_s),
        "seq": at_s,
        "unacknowledged": unacknowledged,
        "handed_out_since": NOON - timedelta(seconds=9) if unacknowledged else None,
        "invisible_ms": 15_000,
        "unknown_reason": None,
        **more,
    }


def test_what_is_out_is_the_sum_of_the_newest_rows_of_all_queues() -> None:
    found = pop_group(pl.DataFrame([row(0, 7), row(1, 2), row(0, 3, at_s=1)]))
    assert found == PopGroup(15_000, 5, NOON - timedelta(seconds=9), None)
    assert found.sentence("g") == (
        "g reads by POP, invisible time 15 s. Not acknowledged: 5 messages, the oldest since "
        "11:59:51 UTC; what its members hold cannot be asked."
    )


def test_one_queue_of_which_it_is_unknown_makes_it_unknown_of_the_group() -> None:
    rows = [row(0, 7), row(1, None, unknown_reason=STORE, invisible_ms=None)]
    found = pop_group(pl.DataFrame(rows))
    assert found is not None
    assert (found.unacknowledged, found.out) == (None, f"unknown: {STORE}")


def test_a_group_without_rows_does_not_read_by_pop() -> None:
    assert pop_group(pl.DataFrame([row(0, 7)]).clear()) is None


def test_tm_says_of_such_a_group_what_is_out_beside_its_lag(tmp_path: Path) -> None:
    writer = BronzeWriter(tmp_path / "lake")
    writer.report("lifecycle", kind="BOOT")
    for group in ("g", "classic"):
        for second in range(0, 60, 10):
            writer.at(second)
            writer.report(
                "group_watermarks", group=group, topic="t", queue_id=0, committed=20,
                committed_state="AT_END", min_offset=0, max_offset=20, reports=1, members=1,
            )  # fmt: skip
    writer.report(
        "pop_watermarks", group="g", topic="t", queue_id=0, popped=20, max_offset=20,
        unacknowledged=4, unacknowledged_ranges=[], handed_out_since=writer.now_us - 4_000_000,
        invisible_ms=15_000, acknowledged=0, expired=0,
    )  # fmt: skip
    writer.ship()
    compute(tmp_path / "lake")
    lake = tm.connect(str(tmp_path / "lake"))
    said = lake.lag("g").verdict
    assert said.startswith("Group g is 0 messages behind")
    assert "g reads by POP, invisible time 15 s. Not acknowledged: 4 messages, the oldest" in said
    assert "POP" not in lake.lag("classic").verdict


def test_tm_calls_no_group_well_whose_invisible_times_run_out_unread(tmp_path: Path) -> None:
    """Copies come to its retry topic; what it acknowledges, its broker says to nobody."""
    writer = BronzeWriter(tmp_path / "lake")
    writer.report("lifecycle", kind="BOOT")
    for second in range(0, 190, 10):
        writer.at(second)
        for topic, end in (("t", 20), ("%RETRY%g_t", 20 * second // 10)):
            writer.report(
                "group_watermarks", group="g", topic=topic, queue_id=0, committed=end,
                committed_state="AT_END", min_offset=0, max_offset=end, reports=1, members=1,
            )  # fmt: skip
            writer.report(
                "pop_watermarks", group="g", topic=topic, queue_id=0, popped=end, max_offset=end,
                acknowledged=0, expired=0, unknown_reason=STORE,
            )  # fmt: skip
    writer.ship()
    compute(tmp_path / "lake")
    said = tm.connect(str(tmp_path / "lake")).why("g").verdict
    assert "is well" not in said
    assert "Whether group g acknowledges what it takes is unknown: 360 invisible times" in said
    assert STORE in said
