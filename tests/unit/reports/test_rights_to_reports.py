"""Who may have reports made, sent and tidied by command, and what the audit has of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from pipelines.base.command_options import user_name
from pipelines.database.database import Database
from pipelines.database.tables import notices
from pipelines.lake.lake import Lake
from pipelines.reports.commands import app
from pipelines.reports.shelf import PAGE_FILE, Shelf
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import groups, jobs, people, results
from pipelines.scheduler.store.audit import Change, Noted, audit_of
from pipelines.scheduler.store.tables import runs
from tests.unit.reports.test_digest_and_sending import RECEIVERS
from tests.unit.reports.test_shelf import RUN, folder_with_numbers

BY = Change("ann", 5)


@dataclass(frozen=True, slots=True)
class World:
    """A report whose days are over, and a database."""

    folder: Path
    shelf: Shelf
    database: Database

    def ask(self, *words: str, code: int = 0) -> str:
        options = ["--lake", self.shelf.lake.root, "--database", self._address]
        done = CliRunner().invoke(app, ["reports", *words, *options])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output.strip() or str(done.exception)

    @property
    def _address(self) -> str:
        return f"sqlite:///{self.folder / 'tidemark.db'}"

    @property
    def receivers(self) -> tuple[str, str]:
        return "--receivers", str(self.folder / "receivers.toml")

    @property
    def has_page(self) -> bool:
        return (self.shelf.place(RUN) / PAGE_FILE).exists()

    @property
    def waiting(self) -> int:
        with self.database.reading() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(notices)) or 0

    def noted(self) -> list[Noted]:
        return [one for one in audit_of(self.database) if one.subject.startswith("report")]

    def has_administrator(self) -> None:
        people.add_user(self.database, "ann", BY, is_admin=True)

    def run_of(self, handler: str) -> int:
        group_id = groups.add_group(self.database, f"of {handler}"[:60], BY)
        job_id = jobs.add_job(
            self.database, group_id, JobSettings(title="tidy", handler=handler), BY
        )
        return results.run_by_hand(self.database, job_id, handler, BY)

    def end(self, log_id: int) -> None:
        with self.database.writing() as connection:
            connection.execute(
                sa.update(runs).where(runs.c.log_id == log_id).values(state=RunState.DONE)
            )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    shelf = Shelf(Lake.at(str(tmp_path / "lake")))
    made = folder_with_numbers(tmp_path / "made")
    (made / PAGE_FILE).write_text("a page")
    shelf.add(RUN, made)
    (tmp_path / "receivers.toml").write_text(RECEIVERS)
    database = Database.at(f"sqlite:///{tmp_path / 'tidemark.db'}")
    yield World(tmp_path, shelf, database)
    database.close()


CHANGES = {
    "run": ("run",),
    "again": ("run", "--again", RUN.name),
    "send": ("send", RUN.name, "team"),
    "tidy": ("tidy",),
    "digest": ("digest", "--send", "team"),
}


def test_without_an_administrator_whoever_has_the_database_changes_reports_and_is_noted(
    world: World,
) -> None:
    said = world.ask("send", RUN.name, "team", *world.receivers)
    assert said == f"{RUN.name} waits to be sent to 1 of 1; the others have it"
    assert world.ask("tidy") == "removed the files of 1 report"
    assert world.ask("tidy") == "removed the files of 0 reports"
    world.ask("digest", "--send", "team", *world.receivers)
    assert (world.waiting, world.has_page) == (2, False)
    tidied, sent = world.noted()
    assert (sent.author, sent.action, sent.subject) == (user_name(), "send", f"report:{RUN.name}")
    assert sent.detail == "to team; 1 of 1 had not been sent it"
    assert (tidied.author, tidied.action, tidied.subject) == (user_name(), "tidy", "reports")
    assert tidied.detail == f"files of {RUN.name}, of {world.shelf.lake.root}"
    assert [one.action for one in audit_of(world.database)] == ["send", "tidy", "send"]


@pytest.mark.parametrize("change", CHANGES)
def test_who_has_no_right_to_the_jobs_that_make_reports_changes_none(
    world: World, change: str
) -> None:
    world.has_administrator()
    people.add_user(world.database, user_name(), BY)
    receivers = world.receivers if change in {"send", "digest"} else ()
    said = world.ask(*CHANGES[change], *receivers, code=1)
    assert said == f"{user_name()} may not change the jobs"
    assert (world.waiting, world.has_page, world.noted()) == (0, True, [])


def test_who_may_change_the_jobs_of_tidemark_changes_reports(world: World) -> None:
    world.has_administrator()
    group_id = groups.add_group(world.database, "tidemark", BY)
    people.add_user(world.database, user_name(), BY, group_ids=[group_id])
    assert world.ask("tidy") == "removed the files of 1 report"
    assert [one.author for one in world.noted()] == [user_name()]


def test_looking_at_reports_asks_for_no_right(world: World) -> None:
    world.has_administrator()
    options = ["--lake", world.shelf.lake.root]
    for words in (["list"], ["show", RUN.name], ["compare", RUN.name, RUN.name], ["digest"]):
        done = CliRunner().invoke(app, ["reports", *words, *options])
        assert done.exit_code == 0, done.output


def test_a_run_of_our_own_jobs_vouches_for_its_command_while_it_is_under_way(world: World) -> None:
    world.has_administrator()
    log_id = world.run_of("retention")
    assert world.ask("tidy", "--for-run", str(log_id)) == "removed the files of 1 report"
    assert [one.author for one in world.noted()] == [f"run {log_id}"]
    world.end(log_id)
    for vouching in (log_id, world.run_of("another"), 999):
        said = world.ask("tidy", "--for-run", str(vouching), code=1)
        assert said == f"{user_name()} may not change the jobs"


def test_a_preview_says_what_would_be_sent_and_removed_and_does_nothing(world: World) -> None:
    sent = world.ask("send", RUN.name, "team", *world.receivers, "--preview").splitlines()
    assert sent[0] == f"{RUN.name} would wait to be sent to 1 of 1; the others have it"
    tidied = world.ask("tidy", "--preview").splitlines()
    assert tidied[:2] == [
        f"files of {RUN.name}, but for its numbers", "would remove the files of 1 report"
    ]  # fmt: skip
    assert sent[-1] == tidied[-1] == "Nothing was changed: without --preview it is done."
    assert (world.waiting, world.has_page, audit_of(world.database)) == (0, True, [])
    world.has_administrator()
    assert "may not change the jobs" in world.ask("tidy", "--preview", code=1)
