"""Stores imported groups, jobs, users and runs, adding only new ones when repeated.

Place in the walk: after `importing`. Invariant: what was taken over once is left alone, whatever
became of it here or there. Jobs that ran there are paused here until somebody starts them: while
both run, each would run them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError, MustBe
from pipelines.database.database import Database, insert_missing, upsert
from pipelines.scheduler.diffs import changes, detail_of
from pipelines.scheduler.importing.xxl_job import (
    Remark,
    TakenGroup,
    TakenJob,
    TakenRun,
    TakenUser,
    Taking,
)
from pipelines.scheduler.passwords import NO_PASSWORD
from pipelines.scheduler.result_words import head_and_tail
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.glue import GLUE_VERSIONS_MAX, forget_glue, keep_glue
from pipelines.scheduler.store.groups import insert_group
from pipelines.scheduler.store.jobs import insert_job, start_job
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.tables import (
    glue_versions,
    job_groups,
    job_imports,
    job_users,
    jobs,
    runs,
    schedule_locks,
)

SOURCE_CHARS_MAX: Final = 64
HISTORY_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class Took:
    """One thing that was taken over, or would be."""

    kind: str
    """`group`, `job`, `user`."""
    name: str
    their_id: int
    our_id: int | None
    """None: a user, or the number is only known when it is done."""
    is_new: bool
    """False: it is here already, and is left as it is."""
    was_running: bool = False


@dataclass(frozen=True, slots=True)
class Import:
    """What an import did, or would do."""

    took: tuple[Took, ...]
    remarks: tuple[Remark, ...]


class _Importing:
    """One import within its transaction."""

    def __init__(self, connection: sa.Connection, source: str, change: Change) -> None:
        self.connection = connection
        self.source = source
        self.change = change
        self.took: list[Took] = []
        self.remarks: list[Remark] = []
        self.known = {
            kind: dict(
                connection.execute(
                    sa.select(job_imports.c.their_id, job_imports.c.our_id).where(
                        job_imports.c.source == source, job_imports.c.kind == kind
                    )
                ).all()
            )
            for kind in ("group", "job")
        }

    def remember(self, kind: str, their_id: int, our_id: int) -> None:
        self.known[kind][their_id] = our_id
        self.connection.execute(
            sa.insert(job_imports).values(
                source=self.source, kind=kind, their_id=their_id, our_id=our_id
            )
        )

    def group(self, taken: TakenGroup) -> None:
        """The group of that application, which may be here, or be another one's there too."""
        if taken.their_id in self.known["group"]:
            our_id = self.known["group"][taken.their_id]
            self.took.append(Took("group", taken.app_name, taken.their_id, our_id, is_new=False))
            return
        found = self.connection.scalar(
            sa.select(job_groups.c.group_id).where(job_groups.c.app_name == taken.app_name)
        )
        subject = f"group {taken.their_id}"
        try:
            our_id = found or self._new_group(taken)
        except ConfigError as error:
            self.remarks.append(Remark(subject, f"left out, with its jobs: {error}"))
            return
        if found is not None:
            text = f"{taken.app_name} has group {found} here: its jobs go there"
            self.remarks.append(Remark(subject, text))
        self.remember("group", taken.their_id, our_id)
        self.took.append(
            Took("group", taken.app_name, taken.their_id, our_id, is_new=found is None)
        )

    def _new_group(self, taken: TakenGroup) -> int:
        values: dict[str, Any] = {"title": taken.title, "manual_addresses": taken.manual_addresses}
        try:
            return insert_group(
                self.connection, taken.app_name, self.change, token=taken.token, **values
            )
        except ConfigError as error:
            if error.key != "access token":
                raise
            self.remarks.append(Remark(f"group {taken.their_id}", f"without its token: {error}"))
            return insert_group(self.connection, taken.app_name, self.change, **values)

    def job(self, taken: TakenJob) -> bool:
        """Whether the job is new here."""
        if taken.their_id in self.known["job"]:
            our_id = self.known["job"][taken.their_id]
            taken_over = Took("job", taken.settings.title, taken.their_id, our_id, is_new=False)
            self.took.append(taken_over)
            return False
        group_id = self.known["group"].get(taken.their_group)
        if group_id is None:
            return False
        job_id = insert_job(self.connection, group_id, taken.settings, self.change)
        if taken.glue:
            self._glue(job_id, taken)
        self.remember("job", taken.their_id, job_id)
        self.took.append(
            Took(
                "job",
                taken.settings.title,
                taken.their_id,
                job_id,
                is_new=True,
                was_running=taken.was_running,
            )
        )
        return True

    def _glue(self, job_id: int, taken: TakenJob) -> None:
        """Their versions, and what the job has now as the newest, once."""
        forget_glue(self.connection, job_id)
        kept = taken.glue[-GLUE_VERSIONS_MAX:]
        self.connection.execute(
            sa.insert(glue_versions),
            [
                {
                    "job_id": job_id,
                    "glue_type": version.glue_type,
                    "source": version.source,
                    "remark": version.remark,
                    "author": taken.settings.author,
                    "changed_ms": version.changed_ms,
                }
                for version in kept
            ],
        )
        if kept[-1].source != taken.settings.glue_source:
            keep_glue(self.connection, job_id, taken.settings, self.change, remark="imported")

    def children(self, taken: TakenJob) -> None:
        """Once all jobs have their numbers."""
        ours = [self.known["job"][one] for one in taken.children if one in self.known["job"]]
        self.connection.execute(
            sa.update(jobs)
            .where(jobs.c.job_id == self.known["job"][taken.their_id])
            .values(children=json.dumps(ours))
        )
        if ours:
            subject = f"job:{self.known['job'][taken.their_id]}"
            note(
                self.connection,
                self.change,
                "edit",
                subject,
                detail=detail_of({"children": ([], ours)}),
            )

    def user(self, taken: TakenUser, their_id: int) -> None:
        """One of that name, unless there is one: he keeps the rights that he has."""
        there = sa.select(job_users.c.name).where(job_users.c.name == taken.name)
        is_new = self.connection.scalar(there) is None
        self.took.append(Took("user", taken.name, their_id, None, is_new=is_new))
        if not is_new:
            return
        listed = {self.known["group"].get(one) for one in taken.their_groups} - {None}
        self.connection.execute(
            sa.insert(job_users).values(
                name=taken.name,
                password_hash=NO_PASSWORD,
                is_admin=taken.is_admin,
                group_ids=json.dumps(sorted(one for one in listed if one is not None)),
            )
        )
        values = {"imported": True, "is_admin": taken.is_admin}
        detail = detail_of(changes({}, values))
        note(self.connection, self.change, "add", f"user:{taken.name}", detail=detail)


def take_over(database: Database, taking: Taking, source: str, change: Change) -> Import:
    """Store what is new; at a trial of the database it has no numbers yet."""
    if not 1 <= len(source) <= SOURCE_CHARS_MAX:
        raise MustBe("source", source[:64], f"a name of 1 to {SOURCE_CHARS_MAX} characters")
    with database.writing() as connection:
        connection.execute(sa.select(schedule_locks).with_for_update())  # One after the other.
        work = _Importing(connection, source, change)
        for group in taking.groups:
            work.group(group)
        new = [job for job in taking.jobs if work.job(job)]
        for job in new:
            work.children(job)
        for number, user in enumerate(taking.users, 1):
            work.user(user, number)
        detail = detail_of(changes({}, _counted(work.took)))
        note(connection, change, "import", f"source:{source}", detail=detail)
    took = work.took
    if database.is_trial:
        took = [replace(one, our_id=None) if one.is_new else one for one in took]
    return Import(tuple(took), (*taking.remarks, *work.remarks))


def start_taken(database: Database, took: Iterable[Took], change: Change) -> list[Remark]:
    """Start the new jobs that ran there; what is to be said of those that cannot be."""
    remarks = []
    for one in took:
        if one.kind == "job" and one.is_new and one.was_running and one.our_id is not None:
            try:
                start_job(database, one.our_id, change)
            except ConfigError as error:
                remarks.append(Remark(f"job {one.their_id}", f"not started: {error}"))
    return remarks


def take_history(database: Database, taken: Iterable[TakenRun], source: str, change: Change) -> int:
    """Store runs of jobs that were taken over; how many were new. Their order is that of their
    numbers: a repeated import goes on after the last.
    """
    with database.reading() as connection:
        jobs_known: Mapping[int, int] = dict(
            connection.execute(
                sa.select(job_imports.c.their_id, job_imports.c.our_id).where(
                    job_imports.c.source == source, job_imports.c.kind == "job"
                )
            ).all()
        )
        last = connection.scalar(sa.select(job_imports.c.our_id).where(*_last_run(source)))
    count, batch = 0, []
    for run in taken:
        if run.their_job in jobs_known and run.their_id > (last or 0):
            batch.append(run)
        if len(batch) == HISTORY_BATCH:
            count += _store_history(database, batch, jobs_known, source, change=change)
            batch = []
    return count + (
        _store_history(database, batch, jobs_known, source, change=change) if batch else 0
    )


def _store_history(
    database: Database,
    batch: Sequence[TakenRun],
    jobs_known: Mapping[int, int],
    source: str,
    *,
    change: Change,
) -> int:
    rows = [
        planned_row(
            jobs_known[run.their_job],
            f"xxl:{run.their_id}",
            now_ms=run.planned_ms,
            state=run.state.value,
            sendings=1,
            shard_index=run.shard_index,
            shard_total=run.shard_total,
            parameters=run.parameters,
            address=run.address,
            sent_ms=run.planned_ms,
            ended_ms=run.ended_ms,
            trigger_code=run.trigger_code,
            trigger_message=head_and_tail(run.trigger_message),
            result_code=run.result_code,
            result_message=head_and_tail(run.result_message or "") or None,
        )
        for run in batch
    ]
    last = max(run.their_id for run in batch)
    with database.writing() as connection:
        made = connection.execute(insert_missing(connection, runs).returning(runs.c.log_id), rows)
        count = len(made.all())
        at = {"source": source, "kind": "runs", "their_id": 0, "our_id": last}
        connection.execute(upsert(connection, job_imports, at))
        change_made = {"runs": (None, count), "their_ids": (None, [batch[0].their_id, last])}
        note(connection, change, "import", f"source:{source}", detail=detail_of(change_made))
    return count


def _last_run(source: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (job_imports.c.source == source, job_imports.c.kind == "runs")


def _counted(took: Sequence[Took]) -> dict[str, int]:
    new = [one.kind for one in took if one.is_new]
    return {f"{kind}s": new.count(kind) for kind in ("group", "job", "user")}
