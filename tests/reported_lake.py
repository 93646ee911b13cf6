"""A lake with reports: the story's gold, and rows and files of `tidemark reports run`.

The product's code makes numbers and pages from Spark's rows; only these rows are written by hand
here, since Spark is slow and has tests of its own (`tests/notebooks`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.alerting.objectives import Objective, Objectives
from pipelines.reports import page
from pipelines.reports.comparing import revised
from pipelines.reports.lag_report import lag_report
from pipelines.reports.numbers import Numbers, Verdict, as_json
from pipelines.reports.page import document
from pipelines.reports.shelf import (
    NOTEBOOK_FILE,
    NUMBERS_FILE,
    PAGE_FILE,
    PAPER_FILE,
    ReportRun,
    Shelf,
)
from pipelines.reports.windows import Period, Window
from tests.gold_lake import write_gold_lake
from tests.unit.reports.gathered import BEGIN, HOUR, at, course, gathered, risk, stall

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
PREVIOUS = Window(Period.HOURLY, BEGIN - timedelta(hours=1), BEGIN)
DAY = Window(
    Period.DAILY, datetime(2026, 2, 28, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC), "UTC"
)
MADE = BEGIN + timedelta(hours=1, minutes=5)
PAPER = b"%PDF-1.4\n%%EOF\n"
OBJECTIVES = Objectives(Objective(60_000, 99.0))


@dataclass(frozen=True, slots=True)
class Reported:
    """The lake's reports, by what there is of them."""

    shelf: Shelf
    previous: ReportRun
    first: ReportRun
    second: ReportRun
    """About the same hour as the first one, from a later cycle."""
    day: ReportRun
    """Without PDF."""
    gone: ReportRun
    """Its files were tidied."""


def hour_before() -> Numbers:
    """All is well, but for a dead letter and a crash."""
    rows = [course(name, [5] * 60, first=-60) for name in ("shipping", "ledger", "billing")]
    crash = risk("ledger", at(-50), "CONFIRMED", redelivered_messages=14)
    return lag_report(
        gathered(*rows, window=PREVIOUS, risks=[crash], violations=laws(2)), OBJECTIVES, lake="lake"
    )


def hour(*, stood_to: int = 58, others: Sequence[str] = ()) -> Numbers:
    """Shipping stands still from its eighth minute on; `others` are well."""
    behind = [5] * 8 + [60 * n for n in range(1, 53)]
    rows = [
        course("shipping", behind),
        course("ledger", [5] * 30 + [90] * 10 + [None] * 5 + [5] * 15),
        *(course(name, [5] * 60) for name in ("billing", *others)),
        *(course(name, [5] * 60, first=-60) for name in ("shipping", "ledger", "billing")),
    ]
    stalls = [stall("shipping", at(8), at(stood_to)), stall("ledger", at(30), at(40), "DEAD_QUEUE")]
    risks = [risk("ledger", at(35), "PASSED"), risk("shipping", at(9), "POSSIBLE")]
    dead = [
        {"is_now": True, "cluster": "Prod", "group": "billing", "topic": "orders",
         "reason": "retries exhausted", "letters": 3},
    ]  # fmt: skip
    found = gathered(*rows, stalls=stalls, risks=risks, dead=dead, violations=laws(0))
    return lag_report(found, OBJECTIVES, lake="lake")


def laws(broken: int) -> list[dict[str, object]]:
    """Broken laws of offsets."""
    return [
        {"is_now": True, "cluster": "Prod", "group": "shipping", "violations": broken,
         "unaccounted": 0},
    ]  # fmt: skip


def write_reports(
    root: Path, *, hostile: bool = False, pages: str = "", paper: bytes = PAPER
) -> Reported:
    """Reports in a lake below `root`."""
    shelf = Shelf(write_gold_lake(root))
    others = (HOSTILE, "../../etc/passwd") if hostile else ()

    def add(
        window: Window, numbers: Numbers, number: int = 1, *, before: Numbers | None = None,
        cycle: int = 7, **given: object,
    ) -> ReportRun:  # fmt: skip
        numbers = replace(numbers, cycle=cycle)
        run = run_of(window, numbers, number, before=before)
        run = replace(run, **given)  # type: ignore[arg-type]
        shelf.add(run, files_of(root / "made", numbers, run, pages=pages, paper=paper))
        return run

    previous = add(PREVIOUS, hour_before())
    early, late = hour(stood_to=40, others=others), hour(others=others)
    first = add(HOUR, early)
    second = add(HOUR, late, 2, before=early, cycle=9, made_at=MADE + timedelta(hours=3))
    day_numbers = replace(
        late, period="daily", begin_us=int(DAY.begin.timestamp() * 1e6),
        end_us=int(DAY.end.timestamp() * 1e6), title=str(DAY),
    )  # fmt: skip
    day = add(DAY, day_numbers, no_paper="no PDF: there is no Chromium here")
    gone = add(
        Window(Period.HOURLY, BEGIN - timedelta(hours=300), BEGIN - timedelta(hours=299)),
        hour_before(),
    )
    shutil.rmtree(shelf.place(gone))
    return Reported(shelf, previous, first, second, day, gone)


def run_of(
    window: Window, numbers: Numbers, number: int = 1, *, before: Numbers | None = None
) -> ReportRun:
    """The row of a run."""
    return ReportRun(
        report=f"lag-{window.period.value}",
        window=window.name,
        number=number,
        period=window.period.value,
        begin=window.begin,
        end=window.end,
        zone=window.zone,
        run_id=numbers.run_id,
        cycle=numbers.cycle,
        told_at_us=numbers.told_at_us,
        digest=numbers.digest,
        headline=numbers.headline,
        groups=len(numbers.groups),
        missed=numbers.count(Verdict.MISSED),
        unclear=numbers.count(Verdict.UNCLEAR),
        revised="" if before is None else revised(before, numbers, number),
        no_paper="",
        made_at=MADE,
        took_ms=54_000,
    )


def files_of(
    place: Path, numbers: Numbers, run: ReportRun, *, pages: str = "", paper: bytes = PAPER
) -> Path:
    """Its files, in a folder to be taken."""
    place.mkdir(parents=True)
    pieces = [
        page.top(numbers, revised=run.revised),
        page.news(numbers),
        page.groups(numbers, pages=pages),
        *(
            piece(numbers)
            for piece in (
                page.stalls, page.duplicates, page.dead_letters, page.retention, page.quality
            )
        ),
        page.others(numbers, pages=pages),
        page.origin(numbers),
    ]  # fmt: skip
    html = document(f"Lag report: {numbers.title}", pieces)
    (place / PAGE_FILE).write_text(html, encoding="utf-8", errors="replace")
    (place / NUMBERS_FILE).write_bytes(as_json(numbers))
    (place / NOTEBOOK_FILE).write_text(json.dumps({"cells": [], "nbformat": 4}))
    if not run.no_paper:
        (place / PAPER_FILE).write_bytes(paper)
    return place
