"""Derives objective burn rates and retry rates from gold at each evaluation.

    objective: behind by 1 min at most, for 99 % of the time → it may be behind for 1 % of it
    behind in 2 of the last 12 slots, 17 % of an hour → it burns 16 times as fast as it may

A slot counts as behind when any queue of the group was, at any moment of it; a queue that was not
reported again stays as it was, and what waits in it grows older. What is unknown, or when there was
no such group, counts as not behind: a rate is never shown too high.

Invariant: the same gold makes the same rows. Absent on purpose: verdicts (what is too much is a
rule's), and groups without an objective of their own or a default that somebody wrote down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from pipelines.alerting.objectives import Objective, Objectives
from pipelines.alerting.rule_tables import OBJECTIVE_BURN, RETRY_RATES, no_rows
from pipelines.base.settings import MS_US, SECOND_US
from pipelines.base.time_units import micros, moment_at
from pipelines.reading.moment import Moment, sql_time
from pipelines.reading.reading import LOOK_BACK, Reading
from pipelines.sentences.alert_reasons import objective as objective_text
from pipelines.sentences.alert_reasons import retries

SPAN_S: Final = 300
SPAN_US: Final = SPAN_S * SECOND_US
SPAN: Final = timedelta(seconds=SPAN_S)
WINDOWS: Final = {"5m": 1, "30m": 6, "1h": 12, "6h": 72}
"""Slots of each window."""
SLOTS: Final = max(WINDOWS.values())
_HELD: Final = -(-int(LOOK_BACK.total_seconds()) // SPAN_S)
"""A queue without a row for so many slots is gone: gold has a row of each in its look-back."""
_KEY: Final = ("emitter", "cluster", "broker", "group", "topic", "queue_id")
LATELY: Final = timedelta(minutes=5)
BEFORE: Final = timedelta(hours=1)
OLDEST: Final = timedelta(hours=25)
"""Totals are looked for so far back."""
RATES_EACH: Final = timedelta(seconds=10)
"""Gold counts in slots of this length: figures change no sooner."""
_TOTALS: Final = {"": "sent_back", "came_back_": "came_back"}
"""Totals of the table, by the prefix of what is asked of each."""
_NAMES: Final = {"": "failed", "came_back_": "came_back"}


def last_slot(moment: Moment) -> int:
    """The last slot that is over for everybody who speaks, in slots since 1970."""
    judged_to = moment.judged_to
    return 0 if judged_to is None else micros(judged_to) // SPAN_US


def objective_burn(reading: Reading, objectives: Objectives) -> pl.DataFrame:
    """The rows of `objective_burn` at a moment."""
    last = last_slot(reading.moment)
    if not last or not objectives.is_given:
        return no_rows(OBJECTIVE_BURN.name)
    since = moment_at((last - SLOTS - _HELD) * SPAN_US)
    figures = ("time_lag_ms_max", "time_lag_ms_last", "lag_last", "last_at")
    states = reading.rows(
        "consumer_lag_rollups",
        f"span_s = {SPAN_S}",
        f"observed_at <= {sql_time(moment_at(last * SPAN_US))}",
        since=since,
        columns=("observed_at", *_KEY, *figures),
    )
    return burn_of(states, objectives, last)


def burn_of(states: pl.DataFrame, objectives: Objectives, last: int) -> pl.DataFrame:
    """The rows that roll-ups of five minutes come to; last: the newest slot."""
    if states.is_empty():
        return no_rows(OBJECTIVE_BURN.name)
    courses = _courses(_holding(states, last))
    rows = list(_rows(courses, objectives, last))
    return pl.DataFrame(rows, schema=no_rows(OBJECTIVE_BURN.name).schema)


def _holding(states: pl.DataFrame, last: int) -> pl.DataFrame:
    """A row a queue and slot: how far behind it was, null where that is unknown."""
    slot = (pl.col("observed_at").dt.epoch("us") // SPAN_US).alias("slot")
    at = states.with_columns(slot).sort("slot").unique([*_KEY, "slot"], keep="last")
    after = pl.col("slot").shift(-1).over(_KEY, order_by="slot")
    until = pl.min_horizontal(after.fill_null(last + 1), pl.col("slot") + _HELD, pl.lit(last + 1))
    held = at.with_columns(pl.int_ranges("slot", until).alias("at_slot")).explode("at_slot")
    end_us = pl.col("at_slot") * SPAN_US
    waited_ms = (end_us - pl.col("last_at").dt.epoch("us")) // MS_US
    is_own = pl.col("at_slot") == pl.col("slot")
    behind = (
        pl.when(is_own & pl.col("time_lag_ms_max").is_not_null())
        .then(pl.col("time_lag_ms_max"))
        .when(pl.col("lag_last") == 0)
        .then(0)
        .otherwise(pl.col("time_lag_ms_last") + waited_ms.clip(lower_bound=0))
    )
    return held.filter(pl.col("at_slot") > last - SLOTS).select(
        "cluster", "group", "at_slot", behind.alias("behind_ms")
    )


def _courses(held: pl.DataFrame) -> pl.DataFrame:
    """A row a group and slot."""
    return held.group_by("cluster", "group", "at_slot").agg(
        pl.col("behind_ms").max(), pl.col("behind_ms").is_null().any().alias("is_vague")
    )


def _rows(courses: pl.DataFrame, objectives: Objectives, last: int) -> Iterator[dict[str, Any]]:
    names = ["cluster", "group"]
    for (cluster, group), course in courses.sort("at_slot").group_by(names, maintain_order=True):
        objective = objectives.given_to(str(cluster), str(group))
        if objective is None:
            continue
        slots = dict(zip(course["at_slot"], course["behind_ms"], strict=True))
        is_behind = {at for at, ms in slots.items() if (ms or 0) > objective.lag_ms}
        vague = dict(zip(course["at_slot"], course["is_vague"], strict=True))
        state = "BEHIND" if last in is_behind else "WITHIN"
        if last not in is_behind and vague.get(last, True):
            state = "UNKNOWN"
        yield {
            "observed_at": moment_at(last * SPAN_US),
            "cluster": cluster,
            "group": group,
            "objective_ms": objective.lag_ms,
            "share_percent": f"{objective.share_percent:g}",
            "state": state,
            **_figures(str(group), is_behind, objective, last),
        }


def _figures(group: str, is_behind: set[int], objective: Objective, last: int) -> Mapping[str, Any]:
    budget = max(1 - objective.share_percent / 100, 1e-6)
    figures: dict[str, Any] = {}
    spent_ms = {}
    for name, length in WINDOWS.items():
        slots = sum(at > last - length for at in is_behind)
        figures[f"burn_{name}"] = int(slots / length / budget + 1e-9)
        spent_ms[name] = slots * SPAN_S * 1000
    figures["behind_1h_ms"], figures["behind_6h_ms"] = spent_ms["1h"], spent_ms["6h"]
    figures["evidence"] = objective_text(
        group,
        lag_ms=objective.lag_ms,
        share_percent=objective.share_percent,
        behind_1h_ms=spent_ms["1h"],
        behind_6h_ms=spent_ms["6h"],
    )
    return figures


def retry_rates(reading: Reading) -> pl.DataFrame:
    """The rows of `retry_rates` at a moment."""
    present = reading.moment.present
    if present is None:
        return no_rows(RETRY_RATES.name)
    lately, before = sql_time(present - LATELY), sql_time(present - LATELY - BEFORE)
    queries: dict[str, str] = {}
    for prefix, total in _TOTALS.items():
        queries |= {
            f"{prefix}first": f"min({total})",
            f"{prefix}before": f"max(CASE WHEN observed_at <= {before} THEN {total} END)",
            f"{prefix}lately": f"max(CASE WHEN observed_at <= {lately} THEN {total} END)",
            f"{prefix}newest": f"max({total})",
        }
    totals = reading.summed_up(
        "retry_flow",
        queries,
        by=("emitter", "cluster", "group", "origin_topic"),
        since=present - OLDEST,
    )
    return rates_of(totals, present)


def rates_of(totals: pl.DataFrame, present: datetime) -> pl.DataFrame:
    """Rows of totals at three moments: first seen, an hour and five minutes ago, five minutes ago,
    and now; null where there was none yet."""
    if totals.is_empty():
        return no_rows(RETRY_RATES.name)
    figures = [one for prefix, name in _NAMES.items() for one in _differences(prefix, name)]
    summed = (
        totals.with_columns(figures)
        .group_by("cluster", "group")
        .agg(pl.col(f"{name}_{span}").sum() for name in _NAMES.values() for span in ("5m", "hour"))
    )
    is_recent = pl.any_horizontal(pl.col("^(failed|came_back)_(5m|hour)$") > 0)
    rows = [
        {
            **row,
            "observed_at": present,
            "usual_5m": _usual(row["failed_hour"]),
            "usual_came_back_5m": _usual(row["came_back_hour"]),
        }
        for row in summed.filter(is_recent).sort("cluster", "group").iter_rows(named=True)
    ]
    with_evidence = [{**row, "evidence": retries(row)} for row in rows]
    return pl.DataFrame(with_evidence, schema=no_rows(RETRY_RATES.name).schema)


def _differences(prefix: str, name: str) -> tuple[pl.Expr, pl.Expr]:
    """What a total has gained within the last five minutes, and in the hour before them."""
    first, before, lately, newest = (
        pl.col(f"{prefix}{moment}") for moment in ("first", "before", "lately", "newest")
    )
    begun = pl.coalesce(lately, first)
    return (
        (newest - begun).fill_null(0).alias(f"{name}_5m"),
        (begun - pl.coalesce(before, first)).fill_null(0).alias(f"{name}_hour"),
    )


def _usual(in_an_hour: int) -> int:
    return -(-in_an_hour * LATELY // BEFORE)
