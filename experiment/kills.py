"""Runs `tidemark experiment kills` from plan to verdict.

Place in the walk: play (`stage`), gold as the platform computes it, score, table. The lake knows of
the kills only through the broker's facts.

Invariant: gold is computed by the platform's own cycles, over all that was shipped. Absent on
purpose: options and exit codes (`commands`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from experiment import table
from experiment.plan import Plan
from experiment.score import KillRow, Verdict, score, verdict
from experiment.stage import Place, Played, play
from pipelines.backtest.truths import Incident, append_incidents
from pipelines.base.time_units import micros
from pipelines.cycles.driver import Driver
from pipelines.cycles.live import only_driver
from pipelines.lake.lake import Lake, sql_text
from pipelines.reading.catalogue import BY_NAME

RISKS: Final = BY_NAME["duplicate_risk_windows"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and what came of it."""

    run: str
    played: Played
    rows: list[KillRow]
    verdict: Verdict


def run_kills(
    plan: Plan,
    home: Path,
    lake: Lake,
    *,
    compute: Callable[[Lake], None],
    report: Callable[[str], None],
) -> Outcome:
    """Play, let `compute` bring the lake's gold up to its facts, score, and append to the tables:
    what each kill did to each queue, and the kills as incidents that a backtest is held against.

    `home` gets a folder of the run's own. LakeError when the lake cannot be written, before anybody
    is started; StageError when a process does not play its part.
    """
    with only_driver(lake):
        pass  # Its gold is computed when all is played: what keeps from it is reported now.
    run = f"kills-{plan.seed}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    played = play(plan, Place(home.absolute() / run, lake.root, run), report)
    report("computing gold")
    compute(lake)
    rows = score(played, revisions(lake, run))
    table.append(lake, plan, run, rows)
    append_incidents(lake, incidents_of(plan, played))
    return Outcome(run, played, rows, verdict(rows, len(played.killed)))


def incidents_of(plan: Plan, played: Played) -> list[Incident]:
    """Each kill is one of every group: all of them have a member on each host."""
    return [
        Incident(
            begin_us=killed.at_us,
            end_us=killed.until_us,
            group=listener.group,
            kind=f"KILL_{killed.kill.victim}",
            cluster=played.cluster,
            topic=listener.topic,
        )
        for killed in played.killed
        for listener in plan.listeners
    ]


def to_the_end(driver: Driver) -> None:
    """Cycles until bronze is used up."""
    while driver.next_cycle() is not None:
        pass


def revisions(lake: Lake, cluster: str) -> Iterator[dict[str, Any]]:
    """What gold says of a cluster's risks, all revisions."""
    wanted = f"cluster = {sql_text(cluster)}"
    for row in lake.rows(lake.gold(RISKS.name), wanted, RISKS.columns).to_pylist():
        yield {**row, "observed_us": micros(row["observed_at"])}
