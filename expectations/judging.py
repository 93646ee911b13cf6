"""Evaluates Spark's violation counts with Great Expectations, using one suite per table.

Invariant: the context is in memory and contacts no service; it gets a few hundred rows, however
many were read. A check that cannot be evaluated is a failed check with the reason in words, never a
missing one; one with nothing to look at is neither a pass nor a finding.

Absent on purpose: Spark, and the lake.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import great_expectations as gx
import pandas as pd
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)

from expectations.check import Finding, Outcome, Severity
from expectations.custom import no_breach

ROW: Final = "row"
OTHERS: Final = "all other rows"


class Judge:
    """One context, for one run of checks."""

    def __init__(self, docs: Path | None = None) -> None:
        """`docs`: an empty folder for the pages of `build_docs`."""
        site = {
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "store_backend": {
                "class_name": "TupleFilesystemStoreBackend",
                "base_directory": str(docs),
            },
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        }
        settings = DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
            data_docs_sites={} if docs is None else {"checks": site},
            analytics_enabled=False,
            progress_bars=ProgressBarsConfig(globally=False),
        )
        self._context: Any = gx.get_context(project_config=settings, mode="ephemeral")
        self._counts = self._context.data_sources.add_pandas(name="counts")
        # Pages show the failing rows; without pages only whether there are any is asked.
        self._results: dict[str, Any] = {"result_format": "BOOLEAN_ONLY"}
        if docs is not None:
            named = {"unexpected_index_column_names": [ROW]}
            self._results = {"result_format": "COMPLETE", **named}

    def judge(self, findings: Sequence[Finding], versions: Mapping[str, int]) -> list[Outcome]:
        """An outcome for every finding, suite by suite. `versions`: Delta version by table."""
        outcomes = []
        for suite, of_suite in groupby(findings, key=lambda finding: finding.check.suite):
            together = list(of_suite)
            started = time.monotonic()
            judged = self._validated(suite, [one for one in together if one.checked_rows])
            spent_ms = round((time.monotonic() - started) * 1000 / len(together))
            outcomes += [
                _outcome(one, judged.get(one.check.name), versions.get(suite), spent_ms)
                for one in together
            ]
        return outcomes

    def build_docs(self) -> None:
        """Write the pages."""
        self._context.build_data_docs()

    def _validated(self, suite: str, findings: Sequence[Finding]) -> dict[str, Any]:
        """Great Expectations' result by check."""
        if not findings:
            return {}
        context = self._context
        expectations = [
            no_breach(one.check.name)(one.check.name, one.check.severity.value.lower())
            for one in findings
        ]
        laws = context.suites.add(gx.ExpectationSuite(name=suite, expectations=expectations))
        asset = self._counts.add_dataframe_asset(name=suite)
        batch = asset.add_batch_definition_whole_dataframe(suite)
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=suite, data=batch, suite=laws)
        )
        found = definition.run(
            batch_parameters={"dataframe": breaches(findings)},
            result_format=self._results,
        )
        return {result.expectation_config.meta["check"]: result for result in found.results}


def breaches(findings: Sequence[Finding]) -> pd.DataFrame:
    """What a suite is judged by: a row for each failing row that is known by name, one for all
    others, and a column a check that counts breaches."""
    columns = [finding.check.name for finding in findings]
    rows: list[dict[str, Any]] = []
    others: dict[str, Any] = {ROW: OTHERS}
    for finding in findings:
        name = finding.check.name
        others[name] = float(max(0, finding.broken_rows - len(finding.failures)))
        rows += [{ROW: one.row_key, name: 1.0} for one in finding.failures]
    return pd.DataFrame([others, *rows], columns=[ROW, *columns])


def _outcome(finding: Finding, result: Any, version: int | None, spent_ms: int) -> Outcome:
    check = finding.check
    if result is None:
        return Outcome(
            check,
            Severity.INFO,
            success=False,
            observed_value=f"nothing new to check in {check.table}",
            failed_rows=0,
            checked_rows=0,
            table_version=version,
            duration_ms=spent_ms,
        )
    raised = _raised(result.exception_info)
    if raised:
        observed = f"could not be evaluated: {raised}"
    else:
        observed = finding.kept if result.success else finding.broken
    return Outcome(
        check,
        check.severity,
        success=bool(result.success),
        observed_value=observed,
        failed_rows=finding.broken_rows,
        checked_rows=finding.checked_rows,
        table_version=version,
        duration_ms=spent_ms,
        failures=finding.failures,
    )


def _raised(info: dict[str, Any]) -> str:
    """The first line of an exception inside Great Expectations, or nothing."""
    parts = [info] if "raised_exception" in info else list(info.values())
    texts = [str(part.get("exception_message")) for part in parts if part.get("raised_exception")]
    return texts[0].splitlines()[0] if texts else ""
