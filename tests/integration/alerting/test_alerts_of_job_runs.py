"""Runs of jobs that end badly go the way of alerts: each is notified once, lost apart from late."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pipelines.alerting.gold_view import Gold
from pipelines.alerting.notification_settings import TellingFile
from pipelines.alerting.outbox.claims import is_empty
from pipelines.alerting.outbox.courier import Chances, Courier
from pipelines.alerting.present_rows import job_rows
from pipelines.alerting.rule_files import SHIPPED
from pipelines.alerting.runner import Alerting
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.store.audit import Change, audit_of
from pipelines.scheduler.store.groups import add_group
from pipelines.scheduler.store.jobs import add_job, edit_job, pause_job, start_job
from pipelines.scheduler.store.passes import MISFIRES_NOTED_MAX, plan_due
from pipelines.scheduler.store.run_rows import planned_row
from pipelines.scheduler.store.tables import jobs, runs
from pipelines.scheduler.store.troubles import LATE_MS, TOLD_FOR_MS, Trouble, troubles
from pipelines.scheduler.wire.messages import DISCARDED
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.integration.client.cluster_users import eventually

NOW_MS = 1_772_366_400_000
AT = "http://10.0.0.5:9999/"
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_by = ["run"]
group_wait = "0s"
group_interval = "1s"
send_resolved = false
"""


class Room:
    """A database of jobs, and a process of alerting by a clock of ours; there is no gold yet."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.now_ms = NOW_MS
        self.ledger = ledger
        self.lake = Lake.at(str(folder / "lake"))
        self.database = Database.in_folder(folder)
        self.group = group = add_group(self.database, "reports", Change("me", NOW_MS))
        settings = JobSettings(title="lag report", handler="lag-report")
        self.job = add_job(self.database, group, settings, Change("me", NOW_MS))
        self.telling = folder / "telling.toml"
        self.telling.write_text(TELLING.format(url=ledger.url))

    def party(self) -> Alerting:
        """A process, as it is after its start."""
        now_us = lambda: self.now_ms * 1000  # noqa: E731
        chances = Chances(now_us, random.random, lambda: secrets.token_hex(16))
        return Alerting(
            Gold(self.lake, lambda at: job_rows(troubles(self.database, now_ms=at // 1000), at)),
            self.database,
            lake=self.lake.root,
            holder="one",
            rules=lambda: [SHIPPED / "jobs.toml"],
            places=TellingFile(self.telling, {}, ThreadPoolExecutor(2)),
            courier=lambda to: Courier(self.database, self.lake.root, to, chances),
            now_us=now_us,
        )

    def run(self, cause: str, state: str, **fields: Any) -> int:
        """A run that stands there; its number."""
        row = planned_row(self.job, cause, now_ms=NOW_MS - 90_000, state=state, **fields)
        with self.database.writing() as connection:
            return int(
                connection.execute(
                    sa.insert(runs).values(row).returning(runs.c.log_id)
                ).scalar_one()
            )

    def started(self, title: str, next_ms: int, **fields: Any) -> int:
        """A job that is active and due then; its number."""
        settings = JobSettings(
            title=title, handler="count", schedule_kind="FIX_RATE", schedule_text="86400", **fields
        )
        job_id = add_job(self.database, self.group, settings, Change("me", NOW_MS))
        start_job(self.database, job_id, Change("me", NOW_MS))
        with self.database.writing() as connection:
            connection.execute(
                sa.update(jobs).where(jobs.c.job_id == job_id).values(next_ms=next_ms)
            )
        return job_id

    def of_jobs(self, now_ms: int) -> list[Trouble]:
        """The troubles then that are of jobs, not of runs."""
        return [one for one in troubles(self.database, now_ms=now_ms) if one.run is None]

    async def notified(self) -> list[tuple[str, str, dict[str, str]]]:
        """Rule, run and texts of everything that the receiver was ever sent, by a new process."""
        party = self.party()
        party.look()
        until = asyncio.Event()
        running = asyncio.create_task(party.run(until))
        await eventually(lambda: is_empty(self.database, self.lake.root), "the outbox is empty")
        until.set()
        await running
        return sorted(
            (
                (one["labels"]["alertname"], one["labels"].get("run", ""), one["annotations"])
                for request in self.ledger.received
                for one in request.decoded["alerts"]
            ),
            key=lambda one: one[:2],
        )


async def test_each_run_is_notified_once_with_job_executor_and_what_was_said(
    tmp_path: Path,
) -> None:
    with receiving() as ledger:
        room = Room(tmp_path, ledger)
        ended = {"ended_ms": NOW_MS - 1_000, "address": AT}
        failed = room.run(
            "a",
            "FAILED",
            result_code=500,
            result_message="Traceback\n  in x\nLakeError: no",
            **ended,
        )
        room.run("a2", "FAILED", result_code=500, retries_left=2, **ended)
        lost = room.run("b", "LOST", result_message="its executor is gone", **ended)
        late = room.run("c", "LOST", late_code=200, late_ms=NOW_MS - 500, **ended)
        refused = room.run("d", "REFUSED", trigger_message="no executor is there", **ended)
        room.run("d2", "REFUSED", trigger_message=DISCARDED, **ended)
        room.run("d3", "REFUSED", trigger_message=f"{DISCARDED}: run 7 of it is under way", **ended)
        waits = room.run("e", "PLANNED", due_ms=NOW_MS - LATE_MS - 1)
        room.run("f", "DONE", **ended)
        soon = room.run("g", "PLANNED", due_ms=NOW_MS)
        room.run("h", "FAILED", ended_ms=NOW_MS - TOLD_FOR_MS - 1)
        notified = await room.notified()
        assert [(rule, run) for rule, run, _ in notified] == [
            ("JobFailed", str(failed)),
            ("JobFailed", str(refused)),
            ("JobLate", str(waits)),
            ("JobResultLate", str(late)),
            ("JobResultLost", str(lost)),
        ]
        texts = {run: annotations for _, run, annotations in notified}
        said = f"Run {failed} of job lag report, planned for 20"
        assert texts[str(failed)]["summary"].startswith(said)
        assert "LakeError: no" in texts[str(failed)]["description"]
        assert AT in texts[str(failed)]["first_step"]
        assert "success" in texts[str(late)]["description"]
        assert "What became of the run" in texts[str(lost)]["description"]
        room.now_ms += 600_000
        later = await room.notified()
        assert [one for one in later if one not in notified] == [
            next(one for one in later if one[:2] == ("JobLate", str(soon)))
        ]
        room.now_ms += TOLD_FOR_MS
        assert await room.notified() == later


async def test_that_no_centre_plans_is_notified_once_for_all_jobs_that_are_overdue(
    tmp_path: Path,
) -> None:
    with receiving() as ledger:
        room = Room(tmp_path, ledger)
        others = [room.started(f"job {number}", NOW_MS - number) for number in range(5)]
        longest = room.started("the nightly count", NOW_MS - 2 * LATE_MS)
        room.started("not yet", NOW_MS + 30_000)
        paused = room.started("paused", NOW_MS - 3 * LATE_MS)
        pause_job(room.database, paused, Change("me", NOW_MS))
        [one] = troubles(room.database, now_ms=NOW_MS)
        assert (one.job_id, one.run, one.since_ms) == (longest, None, NOW_MS - 2 * LATE_MS)
        assert one.evidence.startswith("1 job is overdue and not planned, the first since 20")
        room.now_ms += LATE_MS + 1
        notified = await room.notified()
        assert [one[:2] for one in notified] == [("JobsNotPlanned", "")]
        texts = notified[0][2]
        assert "the nightly count" in texts["summary"]
        assert f"{len(others) + 1} jobs are overdue" in texts["description"]
        assert "scheduler run" in texts["first_step"]
        room.now_ms += 600_000
        assert await room.notified() == notified
        plan_due(room.database, "a centre", now_ms=room.now_ms)
        assert "NOT_PLANNED" not in {one.outcome for one in room.of_jobs(room.now_ms)}


async def test_a_job_that_the_scheduler_stops_is_notified_and_one_that_is_simply_over_is_not(
    tmp_path: Path,
) -> None:
    with receiving() as ledger:
        room = Room(tmp_path, ledger)
        broken = room.started("the nightly count", NOW_MS)
        once = room.started("only once", NOW_MS)
        wanted = {
            broken: {"schedule_kind": "CRON", "schedule_text": "0 0 0 30 2 ?"},
            once: {"schedule_kind": "ONCE", "schedule_text": "2026-03-01T12:00:00Z"},
        }
        with room.database.writing() as connection:
            for job_id, schedule in wanted.items():
                connection.execute(
                    sa.update(jobs).where(jobs.c.job_id == job_id).values(**schedule)
                )
        done = plan_due(room.database, "a centre", now_ms=NOW_MS)
        assert set(done.stopped) == {broken, once}
        assert [
            (one.author, one.action)
            for job_id in (broken, once)
            for one in audit_of(room.database, f"job:{job_id}")[:1]
        ] == [("the scheduler", "stop"), ("the scheduler", "over")]
        alerts = await room.notified()
        assert [one[:2] for one in alerts] == [("JobStopped", "")]
        assert "the nightly count" in alerts[0][2]["summary"]
        assert "a day that its months have" in alerts[0][2]["description"]
        assert f"jobs start {broken}" in alerts[0][2]["first_step"]
        assert [one.outcome for one in room.of_jobs(NOW_MS + TOLD_FOR_MS - 1)] == ["STOPPED"]
        assert room.of_jobs(NOW_MS + TOLD_FOR_MS) == []
        sound = JobSettings(
            title="mended", handler="count", schedule_kind="FIX_RATE", schedule_text="86400"
        )
        edit_job(room.database, broken, sound, Change("me", NOW_MS))
        start_job(room.database, broken, Change("me", NOW_MS))
        assert room.of_jobs(NOW_MS + 1) == []


async def test_what_a_job_has_missed_is_noted_and_notified_with_what_was_done(
    tmp_path: Path,
) -> None:
    with receiving() as ledger:
        room = Room(tmp_path, ledger)
        left = room.started("the nightly count", NOW_MS - 3_600_000)
        made_up = room.started("the invoices", NOW_MS - 3_600_000, misfire="FIRE_ONCE_NOW")
        in_time = room.started("in time", NOW_MS - 1_000)
        done = plan_due(room.database, "a centre", now_ms=NOW_MS)
        assert set(done.missed) == {left, made_up}
        noted = {
            job_id: [
                (one.author, json.loads(one.detail))
                for one in audit_of(room.database, f"job:{job_id}")
                if one.action == "misfire"
            ]
            for job_id in (left, made_up, in_time)
        }
        missed = {"missed_from": "2026-03-01T11:00:00Z"}
        assert noted == {
            left: [
                (
                    "the scheduler",
                    missed | {"misfire": "DO_NOTHING", "done": "no run makes up for it"},
                )
            ],
            made_up: [
                (
                    "the scheduler",
                    missed | {"misfire": "FIRE_ONCE_NOW", "done": "one run makes up for it"},
                )
            ],
            in_time: [],
        }
        alerts = await room.notified()
        assert [one[:2] for one in alerts] == [("JobMissed", "")] * 2
        texts = " ".join(one[2]["description"] for one in alerts)
        assert "from 2026-03-01 11:00:00 UTC on; by DO_NOTHING no run makes up for it" in texts
        assert "by FIRE_ONCE_NOW one run makes up for it" in texts
        assert len(room.of_jobs(NOW_MS + TOLD_FOR_MS - 1)) == 2
        assert room.of_jobs(NOW_MS + TOLD_FOR_MS) == []


def test_after_a_standstill_misfires_are_noted_up_to_a_bound_and_the_rest_in_one(
    tmp_path: Path,
) -> None:
    with receiving() as ledger:
        room = Room(tmp_path, ledger)
        made = [
            room.started(f"job {number}", NOW_MS - 3_600_000)
            for number in range(MISFIRES_NOTED_MAX + 3)
        ]
        done = plan_due(room.database, "a centre", now_ms=NOW_MS)
        assert done.missed == tuple(made)
        found = {one.job_id: one.evidence for one in room.of_jobs(NOW_MS)}
        assert list(found) == made[: MISFIRES_NOTED_MAX + 1]
        assert [of for of, evidence in found.items() if "2 more jobs" in evidence] == [
            made[MISFIRES_NOTED_MAX]
        ]
