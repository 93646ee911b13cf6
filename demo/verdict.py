"""What gold says of the run: a row per group, a line per incident, success or not.

Place in the walk: last. `read_gold` is the only part that touches the lake; `judge` is a pure
function from rows and the plan to a verdict.

Invariant: nothing here looks at what the stage knows (processes, ledgers, message ids): an
incident counts as found only when gold alone tells it, and an incident left out must leave no
trace in gold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from demo.plan import BILLING, GROUPS, SHIPPING, Incident, Plan, Scene
from pipelines.catalogue import BY_NAME, GOLD_FOLDER
from pipelines.lake import whole_table
from pipelines.marts.mart import GoldTable

READ_TABLES = (
    "consumer_lag",
    "stalled_windows",
    "duplicate_risk_windows",
    "rebalances",
    "dead_letters",
    "dq_results",
)
STALL_RULES = ("STALLED", "STOPPED")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One line of the table; None is unknown."""

    group: str
    lag_messages: int | None
    time_lag_ms: int | None
    stalled_windows: int
    risk_windows: int
    predicted_duplicates: int
    observed_duplicates: int
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


Gold = Mapping[str, pl.DataFrame]


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


def judge(plan: Plan, gold: Gold) -> Verdict:
    """Hold gold against the plan."""
    incidents = [(incident, plan.scene(incident)) for incident in Incident]
    return Verdict(
        groups=tuple(_group_row(group.name, gold) for group in GROUPS),
        findings=tuple(_finding(incident, scene, gold) for incident, scene in incidents),
        failed_checks=_failed_checks(gold["dq_results"]),
    )


def _group_row(group: str, gold: Gold) -> GroupRow:
    newest = _newest_lag(_of_group(gold["consumer_lag"], group))
    stalls = _of_group(gold["stalled_windows"], group)
    risks = _of_group(gold["duplicate_risk_windows"], group)
    lags = _known(newest, "lag_messages")
    return GroupRow(
        group=group,
        lag_messages=sum(lags) if lags else None,
        time_lag_ms=max(_known(newest, "time_lag_ms"), default=None),
        stalled_windows=_where(stalls, rule=STALL_RULES).height,
        risk_windows=risks.height,
        predicted_duplicates=sum(_known(risks, "at_risk_messages")),
        observed_duplicates=sum(_known(risks, "redelivered_messages")),
        dead_letters=_of_group(gold["dead_letters"], group).height,
    )


def _of_group(rows: pl.DataFrame, group: str) -> pl.DataFrame:
    return rows if rows.is_empty() else rows.filter(pl.col("group") == group)


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


def _where(rows: pl.DataFrame, **allowed: tuple[str, ...]) -> pl.DataFrame:
    for column, values in allowed.items():
        if rows.is_empty():
            break
        rows = rows.filter(pl.col(column).is_in(list(values)))
    return rows


def _finding(incident: Incident, scene: Scene | None, gold: Gold) -> Finding:
    look = {
        Incident.FROZEN_HEAD: _look_for_frozen_head,
        Incident.POISON: _look_for_poison,
        Incident.CONSUMER_KILL: _look_for_consumer_kill,
        Incident.JOIN: _look_for_join,
        Incident.BROKER_KILL: _look_for_broker_kill,
    }[incident]
    evidence = look(scene, gold)
    return Finding(
        incident,
        played=scene is not None,
        found=bool(evidence),
        evidence=evidence or "nothing in gold",
    )


def _look_for_frozen_head(scene: Scene | None, gold: Gold) -> str:
    rows = _where(
        _of_group(gold["stalled_windows"], SHIPPING.name), kind=("FROZEN_HEAD",), rule=STALL_RULES
    )
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("queue_id") == scene.queue_id) & (pl.col("topic") == scene.group.topic)
        )
    return "" if rows.is_empty() else f"stalled_windows: {rows['evidence'][0]}"


def _look_for_poison(scene: Scene | None, gold: Gold) -> str:
    rows = gold["dead_letters"]
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("group") == scene.group.name) & (pl.col("origin_topic") == scene.group.topic)
        )
    if rows.is_empty():
        return ""
    first = rows.row(0, named=True)
    tries = first["reconsume_times"]
    return f"dead_letters: {first['message_id']} of {first['group']} after {tries} failed tries"


def _look_for_consumer_kill(scene: Scene | None, gold: Gold) -> str:
    rows = _where(gold["duplicate_risk_windows"], cause=("CONSUMER_CRASH",), outcome=("CONFIRMED",))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("group") == scene.group.name)
            & (pl.col("topic") == scene.group.topic)
            & (pl.col("queue_id") == scene.queue_id)
            & pl.col("client_id").str.ends_with(f"@{scene.victim}")
        )
    return "" if rows.is_empty() else f"duplicate_risk_windows: {rows['evidence'][0]}"


def _look_for_join(scene: Scene | None, gold: Gold) -> str:
    """More members than the cast has; when it was played, by the one who was to join."""
    rows = _where(_of_group(gold["rebalances"], BILLING.name), kind=("JOINED",))
    if not rows.is_empty():
        rows = rows.filter(pl.col("members_after") > len(BILLING.members))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(pl.col("client_id").str.ends_with(f"@{scene.victim}"))
    if rows.is_empty():
        return ""
    first = rows.row(0, named=True)
    members = f"{first['members_before']} → {first['members_after']}"
    return f"rebalances: {first['client_id']} joined, {members} members"


def _look_for_broker_kill(scene: Scene | None, gold: Gold) -> str:
    """Its unclean boot: basis RESTART, which a clean restart never gives, with a decided outcome.

    When it was left out, the least that gold lays to a broker's death counts.
    """
    rows = _where(gold["duplicate_risk_windows"], cause=("BROKER_CRASH",))
    if scene is not None and not rows.is_empty():
        rows = _where(rows, basis=("RESTART",), outcome=("CONFIRMED", "PASSED"))
        rows = rows.filter(pl.col("broker") == scene.victim)
    return "" if rows.is_empty() else f"duplicate_risk_windows: {rows['evidence'][0]}"


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
