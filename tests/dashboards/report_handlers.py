"""The job that makes reports, but without Spark: from its parameters to a row and files."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

from pipelines.lake.lake import Lake
from pipelines.platform_jobs.job_commands import VARIABLE, command_of, read_settings
from pipelines.reports.shelf import Shelf
from pipelines.scheduler.executor import JobContext, handler
from tests.reported_lake import files_of, hour, run_of


@handler("lag-report")
def lag_report(context: JobContext) -> None:
    """From the same cut with the same numbers, from the newest with others."""
    settings = read_settings(os.environ.get(VARIABLE))
    command = command_of("lag-report", context.parameters, settings, context.fire_time)
    shelf = Shelf(Lake.at(settings.lake))
    named = shelf.named(command[command.index("--again") + 1])
    last = shelf.newest(named.report, named.window)
    assert last is not None
    before = shelf.numbers(last)
    is_newest = "--newest" in command
    numbers = replace(hour(stood_to=20), cycle=42) if is_newest else shelf.numbers(named)
    run = replace(
        run_of(named.of_window, numbers, last.number + 1, before=before), made_at=datetime.now(UTC)
    )
    shelf.add(run, files_of(shelf.folder / f"made-{context.log_id}", numbers, run))
    context.handle_success(f"made {run.name}")
