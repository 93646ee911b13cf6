"""Ends of a queue go forward within a life of it, whatever was reported in which batch."""

from __future__ import annotations

from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.suites import queue_ends
from expectations.suites.queue_ends import KEPT, NEW_LIVES, TOPIC_GONE, falls, newest
from pipelines.lake.schemas import arrow_schema

NAMES: Final = {"cluster": "c", "broker": "b", "emitter": "e", "queue_id": 0, "broker_epoch": 7}
NOTHING: Final = pl.DataFrame(pl.from_arrow(arrow_schema(KEPT).empty_table()))
LIVES: Final = {"emitter": pl.String, "seq": pl.Int64, "kind": pl.String, "topic": pl.String}


def marks(*ends: tuple[int, int, int], **names: Any) -> pl.DataFrame:
    """Rows as (seq, min_offset, max_offset)."""
    own = {**NAMES, "topic": "t", **names}
    rows = [{**own, "seq": seq, "min_offset": low, "max_offset": high} for seq, low, high in ends]
    return pl.DataFrame(rows, schema=NOTHING.schema)


def lives(*given: tuple[int, str, str | None], emitter: str = "e") -> pl.DataFrame:
    """Rows of lifecycle as (seq, kind, topic)."""
    rows = [
        {"emitter": emitter, "seq": seq, "kind": kind, "topic": topic} for seq, kind, topic in given
    ]
    return pl.DataFrame(rows, schema=LIVES)


def test_either_end_that_falls_is_found_with_what_it_was() -> None:
    shown = ("seq", *queue_ends.SHOWN)
    found = falls(marks((1, 3, 9), (2, 3, 8), (3, 2, 8), (4, 2, 8)), lives(), NOTHING)
    assert found.select(shown).rows() == [(2, 3, 3, 9, 8), (3, 3, 2, 8, 8)]
    assert falls(marks((5, 2, 7)), lives(), marks((4, 2, 8))).height == 1
    assert falls(marks((5, 9, 9), (6, 9, 12)), lives(), marks((4, 2, 8))).is_empty()


def test_queues_topics_and_emitters_are_not_held_against_each_other() -> None:
    high = marks((1, 3, 9))
    for other in ({"queue_id": 1}, {"topic": "u"}, {"emitter": "f"}, {"broker_epoch": 8}):
        assert falls(marks((2, 0, 1), **other), lives(), high).is_empty()


@pytest.mark.parametrize("kind", NEW_LIVES)
def test_behind_the_end_of_a_life_a_queue_may_begin_anew(kind: str) -> None:
    topic = "t" if kind == TOPIC_GONE else None
    assert falls(marks((1, 3, 9), (5, 0, 1)), lives((3, kind, topic)), NOTHING).is_empty()
    assert newest(marks((1, 3, 9)), lives((3, kind, topic)), NOTHING).is_empty()
    too_early = lives((1, kind, topic))
    assert falls(marks((2, 3, 9), (5, 0, 1)), too_early, NOTHING).height == 1
    elsewhere = lives((3, kind, topic), emitter="f")
    assert falls(marks((1, 3, 9), (5, 0, 1)), elsewhere, NOTHING).height == 1


def test_the_end_of_another_topic_and_a_snapshot_are_no_end_of_its_life() -> None:
    between = lives((2, TOPIC_GONE, "u"), (3, "SNAPSHOT", None), (4, "GROUP_GONE", "t"))
    assert falls(marks((1, 3, 9), (5, 0, 1)), between, NOTHING).height == 1


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("tu"), st.integers(0, 3), st.integers(0, 4)), max_size=12
    ),
    ends=st.sets(st.integers(0, 12)),
    cut=st.integers(0, 12),
)
def test_what_is_found_does_not_depend_on_where_batches_are_cut(
    steps: list[tuple[str, int, int]], ends: set[int], cut: int
) -> None:
    parts = [
        marks((2 * place, low, low + more), topic=topic)
        for place, (topic, low, more) in enumerate(steps, 1)
    ]
    rows = pl.concat([NOTHING, *parts])
    turns = lives(*((2 * place + 1, TOPIC_GONE, "t" if place % 2 else "u") for place in ends))
    is_early = pl.col("seq") < 2 * cut
    early = rows.filter(is_early), turns.filter(is_early)
    late = rows.filter(~is_early), turns.filter(~is_early)

    carried = newest(*early, NOTHING)
    in_two = pl.concat([falls(*early, NOTHING), falls(*late, carried)])

    whole = falls(rows, turns, NOTHING)
    assert in_two.select("seq", *queue_ends.SHOWN).equals(whole.select("seq", *queue_ends.SHOWN))
    assert newest(*late, carried).equals(newest(rows, turns, NOTHING))
