"""Runs of jobs as rows of a table that rules can use.

Invariant: pure; rows are as `rule_tables` declares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from pipelines.alerting.rule_tables import JOB_RUNS, no_rows
from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at

if TYPE_CHECKING:
    from pipelines.scheduler.store.troubles import Trouble


def job_rows(troubles: Iterable[Trouble], now_us: int) -> pl.DataFrame:
    """One row a run. now_us: µs of this process's clock."""
    rows = [
        {
            "observed_at": moment_at(now_us),
            "app": one.app,
            "job": one.job,
            "job_id": one.job_id,
            "run": one.run,
            "outcome": one.outcome,
            "executor": one.executor,
            "planned_at": moment_at(one.planned_ms * MS_US),
            "opened_at": moment_at(one.since_ms * MS_US),
            "evidence": one.evidence,
            "last_lines": one.last_lines or None,
        }
        for one in troubles
    ]
    return pl.DataFrame(rows, schema=no_rows(JOB_RUNS.name).schema)
