"""Evaluation by columns says what a slow look at row after row says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.alerting.evaluating import Looked, Signals, evaluate
from tests.alert_stories import NOON_US, rows, rule

STATES = ("OK", "SLOW", "STALLED", "UNKNOWN")
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "group": st.sampled_from(["a", "b", "c"]),
            "broker": st.sampled_from(["x", "y"]),
            "emitter": st.sampled_from(["c/x/0", "c/y/0"]),
            "state": st.sampled_from(STATES),
            "time_lag_ms": st.none() | st.integers(0, 5),
            "queues": st.integers(0, 3),
        }
    ),
    max_size=12,
)
CONDITIONS = {
    "state = 'SLOW' or time_lag_ms > 2": lambda row: either(
        row["state"] == "SLOW", more(row["time_lag_ms"], 2)
    ),
    "not time_lag_ms > 2": lambda row: opposite(more(row["time_lag_ms"], 2)),
    "time_lag_ms > queues and state in ('OK', 'STALLED')": lambda row: both(
        more(row["time_lag_ms"], row["queues"]), row["state"] in ("OK", "STALLED")
    ),
    "time_lag_ms is null and group != 'a'": lambda row: (
        row["time_lag_ms"] is None and row["group"] != "a"
    ),
}


def more(left: int | None, right: int) -> bool | None:
    return None if left is None else left > right


def either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def opposite(one: bool | None) -> bool | None:
    return None if one is None else not one


def both(left: bool | None, right: bool | None) -> bool | None:
    return opposite(either(opposite(left), opposite(right)))


@settings(max_examples=60)
@given(
    given_rows=ROWS,
    text=st.sampled_from(sorted(CONDITIONS)),
    labels=st.sampled_from([["group"], ["cluster", "group", "broker"], []]),
    silent=st.sampled_from([(), ("c/x/0",), ("c/x/0", "c/y/0")]),
    most=st.integers(1, 4),
)
def test_columns_say_what_rows_say(
    given_rows: list[dict[str, Any]],
    text: str,
    labels: list[str],
    silent: tuple[str, ...],
    most: int,
) -> None:
    made = rule(when=text, labels=labels, signals_max=most, annotations={"summary": "x"})
    looked = Looked(
        NOON_US,
        {"group_state": rows("group_state", *given_rows)},
        silent=dict.fromkeys(silent, "silent"),
    )
    outcome = evaluate([made], looked, {})["Behind"]
    assert isinstance(outcome, Signals)
    expected: dict[tuple[str, ...], list[int]] = {}
    for row in given_rows:
        is_known = row["state"] != "UNKNOWN" or row["time_lag_ms"] is not None
        if is_known and row["emitter"] not in silent and CONDITIONS[text](row):
            key = tuple({"cluster": "c", **row}[name] for name in labels)
            lag = row["time_lag_ms"]
            expected.setdefault(key, []).append(-1 if lag is None else lag)
    assert outcome.matched == len(expected)
    assert len(outcome.holds) == min(most, len(expected))
    by_worst = sorted((max(lags) for lags in expected.values()), reverse=True)
    for one, worst in zip(outcome.holds, by_worst, strict=False):
        lags = expected[tuple(one.labels[name] for name in labels)]
        assert one.figures["matched"] == len(lags)
        figure = one.figures["time_lag_ms"]
        assert (-1 if figure is None else figure) == max(lags) == worst
