"""The notebook of a lag report, run by papermill with Spark over gold, into files that are kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from dashboards.page_context import PageContext
from dashboards.pages import report
from dashboards.reads.lake_data import LakeData
from dashboards.url_state import report_file_path, report_path
from dashboards.web.app import build
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import CONSUMER_LAG, GROUP_STATE
from pipelines.reports.commands import app
from pipelines.reports.making import From, Wish, make
from pipelines.reports.numbers import Verdict
from pipelines.reports.shelf import PAGE_FILE, PAPER_FILE, ReportRun, Shelf
from pipelines.reports.windows import Period, Window
from tests.gold_lake import write_gold_lake
from tests.lake_story import BROKER, CLUSTER, EMITTER, END, append_rows, at, complete_cycle

WINDOW = Window(
    Period.CUSTOM,
    datetime(2026, 3, 1, 12, 7, 30, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 15, tzinfo=UTC),
)
LATE = f"{CLUSTER}/broker-b/0"

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    lake = write_gold_lake(tmp_path_factory.mktemp("reported") / "lake")
    return Shelf(Lake.at(lake.root))


@pytest.fixture(scope="module")
def wish(tmp_path_factory: pytest.TempPathFactory) -> Wish:
    objectives = tmp_path_factory.mktemp("settings") / "objectives.toml"
    objectives.write_text('[default]\nlag = "30s"\n')
    return Wish(WINDOW, objectives=str(objectives), pages="https://tidemark.example")


@pytest.fixture(scope="module")
def made(shelf: Shelf, wish: Wish) -> ReportRun:
    run, is_new = make(shelf, wish)
    assert is_new
    return run


def test_spark_and_the_notebook_find_what_the_story_wrote(shelf: Shelf, made: ReportRun) -> None:
    numbers = shelf.numbers(made)
    shipping, ledger, billing = numbers.groups
    assert (shipping.group, shipping.verdict, shipping.course) == (
        "shipping",
        Verdict.MISSED,
        "wbbbbbbb",
    )
    assert (shipping.worst_ms, shipping.end_ms, shipping.lag_max) == (394_000, 394_000, 3_164)
    assert (shipping.share_percent, shipping.share_before_percent) == (12.5, 75.0)
    assert (ledger.verdict, ledger.within_s) == (Verdict.UNCLEAR, 0), "one queue has no offset"
    assert billing.verdict is Verdict.KEPT
    (frozen,) = numbers.stalls
    assert (frozen.kind, frozen.stood_s, frozen.open_at_end) == ("FROZEN_HEAD", 378, 1)
    crash = next(one for one in numbers.duplicates if one.cause == "BROKER_CRASH")
    assert (crash.windows, crash.passed, crash.redelivered) == (4, 4, 0)
    assert [one.missing_rows for one in numbers.emitters] == [0]
    assert [one.expectation for one in numbers.checks if one.failed_runs] == ["offsets_known"]
    assert made.headline.startswith("1 of 3 groups missed the objective, shipping most")


def test_the_page_stands_alone_and_is_printed(shelf: Shelf, made: ReportRun) -> None:
    page = shelf.file(made, PAGE_FILE).read_text(encoding="utf-8")
    assert "<script" not in page
    assert " src=" not in page
    assert made.headline.split(",")[0] in page
    assert "https://tidemark.example/group/shipping?" in page
    assert made.no_paper == ""
    assert shelf.file(made, PAPER_FILE).read_bytes().startswith(b"%PDF")


def test_a_report_that_is_there_is_listed_opened_and_not_made_again(
    shelf: Shelf, wish: Wish, made: ReportRun
) -> None:
    assert make(shelf, wish) == (made, False)
    command = CliRunner()
    listed = command.invoke(app, ["reports", "list", "--lake", shelf.lake.root, "--json"])
    (listed_run,) = json.loads(listed.stdout)
    assert listed_run["name"] == made.name == "lag-custom/20260301T120730Z-450s/1"
    assert listed_run["files"] == ["numbers.json", "report.html", "report.ipynb", "report.pdf"]
    opened = command.invoke(app, ["reports", "open", "lag-custom", "--lake", shelf.lake.root])
    assert Path(opened.stdout.strip()) == shelf.place(made) / PAGE_FILE


async def test_the_dashboard_shows_it_as_it_was_made(shelf: Shelf, made: ReportRun) -> None:
    application: Any = build(shelf.lake)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=application), base_url="http://localhost"
    ) as web:
        answer = await web.get(report_file_path(made.name, PAGE_FILE))
    assert answer.content == shelf.file(made, PAGE_FILE).read_bytes()
    assert "sandbox" in answer.headers["content-security-policy"]
    found = report.content(
        PageContext(LakeData(shelf.lake), lambda: END), report_path(made.name), "?cluster="
    )
    outputs = {element: value for (element, _), value in zip(report.OUTPUTS, found, strict=True)}
    assert outputs["report-headline"] == made.headline
    assert outputs["report-groups-note"] == "3 groups"


@pytest.mark.slow
def test_the_same_cut_gives_the_same_numbers_and_late_data_is_marked(
    shelf: Shelf, wish: Wish, made: ReportRun
) -> None:
    write_late_rows(shelf.lake)
    again, is_new = make(shelf, Wish(WINDOW, From.RECORDED, objectives=wish.objectives))
    assert is_new
    assert (again.number, again.cut, again.digest) == (2, made.cut, made.digest)
    assert again.revised == ""
    assert [one.expectation for one in shelf.numbers(again).checks if one.failed_runs]
    newest, _ = make(shelf, Wish(WINDOW, From.NEWEST, objectives=wish.objectives))
    assert newest.digest != made.digest
    assert newest.revised.startswith("Revised: run 2 of this report was made at cycle 1")
    assert newest.revised in shelf.file(newest, PAGE_FILE).read_text(encoding="utf-8")
    late = next(one for one in shelf.numbers(newest).groups if one.group == "late")
    assert late.verdict is Verdict.MISSED
    compared = CliRunner().invoke(
        app,
        ["reports", "compare", newest.name, again.name, "--lake", shelf.lake.root, "--json"],
    )
    assert "groups" in {one["part"] for one in json.loads(compared.stdout)["differences"]}


def write_late_rows(lake: Lake) -> None:
    """A broker that was cut off reports a group late; outcomes of checks are dropped, as when their
    days are over; then gold is merged and vacuumed."""
    common = {"cluster": CLUSTER, "broker": BROKER, "emitter": LATE, "group": "late"}
    lags = [
        {
            **common, "observed_at": at(t), "observed_date": at(t).date(), "topic": "orders",
            "queue_id": 0, "lag_messages": 100, "time_lag_ms": 90_000, "provenance": "EXACT",
            "min_offset": 0, "max_offset": 100, "seq": t,
        }
        for t in range(1, 901)
    ]  # fmt: skip
    states = [
        {
            **common, "observed_at": at(30), "observed_date": at(30).date(), "state": "STALLED",
            "reason": "late", "queues": 1, "queues_known": 1, "queues_not_ok": 1, "seq": 30,
        }
    ]  # fmt: skip
    append_rows(lake.gold("consumer_lag"), CONSUMER_LAG.columns, lags, "observed_date")
    append_rows(lake.gold("group_state"), GROUP_STATE.columns, states, "observed_date")
    complete_cycle(lake, {EMITTER: (END, 10**9), LATE: (END, 900)})
    for name in ("dq_results", "dq_failures"):  # Kept for 90 days; weekly reports for 1,200.
        DeltaTable(lake.gold(name)).delete()
    names = ("consumer_lag", "group_state", "stalled_windows", "emitter_health", "dq_results")
    for name in names:
        table = DeltaTable(lake.gold(name))
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
