"""Shared context for scheduler commands: the acting user, the job service and options.

Who asks is the user of the operating system: his name is in the audit, and the rights of the user
of that name hold. Before there is an administrator, whoever has the database is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.foundation.errors import MustBe
from pipelines.base.command_options import user_name

if TYPE_CHECKING:
    from pipelines.database.database import Database
    from pipelines.scheduler.roles import Actor
    from pipelines.scheduler.service import JobService
    from pipelines.scheduler.xxl_settings import Keys

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="XXL-Job's .properties file; environment and flags count before it."
    ),
]
JobArgument = Annotated[int, typer.Argument(help="The number of the job.")]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(help="NAME=VALUE, by our names or XXL-Job's, as handler=… executorTimeout=60."),
]
FILE_BYTES_MAX = 4 * 1024 * 1024


@contextmanager
def opened_service(database: str | None) -> Iterator[JobService]:
    """The job service for the user of this process."""
    from pipelines.database.clock import database_ms
    from pipelines.database.database import opened
    from pipelines.scheduler.service import JobService

    state = opened(database)
    try:
        yield JobService(state, acting(state, user_name()), lambda: database_ms(state))
    finally:
        state.close()


def acting(state: Database, name: str) -> Actor:
    """The user who asks, with his rights: none, when there are users and he is none of them."""
    from pipelines.scheduler.roles import Actor
    from pipelines.scheduler.store.people import actor_of, has_administrator

    if not has_administrator(state):
        return Actor(name, is_admin=True)
    return actor_of(state, name) or Actor(name)


def text_of(file: Path) -> str:
    """The text of a file, or of the standard input for `-`, with its line ends and without a
    byte-order mark; raises ConfigError.
    """
    try:
        if str(file) == "-":
            found = typer.get_binary_stream("stdin").read(FILE_BYTES_MAX + 1)
        else:
            with file.open("rb") as opened:
                found = opened.read(FILE_BYTES_MAX + 1)
        if len(found) > FILE_BYTES_MAX:
            raise MustBe("file", str(file), f"at most {FILE_BYTES_MAX:,} bytes")
        return found.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MustBe("file", str(file), f"a readable text in UTF-8 ({error})") from error


def settings_from_xxl(file: Path | None, keys: Keys, given: Mapping[str, object]) -> dict[str, Any]:
    """The settings of XXL-Job's file, overridden by environment and flags (None: not given). A
    setting that means nothing here is named on standard error.
    """
    from pipelines.scheduler.xxl_settings import settings_of

    values, warnings = settings_of(file, keys)
    for warning in warnings:
        typer.echo(f"tidemark: {warning}", err=True)
    return values | {name: value for name, value in given.items() if value is not None}


def moment(moment_ms: int | None) -> str:
    """A moment in UTC."""
    if moment_ms is None:
        return "none"
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
