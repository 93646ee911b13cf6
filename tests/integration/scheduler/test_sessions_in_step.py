"""Rows F1 and F7: two sessions write the same rows at one moment: both are done, or one hears
why not, and none breaks.
"""

from __future__ import annotations

import ast
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import pipelines.alerting
import pipelines.scheduler
from engine.foundation.errors import ConfigError
from pipelines.alerting.store import people as alert_people
from pipelines.database.database import Database
from pipelines.scheduler.importing.xxl_job import TakenGroup, Taking
from pipelines.scheduler.run_life import OK, RunState
from pipelines.scheduler.store import groups, imports, jobs, passes, people, registry, results
from tests.integration.scheduler.stores import (
    ADDRESSES,
    MINUTE_MS,
    NOW_MS,
    SECOND_MS,
    a_group,
    by,
    send,
    started,
)

ROUNDS = 40
TWO = 2
Work = Callable[[int, int], object]
"""What a session does in a round, by the numbers of both."""


def at(turn: int) -> int:
    return NOW_MS + turn * MINUTE_MS


def registers(database: Database) -> Work:
    return lambda turn, _: registry.beat(
        database, "app", f"http://10.0.{turn}.1:1/", now_ms=at(turn)
    )


def counts(database: Database) -> Work:
    return lambda turn, _: results.report_days(
        database, days=3, now_ms=NOW_MS + turn * results.DAY_MS
    )


def adds_a_group(database: Database) -> Work:
    return lambda turn, _: groups.add_group(database, f"app-{turn}", by())


def adds_a_user(database: Database) -> Work:
    return lambda turn, _: people.add_user(database, f"ann-{turn}", by())


def asks_by_hand(database: Database) -> Work:
    job_id = started(database, a_group(database))
    return lambda turn, _: results.run_by_hand(database, job_id, str(turn), by())


def acknowledges(database: Database) -> Work:
    def ack(turn: int, who: int) -> None:
        one = alert_people.Ack(f"{turn:064}", NOW_MS, f"ann-{who}", "seen", NOW_MS)
        alert_people.acknowledge(database, "lake", one)

    return ack


def imports_a_database(database: Database) -> Work:
    def take(turn: int, _: int) -> None:
        taking = Taking((TakenGroup(1, f"theirs-{turn}", "t", None, None),), (), (), ())
        imports.take_over(database, taking, f"source-{turn}", by())

    return take


def plans_and_sends(database: Database) -> Work:
    group_id = a_group(database)
    for each in ("20", "30", "60"):
        started(database, group_id, schedule_text=each, route="LEAST_FREQUENTLY_USED")

    def work(turn: int, who: int) -> None:
        now_ms = NOW_MS + turn * 5 * SECOND_MS
        for address in ADDRESSES:
            registry.beat(database, "lag-reports", address, now_ms=now_ms)
        claims = passes.plan_due(database, f"centre-{who}", now_ms=now_ms).claims
        claims += passes.claim_due(database, f"centre-{who}", now_ms=now_ms)
        sent = send(database, claims, now_ms).sendings
        ended = [results.Result(one.log_id, OK) for one in sent]
        results.note_results(database, ended, now_ms=now_ms)

    return work


def changes_what_another_sends(database: Database) -> Work:
    """One pauses, starts and edits jobs; the other plans and sends them."""
    sends = plans_and_sends(database)
    theirs = [job.job_id for job in jobs.jobs_after(database)]

    def work(turn: int, who: int) -> None:
        if who:
            sends(turn, who)
            return
        now = by(now_ms=NOW_MS + turn * 5 * SECOND_MS)
        for job_id in theirs:
            if turn % 2:
                jobs.pause_job(database, job_id, now)
                jobs.start_job(database, job_id, now)
            else:
                wanted = jobs.job_of(database, job_id).settings
                jobs.edit_job(database, job_id, replace(wanted, title=str(turn)), now)

    return work


@pytest.mark.parametrize(
    "begin",
    [
        registers, counts, adds_a_group, adds_a_user, asks_by_hand, acknowledges,
        imports_a_database, plans_and_sends, changes_what_another_sends,
    ],
)  # fmt: skip
def test_two_sessions_in_step_break_nothing(
    begin: Callable[[Database], Work], database: Database
) -> None:
    work = begin(database)
    in_step = threading.Barrier(TWO)

    def session(who: int) -> None:
        for turn in range(ROUNDS):
            in_step.wait(60)
            with contextlib.suppress(ConfigError):  # One of two hears that it was second.
                work(turn, who)

    with ThreadPoolExecutor(TWO) as sessions:
        for ended in [sessions.submit(session, who) for who in range(TWO)]:
            ended.result()
    for job in jobs.jobs_after(database):
        runs = results.runs_of(database, job.job_id)
        kept = [run for run in runs if run.state is not RunState.CANCELLED]
        assert len({(run.cause, run.shard_index, run.attempt) for run in kept}) == len(kept)


FENCED = {"steps.py", "judgings.py", "glue.py"}
"""Whoever writes these has the lock of one row, its lead's or the job's."""


def test_no_row_is_deleted_and_inserted_anew() -> None:
    """Two that find nothing to delete both insert: such a row is upserted."""
    found = [
        f"{path.name}: {name}"
        for package in (pipelines.alerting, pipelines.scheduler)
        for path in sorted(Path(package.__path__[0]).rglob("*.py"))
        if path.name not in FENCED
        for name in deleted_and_inserted(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def deleted_and_inserted(tree: ast.Module) -> Iterator[str]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        tables: dict[str, set[str]] = {"delete": set(), "insert": set()}
        for call in ast.walk(function):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("sa"), attr="delete" | "insert" as what),
                    args=[ast.Name(table), *_],
                ):
                    tables[what].add(table)
        if tables["delete"] & tables["insert"]:
            yield function.name


def test_the_law_sees_what_it_is_about() -> None:
    text = "def kept():\n    run(sa.delete(acks).where(x))\n    run(sa.insert(acks).values(y))\n"
    assert list(deleted_and_inserted(ast.parse(text))) == ["kept"]
