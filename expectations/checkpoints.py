"""One run of every check: subjects are read, Great Expectations judges them, outcomes come back.

Invariant: the context is ephemeral and speaks to nobody; a check that cannot be evaluated is a
failed check with the reason in words, never a missing one. A check with nothing to look at is
not a success.

Absent on purpose: results are kept by `results`, shown by `commands`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # Read at the import below.

import great_expectations as gx
import polars as pl
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)

from expectations.check import (
    SAMPLE_ROWS_MAX,
    Check,
    Failure,
    Outcome,
    Severity,
    Subject,
)
from expectations.reading import CheckedLake
from expectations.suites import ALL_CHECKS
from pipelines.lake import Lake

__all__ = ["CheckRun", "run_checks"]

_HIDDEN: Final = frozenset({"cluster"})
"""Key columns that say nothing within one lake."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """All outcomes of one run."""

    run_id: str
    started_at: datetime
    observed_at: datetime
    """Newest moment of data time the run looked at."""
    outcomes: tuple[Outcome, ...]

    def failed(self, at_least: Severity) -> list[Outcome]:
        """Checks that did not hold and are at least that severe."""
        order = list(Severity)
        worst = order[: order.index(at_least) + 1]
        return [one for one in self.outcomes if not one.success and one.severity in worst]


def run_checks(
    lake: Lake, *, run_id: str, now: datetime, checks: Sequence[Check] = ALL_CHECKS
) -> CheckRun:
    """Judge every check at one horizon. Raises LakeError when the lake cannot be judged."""
    read = CheckedLake(lake)
    context = _silent_context()
    outcomes: list[Outcome] = []
    for subject_of, sharing in groupby(checks, key=lambda check: check.subject):
        started = time.monotonic()
        subject = subject_of(read, now)
        together = list(sharing)
        judged = _judge(context, subject, together)
        spent_ms = round((time.monotonic() - started) * 1000 / len(together))
        outcomes += [
            _outcome(check, subject, result, spent_ms)
            for check, result in zip(together, judged, strict=True)
        ]
    newest = read.horizons["event_time_to"].max()
    assert isinstance(newest, datetime), "a lake without a shipment is refused before"
    return CheckRun(run_id, now, newest, tuple(outcomes))


def _silent_context() -> Any:
    """A context in memory: no file, no analytics, no progress bar."""
    settings = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(project_config=settings, mode="ephemeral")


def _judge(context: Any, subject: Subject, checks: Sequence[Check]) -> list[Any]:
    """Great Expectations' results, in the order of `checks`."""
    if subject.rows.is_empty():
        return [None] * len(checks)
    name = checks[0].name
    suite = context.suites.add(
        gx.ExpectationSuite(
            name=name,
            expectations=[
                check.expectation(check.name, check.severity.value.lower()) for check in checks
            ],
        )
    )
    batch = (
        context.data_sources.add_pandas(name=name)
        .add_dataframe_asset(name=subject.table)
        .add_batch_definition_whole_dataframe(name)
    )
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=name, data=batch, suite=suite)
    )
    found = definition.run(
        batch_parameters={"dataframe": subject.rows.to_pandas()},
        result_format={
            "result_format": "COMPLETE",
            "unexpected_index_column_names": list(subject.key),
            "partial_unexpected_count": SAMPLE_ROWS_MAX,
        },
    )
    by_check = {result.expectation_config.meta["check"]: result for result in found.results}
    return [by_check[check.name] for check in checks]


def _outcome(check: Check, subject: Subject, result: Any, spent_ms: int) -> Outcome:
    if result is None:
        return _nothing(check, subject, spent_ms)
    failures = tuple(_failures(subject, result))
    failed_rows = int(result.result.get("unexpected_count", 0))
    raised = _raised(result.exception_info)
    if raised:
        observed = f"could not be evaluated: {raised}"
    elif result.success:
        observed = subject.summary
    else:
        names = "; ".join(f"{one.row_key} ({one.detail})" for one in failures[:3])
        more = f"; and {failed_rows - 3} more" if failed_rows > 3 else ""
        observed = f"{failed_rows} of {subject.rows.height} keys break it: {names}{more}"
    return Outcome(
        check,
        subject.table,
        check.severity,
        success=bool(result.success),
        observed_value=observed,
        failed_rows=failed_rows,
        checked_rows=subject.checked_rows,
        table_version=subject.version,
        duration_ms=spent_ms,
        failures=failures,
    )


def _nothing(check: Check, subject: Subject, spent_ms: int) -> Outcome:
    """No rows: not a success. Worth a warning only where a sound lake always has rows."""
    return Outcome(
        check,
        subject.table,
        Severity.INFO if check.may_be_empty else Severity.WARNING,
        success=False,
        observed_value=f"nothing to check: {subject.table} has no rows",
        failed_rows=0,
        checked_rows=0,
        table_version=subject.version,
        duration_ms=spent_ms,
        failures=(),
    )


def _raised(info: dict[str, Any]) -> str:
    """The first line of an exception inside Great Expectations, or nothing."""
    parts = [info] if "raised_exception" in info else list(info.values())
    texts = [str(part.get("exception_message")) for part in parts if part.get("raised_exception")]
    return texts[0].splitlines()[0] if texts else ""


def _failures(subject: Subject, result: Any) -> Iterable[Failure]:
    """The failing keys with all their figures, at most SAMPLE_ROWS_MAX."""
    index = result.result.get("unexpected_index_list") or []
    if not index:
        return
    keys = pl.DataFrame(
        [{name: row[name] for name in subject.key} for row in index[:SAMPLE_ROWS_MAX]]
    )
    schema = pl.Schema({name: subject.rows.schema[name] for name in subject.key})
    failing = subject.rows.join(
        keys.cast(schema).unique(maintain_order=True), on=subject.key, how="inner", nulls_equal=True
    )
    for row in failing.head(SAMPLE_ROWS_MAX).iter_rows(named=True):
        yield Failure(_words(row, subject.key), _words(row, set(row) - set(subject.key)))


def _words(row: dict[str, Any], columns: Iterable[str]) -> str:
    wanted = set(columns) - _HIDDEN
    return ", ".join(f"{name}={value}" for name, value in row.items() if name in wanted)
