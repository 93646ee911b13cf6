"""Runs a multi-step change, or rehearses it in a transaction that is rolled back.

The audit entries of a rehearsal are its preview.

Place in the walk: commands that make jobs, groups and users → here → the service. A preview carries
out the whole command in one transaction that is undone at its end, so it is refused as the command
would be refused, and what the audit has by then is its preview.

Invariant: a rehearsal leaves nothing behind. Absent on purpose: a second idea of what a command
changes, which could be another than what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import typer

from engine.foundation.terminal import option, with_options
from pipelines.base.command_options import (
    DatabaseOption,
    JsonOption,
    PreviewOption,
    echo_json,
    user_name,
)
from pipelines.base.wording import with_article
from pipelines.database.clock import database_ms
from pipelines.database.database import Database, opened
from pipelines.scheduler.commands.context import acting
from pipelines.scheduler.commands.output import (
    NOTHING_DONE,
    answer,
    answer_new,
    change_as_json,
    shown,
)
from pipelines.scheduler.diffs import source_diff
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store.audit import Noted, changes_in, last_noted, noted_since
from pipelines.scheduler.store.jobs import Changed

Work: TypeAlias = Callable[..., None]
_OPTIONS = (
    option("preview", PreviewOption, default=False),
    option("database", DatabaseOption, default=None),
    option("as_json", JsonOption, default=False),
)


@dataclass(frozen=True, slots=True)
class CommandService:
    """The job service of a command, and how it answers."""

    service: JobService
    is_preview: bool
    as_json: bool
    _database: Database
    _since: int

    def answer(self, outcome: Mapping[str, object], plain: str) -> None:
        """Say what was done (`plain`, or else what the audit has of it), or what would be."""
        if not self.is_preview:
            if self.as_json:
                echo_json(outcome)
            elif plain:
                typer.echo(plain)
            else:
                author = self.service.change.author  # Others may change something at the same time.
                _print_noted(one for one in self.noted() if one.author == author)
            return
        noted = self.noted()
        if self.as_json:
            echo_json({"is_done": False, "changes": [_as_json(one) for one in noted]})
            return
        _print_noted(noted)
        typer.echo(NOTHING_DONE)

    def answer_change(
        self, done: Changed, plain: str = "", *, source_lines: Iterable[str] = ()
    ) -> None:
        """The same of a job that is changed."""
        answer(
            done,
            now_ms=self.service.now_ms,
            is_preview=self.is_preview,
            as_json=self.as_json,
            plain=plain,
            source_lines=source_lines,
        )

    def answer_source(self, done: Changed, before: JobSettings) -> None:
        """The same of a source: with the lines that go and come."""
        after = done.job.settings.glue_source if done.job else ""
        lines = source_diff(before.glue_source, after)
        self.answer_change(done, source_lines=lines)

    def answer_new(self, job_id: int) -> None:
        """The same of a job that is made: with its settings, and the times that it would have."""
        job = self.service.job(job_id)
        if not self.is_preview:
            answer_new(job, as_json=self.as_json)
            return
        own = f"job:{job_id}"
        also = [one for one in self.noted() if one.subject != own]
        made = {
            name: pair
            for one in self.noted()
            if one.subject == own
            for name, pair in changes_in(one).items()
        }
        done = Changed(job_id, "add", made, (), job)
        now_ms = self.service.now_ms
        if self.as_json:  # The number is not known before the job is there.
            change = change_as_json(done, is_done=False, now_ms=now_ms)
            unnumbered = {"job_id": None, "job": change["job"] | {"job_id": None}}
            echo_json(change | unnumbered | {"also": [_as_json(one) for one in also]})
            return
        _print_noted(also)
        set_values = {name: pair for name, pair in made.items() if pair[1] not in ("", 0, None, [])}
        answer(replace(done, changes=set_values), now_ms=now_ms, is_preview=True, as_json=False)

    def noted(self) -> list[Noted]:
        """What the command has noted so far."""
        return noted_since(self._database, self._since)


def changes(app: typer.Typer, name: str) -> Callable[[Work], Work]:
    """A command that changes something, by the service that is its first argument."""

    def mounted(work: Work) -> Work:
        def run(*, preview: bool, database: str | None, as_json: bool, **given: Any) -> None:
            with command_at(database, is_preview=preview, as_json=as_json) as at:
                work(at, **given)

        app.command(name)(with_options(run, work, *_OPTIONS))
        return work

    return mounted


@contextmanager
def command_at(
    database: str | None, *, is_preview: bool, as_json: bool = False
) -> Iterator[CommandService]:
    """The job service for the user of this process; a preview undoes all that is done."""
    state = opened(database)
    try:
        with state.rehearsal() if is_preview else nullcontext(state) as at:
            service = JobService(at, acting(at, user_name()), lambda: database_ms(at))
            yield CommandService(service, is_preview, as_json, at, last_noted(at))
    finally:
        state.close()


def _print_noted(noted: Iterable[Noted]) -> None:
    for one in noted:
        typer.echo(f"{one.action} {_named(one)}")
        for name, (old, new) in changes_in(one).items():
            typer.echo(f"  {name}: {shown(old)} → {shown(new)}")


def _named(noted: Noted) -> str:
    """The name of what is new: its number is not known before it is there."""
    kind, _, number = noted.subject.partition(":")
    is_new = noted.action == "add" and number.isdigit()
    return with_article(kind) if is_new else noted.subject


def _as_json(noted: Noted) -> dict[str, Any]:
    made = {name: list(pair) for name, pair in changes_in(noted).items()}
    return {"action": noted.action, "subject": _named(noted), "changes": made}
