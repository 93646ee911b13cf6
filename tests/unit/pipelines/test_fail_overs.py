"""Row C9: what a change of the leader made groups read again at most (FAIL_OVER)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from dashboards.models.lag_overview import changes as feed
from dashboards.url_state import Span
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import BY_NAME
from pipelines.reading.fail_overs import fail_overs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B = "c/b/0", "c/b/77"


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def led(second: float, emitter: str = B, epoch: int = 7, broker: str = "b") -> pl.DataFrame:
    values = {"emitter": emitter, "event_time": at(second), "term": epoch}
    return pl.DataFrame([{"cluster": "c", "broker": broker, **values}])


def lag(*rows: tuple[float, str, str, int, int | None, int | None]) -> pl.DataFrame:
    """(second, emitter, group, queue, committed, pulled)"""
    common = {"cluster": "c", "broker": "b", "topic": "t"}
    return pl.DataFrame(
        [
            {
                **common,
                "group": group,
                "queue_id": queue,
                "emitter": emitter,
                "seq": number,
                "observed_at": at(second),
                "committed": committed,
                "pulled": pulled,
            }
            for number, (second, emitter, group, queue, committed, pulled) in enumerate(rows)
        ],
        schema_overrides={"committed": pl.Int64, "pulled": pl.Int64},
    )


def found(changes: pl.DataFrame, rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    names = ("group", "queues", "queues_unknown", "at_risk_messages", "handed_out_messages")
    return fail_overs(changes, rows).select(names).rows()


def test_what_the_former_leader_knew_beyond_the_new_one_may_come_again() -> None:
    rows = lag(
        *((10, A, "g", 0, 80, 90), (50, A, "g", 0, 100, 130), (50, A, "g", 1, 7, 7)),
        *((62, B, "g", 0, 60, None), (62, B, "g", 1, 7, None), (70, B, "g", 0, 130, 130)),
    )
    assert found(led(60), rows) == [("g", 2, 0, 40, 70)]


def test_rows_behind_the_change_or_long_before_it_and_of_other_brokers_count_for_nothing() -> None:
    late = lag((50, A, "g", 0, 100, 100), (61, A, "g", 0, 900, 900), (62, B, "g", 0, 90, 90))
    assert found(led(60), late) == [("g", 1, 0, 10, 10)]
    old = lag((50, A, "g", 0, 100, 100), (3600, B, "g", 0, 90, 90))
    assert found(led(3590), old) == []
    assert found(led(60, broker="other"), late) == []
    assert found(led(60, emitter=A), lag((62, A, "g", 0, 1, 1))) == [], "it led before as well"


def test_a_leader_that_starts_or_is_elected_again_has_taken_over_from_nobody() -> None:
    rows = lag(
        *((50, A, "g", 0, 100, 100), (62, B, "g", 0, 60, 60), (290, B, "g", 0, 70, 70)),
        (302, B, "g", 0, 65, 65),
    )
    assert found(led(60), rows) == [("g", 1, 0, 40, 40)]
    assert found(led(300), rows) == [], "what A reported long before is not held against it"
    assert found(led(300, epoch=8), rows) == []
    again = pl.concat([led(60), led(61)])
    assert found(again, rows) == [("g", 1, 0, 40, 40)], "an epoch begins once"


def test_an_offset_that_is_gone_is_unknown_and_none_is_lost_by_going_on() -> None:
    rows = lag(
        *((50, A, "g", 0, None, 5), (62, B, "g", 0, 3, 3)),
        *((50, A, "g", 1, 5, 5), (62, B, "g", 1, None, None)),
        *((50, A, "g", 2, 5, 5), (62, B, "g", 2, 9, 9)),
    )
    assert found(led(60), rows) == [("g", 3, 1, 0, 2)]


def test_a_change_is_one_entry_of_the_feed_with_what_it_costs() -> None:
    rows = lag(
        *((50, A, "g", 0, 100, 100), (50, A, "h", 0, 9, 9), (50, A, "k", 0, 5, 5)),
        *((62, B, "g", 0, 90, 90), (62, B, "h", 0, 4, 4), (62, B, "k", 0, 5, 5)),
    )
    none = {
        name: pl.DataFrame(pl.from_arrow(arrow_schema(BY_NAME[name].columns).empty_table()))
        for name in ("stalled_windows", "duplicate_risk_windows", "rebalances", "dead_letters")
    }
    (entry,) = feed(
        stalls=none["stalled_windows"],
        risks=none["duplicate_risk_windows"],
        rebalances=none["rebalances"],
        dead_letters=none["dead_letters"],
        span=Span(at(0), at(100), at(100), at(100)),
        fail_overs=fail_overs(led(60), rows),
    )
    assert (entry.at, entry.kind) == (at(60), "fail-over")
    assert entry.text == (
        "Another node leads broker b since 12:01:00 UTC (epoch 7). 15 messages of g, h were "
        "committed at the former one alone. Whoever asks where to go on gets them again."
    )
