"""Computes the demo's verdict from gold for each group, each incident and the whole run.

Place in the walk: last. `read_gold` is the only part that touches the lake; `judge` is a pure
function from rows and the plan to a verdict.

Invariant: nothing here looks at what the stage knows (processes, ledgers, message ids): an incident
counts as found only when gold alone shows it, and an incident left out must leave no trace in gold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from demo.looks import STALL_RULES, Gold, Look, of_group, where
from demo.plan import GROUPS, Incident, Plan, Scene
from pipelines.lake.lake import GOLD_FOLDER, whole_table
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import BY_NAME
from pipelines.reading.moment import is_observer
from pipelines.sentences.duplicates import CameAgain, came_again

READ_TABLES = (
    "consumer_lag",
    "stalled_windows",
    "duplicate_risk_windows",
    "rebalances",
    "dead_letters",
    "replication_health",
    "dq_results",
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One line of the table; None is unknown. With a queue unknown the lag is a lower bound."""

    group: str
    lag_messages: int | None
    time_lag_ms: int | None
    is_lag_whole: bool
    stalled_windows: int
    risk_windows: int
    predicted_duplicates: int
    observed_duplicates: CameAgain
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Was an incident found in gold, should it have been, and by which evidence?"""

    incident: Incident
    played: bool
    found: bool
    evidence: str

    @property
    def as_expected(self) -> bool:
        """Found when played, absent when left out."""
        return self.played == self.found


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a demo run."""

    groups: tuple[GroupRow, ...]
    findings: tuple[Finding, ...]
    failed_checks: tuple[str, ...]

    @property
    def success(self) -> bool:
        """Every incident as expected and every check that should hold holds."""
        return not self.failed_checks and all(finding.as_expected for finding in self.findings)


def read_gold(lake: Path) -> dict[str, pl.DataFrame]:
    """The gold tables the verdict rests on, interval tables reduced to their present truth."""
    return {name: _present(BY_NAME[name], _rows(lake, BY_NAME[name])) for name in READ_TABLES}


def _rows(lake: Path, table: GoldTable) -> pl.DataFrame:
    path = lake / GOLD_FOLDER / table.name
    if not DeltaTable.is_deltatable(str(path)):
        return pl.DataFrame(schema=dict.fromkeys(table.column_names, pl.Null))
    rows = pl.DataFrame(pl.from_arrow(whole_table(DeltaTable(str(path)))))
    return rows.sort("observed_at", "seq") if "seq" in table.column_names else rows


def _present(table: GoldTable, rows: pl.DataFrame) -> pl.DataFrame:
    if not table.revised or rows.is_empty():
        return rows
    return rows.sort("revision").unique("window_id", keep="last", maintain_order=True)


def judge(plan: Plan, gold: Gold, looks: Mapping[Incident, Look]) -> Verdict:
    """Hold gold against the plan; each incident has a look of its own."""
    return Verdict(
        groups=tuple(_group_row(group.name, gold) for group in GROUPS),
        findings=tuple(
            _finding(incident, plan.scene(incident), look, gold) for incident, look in looks.items()
        ),
        failed_checks=_failed_checks(gold["dq_results"]),
    )


def _group_row(group: str, gold: Gold) -> GroupRow:
    lag_rows = of_group(gold["consumer_lag"], group)
    newest = _newest_lag(lag_rows)
    stalls = of_group(gold["stalled_windows"], group)
    risks = of_group(gold["duplicate_risk_windows"], group)
    lags = _known(newest, "lag_messages")
    return GroupRow(
        group=group,
        lag_messages=sum(lags) if lags else None,
        time_lag_ms=max(_known(newest, "time_lag_ms"), default=None),
        is_lag_whole=len(lags) == newest.height,
        stalled_windows=where(stalls, rule=STALL_RULES).height,
        risk_windows=risks.height,
        predicted_duplicates=sum(_known(risks, "at_risk_messages")),
        observed_duplicates=came_again(
            risks.iter_rows(named=True),
            is_observed=any(is_observer(name) for name in lag_rows["emitter"].drop_nulls()),
        ),
        dead_letters=of_group(gold["dead_letters"], group).height,
    )


def _newest_lag(rows: pl.DataFrame) -> pl.DataFrame:
    """The newest row per queue; retry topics are queues of the group like any other."""
    if rows.is_empty():
        return rows
    return rows.sort("observed_at", "seq").unique(
        ["broker", "topic", "queue_id"], keep="last", maintain_order=True
    )


def _known(rows: pl.DataFrame, column: str) -> list[int]:
    """What is known of a column."""
    return [] if rows.is_empty() else rows[column].drop_nulls().to_list()


def _finding(incident: Incident, scene: Scene | None, look: Look, gold: Gold) -> Finding:
    evidence = look(scene, gold)
    return Finding(
        incident,
        played=scene is not None,
        found=bool(evidence),
        evidence=evidence or "nothing in gold",
    )


def _failed_checks(results: pl.DataFrame) -> tuple[str, ...]:
    """Critical checks that did not hold in any run, each of which looked at rows of its own, and
    warnings of the newest run.

    No check at all is a failure of its own.
    """
    if results.is_empty():
        return ("no check has run",)
    is_newest = pl.col("run_id") == results.sort("started_at")["run_id"][-1]
    counts = (pl.col("severity") == "CRITICAL") | ((pl.col("severity") == "WARNING") & is_newest)
    failed = results.filter(~pl.col("success") & counts).unique(["table", "expectation"])
    return tuple(
        sorted(f"{row['table']}: {row['expectation']}" for row in failed.iter_rows(named=True))
    )
