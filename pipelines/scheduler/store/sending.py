"""Routes runs to executors, marks them as SENT and stores the executors' responses.

Place in the walk: what the ring gives out comes here in batches, before anything is sent and after.

Invariant: a run is SENT, to one address, before a byte of it leaves. Ways that ask around
(fail-over, busy-over) give their addresses back as `Undecided`; the caller asks, and comes again
with what it chose. A broadcast becomes one run an address, each with a life of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database, StoreUnavailable, insert_missing
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.result_words import head_and_tail
from pipelines.scheduler.routing import Counters, Route, RouteStrategy, route
from pipelines.scheduler.run_life import CLAIM_MS, FAILED, RunEvent, RunState
from pipelines.scheduler.store import flow_life, flows
from pipelines.scheduler.store.jobs import settings_of
from pipelines.scheduler.store.passes import Claim
from pipelines.scheduler.store.registry import addresses_of
from pipelines.scheduler.store.run_rows import Ending, end_all, locked
from pipelines.scheduler.store.split_writes import in_parts
from pipelines.scheduler.store.tables import AnyRow, jobs, runs

_log = logging.getLogger(__name__)
_ASKS_AROUND: Final = (RouteStrategy.FAILOVER, RouteStrategy.BUSYOVER)


@dataclass(frozen=True, slots=True)
class Sending:
    """A run to send, now: it is written as SENT."""

    log_id: int
    token: int
    job_id: int
    address: str
    planned_ms: int
    sent_ms: int
    shard_index: int
    shard_total: int
    claim_until_ms: int
    """Until then a call must have ended: see `run_life.may_send`."""
    settings: JobSettings
    """With the parameters of this run."""
    glue_changed_ms: int


@dataclass(frozen=True, slots=True)
class Undecided:
    """A run whose executor is chosen by asking: the first of these that says yes."""

    claim: Claim
    addresses: tuple[str, ...]
    must_be_idle: bool
    """Ask whether it is idle (busy-over), or only whether it is there (fail-over)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of the claims that were given."""

    sendings: tuple[Sending, ...]
    undecided: tuple[Undecided, ...]
    refused: int
    """Runs for which no executor is there, or whose job cannot be sent."""


def begin_sending(
    database: Database,
    claims: Iterable[Claim],
    *,
    now_ms: int,
    entropy: Callable[[], int],
    chosen: Mapping[int, str | None] | None = None,
) -> Batch:
    """Write runs as SENT, each to its address. Claims that were followed are left alone. A run that
    breaks the transaction is refused, with what it broke as the reason.

    `chosen`: the address of runs that were undecided, by log_id; None: nobody said yes.
    """
    listed = list(claims)
    if not listed:
        return Batch((), (), 0)
    done, broken = in_parts(
        listed, lambda some: _begin(database, some, now_ms, entropy=entropy, chosen=chosen or {})
    )
    for claim, error in broken:
        _refuse_alone(database, claim, f"it cannot be sent: {error}", now_ms=now_ms)
    return Batch(
        tuple(sent for one in done for sent in one.sendings),
        tuple(open_one for one in done for open_one in one.undecided),
        sum(one.refused for one in done) + len(broken),
    )


def _begin(
    database: Database,
    claims: Sequence[Claim],
    now_ms: int,
    *,
    entropy: Callable[[], int],
    chosen: Mapping[int, str | None],
) -> Batch:
    by_id = {claim.log_id: claim for claim in claims}
    sendings: list[Sending] = []
    undecided: list[Undecided] = []
    endings: list[Ending] = []
    written: list[dict[str, Any]] = []
    with database.writing() as connection:
        theirs = _jobs_of(connection, claims)
        rows = [
            row
            for row in locked(connection, by_id)
            if row.state == RunState.CLAIMED.value and row.token == by_id[row.log_id].token
        ]
        there = addresses_of(connection, (job.group_id for job in theirs.values()), now_ms=now_ms)
        counters: dict[int, Counters] = {}
        for_nothing = flows.over(connection, rows)
        for row in rows:
            job = theirs.get(row.job_id)
            settings = _settings_or_end(row, job, is_over=row.log_id in for_nothing)
            if isinstance(settings, Ending):
                endings.append(settings)
                continue
            assert job is not None, "a run without a job ends"
            if settings.is_workflow:
                flow_life.begin(connection, row, settings, now_ms=now_ms)
                continue
            known = counters.get(row.job_id) or _counters(job.counters)
            found = _route(
                row,
                settings,
                there.get(job.group_id, ()),
                known,
                now_ms=now_ms,
                entropy=entropy(),
            )
            if found.counters != _counters(job.counters):
                counters[row.job_id] = found.counters
            if not found.addresses:
                endings.append(_refusal(row, "no executor of its group is there"))
            elif RouteStrategy(settings.route) in _ASKS_AROUND and row.log_id not in chosen:
                is_idle = settings.route == RouteStrategy.BUSYOVER
                undecided.append(Undecided(by_id[row.log_id], found.addresses, is_idle))
            else:
                address = chosen.get(row.log_id, found.addresses[0])
                if address is None:
                    endings.append(_refusal(row, "no executor said that it is there and ready"))
                else:
                    written.append(_as_sent(row, found, address, now_ms))
                    placed = _placed(connection, row, found, written[-1])
                    if row.parameters is not None:
                        settings = replace(settings, parameters=row.parameters)
                    sendings += _sendings((row, job, settings), placed, written[-1])
        _write(connection, written)
        _keep_counters(connection, counters)
        end_all(connection, endings, now_ms=now_ms)
    return Batch(tuple(sendings), tuple(undecided), len(endings))


def _settings_or_end(row: AnyRow, job: AnyRow | None, *, is_over: bool) -> JobSettings | Ending:
    """What a run is to do, or why it is not sent at all."""
    if is_over:
        over = "the workflow's run that it is a step of is over"
        return Ending(row, RunEvent.CANCEL, FAILED, over)
    if job is None:
        return _refusal(row, "its job was removed")
    try:
        return settings_of(job)
    except ConfigError as error:
        return _refusal(row, str(error))


def _route(
    row: AnyRow,
    settings: JobSettings,
    addresses: Sequence[str],
    counters: Counters,
    *,
    now_ms: int,
    entropy: int,
) -> Route:
    """The address of a run. A shard that is sent again stays the shard it is, wherever it goes."""
    if row.shard_total > 1 and addresses:
        return Route((addresses[row.shard_index % len(addresses)],), counters)
    found = route(
        RouteStrategy(settings.route),
        addresses,
        job_id=row.job_id,
        counters=counters,
        now_ms=now_ms,
        entropy=entropy,
    )
    is_one = row.attempt > 0 or row.sendings > 0
    return Route(found.addresses[:1], found.counters) if found.is_broadcast and is_one else found


def _as_sent(row: AnyRow, found: Route, address: str, now_ms: int) -> dict[str, Any]:
    """What a run becomes when it is written as SENT, by column; `log_id` says which run."""
    return {
        "log_id": row.log_id,
        "shard_total": len(found.addresses) if found.is_broadcast else row.shard_total,
        "state": RunState.SENT.value,
        "claim_until_ms": now_ms + CLAIM_MS,
        "sendings": row.sendings + 1,
        "sent_ms": now_ms,
        "address": found.addresses[0] if found.is_broadcast else address,
    }


def _placed(
    connection: sa.Connection, row: AnyRow, found: Route, sent: Mapping[str, Any]
) -> list[tuple[int, int, str]]:
    """The number, shard and address of the run, and of those of the other shards of a broadcast,
    which are made beside it.
    """
    placed = [(row.log_id, row.shard_index, sent["address"])]
    if found.is_broadcast and len(found.addresses) > 1:
        kept = ("job_id", "cause", "attempt", "retries_left", "parameters", "planned_ms", "due_ms",
                "token", "holder", "flow_id", "step")  # fmt: skip
        same = {name: getattr(row, name) for name in kept} | dict(sent)
        del same["log_id"]
        others = [
            same | {"shard_index": index, "address": address}
            for index, address in enumerate(found.addresses)
            if index
        ]
        made = connection.execute(
            insert_missing(connection, runs).returning(
                runs.c.log_id, runs.c.shard_index, runs.c.address
            ),
            others,
        )
        placed += [(one.log_id, one.shard_index, one.address) for one in made]
    return placed


def _sendings(
    what: tuple[AnyRow, AnyRow, JobSettings],
    placed: Iterable[tuple[int, int, str]],
    sent: Mapping[str, Any],
) -> list[Sending]:
    """A run, its job and what that is to be; where its shards go, and what was written of it."""
    row, job, settings = what
    return [
        Sending(
            log_id=log_id,
            token=row.token,
            job_id=row.job_id,
            address=address,
            planned_ms=row.planned_ms,
            sent_ms=sent["sent_ms"],
            shard_index=index,
            shard_total=sent["shard_total"],
            claim_until_ms=sent["claim_until_ms"],
            settings=settings,
            glue_changed_ms=job.glue_changed_ms,
        )
        for log_id, index, address in placed
    ]


def _write(connection: sa.Connection, written: Sequence[Mapping[str, Any]]) -> None:
    """All runs that are sent, in one call of the database."""
    if written:
        names = [name for name in written[0] if name != "log_id"]
        connection.execute(
            sa.update(runs)
            .where(runs.c.log_id == sa.bindparam("of"))
            .values({name: sa.bindparam(f"new_{name}") for name in names}),
            [
                {"of": one["log_id"]} | {f"new_{name}": one[name] for name in names}
                for one in written
            ],
        )


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How the call that sent a run ended: ACCEPT, REFUSE or LOSE_SIGHT."""

    log_id: int
    token: int
    event: RunEvent
    code: int
    message: str = ""


def note_call_ends(database: Database, ends: Iterable[CallEnd], *, now_ms: int) -> None:
    """Store how calls ended; those of a claim that was followed, or of a run that is over by now,
    change nothing.
    """
    by_id = {end.log_id: end for end in ends}

    def noted(log_ids: Sequence[int]) -> None:
        with database.writing() as connection:
            endings = []
            for row in locked(connection, log_ids):
                end = by_id[row.log_id]
                endings.append(Ending(row, end.event, end.code, end.message, token=end.token))
            end_all(connection, endings, now_ms=now_ms)

    if by_id:
        in_parts(sorted(by_id), noted)


def _refuse_alone(database: Database, claim: Claim, why: str, *, now_ms: int) -> None:
    """Refuse a run with what follows from that, or, when that breaks too, without it."""
    try:
        with database.writing() as connection:
            refusals = [_refusal(row, why) for row in locked(connection, [claim.log_id])]
            end_all(connection, refusals, now_ms=now_ms)
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001 - one row's, whatever it is
        _log.exception("run %d is refused, and nothing follows", claim.log_id)
        with database.writing() as connection:
            connection.execute(
                sa.update(runs)
                .where(runs.c.log_id == claim.log_id, runs.c.state == RunState.CLAIMED.value)
                .values(
                    state=RunState.REFUSED.value,
                    trigger_code=FAILED,
                    trigger_message=head_and_tail(why),
                    ended_ms=now_ms,
                )
            )


def _refusal(row: AnyRow, message: str) -> Ending:
    return Ending(row, RunEvent.REFUSE, FAILED, message, token=row.token)


def _jobs_of(connection: sa.Connection, claims: Sequence[Claim]) -> dict[int, AnyRow]:
    """The jobs of runs, locked in the order of their numbers, and before the runs: who plans or
    changes jobs does so too, and two that wait for each other would both be held up.
    """
    wanted = sorted({claim.job_id for claim in claims})
    found = connection.execute(
        sa.select(jobs).where(jobs.c.job_id.in_(wanted)).order_by(jobs.c.job_id).with_for_update()
    )
    return {row.job_id: row for row in found}


def _counters(text: str) -> Counters:
    """What routing remembers; nothing, when another version has written what this cannot read."""
    try:
        return Counters(**json.loads(text))
    except (ValueError, TypeError):
        return Counters()


def _keep_counters(connection: sa.Connection, counters: Mapping[int, Counters]) -> None:
    if counters:
        connection.execute(
            sa.update(jobs)
            .where(jobs.c.job_id == sa.bindparam("of"))
            .values(counters=sa.bindparam("now")),
            [{"of": of, "now": json.dumps(asdict(one))} for of, one in sorted(counters.items())],
        )
