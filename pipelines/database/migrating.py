"""Migrates an empty or outdated database to the current schema.

Place in the walk: `database` comes here when what it opened is not of this version. Invariant: all
steps run on the connection, and in the transaction, that are given. Absent on purpose: a way back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from pipelines.database.database import StoreTooNew
from pipelines.database.migrations import VERSIONS

STEPS: Final = Path(__file__).parent / "migrations"


def migrate(connection: sa.Connection) -> None:
    """Bring the tables to this version. Raises StoreTooNew for those of a later one."""
    config = Config(attributes={"connection": connection, "version_table": VERSIONS})
    config.set_main_option("script_location", str(STEPS).replace("%", "%%"))
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    there = MigrationContext.configure(connection, opts={"version_table": VERSIONS})
    unknown = sorted(set(there.get_current_heads()) - known)
    if unknown:
        raise StoreTooNew(
            f"the database has tables of a later version ({', '.join(unknown)}): update Tidemark, "
            "or name another database"
        )
    command.upgrade(config, "head")
