"""Stores run results, finds runs in doubt and deletes old runs.

Place in the walk: after `sending`. A result is stored before its executor gets the answer that it
was received; one that is reported again changes nothing. Each centre counts the log's days and
deletes old runs: two that do it at once do it twice, and nothing is wrong.

Invariant: a result that comes for a run which counts as lost is noted beside it, with its moment:
late is distinct from lost. Absent on purpose: requests. `doubtful` says which runs to ask about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from engine.foundation.errors import MustBe, TidemarkError
from pipelines.database.database import Database, upsert
from pipelines.scheduler.job_settings import PARAMETERS_CHARS_MAX
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.result_words import head_and_tail
from pipelines.scheduler.run_life import FAILED, OK, OUTSIDE, QUIET_MS, RunEvent, RunState
from pipelines.scheduler.store.audit import Change, note
from pipelines.scheduler.store.run_rows import Ending, end_all, locked, planned_row
from pipelines.scheduler.store.split_writes import in_parts
from pipelines.scheduler.store.tables import AnyRow, flow_runs, job_groups, jobs, run_reports, runs

UNHEARD_MS: Final = 30_000
"""How long after sending it an executor is asked about a run that it took."""

DOUBTFUL_MAX: Final = 500
"""Runs that one look gives out; the longest in doubt first."""

FORGET_BATCH: Final = 2_000
SHOWN_MAX: Final = 1_000

UNCLEAR: Final = (RunState.SENT, RunState.UNKNOWN)
TAKEN: Final = (RunState.ACCEPTED, RunState.RUNNING)
_OUTSIDE: Final = tuple(state.value for state in OUTSIDE)
_DONE: Final = (RunState.DONE.value,)
_FAILED: Final = (RunState.FAILED.value, RunState.LOST.value, RunState.REFUSED.value)
DAY_MS: Final = 86_400_000
LOG_DAYS: Final = 30
"""How long ended runs are stored by default; XXL-Job's figure."""
LOG_DAYS_MIN: Final = 3
"""Fewer means: for ever. As in XXL-Job."""
REPORTED_DAYS: Final = 3
"""Days that may change still: today, and those before it of which results come late."""
REPORTS_SHOWN_MAX: Final = 1_000


class NotTheirs(TidemarkError):
    """Somebody reported results of runs that belong to another application."""

    def __init__(self, log_ids: Iterable[int]) -> None:
        shown = ", ".join(map(str, sorted(log_ids)[:10]))
        super().__init__(f"the access token is another executor's than that of the runs {shown}")


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended, by its executor."""

    log_id: int
    code: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Results that one sender reported at once."""

    results: Sequence[Result]
    may_report: Callable[[str], bool] = lambda _: True
    """Whether the sender may report for an application."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A run that was sent, and of which nothing was heard for a while."""

    log_id: int
    job_id: int
    address: str
    state: RunState
    sent_ms: int
    planned_ms: int
    claim_until_ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is shown."""

    log_id: int
    job_id: int
    cause: str
    state: RunState
    planned_ms: int
    attempt: int
    shard_index: int
    shard_total: int
    address: str | None
    sent_ms: int | None
    trigger_code: int | None
    trigger_message: str | None
    ended_ms: int | None
    result_code: int | None
    result_message: str | None
    late_code: int | None


def note_results(database: Database, results: Sequence[Result], *, now_ms: int) -> int:
    """Store results; how many of them ended a run. The first that comes for a run counts."""
    ended, _ = _noted(database, [Delivery(results)], now_ms=now_ms)
    return ended


def note_deliveries(
    database: Database, deliveries: Sequence[Delivery], *, now_ms: int
) -> list[frozenset[int]]:
    """Store what several senders report; return, for each, the runs that are not theirs, of which
    nothing is stored. The first permitted report of a run counts.
    """
    return _noted(database, deliveries, now_ms=now_ms)[1]


def _noted(
    database: Database, deliveries: Sequence[Delivery], *, now_ms: int
) -> tuple[int, list[frozenset[int]]]:
    reported = [
        Reported(sender, delivery.may_report, result)
        for sender, delivery in enumerate(deliveries)
        for result in delivery.results
    ]
    foreign: list[set[int]] = [set() for _ in deliveries]
    ended = 0
    if reported:
        done, broken = in_parts(reported, lambda some: _note(database, some, now_ms=now_ms))
        for one in done:
            ended += one.ended
            for sender, log_id in one.foreign:
                foreign[sender].add(log_id)
        for lone, _ in broken:
            # One that cannot be stored even so is left: its executor is asked, and it counts as
            # lost. Refusing it would hold up all that is reported with it, again and again.
            in_parts([lone.result], lambda one: _end_alone(database, one[0], now_ms=now_ms))
    return ended, [frozenset(one) for one in foreign]


@dataclass(frozen=True, slots=True)
class Reported:
    """One result, and who reported it."""

    sender: int
    may_report: Callable[[str], bool]
    result: Result


@dataclass(frozen=True, slots=True)
class _Noted:
    """What became of some results."""

    ended: int
    foreign: tuple[tuple[int, int], ...]
    """Sender and run of the results that it had no right to report."""


def _note(database: Database, reported: Sequence[Reported], *, now_ms: int) -> _Noted:
    by_id: dict[int, list[Reported]] = {}
    for one in reported:
        by_id.setdefault(one.result.log_id, []).append(one)
    foreign: list[tuple[int, int]] = []
    late: list[dict[str, int]] = []
    endings = []
    with database.writing() as connection:
        rows = locked(connection, by_id)
        app_of = _apps_of(connection, rows)
        for row in rows:
            app = app_of.get(row.job_id)
            own = []
            for one in by_id[row.log_id]:
                if app is None or one.may_report(app):
                    own.append(one.result)
                else:
                    foreign.append((one.sender, row.log_id))
            if not own or row.address is None:
                continue  # What was sent nowhere, as a workflow's run, has no result to report.
            first = own[0]
            if row.state == RunState.LOST.value and row.late_code is None:
                late.append({"of": row.log_id, "code": first.code})
            event = RunEvent.SUCCEED if first.code == OK else RunEvent.FAIL
            endings.append(Ending(row, event, first.code, first.message))
        if late:
            connection.execute(
                sa.update(runs)
                .where(runs.c.log_id == sa.bindparam("of"))
                .values(late_code=sa.bindparam("code"), late_ms=now_ms),
                late,
            )
        ended = len(end_all(connection, endings, now_ms=now_ms))
    return _Noted(ended, tuple(foreign))


def _end_alone(database: Database, result: Result, *, now_ms: int) -> None:
    """End a run by its result, and nothing more: what was to follow is what cannot be done. If the
    result were refused, it would be reported again for ever."""
    with database.writing() as connection:
        connection.execute(
            sa.update(runs)
            .where(runs.c.log_id == result.log_id, runs.c.state.in_(_OUTSIDE))
            .values(
                state=(RunState.DONE if result.code == OK else RunState.FAILED).value,
                result_code=result.code,
                result_message=head_and_tail(result.message),
                ended_ms=now_ms,
            )
        )


def _apps_of(connection: sa.Connection, rows: Sequence[AnyRow]) -> dict[int, str]:
    """The application of each job. A removed job has none: anybody may report its runs, as nothing
    follows from that.
    """
    return {
        row.job_id: row.app_name
        for row in connection.execute(
            sa.select(jobs.c.job_id, job_groups.c.app_name)
            .join(job_groups, job_groups.c.group_id == jobs.c.group_id)
            .where(jobs.c.job_id.in_(sorted({row.job_id for row in rows})))
        )
    }


def doubtful(database: Database, *, now_ms: int) -> tuple[Doubt, ...]:
    """The runs of which nobody knows what came of them: sent under a claim that is over, and no
    answer; the longest in doubt first, DOUBTFUL_MAX at most.
    """
    is_quiet = runs.c.claim_until_ms + QUIET_MS <= now_ms
    return _doubts(database, UNCLEAR, is_quiet, runs.c.sent_ms)


def unheard(database: Database, *, after: int, now_ms: int) -> tuple[Doubt, ...]:
    """The runs that an executor took more than UNHEARD_MS ago and that have no result; long ones
    are among them. By number, those beyond `after`, DOUBTFUL_MAX at most: a caller goes round.
    """
    is_next = (runs.c.sent_ms <= now_ms - UNHEARD_MS) & (runs.c.log_id > after)
    return _doubts(database, TAKEN, is_next, runs.c.log_id)


def _doubts(
    database: Database,
    states: Sequence[RunState],
    is_meant: sa.ColumnElement[bool],
    order: sa.Column[int],
) -> tuple[Doubt, ...]:
    columns = tuple(runs.c[name] for name in Doubt.__slots__)
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(*columns)
            .where(
                runs.c.state.in_([state.value for state in states]),
                runs.c.address.is_not(None),
                runs.c.sent_ms.is_not(None),
                is_meant,
            )
            .order_by(order, runs.c.log_id)
            .limit(DOUBTFUL_MAX)
        ).all()
    return tuple(
        Doubt(**{**dict(row._mapping), "state": RunState(row.state)})  # noqa: SLF001 - its public way
        for row in rows
    )


def note_findings(
    database: Database, findings: Mapping[int, tuple[RunEvent, str]], *, now_ms: int
) -> int:
    """Store what was found out about doubtful runs: LOSE_SIGHT, SEE, MISS, BEREAVE or GIVE_UP, and
    why; how many of them ended or went on.
    """

    def noted(log_ids: Sequence[int]) -> int:
        with database.writing() as connection:
            endings = [
                Ending(row, findings[row.log_id][0], FAILED, findings[row.log_id][1])
                for row in locked(connection, log_ids)
            ]
            return len(end_all(connection, endings, now_ms=now_ms))

    done, _ = in_parts(sorted(findings), noted)
    return sum(done)


def run_by_hand(
    database: Database, job_id: int, run_key: str, change: Change, *, parameters: str | None = None
) -> int:
    """Have a job run once, now, whether it is active or not; the number of the run. The same key
    gives the same run: who does not know whether it was heard may ask again.
    """
    if len(run_key) > 48 or not run_key.isascii():
        raise MustBe("run_key", run_key, "at most 48 letters of ASCII")
    if parameters is not None and len(parameters) > PARAMETERS_CHARS_MAX:
        raise MustBe("parameters", f"{parameters[:32]}…", f"at most {PARAMETERS_CHARS_MAX:,}")
    cause = f"hand:{run_key}"
    try:
        with database.writing() as connection:
            retries = connection.scalar(sa.select(jobs.c.retries).where(jobs.c.job_id == job_id))
            if retries is None:
                raise no_such("job", job_id)
            new = planned_row(
                job_id, cause, now_ms=change.now_ms, retries_left=retries, parameters=parameters
            )
            log_id: int = connection.execute(
                sa.insert(runs).values(new).returning(runs.c.log_id)
            ).scalar_one()
            with_these = "" if parameters is None else f" with {parameters[:256]}"
            note(connection, change, "run", f"job:{job_id}", detail=f"run {log_id}{with_these}")
            return log_id
    except IntegrityError:
        with database.reading() as connection:
            of_that_key = sa.select(runs.c.log_id).where(
                runs.c.job_id == job_id, runs.c.cause == cause, runs.c.attempt == 0
            )
            return int(connection.execute(of_that_key).scalar_one())


def runs_of(
    database: Database, job_id: int, *, before: int | None = None, state: RunState | None = None
) -> list[Run]:
    """The runs of a job, the newest first, SHOWN_MAX at most; those before a number, and of one
    state, if given.
    """
    wanted = sa.select(*RUN_COLUMNS).where(runs.c.job_id == job_id)
    if before is not None:
        wanted = wanted.where(runs.c.log_id < before)
    if state is not None:
        wanted = wanted.where(runs.c.state == state.value)
    with database.reading() as connection:
        rows = connection.execute(wanted.order_by(runs.c.log_id.desc()).limit(SHOWN_MAX)).all()
    return [run_from(row) for row in rows]


def run_of(database: Database, log_id: int) -> Run:
    """A run; raises ConfigError when there is none of that number."""
    with database.reading() as connection:
        row = connection.execute(
            sa.select(*RUN_COLUMNS).where(runs.c.log_id == log_id)
        ).one_or_none()
    if row is None:
        raise no_such("run", log_id)
    return run_from(row)


def report(database: Database, day: str, *, from_ms: int, to_ms: int) -> tuple[int, int, int]:
    """Count the runs of a day anew and keep that: open, done, and failed, refused or lost."""
    with database.reading() as connection:
        counted = connection.execute(
            sa.select(runs.c.state, sa.func.count())
            .where(runs.c.planned_ms >= from_ms, runs.c.planned_ms < to_ms)
            .group_by(runs.c.state)
        ).all()
    counts: dict[str, int] = {row[0]: row[1] for row in counted}
    done = sum(counts.get(state, 0) for state in _DONE)
    failed = sum(counts.get(state, 0) for state in _FAILED)
    cancelled = counts.get(RunState.CANCELLED.value, 0)
    open_count = sum(counts.values()) - done - failed - cancelled
    with database.writing() as connection:
        columns = {"open_count": open_count, "done_count": done, "failed_count": failed}
        connection.execute(upsert(connection, run_reports, {"day": day, **columns}))
    return open_count, done, failed


def forget(database: Database, *, before_ms: int) -> int:
    """Forget runs that were planned before a moment and have ended, but for steps of workflows that
    have not; FORGET_BATCH at most. How many went.
    """
    with database.writing() as connection:
        old = (
            sa.select(runs.c.log_id)
            .where(runs.c.planned_ms < before_ms, runs.c.ended_ms.is_not(None), ~_is_needed)
            .order_by(runs.c.planned_ms)
            .limit(FORGET_BATCH)
        )
        gone = connection.scalars(old).all()
        connection.execute(sa.delete(runs).where(runs.c.log_id.in_(gone)))
        connection.execute(sa.delete(flow_runs).where(flow_runs.c.log_id.in_(gone)))
    return len(gone)


_flow = runs.alias()
_is_needed: Final = sa.exists().where(_flow.c.log_id == runs.c.flow_id, _flow.c.ended_ms.is_(None))
"""A step of a workflow that is not over: what has begun is known from the rows."""

RUN_COLUMNS: Final = tuple(runs.c[name] for name in Run.__slots__)


def run_from(row: AnyRow) -> Run:
    """The run of a row with RUN_COLUMNS."""
    values = {name: getattr(row, name) for name in Run.__slots__}
    return Run(**values | {"state": RunState(row.state)})


@dataclass(frozen=True, slots=True)
class DayReport:
    """How the runs of one UTC day stand."""

    day: str
    open_count: int
    done_count: int
    failed_count: int


def forget_batch(database: Database, *, log_days: int, now_ms: int) -> bool:
    """Forget runs that were planned more than so many days ago and have ended; is there more?"""
    if log_days < LOG_DAYS_MIN:
        return False
    return forget(database, before_ms=now_ms - log_days * DAY_MS) >= FORGET_BATCH


def report_days(database: Database, *, days: int, now_ms: int) -> None:
    """Count the runs of the last days anew, today's first."""
    today_ms = now_ms // DAY_MS * DAY_MS
    for from_ms in range(today_ms, today_ms - days * DAY_MS, -DAY_MS):
        day = datetime.fromtimestamp(from_ms / 1000, UTC).date().isoformat()
        report(database, day, from_ms=from_ms, to_ms=from_ms + DAY_MS)


def reports(database: Database, *, days: int = LOG_DAYS) -> list[DayReport]:
    """The last days that were counted, the newest first."""
    newest = sa.select(run_reports).order_by(run_reports.c.day.desc())
    with database.reading() as connection:
        rows = connection.execute(newest.limit(min(days, REPORTS_SHOWN_MAX))).all()
    return [DayReport(row.day, row.open_count, row.done_count, row.failed_count) for row in rows]
