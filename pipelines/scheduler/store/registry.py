"""Registry of executors, which send a heartbeat every 30 s and expire after 90 s of silence.

Invariant: what was said last counts; a clock of another centre that runs ahead makes an executor
live longer, never shorter. Absent on purpose: requests to them, and whether one may be asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from engine.foundation.errors import MustBe
from pipelines.database.database import Database, upsert
from pipelines.scheduler.run_life import OUTSIDE
from pipelines.scheduler.store.tables import executors, job_groups, jobs, runs

BEAT_MS: Final = 30_000
GONE_MS: Final = 90_000
"""XXL-Job's figures."""

EXECUTORS_MAX: Final = 1_000
"""Of one application; who registers beyond it is refused."""

assert 2 * BEAT_MS < GONE_MS, "an executor may miss a beat"


@dataclass(frozen=True, slots=True)
class Registered:
    """An executor that the centres know."""

    app_name: str
    address: str
    seen_ms: int | None
    """When it said last that it is there; None: it was written by hand, and says nothing."""
    is_gone: bool
    """It has not said so for GONE_MS, and is no longer asked."""


def known(database: Database, *, now_ms: int) -> list[Registered]:
    """The executors that have registered and are not forgotten yet, and those written by hand, by
    application and address.
    """
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(executors.c.app_name, executors.c.address, executors.c.seen_ms)
        ).all()
        manual = connection.execute(
            sa.select(job_groups.c.app_name, job_groups.c.manual_addresses).where(
                job_groups.c.manual_addresses.is_not(None)
            )
        ).all()
    found = [
        Registered(app_name, address, seen_ms, seen_ms <= now_ms - GONE_MS)
        for app_name, address, seen_ms in rows
    ]
    for app_name, addresses in manual:
        found += [Registered(app_name, one, None, False) for one in json.loads(addresses)]
    return sorted(found, key=lambda one: (one.app_name, one.address, one.seen_ms is None))


def beat(database: Database, app_name: str, address: str, *, now_ms: int) -> None:
    """An executor says that it is there; raises ConfigError when there are too many of its kind."""
    is_it = (executors.c.app_name == app_name) & (executors.c.address == address)
    with database.writing() as connection:
        seen = sa.case((executors.c.seen_ms > now_ms, executors.c.seen_ms), else_=now_ms)
        if connection.execute(sa.update(executors).where(is_it).values(seen_ms=seen)).rowcount:
            return
        count = connection.scalar(
            sa.select(sa.func.count())
            .select_from(executors)
            .where(executors.c.app_name == app_name)
        )
        if (count or 0) >= EXECUTORS_MAX:
            raise MustBe("executor", address, f"at most {EXECUTORS_MAX:,} of {app_name}")
        new = {"app_name": app_name, "address": address, "seen_ms": now_ms}
        connection.execute(upsert(connection, executors, new))


def leave(database: Database, app_name: str, address: str) -> None:
    """An executor says that it goes."""
    with database.writing() as connection:
        connection.execute(
            sa.delete(executors).where(
                executors.c.app_name == app_name, executors.c.address == address
            )
        )


def forget_silent(database: Database, *, now_ms: int) -> int:
    """Forget who has not said for GONE_MS that it is there; how many."""
    with database.writing() as connection:
        return connection.execute(
            sa.delete(executors).where(executors.c.seen_ms <= now_ms - GONE_MS)
        ).rowcount


def registered(database: Database, *, now_ms: int) -> dict[str, tuple[str, ...]]:
    """The addresses that are there, in order, by application."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(executors.c.app_name, executors.c.address)
            .where(executors.c.seen_ms > now_ms - GONE_MS)
            .order_by(executors.c.app_name, executors.c.address)
        ).all()
    found: dict[str, list[str]] = {}
    for app_name, address in rows:
        found.setdefault(app_name, []).append(address)
    return {app_name: tuple(addresses) for app_name, addresses in found.items()}


def addresses_of(
    connection: sa.Connection, group_ids: Iterable[int], *, now_ms: int
) -> dict[int, tuple[str, ...]]:
    """Where the executors of each group are: as written by hand, else as registered, in order."""
    wanted = sorted(set(group_ids))
    found: dict[int, tuple[str, ...]] = {}
    apps: dict[str, int] = {}
    for row in connection.execute(sa.select(job_groups).where(job_groups.c.group_id.in_(wanted))):
        if row.manual_addresses is None:
            apps[row.app_name] = row.group_id
            found[row.group_id] = ()
        else:
            found[row.group_id] = addresses_in(row.manual_addresses)
    there = connection.execute(
        sa.select(executors.c.app_name, executors.c.address)
        .where(executors.c.app_name.in_(list(apps)), executors.c.seen_ms > now_ms - GONE_MS)
        .order_by(executors.c.app_name, executors.c.address)
    )
    for app_name, address in there:
        found[apps[app_name]] += (address,)
    return found


def is_of_another(database: Database, app_name: str, address: str, *, now_ms: int) -> bool:
    """Is an executor of another application there at this address?"""
    with database.reading() as connection:
        other = connection.scalar(
            sa.select(executors.c.app_name)
            .where(
                executors.c.address == address,
                executors.c.app_name != app_name,
                executors.c.seen_ms > now_ms - GONE_MS,
            )
            .limit(1)
        )
        manual = connection.execute(
            sa.select(job_groups.c.app_name, job_groups.c.manual_addresses).where(
                job_groups.c.app_name != app_name, job_groups.c.manual_addresses.is_not(None)
            )
        ).all()
    return other is not None or any(address in addresses_in(row.manual_addresses) for row in manual)


def apps_by_address(database: Database) -> dict[str, str]:
    """Whose executor is at each address that a centre may ask: one that has a run, that has
    registered, or that was written by hand; the last of these counts.
    """
    found: dict[str, str] = {}
    with database.reading() as connection:
        has_run = (
            sa.select(runs.c.address, job_groups.c.app_name)
            .join(jobs, jobs.c.job_id == runs.c.job_id)
            .join(job_groups, job_groups.c.group_id == jobs.c.group_id)
            .where(runs.c.state.in_([state.value for state in OUTSIDE]))
            .distinct()
        )
        found.update((row.address, row.app_name) for row in connection.execute(has_run))
        there = connection.execute(sa.select(executors.c.address, executors.c.app_name))
        found.update((row.address, row.app_name) for row in there)
        manual = connection.execute(
            sa.select(job_groups).where(job_groups.c.manual_addresses.is_not(None))
        )
        for row in manual:
            found.update((one, row.app_name) for one in addresses_in(row.manual_addresses))
    return found


def everybody(database: Database, *, now_ms: int) -> frozenset[str]:
    """All addresses of executors that are there: registered, or written by hand."""
    with database.reading() as connection:
        seen = connection.scalars(
            sa.select(executors.c.address).where(executors.c.seen_ms > now_ms - GONE_MS)
        ).all()
        manual = connection.scalars(
            sa.select(job_groups.c.manual_addresses).where(
                job_groups.c.manual_addresses.is_not(None)
            )
        ).all()
    return frozenset(seen) | {address for text in manual for address in addresses_in(text)}


def addresses_in(text: str) -> tuple[str, ...]:
    """The addresses that a group was given by hand; none when the list cannot be read: its runs are
    refused for that, and all others go on."""
    try:
        listed = json.loads(text)
    except ValueError:
        return ()
    is_list = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    return tuple(listed) if is_list else ()
