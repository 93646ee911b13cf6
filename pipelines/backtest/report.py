"""Formats backtest results as a table for people and as JSON for programs.

Invariant: what is not known (no incident reported, or none known; no group of which a fact speaks)
is null in JSON and a word in the table, never 0. Absent on purpose: judging which rule set is
better.
"""

from __future__ import annotations

import json
from typing import Any, Final

from rich.table import Table

from pipelines.backtest.run import Outcome
from pipelines.backtest.scoring import Finding, Score
from pipelines.base.time_units import moment_at
from pipelines.base.wording import clock, duration, plural

UNKNOWN: Final = "unknown"


def as_table(outcome: Outcome) -> Table:
    """One line a rule set."""
    table = Table(title=_title(outcome), title_justify="left")
    table.add_column("rules")
    for name in ("found", "missed", "false", "detected in", "at most", "notices a day"):
        table.add_column(name, justify="right")
    for name, score in outcome.scores.items():
        times = score.detections_us
        longest = times[-1] if times else None
        of_incidents = (
            *(str(score.found), str(score.missed), str(score.false)),
            *(_after(score.detection_us_median), _after(longest)),
        )
        a_day = f"{score.notices_a_day(outcome.over):.1f}"
        table.add_row(
            name,
            *(of_incidents if outcome.has_truth else (UNKNOWN,) * len(of_incidents)),
            a_day if outcome.groups else UNKNOWN,
        )
    return table


def as_json(outcome: Outcome) -> str:
    """One object; times in ms."""
    over = outcome.over
    document = {
        "begin": _iso(over.begin_us),
        "end": _iso(over.end_us),
        "grace_ms": over.grace_us // 1000,
        "groups": outcome.groups,
        "rules": [_score(name, score, outcome) for name, score in outcome.scores.items()],
    }
    return json.dumps(document, indent=2)


def _score(name: str, score: Score, outcome: Outcome) -> dict[str, Any]:
    times_us = score.detections_us
    middle_us = score.detection_us_median
    is_known = outcome.has_truth
    return {
        "name": name,
        "found": score.found if is_known else None,
        "missed": score.missed if is_known else None,
        "false": score.false if is_known else None,
        "detection_ms_median": None if middle_us is None else middle_us // 1000,
        "detection_ms_max": times_us[-1] // 1000 if times_us else None,
        "notices": score.notices if outcome.groups else None,
        "notices_a_day": score.notices_a_day(outcome.over) if outcome.groups else None,
        "incidents": [_finding(one) for one in score.findings],
    }


def _finding(one: Finding) -> dict[str, Any]:
    after_us = one.detected_after_us
    return {
        "cluster": one.incident.cluster,
        "group": one.incident.group,
        "topic": one.incident.topic,
        "queue_id": one.incident.queue_id,
        "kind": one.incident.kind,
        "begin": _iso(one.incident.begin_us),
        "end": _iso(one.incident.end_us),
        "found": one.found,
        "detected_after_ms": None if after_us is None else after_us // 1000,
    }


def _title(outcome: Outcome) -> str:
    over = outcome.over
    begin, end = moment_at(over.begin_us), moment_at(over.end_us)
    incidents = max((len(score.findings) for score in outcome.scores.values()), default=0)
    known = plural(incidents, "incident") if outcome.has_truth else "no incidents known"
    groups = plural(outcome.groups, "group")
    return f"{clock(begin, day=True)} to {clock(end, day=True)} UTC: {groups}, {known}"


def _after(moment_us: int | None) -> str:
    return "never" if moment_us is None else duration(moment_us / 1000)


def _iso(moment_us: int) -> str:
    return moment_at(moment_us).isoformat()
