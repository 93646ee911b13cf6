"""A report made again when gold of its cut is gone: by the notebook, from the numbers it kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.base.command_options import user_name
from pipelines.database.database import Database
from pipelines.reading.moment import last_complete
from pipelines.reports.commands import app
from pipelines.reports.shelf import NOTEBOOK_FILE, PAGE_FILE, Shelf
from pipelines.scheduler.store.audit import audit_of
from tests.lake_of_days import Size, write_lake_of_days
from tests.unit.reports.test_shelf import NUMBERS, RUN, folder_with_numbers

pytestmark = pytest.mark.timeout(300)
SAID = "Rebuilt from the numbers kept on 01 March 2026 13:05 UTC"


def test_after_gold_was_computed_anew_the_same_cut_has_the_numbers_that_were_kept(
    tmp_path: Path,
) -> None:
    lake = write_lake_of_days(tmp_path / "lake", Size(days=1, groups=1, queues=1))
    gold = last_complete(lake)
    assert gold is not None
    assert gold.run_id != RUN.run_id
    shelf = Shelf(lake)
    shelf.add(RUN, folder_with_numbers(shelf.folder / "made"))
    address = f"sqlite:///{tmp_path / 'tidemark.db'}"

    def again(name: str) -> str:
        command = ["reports", "run", "--lake", lake.root, "--again", name, "--json"]
        done = CliRunner().invoke(app, [*command, "--database", address])
        assert done.exit_code == 0, (done.output, done.exception)
        return str(json.loads(done.stdout)["name"])

    second = shelf.named(again(RUN.name))
    assert (second.number, second.cut, second.digest) == (2, RUN.cut, RUN.digest)
    assert (shelf.numbers(second), second.revised) == (NUMBERS, "")
    assert second.rebuilt.startswith(SAID)
    assert [one.rebuilt for one in shelf.runs() if one.number == 1] == [""]
    listed = CliRunner().invoke(app, ["reports", "list", "--lake", lake.root]).stdout.splitlines()
    assert [line.split("  ")[0] for line in listed] == [f"{second.name} (rebuilt)", RUN.name]
    assert SAID in shelf.file(second, PAGE_FILE).read_text(encoding="utf-8")
    assert shelf.file(second, NOTEBOOK_FILE).exists()
    shutil.rmtree(shelf.place(RUN))
    third = shelf.named(again(RUN.name))
    assert (third.number, third.digest) == (3, RUN.digest)
    database = Database.at(address)
    newest, oldest = audit_of(database)
    database.close()
    assert [(one.author, one.action) for one in (newest, oldest)] == [(user_name(), "make")] * 2
    assert newest.subject == f"report:{third.name}"
    assert newest.detail.endswith(f", from the numbers of run 2; numbers {RUN.digest}")
