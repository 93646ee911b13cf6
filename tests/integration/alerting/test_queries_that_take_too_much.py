"""A rule's query that takes too much ends a process of its own, and no other rule is the worse."""

from __future__ import annotations

import os
import signal

import polars as pl
import pytest

from pipelines.alerting.evaluating import EvalError, Looked, Signals, evaluate
from pipelines.alerting.sql import answered
from pipelines.alerting.sql_queries import REST_S, Queries, TooDear
from tests.alert_stories import NOON_US, behind, rows, rule

MIB = 1 << 20
NUMBERS = pl.DataFrame({"number": range(60_000)})
ROWS = {"a": NUMBERS, "b": NUMBERS}
ALL_PAIRS = "SELECT a.number FROM a JOIN b ON a.number > b.number"
ONE = "SELECT number, count(*) AS many FROM a WHERE number = 7 GROUP BY number"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_answer_is_that_of_the_same_query_in_this_process() -> None:
    with Queries() as queries:
        for sql in (ONE, "SELECT * FROM b ORDER BY number DESC LIMIT 3", "SELECT 1 AS one"):
            assert queries.answered(sql, ROWS).equals(answered(sql, ROWS))


def test_what_the_engine_does_not_take_is_an_error_and_asks_for_no_rest() -> None:
    with Queries() as queries:
        for _ in range(2):
            with pytest.raises(ValueError, match="nowhere"):
                queries.answered("SELECT nowhere FROM a", ROWS)
        assert queries.answered(ONE, ROWS).rows() == [(7, 1)]


def test_a_query_that_needs_too_much_memory_is_reported_and_rests_while_others_are_answered() -> (
    None
):
    clock = Clock()
    with Queries(memory_bytes_max=512 * MIB, now_s=clock) as queries:
        with pytest.raises(TooDear, match="more memory than the 512 MiB that it may: it is tried"):
            queries.answered(ALL_PAIRS, ROWS)
        assert queries.answered(ONE, ROWS).rows() == [(7, 1)]
        few = {name: rows.head(3) for name, rows in ROWS.items()}
        with pytest.raises(TooDear, match="more memory"):
            queries.answered(ALL_PAIRS, few)
        clock.now_s = REST_S
        assert queries.answered(ALL_PAIRS, few).height == 3


def test_a_rule_whose_query_is_too_dear_could_not_be_evaluated_and_the_others_are_judged() -> None:
    pairs = rule(
        name="Pairs",
        tables=["group_state"],
        sql='select a."group" from group_state a join group_state b'
        " on a.time_lag_ms > b.time_lag_ms",
        labels=["group"],
    )
    frame = rows("group_state", behind(90)).select(pl.all().repeat_by(60_000).explode())
    frame = frame.with_columns(time_lag_ms=pl.int_range(pl.len(), dtype=pl.Int64))
    with Queries(memory_bytes_max=512 * MIB) as queries:
        looked = Looked(NOON_US, {"group_state": frame})
        outcomes = evaluate([pairs, rule()], looked, {}, answering=queries.answered)
    outcome = outcomes["Pairs"]
    assert isinstance(outcome, EvalError)
    assert "more memory than the 512 MiB" in outcome.reason
    assert isinstance(outcomes["Behind"], Signals)


def test_a_query_that_takes_too_long_is_ended() -> None:
    pairs = "SELECT count(*) AS many FROM a CROSS JOIN b WHERE a.number + b.number = 1"
    some = {"a": NUMBERS.head(3_000), "b": NUMBERS.head(10_000)}
    with Queries(query_s=0.02) as queries, pytest.raises(TooDear, match=r"longer than the 0.02 s"):
        queries.answered(pairs, some)


def test_a_process_that_somebody_else_has_ended_is_started_again() -> None:
    with Queries() as queries:
        assert queries.answered("SELECT 1 AS one", ROWS).rows() == [(1,)]
        child = queries.child_pid
        assert child is not None
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert queries.answered("SELECT 2 AS two", ROWS).rows() == [(2,)]
        assert queries.child_pid != child
    assert queries.child_pid is None
