"""What is given to a question of `tm`: its type is looked at first, and what is none of those that
may stand there is refused in a sentence that says what may; never a Python error, never an answer
about something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError, LakeError
from pipelines import tm
from pipelines.tm.arguments import the_moment, the_number
from tests.gold_lake import END, write_gold_lake

Ask = Callable[[tm.LakeHandle, Any], object]
TIMES: dict[str, Ask] = {
    "since": lambda lake, given: lake.stalls("shipping", since=given),
    "until": lambda lake, given: lake.lag("shipping", until=given),
    "as_of": lambda lake, given: lake.groups(as_of=given),
}
NUMBERS: dict[str, Ask] = {"queue": lambda lake, given: lake.lag("shipping", queue=given)}
TEXTS: dict[str, Ask] = {
    "group": lambda lake, given: lake.lag(given),
    "topic": lambda lake, given: lake.lag("shipping", topic=given),
    "cluster": lambda lake, given: lake.groups(cluster=given),
    "message_id": lambda lake, given: lake.message(given),
    "query": lambda lake, given: lake.sql(given),
    "state": lambda lake, given: lake.groups(given),
}
ODD = st.one_of(
    st.booleans(),
    st.floats(),
    st.binary(max_size=4),
    st.complex_numbers(),
    st.lists(st.integers(), max_size=2),
    st.dates().filter(lambda one: not isinstance(one, datetime)),
    st.just(object()),
    st.just(pd.NaT),
    st.timedeltas(max_value=timedelta(microseconds=-1)),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tm.LakeHandle:
    written = write_gold_lake(tmp_path_factory.mktemp("given") / "lake")
    return replace(tm.connect(written.root), clock=lambda: END)


@pytest.mark.parametrize("name", [*TIMES, *NUMBERS, *TEXTS])
@pytest.mark.parametrize("given", [True, 1.5, float("nan"), b"x", [1], date(2026, 3, 1), object()])
def test_a_wrong_type_is_one_clear_sentence(lake: tm.LakeHandle, name: str, given: Any) -> None:
    ask = (TIMES | NUMBERS | TEXTS)[name]
    with pytest.raises(ConfigError) as refused:
        ask(lake, given)
    sentence = str(refused.value)
    assert sentence.startswith(f"setting {name}={given!r} is not allowed: a ")
    assert "\n" not in sentence


@given(given=ODD)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_odd_is_taken_for_a_moment_or_a_number(given: Any) -> None:
    with pytest.raises(ConfigError):
        the_moment("since", given, END)
    with pytest.raises(ConfigError):
        the_number("queue", given)


@given(ago=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3000)))
def test_a_timedelta_is_how_long_ago(ago: timedelta) -> None:
    assert the_moment("since", ago, END) == END - ago


@pytest.mark.parametrize(
    "given",
    [
        timedelta(minutes=5),
        pd.Timedelta(minutes=5),
        "5m",
        END - timedelta(minutes=5),
        pd.Timestamp(END - timedelta(minutes=5)),
        "2026-03-01T12:10:00",
    ],
)
@pytest.mark.parametrize("name", TIMES)
def test_all_ways_to_say_five_minutes_ago_are_one(
    lake: tm.LakeHandle, name: str, given: Any
) -> None:
    expected, found = TIMES[name](lake, "5m"), TIMES[name](lake, given)
    assert isinstance(expected, tm.Result)
    assert isinstance(found, tm.Result)
    assert (found.verdict, found.digest) == (expected.verdict, expected.digest)


@pytest.mark.parametrize("given", [2, "2", np.int64(2)], ids=["int", "text", "numpy"])
def test_a_queue_is_a_whole_number(lake: tm.LakeHandle, given: Any) -> None:
    assert set(lake.lag("shipping", queue=given).rows["queue_id"]) == {2}


def test_no_time_of_a_calendar_is_refused_as_such(lake: tm.LakeHandle) -> None:
    with pytest.raises(ConfigError, match="a time that a calendar has"):
        lake.stalls(since=timedelta.max)


def test_a_moment_before_anything_was_judged_is_no_answer(lake: tm.LakeHandle) -> None:
    for as_of in ("2h", timedelta(hours=2), datetime(2026, 3, 1, 9, tzinfo=UTC)):
        with pytest.raises(LakeError, match=r"group_state has nothing up to 2026-03-01 .*replay"):
            lake.stalls(as_of=as_of)


def test_the_lake_of_a_day_before_is_shown_as_not_kept(lake: tm.LakeHandle) -> None:
    with pytest.raises(LakeError, match="has nothing before 2026-03-01"):
        lake.stalls(as_of="2026-02-28")


RANGES = ("lag", "stalls", "duplicates", "ownership", "rebalances", "dead_letters")


@pytest.mark.parametrize("question", RANGES)
@pytest.mark.parametrize("until", ["2020-01-01", "0001-01-01", "2026-03-01T00:01:00"])
def test_a_range_that_ends_before_anything_was_judged_is_no_answer(
    lake: tm.LakeHandle, question: str, until: str
) -> None:
    with pytest.raises(ConfigError, match="from which on there is data: 2026-03-01 12:00"):
        getattr(lake, question)("billing", until=until)


@pytest.mark.parametrize("question", RANGES)
@pytest.mark.parametrize("since", ["0001-01-01", "1500-07-01", "2026-03-01T11:00:00"])
def test_a_range_that_begins_before_anything_was_judged_says_so(
    lake: tm.LakeHandle, question: str, since: str
) -> None:
    answer = getattr(lake, question)("billing", since=since)
    assert " Nothing is known from before 2026-03-01 12:00:0" in answer.verdict
    within = getattr(lake, question)("billing", since="2026-03-01T12:01:00")
    assert "Nothing is known" not in within.verdict
    whole = getattr(lake, question)("billing")
    if question != "lag":
        assert whole.rows.equals(answer.rows)
