"""Benchmark `alert-rules`: applies 5,000 rules to 10,000 groups and one to a million.

The figure is the judging of a cycle: evaluation and life cycle, with the groups and notices that
come of it, in the process that would do it. Reading is counted elsewhere. Rules differ in figure
and label, as those of many teams would; some hundred hold. Scaled, there are fewer of both.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from bench.analytics.figures import Figure
from bench.bars import RULES_CPU
from pipelines.alerting.evaluating import Looked, Signals
from pipelines.alerting.routing import Route, Routing
from pipelines.alerting.rule_tables import watched
from pipelines.alerting.rules import Rule, check
from pipelines.alerting.step import Decided, Known, judge, notify
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import moment_at

GROUPS, RULES, MILLION = 10_000, 5_000, 1_000_000
CYCLES = 5
BEGIN_US = 1_772_366_400 * SECOND_US
ROUTING = Routing(Route("all"))


def measure(folder: Path, scale: float) -> list[Figure]:
    """CPU time of a cycle, and of a look at a rule that holds everywhere."""
    del folder
    groups, count = max(100, round(GROUPS * scale)), max(50, round(RULES * scale))
    spent, decided = judged(rules_of(count), states(groups))
    million = max(10_000, round(MILLION * scale))
    everywhere = rules_of(1, when="lag_messages >= 0")
    spent_of_all, of_all = judged(everywhere, states(million), cycles=2)
    outcome = of_all.outcomes[everywhere[0].name]
    assert isinstance(outcome, Signals)
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(
            f"{count:,} rules over {groups:,} groups: a cycle judged",
            spent,
            "CPU s",
            RULES_CPU,
            cpu_s=spent,
            note=f"middle of {CYCLES}; {len(decided.known.alerts):,} alerts open",
        ),
        Figure(
            f"a rule that matches {million:,} rows: a cycle judged",
            spent_of_all,
            "CPU s",
            cpu_s=spent_of_all,
            note=f"{len(outcome.holds):,} alerts, {outcome.matched:,} counted; "
            f"{memory_mib:,.0f} MiB at most",
        ),
    ]


def judged(
    rules: list[Rule], frame: pl.DataFrame, *, cycles: int = CYCLES
) -> tuple[float, Decided]:
    """CPU seconds of the middle cycle, and what the last one came to."""
    known, spent, by_name = Known(), [], rules
    decided = Decided(known)
    for number in range(cycles):
        now_us = BEGIN_US + number * 5 * SECOND_US
        begun_s = time.process_time()
        looked = Looked(now_us, {"group_state": frame})
        decided = judge(known, by_name, looked, now_us=now_us)
        decided = notify(decided, by_name, ROUTING, silences=(), now_us=now_us)
        spent.append(time.process_time() - begun_s)
        known = decided.known
    return median(spent), decided


def rules_of(count: int, *, when: str = "") -> list[Rule]:
    """Rules of as many teams, each about groups of its own and about all."""
    entries: list[dict[str, Any]] = [
        {
            "name": f"Rule{number}",
            "table": "group_state",
            "when": when or _condition(number),
            "for": "1m" if number % 2 else "0",
            "annotations": {"summary": "{{ labels.group }} is {{ time_lag_ms | duration }} behind"},
        }
        for number in range(count)
    ]
    checked = check({"bench.toml": {"rule": entries}})
    assert not checked.faults, checked.faults[0]
    return list(checked.rules)


def _condition(number: int) -> str:
    kinds = (
        f"time_lag_ms > {600 + number}s and trend = 'GROWING'",
        f"group like 'group-{number}%' and lag_messages > {2_000 + number}",
        f"state = 'STALLED' and lag_messages > {20_000 + number}",
        f"members < 1 and queues > 2 and time_lag_ms > {60 + number}s",
    )
    return kinds[number % len(kinds)]


def states(groups: int) -> pl.DataFrame:
    """A row a group, as gold has them: one in fifty is behind."""
    numbers = np.arange(groups)
    behind = np.where(numbers % 50 == 7, numbers % 10_000, numbers % 40)
    columns: dict[str, Any] = {
        "observed_at": [moment_at(BEGIN_US)] * groups,
        "cluster": ["c"] * groups,
        "broker": ["b"] * groups,
        "emitter": ["c/b/0"] * groups,
        "group": [f"group-{number}" for number in numbers],
        "state": np.where(numbers % 500 == 7, "STALLED", "OK"),
        "trend": np.where(numbers % 100 == 7, "GROWING", "STEADY"),
        "lag_messages": behind * 3,
        "time_lag_ms": behind * 100,
        "queues": np.full(groups, 4),
        "members": numbers % 5,
        "seq": numbers,
    }
    none = watched()["group_state"].none()
    return pl.DataFrame(
        [
            pl.Series(name, columns[name]).cast(kind)
            if name in columns
            else pl.repeat(None, groups, dtype=kind, eager=True).alias(name)
            for name, kind in none.schema.items()
        ]
    )
