"""Benchmark `alert-noise`: counts needless notices and unreported incidents.

Thirty days of ten groups, with a nightly batch, a deploy each weekday, bursts and silent weekends,
one that reads by POP and one whose clients say nothing, and twelve incidents, judged by the marts;
then the shipped rules of alerts stand beside gold's own verdicts, Burrow's rules and a plain
threshold. Nothing of it depends on the machine. Scaled, there are fewer days.

Facts and verdicts lie on a grid of minutes (live: of seconds), so times to detect are longer than
live, for all alike; a month of seconds would take an hour to judge.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import NOISE_MISSED
from pipelines.backtest.rule_sets import tried_of
from pipelines.backtest.run import Outcome, backtest
from pipelines.backtest.scoring import Range, Score
from pipelines.base.settings import MINUTE_US, Evaluation
from pipelines.lake.lake import Lake
from tests.month_of_a_cluster import BEGIN_US, Month
from tests.pipelines.in_process import driver_of, run_to_the_end

DAYS = 30
GRACE_US = 15 * MINUTE_US
"""What an incident leaves behind lasts: a backlog that is worked off."""
WARM_UP_US = 45 * MINUTE_US
"""Until then it is learnt how rarely the silent clients report: by their third report."""
FIGURES = Evaluation(window_ms=5 * 60_000, slide_ms=60_000)
ROWS_PER_CYCLE = 13_000
"""A day: what is held are a cycle's ticks of all keys."""


def measure(folder: Path, scale: float) -> list[Figure]:
    """False notices, misses and notices a day, of each rule set."""
    clock = Clock()
    outcome = tried(folder / "lake", max(1, round(DAYS * scale)))
    spent = clock.spent()
    figures = []
    for name, score in outcome.scores.items():
        figures += _figures(name, score, outcome)
    first = figures[0]
    return [
        Figure(
            first.what, first.value, first.unit, first.bar, spent.wall_s, spent.cpu_s, first.note
        ),
        *figures[1:],
    ]


def tried(folder: Path, days: int) -> Outcome:
    """Write the days, judge them, and try all rule sets."""
    lake, month, own = Lake.at(str(folder)), Month(days), FIGURES
    month.write(lake)
    run_to_the_end(driver_of(folder, evaluation=own, rows_per_cycle=ROWS_PER_CYCLE))
    return backtest(
        lake,
        tried_of("alerts,ours,burrow,thresholds", own),
        month.incidents,
        Range(BEGIN_US + WARM_UP_US, month.end_us, GRACE_US),
        golds={own: lake},
        every_us=MINUTE_US,
        warm_up_us=WARM_UP_US,
        say=lambda line: print(line, file=sys.stderr),
    )


def _figures(name: str, score: Score, outcome: Outcome) -> list[Figure]:
    shown = {"alerts": "the shipped alerts", "ours": "gold's verdicts"}.get(name, name)
    missed = [one.incident.kind for one in score.findings if not one.found]
    middle_us = score.detection_us_median
    after = "" if middle_us is None else f"sent after {middle_us / MINUTE_US:.1f} min, middle"
    days = f"{outcome.over.days:.0f} days"
    return [
        Figure(
            f"{days}, {len(score.findings)} incidents, {shown}: missed",
            float(score.missed),
            "",
            NOISE_MISSED if name == "alerts" else None,
            note="; ".join(filter(None, [after, ", ".join(missed)])),
        ),
        Figure(
            f"{days}, {shown}: notices that nobody needs",
            float(score.false),
            "",
            note=f"of {score.notices:,}; {score.notices_a_day(outcome.over):.1f} notices a day",
        ),
    ]
