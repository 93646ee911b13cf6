"""Reports that were made: listed, found by name, kept for their days."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from engine.foundation.errors import ConfigError, LakeError
from pipelines.alerting.objectives import Objectives
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import REPORTS
from pipelines.reports.lag_report import lag_report
from pipelines.reports.numbers import as_json
from pipelines.reports.shelf import DAYS_KEPT, NUMBERS_FILE, PAGE_FILE, ReportRun, Shelf
from pipelines.reports.windows import Period
from tests.unit.reports.gathered import HOUR, course, gathered

NUMBERS = lag_report(gathered(course("orders", [5] * 60)), Objectives(), lake="l")
RUN = ReportRun(
    report="lag-hourly",
    window=HOUR.name,
    number=1,
    period="hourly",
    begin=HOUR.begin,
    end=HOUR.end,
    zone="UTC",
    run_id="run",
    cycle=7,
    told_at_us=5,
    digest=NUMBERS.digest,
    headline="all \ud800 is well",
    groups=1,
    missed=0,
    unclear=0,
    revised="",
    no_paper="",
    made_at=datetime(2026, 3, 1, 13, 5, tzinfo=UTC),
    took_ms=40,
)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    shelf = Shelf(Lake.at(str(tmp_path_factory.mktemp("shelf"))))
    later = replace(RUN, begin=HOUR.end, end=HOUR.end + timedelta(hours=1), window="later")
    for run in (RUN, replace(RUN, number=2, revised="Revised: one figure."), later):
        shelf.add(run, folder_with_numbers(shelf.folder / "made"))
    return shelf


def folder_with_numbers(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / NUMBERS_FILE).write_bytes(as_json(NUMBERS))
    return place


def test_the_newest_period_comes_first_and_of_it_the_newest_run(shelf: Shelf) -> None:
    assert [(one.window, one.number) for one in shelf.runs()] == [
        ("later", 1),
        (HOUR.name, 2),
        (HOUR.name, 1),
    ]
    assert shelf.runs()[-1] == replace(RUN, headline="all ? is well")


def test_a_run_is_found_by_as_much_of_its_name_as_is_given(shelf: Shelf) -> None:
    assert shelf.named("lag-hourly").window == "later"
    assert shelf.named(f"lag-hourly/{HOUR.name}").number == 2
    assert shelf.named(f"lag-hourly/{HOUR.name}/1").number == 1
    for wrong in ("lag-daily", f"lag-hourly/{HOUR.name}/3", "lag-hourly/x' OR '1'='1"):
        with pytest.raises(ConfigError, match="reports list"):
            shelf.named(wrong)
    assert shelf.numbers(shelf.named("lag-hourly")) == NUMBERS


def test_files_go_after_their_days_but_the_numbers_and_the_row_says_how_they_are_made_again(
    tmp_path: Path,
) -> None:
    shelf = Shelf(Lake.at(str(tmp_path)))
    made = folder_with_numbers(tmp_path / "made")
    (made / PAGE_FILE).write_text("a page")
    shelf.add(RUN, made)
    days = timedelta(days=DAYS_KEPT[Period.HOURLY])
    assert shelf.tidy(RUN.made_at + days) == 0
    assert [one.name for one in shelf.outdated(RUN.made_at + 2 * days)] == [RUN.name]
    assert shelf.tidy(RUN.made_at + days + timedelta(seconds=1)) == 1
    assert shelf.tidy(RUN.made_at + 2 * days) == 0
    (left,) = shelf.runs()
    with pytest.raises(LakeError, match=r"kept for 14 days; .* --again lag-hourly/"):
        shelf.file(left, PAGE_FILE)
    assert shelf.kept_numbers(left) == NUMBERS


def test_files_go_however_many_reports_of_later_periods_there_are(
    tmp_path: Path,
) -> None:
    shelf = Shelf(Lake.at(str(tmp_path)))
    old = replace(RUN, report="lag-daily", period="daily", end=HOUR.end - timedelta(days=500))
    for run, days in ((old, 500), (RUN, 0)):
        made = folder_with_numbers(tmp_path / "made")
        (made / PAGE_FILE).write_text("a page")
        shelf.add(replace(run, made_at=RUN.made_at - timedelta(days=days)), made)
    assert [one.report for one in shelf.outdated(RUN.made_at)] == ["lag-daily"]


def test_numbers_that_are_not_those_of_the_row_are_none(tmp_path: Path) -> None:
    shelf = Shelf(Lake.at(str(tmp_path)))
    run = replace(RUN, digest="of other numbers")
    shelf.add(run, folder_with_numbers(tmp_path / "made"))
    assert shelf.numbers(run) == NUMBERS
    assert shelf.kept_numbers(run) is None


def test_a_table_of_before_rebuilt_reports_were_marked_is_read_and_written(
    tmp_path: Path,
) -> None:
    shelf = Shelf(Lake.at(str(tmp_path)))
    shelf.add(RUN, folder_with_numbers(tmp_path / "made"))
    address = shelf.lake.gold(REPORTS.name)
    older = DeltaTable(address).to_pyarrow_table().drop_columns(["rebuilt"])
    shutil.rmtree(address)
    write_deltalake(address, older, partition_by=["observed_date"])
    assert [one.rebuilt for one in shelf.runs()] == [""]
    assert shelf.listed(text="FROM rows_of") == ([], 0)
    run = replace(RUN, number=2, rebuilt="Rebuilt from the numbers kept on a day.")
    shelf.add(run, folder_with_numbers(tmp_path / "made"))
    assert [one.rebuilt for one in shelf.runs()] == [run.rebuilt, ""]


def test_a_lake_without_reports_has_none(tmp_path: Path) -> None:
    assert Shelf(Lake.at(str(tmp_path))).runs() == []
    assert Shelf(Lake.at(str(tmp_path))).listed() == ([], 0)


def test_a_page_of_the_list_is_some_of_it_and_counts_all(shelf: Shelf) -> None:
    whole = shelf.runs()
    assert shelf.listed() == (whole, 3)
    assert shelf.listed(skip=1, most=1) == (whole[1:2], 3)
    assert shelf.listed(skip=9) == ([], 3)
    assert shelf.listed(period="daily") == ([], 0)
    assert shelf.listed(period="hourly") == (whole, 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LATER/", 1), (f"{HOUR.name}/2", 1), ("is well", 3), ("%", 0), ("_", 0),
        ("' OR '1'='1", 0), ("\\", 0), ("lag-hourly", 3),
    ],
)  # fmt: skip
def test_a_report_is_found_by_what_its_name_or_sentence_holds(
    shelf: Shelf, text: str, found: int
) -> None:
    runs, counted = shelf.listed(text=text)
    assert (len(runs), counted) == (found, found)
