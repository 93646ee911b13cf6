"""Keeps the last thirty versions of each job's source, as XXL-Job does.

Invariant: the newest version is what the job has. Going back to an old one is a change like any
other: it becomes the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from engine.foundation.errors import MustBe
from pipelines.database.database import Database
from pipelines.scheduler.job_settings import BEAN, JobSettings
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.scripts import runnable
from pipelines.scheduler.store.audit import Change
from pipelines.scheduler.store.tables import glue_versions

GLUE_VERSIONS_MAX: Final = 30
"""Of one job; beyond it the oldest goes."""

REMARK_CHARS_MAX: Final = 128
"""As in XXL-Job's table."""


@dataclass(frozen=True, slots=True)
class GlueVersion:
    """A source that a job has, or had."""

    glue_id: int
    changed_ms: int
    author: str
    remark: str
    """What its author says of the change."""
    glue_type: str
    source: str
    """As it runs: a shell's that was stored before carriage returns were removed has none here."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", runnable(self.glue_type, self.source))


def glue_of(database: Database, job_id: int) -> list[GlueVersion]:
    """The sources of a job, the newest first."""
    with database.reading() as connection:
        rows = connection.execute(
            sa.select(*(glue_versions.c[name] for name in GlueVersion.__slots__))
            .where(glue_versions.c.job_id == job_id)
            .order_by(glue_versions.c.glue_id.desc())
        ).all()
    return [GlueVersion(*row) for row in rows]


def glue_version(database: Database, job_id: int, glue_id: int) -> GlueVersion:
    """One of them; raises ConfigError when the job has none of that number."""
    for version in glue_of(database, job_id):
        if version.glue_id == glue_id:
            return version
    raise no_such("version", glue_id, where=f"job {job_id}")


def keep_glue(
    connection: sa.Connection,
    job_id: int,
    settings: JobSettings,
    change: Change,
    *,
    remark: str = "",
) -> None:
    """Keep the source that a job is given now; a handler's job has none."""
    if settings.glue_type == BEAN:
        return
    if len(remark) > REMARK_CHARS_MAX:
        raise MustBe("remark", f"{remark[:32]}…", f"at most {REMARK_CHARS_MAX} characters")
    connection.execute(
        sa.insert(glue_versions).values(
            job_id=job_id,
            glue_type=settings.glue_type,
            source=settings.glue_source,
            remark=remark,
            author=change.author,
            changed_ms=change.now_ms,
        )
    )
    newest = connection.scalars(
        sa.select(glue_versions.c.glue_id)
        .where(glue_versions.c.job_id == job_id)
        .order_by(glue_versions.c.glue_id.desc())
        .limit(GLUE_VERSIONS_MAX)
    ).all()
    connection.execute(
        sa.delete(glue_versions).where(
            glue_versions.c.job_id == job_id, glue_versions.c.glue_id < newest[-1]
        )
    )


def forget_glue(connection: sa.Connection, job_id: int) -> None:
    """Forget the sources of a job that is removed."""
    connection.execute(sa.delete(glue_versions).where(glue_versions.c.job_id == job_id))
