"""The rules for who alerts with Prometheus: promtool takes them, their tests pass, and each metric
that they name is one that we tell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl

from pipelines.alerting.files import SHIPPED
from pipelines.alerting.metrics.exposition import LEFT_OUT
from pipelines.alerting.metrics.families import Gold, Process, families
from pipelines.moment import Moment, Reached
from provision import servers
from tests.alert_stories import NOON, NOON_US, rows

FOLDER = SHIPPED / "prometheus"
RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks.md"
OWN_NAMES = (
    *("group_state", "rebalances_total", "duplicate_risk_messages", "stalled_windows"),
    *("dq_check_failed", "pipeline_freshness_seconds", "collect_seconds"),
)
"""Names that boards of others may rest on: they stay."""
NAME = re.compile(r"\btidemark_\w+")


def promtool(folder: Path, *words: str) -> str:
    program = servers.promtool()
    assert program is not None, servers.PROMTOOL_MISSING
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_them_and_their_tests_pass(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "rules")
    assert "rules found" in promtool(folder, "check", "rules", "rules.yml")
    assert "SUCCESS" in promtool(folder, "test", "rules", "tests.yml")


def test_they_name_metrics_that_we_tell_and_runbooks_that_there_are() -> None:
    moment = Moment("r", 1, (Reached("c/b/0", NOON, 1),), NOON)
    empty = rows("duplicate_risk_windows")
    shipped = pl.DataFrame(
        schema={
            "emitter": pl.String,
            "event_time_to": pl.Datetime("us", "UTC"),
            "shipped_time": pl.Datetime("us", "UTC"),
        }
    )
    gold = Gold(
        moment,
        rows("group_state"),
        rows("consumer_lag"),
        rows("stalled_windows"),
        empty,
        rows("dq_results"),
        shipped,
        rows("rebalances").with_columns(changes=0),
        collect_s=0.1,
    )
    told = {one.name for one in families(gold, Process(leads=True, rules=1), now_us=NOON_US)}
    text = (FOLDER / "rules.yml").read_text()
    named = set(NAME.findall(text))
    assert {f"tidemark_{name}" for name in OWN_NAMES} <= told
    assert named <= told | {LEFT_OUT}
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert set(re.findall(r"runbooks\.md#(\w+)", text)) <= {one.lower() for one in sections}
