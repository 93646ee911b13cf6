"""Finds which of the shipped alerts fire over gold that a test has made.

Tests use it to say "these and no others".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pipelines.alerting.alerts import State
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.present_rows import gone
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.alerting.rule_tables import rows_at, watched
from pipelines.alerting.rules import Rule
from pipelines.alerting.step import Known, judge
from pipelines.backtest.playing import PRESENT
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros

TICK_US: Final = 5 * SECOND_US
PLAYED_ON_US: Final = 90 * SECOND_US
"""Behind the last row: what waits for half a minute or a minute fires in it."""
Gold = Mapping[str, Sequence[Mapping[str, Any]]]


def shipped_rules() -> tuple[Rule, ...]:
    """Those that need nothing but gold."""
    checked = read_rules(shipped_files())
    assert not checked.faults
    return tuple(rule for rule in checked.rules if not set(rule.tables) & set(PRESENT))


def fired(gold: Gold) -> set[tuple[str, str]]:
    """Names of the alerts that fired at any moment, each with its group, or else its broker."""
    return set(first_fired(gold))


def first_fired(
    gold: Gold, *, every_us: int = TICK_US, only: str = ""
) -> dict[tuple[str, str], int]:
    """When each of them, or of one rule, fired first, looked at so often, on multiples of it."""
    rules = tuple(rule for rule in shipped_rules() if only in ("", rule.name))
    spans = dict.fromkeys(("group_state", "ended_queues", "consumer_lag"), 0)
    for rule in rules:
        for name in rule.tables:
            spans[name] = max(spans.get(name, 0), rule.within_us)
    frames = {name: _frame(name, gold.get(name, ())) for name in spans}
    moments = [micros(row["observed_at"]) for name in spans for row in gold.get(name, ())]
    known, found = Known(), dict[tuple[str, str], int]()
    begin_us = -(-min(moments) // every_us) * every_us
    for at_us in range(begin_us, max(moments) + PLAYED_ON_US, every_us):
        rows = {
            name: rows_at(
                name,
                frame.filter(pl.col("observed_at").cast(pl.Int64) <= at_us),
                at_us,
                within_us=spans[name],
            )
            for name, frame in frames.items()
        }
        ended = gone(rows["group_state"], rows["ended_queues"], rows["consumer_lag"])
        known = judge(known, rules, Looked(at_us, rows, gone=ended), now_us=at_us).known
        for alert in known.alerts:
            if alert.state is State.FIRING:
                whose = alert.labels.get("group") or alert.labels.get("broker") or ""
                found.setdefault((alert.rule, whose), at_us)
    return found


def _frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    none = watched()[name].none()
    if not rows:
        return none
    made = pl.DataFrame(
        {column: [row.get(column) for row in rows] for column in none.columns}, strict=False
    )
    return made.cast(dict(none.schema))  # type: ignore[arg-type]
