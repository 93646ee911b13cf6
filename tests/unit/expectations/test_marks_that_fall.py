"""Marks of a queue go forward within a life of its broker, unless a fact accounts for it."""

from __future__ import annotations

from typing import Any, Final

import polars as pl
import pytest

from expectations.suites.gold_against_facts import NEW_LIVES, ends_that_fall, marks_that_fall

QUEUE: Final = {"cluster": "c", "broker": "b", "group": "g", "topic": "t", "queue_id": 0}
LIFECYCLE: Final = {"emitter": pl.String, "seq": pl.Int64, "kind": pl.String}
REPORTS: Final = {
    **{name: pl.Int64 if name == "queue_id" else pl.String for name in QUEUE},
    "emitter": pl.String,
    "seq": pl.Int64,
    "offset": pl.Int64,
    "path": pl.String,
}


def frames(
    *marks: tuple[int, int, int, int],
    kinds: dict[int, str] | None = None,
    reports: dict[int, tuple[int, str]] | None = None,
) -> dict[str, pl.DataFrame]:
    """Watermarks as (seq, broker_epoch, committed, max_offset); lifecycle and reports by seq."""
    names = ("seq", "broker_epoch", "committed", "max_offset")
    rows: list[dict[str, Any]] = [
        {**QUEUE, "emitter": "e", **dict(zip(names, one, strict=True))} for one in marks
    ]
    lives = [{"emitter": "e", "seq": seq, "kind": kind} for seq, kind in (kinds or {}).items()]
    reported = [
        {**QUEUE, "emitter": "e", "seq": seq, "offset": offset, "path": path}
        for seq, (offset, path) in (reports or {}).items()
    ]
    return {
        "group_watermarks": pl.DataFrame(rows),
        "lifecycle": pl.DataFrame(lives, schema=LIFECYCLE),
        "consume_offsets": pl.DataFrame(reported, schema=REPORTS),
    }


def test_a_committed_mark_that_falls_without_a_fact_is_found() -> None:
    found = marks_that_fall(frames((1, 7, 80, 100), (5, 7, 20, 100)))
    assert found.select("seq", "before", "committed").rows() == [(5, 80, 20)]


@pytest.mark.parametrize("report", [(20, "COMMIT_RPC"), (20, "RESET"), (90, "RESET")])
def test_one_that_was_reported_is_explained_by_its_report(report: tuple[int, str]) -> None:
    between = frames((1, 7, 80, 100), (5, 7, 20, 100), reports={3: report})
    assert marks_that_fall(between).is_empty()
    long_before = frames((2, 7, 80, 100), (5, 7, 20, 100), reports={1: report})
    assert marks_that_fall(long_before).height == 1


def test_an_end_that_falls_in_one_life_is_found() -> None:
    found = ends_that_fall(frames((1, 7, 80, 200), (5, 7, 80, 100), (9, 7, 80, 100)))
    assert found.select("seq", "before", "max_offset").rows() == [(5, 200, 100)]


@pytest.mark.parametrize("kind", NEW_LIVES)
def test_behind_the_end_of_a_life_marks_begin_anew(kind: str) -> None:
    both = frames((1, 7, 80, 200), (5, 7, 20, 100), kinds={3: kind})
    assert marks_that_fall(both).is_empty()
    assert ends_that_fall(both).is_empty()
    other_life = frames((1, 7, 80, 200), (5, 8, 20, 100))
    assert marks_that_fall(other_life).is_empty()
    assert ends_that_fall(other_life).is_empty()
