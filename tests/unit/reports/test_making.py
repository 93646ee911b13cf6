"""What becomes of a report where something is missing: a browser, a cycle, a cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.reports.commands import app
from pipelines.reports.making import BROWSER, From, Wish, _cut, make, printed, said_by
from pipelines.reports.numbers import as_json
from pipelines.reports.rights import changing
from pipelines.reports.sending import post
from pipelines.reports.shelf import NUMBERS_FILE, Shelf
from tests.lake_of_days import Size, write_lake_of_days
from tests.unit.reports.gathered import HOUR
from tests.unit.reports.test_shelf import NUMBERS, RUN, folder_with_numbers


def test_without_a_browser_there_is_no_pdf_and_one_sentence_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>well</p>")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(BROWSER, raising=False)
    said = printed(page, tmp_path / "report.pdf")
    assert said.startswith("no PDF: there is no Chromium here")
    monkeypatch.setenv(BROWSER, str(tmp_path / "gone"))
    assert "did not print (FileNotFoundError)" in printed(page, tmp_path / "report.pdf")


def test_a_lake_without_a_complete_cycle_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"no cycle of .* is complete yet"):
        make(Shelf(Lake.at(str(tmp_path))), Wish(HOUR))
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("numbers", ["gone", "broken", "others"])
def test_a_cut_of_which_gold_and_numbers_are_gone_is_refused_with_the_command_that_computes_it(
    tmp_path: Path, numbers: str
) -> None:
    lake = write_lake_of_days(tmp_path / "lake", Size(days=1, groups=1, queues=1))
    shelf = Shelf(lake)
    shelf.add(RUN, folder_with_numbers(shelf.folder / "made"))
    file = shelf.place(RUN) / NUMBERS_FILE
    match numbers:
        case "gone":
            file.unlink()
        case "broken":
            file.write_bytes(file.read_bytes()[:-9])
        case "others":
            file.write_bytes(as_json(replace(NUMBERS, headline="all was well, always")))
    with pytest.raises(
        LakeError,
        match=r"cycle 7 of run run .* pipeline replay .* --cycle 7 .* no numbers of this cut",
    ):
        make(shelf, Wish(HOUR, From.RECORDED))
    assert [one.number for one in shelf.runs()] == [1]


def test_a_run_that_is_named_is_made_again_from_its_own_cut_and_numbers_not_the_newest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DATABASE", f"sqlite:///{tmp_path / 'tidemark.db'}")
    lake = write_lake_of_days(tmp_path / "lake", Size(days=1, groups=1, queues=1))
    shelf = Shelf(lake)
    for run in (RUN, replace(RUN, number=2), replace(RUN, number=3, cycle=8)):
        shelf.add(run, folder_with_numbers(shelf.folder / "made"))
    for named, cycle, number in (
        (f"{RUN.report}/{RUN.window}/1", 7, 1),
        (f"{RUN.report}/{RUN.window}/2", 7, 2),
        (f"{RUN.report}/{RUN.window}", 8, 3),
    ):
        command = ["reports", "run", "--lake", lake.root, "--again", named, "--preview", "--json"]
        printed = json.loads(CliRunner().invoke(app, command).stdout)
        assert (printed["cycle"], printed["is_done"]) == (cycle, False)
        assert printed["rebuilt_from"] == f"{RUN.report}/{RUN.window}/{number}"
        assert printed["name"] == f"{RUN.report}/{RUN.window}/4"
    assert len(shelf.runs()) == 3
    newest = _cut(shelf, Wish(HOUR, From.NEWEST, recorded=RUN.cut), shelf.named(RUN.name))
    assert newest.run_id != RUN.run_id


def test_what_was_made_is_listed_compared_and_posted_once(tmp_path: Path) -> None:
    shelf = Shelf(Lake.at(str(tmp_path / "lake")))
    shelf.add(RUN, folder_with_numbers(tmp_path / "made"))
    command, lake = CliRunner(), ["--lake", shelf.lake.root]
    listed = command.invoke(app, ["reports", "list", *lake])
    assert listed.stdout == f"{RUN.name}  all ? is well\n"
    same = command.invoke(app, ["reports", "compare", RUN.name, RUN.name, *lake])
    assert "have the same numbers" in same.stdout
    shown = json.loads(command.invoke(app, ["reports", "show", RUN.name, *lake, "--json"]).stdout)
    assert shown["numbers"]["groups"][0]["group"] == "orders"
    run = shelf.named(RUN.name)
    with changing(f"sqlite:///{tmp_path / 'tidemark.db'}") as by:
        assert post(shelf, run, ["team", "boss"], by.change, database=by.database) == 2
        assert post(shelf, run, ["team", "boss"], by.change, database=by.database) == 0


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (
            "Exception encountered\nLakeError: gold is gone: restore it\n\tat java.Thread.run",
            "gold is gone: restore it",
        ),
        ("a.b.LakeError: one\n\x1b[31mValueError\x1b[0m: two\n", "ValueError: two"),
        ("nothing that is an error\nthe end", "the end"),
        ("", ""),
    ],
    ids=["frames of Java behind it", "another's error", "no error", "nothing"],
)
def test_of_a_cell_that_fails_its_sentence_is_shown(sentence: str, said: str) -> None:
    assert said_by(sentence) == said
