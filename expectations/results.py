"""Writes check outcomes to dq_results and sample failing rows to dq_failures, both in gold.

Invariant: a run is written once, however often it is tried: each append carries the run as its
Delta transaction, and the failures go first, so that a result never lacks its sample. What the next
run goes on from is stored last, so that no row is passed over.

Absent on purpose: any other writer of these tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from expectations import memory
from expectations.checkpoints import CheckRun
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import add_declared_columns, append, shorten_log
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import DQ_FAILURES, DQ_RESULTS

PARTITION: Final = "observed_date"
_VERSION: Final = 1
"""A run has one version: it is written or it is not."""


def keep(run: CheckRun, lake: Lake, *, now: datetime) -> None:
    """Append the run's failures, then its results; a run that is there already stays as it is.
    Then remember how far it came. `now`: wall clock, from which on the results are known."""
    _append(run, lake, DQ_FAILURES, _failure_rows(run))
    _append(run, lake, DQ_RESULTS, _result_rows(run, now))
    memory.store(lake, run.memory)


def _append(run: CheckRun, lake: Lake, table: GoldTable, rows: Sequence[dict[str, Any]]) -> None:
    address = lake.gold(table.name)
    application = f"{table.name}/{run.run_id}"
    exists = lake.exists(address)
    if exists and lake.table(address).transaction_version(application) is not None:
        return
    if exists and not rows:
        return
    if exists:
        add_declared_columns(lake, address, table.columns)
    schema = arrow_schema(table.columns)
    arrays = [pa.array([row[one.name] for row in rows], one.type) for one in schema]
    append(
        lake,
        address,
        pa.Table.from_arrays(arrays, schema=schema),
        partition_by=[PARTITION],
        description=table.grain,
        transaction=(application, _VERSION),
    )
    shorten_log(lake, address)


def _result_rows(run: CheckRun, now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "observed_at": run.observed_at,
            "run_id": run.run_id,
            "suite": outcome.check.suite,
            "expectation": outcome.check.name,
            "table": outcome.check.table,
            "severity": outcome.severity.value,
            "success": outcome.success,
            "observed_value": outcome.observed_value,
            "failed_rows": outcome.failed_rows,
            "checked_rows": outcome.checked_rows,
            "table_version": outcome.table_version,
            "started_at": run.started_at,
            "seconds_ms": outcome.duration_ms,
            "observed_date": run.observed_at.date(),
            "judged_from": run.judged_from,
            "cycle": run.batch.cycle,
            "kept_at": now,
        }
        for outcome in run.outcomes
    ]


def _failure_rows(run: CheckRun) -> list[dict[str, Any]]:
    return [
        {
            "observed_at": run.observed_at,
            "run_id": run.run_id,
            "expectation": outcome.check.name,
            "table": outcome.check.table,
            "row_key": failure.row_key,
            "detail": failure.detail,
            "observed_date": run.observed_at.date(),
            "about_emitter": failure.emitter,
            "about_group": failure.group,
            "since": failure.since,
        }
        for outcome in run.outcomes
        for failure in outcome.failures
    ]
