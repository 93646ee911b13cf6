"""Reads what a job begins: its children on success, and the steps of a workflow.

Place in the walk: below `jobs` and `run_rows`, which look for circles with it (`trigger_cycles`).
Invariant: what cannot be read begins nothing. Reads alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

import sqlalchemy as sa

from engine.foundation.errors import ConfigError
from pipelines.scheduler.store.tables import jobs
from pipelines.scheduler.trigger_cycles import Begins
from pipelines.scheduler.workflows import WORKFLOW, workflow_of

JOBS_AT_ONCE: Final = 1_000
"""In one question; a circle is looked for by as many as it takes."""


def children_of(text: str) -> tuple[int, ...]:
    """The jobs of a stored list; raises ConfigError when it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise ConfigError("children", text[:64], "a list of numbers of jobs")
    return tuple(found)


def steps_of(glue_type: str, source: str) -> tuple[int, ...]:
    """The jobs of a workflow's steps; none of another job, or of one that cannot be read."""
    if glue_type != WORKFLOW:
        return ()
    try:
        return tuple(step.job_id for step in workflow_of(source).steps)
    except ConfigError:
        return ()


def begins_in(connection: sa.Connection) -> Begins:
    """A question of many jobs at once: which do they begin?"""

    def begins(job_ids: Collection[int]) -> Mapping[int, Collection[int]]:
        wanted = sorted(job_ids)
        found: dict[int, tuple[int, ...]] = {}
        for at in range(0, len(wanted), JOBS_AT_ONCE):
            some = jobs.c.job_id.in_(wanted[at : at + JOBS_AT_ONCE])
            for row in connection.execute(sa.select(jobs.c.job_id, jobs.c.children).where(some)):
                found[row.job_id] = _children(row.children)
            sources = sa.select(jobs.c.job_id, jobs.c.glue_type, jobs.c.glue_source).where(
                some, jobs.c.glue_type == WORKFLOW
            )
            for flow in connection.execute(sources):
                found[flow.job_id] += steps_of(flow.glue_type, flow.glue_source)
        return found

    return begins


def _children(text: str) -> tuple[int, ...]:
    try:
        return children_of(text)
    except ConfigError:
        return ()
