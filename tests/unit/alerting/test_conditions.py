"""Conditions of rules: what a text says of rows, and what is said of one that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from pipelines.alerting.conditions import DEPTH_MAX, NOW, ConditionFault, read_condition, span_us
from pipelines.alerting.rule_tables import watched

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STATES = watched()["group_state"].table.columns


def judged(text: str, **row: object) -> bool | None:
    """What a condition says of one group's state."""
    fields = {"observed_at": NOON, NOW: NOON, **row}
    none = watched()["group_state"].none()
    types = {**none.schema, NOW: pl.Datetime("us", "UTC")}
    frame = pl.DataFrame([fields], schema=types)
    condition = read_condition(text, STATES)
    answer = frame.select(condition.expression.alias("is")).item()
    assert answer is None or isinstance(answer, bool)
    return answer


@pytest.mark.parametrize(
    ("text", "row", "said"),
    [
        ("state = 'STALLED' and time_lag_ms > 5m", {"state": "STALLED", "time_lag_ms": 300_001},
         True),
        ("state = 'STALLED' and time_lag_ms > 5m", {"state": "STALLED", "time_lag_ms": 300_000},
         False),
        ("time_lag_ms >= 300000", {"time_lag_ms": 300_000}, True),
        ("group = 'orders'", {"group": "orders"}, True),
        ('"group" != \'orders\'', {"group": "orders"}, False),
        ("group like 'order%'", {"group": "orders"}, True),
        ("group like '%.%'", {"group": "orders"}, False),
        ("group = 'it''s'", {"group": "it's"}, True),
        ("state in ('SLOW', 'STOPPED')", {"state": "STOPPED"}, True),
        ("state not in ('SLOW', 'STOPPED')", {"state": "STOPPED"}, False),
        ("queues - queues_known > 1 + 1", {"queues": 4, "queues_known": 1}, True),
        ("lag_messages / members > 10", {"lag_messages": 100, "members": 5}, True),
        ("observed_at < now - 1m", {"observed_at": NOON - timedelta(minutes=2)}, True),
        ("now - observed_at > 1m30s and true", {"observed_at": NOON - timedelta(minutes=2)}, True),
        ("members is null", {"members": None}, True),
        ("not members is null or state = 'OK'", {"members": 1, "state": "SLOW"}, True),
        ("queues = 1 or queues = 2 and members = 3", {"queues": 1, "members": 9}, True),
        ("queues > -1", {"queues": 0}, True),
    ],
)  # fmt: skip
def test_a_condition_says_of_a_row(text: str, row: dict[str, object], said: bool) -> None:
    assert judged(text, **row) is said


@pytest.mark.parametrize(
    ("text", "row", "said"),
    [
        ("time_lag_ms > 5m", {"time_lag_ms": None}, None),
        ("state = 'SLOW' and time_lag_ms > 5m", {"state": "OK", "time_lag_ms": None}, False),
        ("state = 'SLOW' or time_lag_ms > 5m", {"state": "SLOW", "time_lag_ms": None}, True),
        ("not time_lag_ms > 5m", {"time_lag_ms": None}, None),
        ("lag_messages / members > 10", {"lag_messages": 100, "members": 0}, None),
    ],
)
def test_what_is_not_known_is_neither_true_nor_false(
    text: str, row: dict[str, object], said: bool | None
) -> None:
    assert judged(text, **row) is said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("time_lag > 5", "there is no column 'time_lag'; near it: time_lag_ms"),
        ("state = 'STALED'", "state is never 'STALED': it is one of OK,"),
        ("state > 5", "state is a text, 5 a number: they cannot be compared"),
        ("lag_messages > 5m", "lag_messages is a number, 5m a span"),
        ("lag_messages", "lag_messages is a number, not something true or false"),
        ("state = 'OK", "a text without its closing quote"),
        ("state = 'OK' members = 2", "`members` at 14 is one too many"),
        ("(state = 'OK'", "`)` is expected at the end"),
        ("state = ; drop", "`; drop` at 9 is not understood"),
        ("time_lag_ms > 5 parsecs", "`parsecs` at 17 is one too many"),
        ("time_lag_ms > 5parsecs", "5parsecs is no span of time"),
        ("state and members", "state is a text; `and` takes a truth"),
        ("now + now > now", "a moment + a moment means nothing"),
        ("state not 5", "in or like after not is expected at `5`"),
        ("", "a column or a value is expected at the end"),
        ("(" * (DEPTH_MAX + 2) + "true", "expected at `(`"),
        ("not " * (DEPTH_MAX + 2) + "true", "deeper than"),
        ("true or " * 300 + "true", "characters; at most"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_what_would_be_right(
    text: str, reason: str
) -> None:
    with pytest.raises(ConditionFault) as fault:
        read_condition(text, STATES)
    assert reason in str(fault.value)


def test_a_list_of_offsets_says_nothing() -> None:
    columns = watched()["duplicate_risk_windows"].table.columns
    with pytest.raises(ConditionFault, match="certain_ranges is a list"):
        read_condition("certain_ranges is null", columns)


def test_hostile_texts_stay_texts() -> None:
    hostile = "x' or '1' = '1"
    quoted = hostile.replace("'", "''")
    assert judged(f"group = '{quoted}'", group=hostile) is True
    assert judged(f"group = '{quoted}'", group="x") is False


@pytest.mark.parametrize(
    ("text", "micros"),
    [("30s", 30_000_000), ("1h30m", 5_400_000_000), ("250ms", 250_000), ("5", None), ("", None)],
)
def test_spans_of_time(text: str, micros: int | None) -> None:
    assert span_us(text) == micros
