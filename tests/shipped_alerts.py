"""Which of the shipped alerts fire over gold that a test has made: for tests that say "these and no
others".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pipelines.alerting.alerts import State
from pipelines.alerting.deciding import Known, judge
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.files import read_rules, shipped_files
from pipelines.alerting.lake_rows import gone
from pipelines.alerting.rules import Rule
from pipelines.alerting.watched import rows_at, watched
from pipelines.backtest.playing import PRESENT
from pipelines.microseconds import micros
from pipelines.settings import SECOND_US

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
    rules = shipped_rules()
    spans = dict.fromkeys(("group_state", "ended_queues", "consumer_lag"), 0)
    for rule in rules:
        for name in rule.tables:
            spans[name] = max(spans.get(name, 0), rule.within_us)
    frames = {name: _frame(name, gold.get(name, ())) for name in spans}
    moments = [micros(row["observed_at"]) for name in spans for row in gold.get(name, ())]
    known, found = Known(), set[tuple[str, str]]()
    for at_us in range(min(moments), max(moments) + PLAYED_ON_US, TICK_US):
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
        found |= {
            (alert.rule, alert.labels.get("group") or alert.labels.get("broker") or "")
            for alert in known.alerts
            if alert.state is State.FIRING
        }
    return found


def _frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    none = watched()[name].none()
    if not rows:
        return none
    made = pl.DataFrame(
        {column: [row.get(column) for row in rows] for column in none.columns}, strict=False
    )
    return made.cast(dict(none.schema))  # type: ignore[arg-type]
