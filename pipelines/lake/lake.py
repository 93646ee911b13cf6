"""Locates and reads a lake's tables without Spark.

Place in the walk: the shipper fills <lake>/bronze, the marts <lake>/gold, cycles <lake>/state;
every reader that is not a mart goes through here. Invariant: a table that is absent is either an
error with one sentence or, where nothing was ever reported, an empty table of the declared schema;
never a half-read one. Absent on purpose: Spark, and writing of gold.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import BRONZE_FOLDER, LAKE_SCHEMES, Column
from pipelines.lake.schemas import arrow_schema

if TYPE_CHECKING:  # It loads pandas, a sixth of what a short command takes to begin.
    from pyarrow.dataset import FileSystemDataset

GOLD_FOLDER: Final = "gold"
STATE_FOLDER: Final = "state"
"""A lake is a folder or object-store prefix: <lake>/bronze/<table>, <lake>/gold/<table>,
<lake>/state/<table>.
"""
DATA_DOCS_FOLDER: Final = "data_docs"
"""Of a local lake: Great Expectations' pages about the newest run of checks."""

BEGUN_ANEW: Final = {
    "dq_results": "the next `tidemark check` begins it anew, without earlier runs",
    "dq_failures": "the next `tidemark check` begins it anew, without earlier runs",
    "alerts": "`tidemark alerts run` begins it anew, without what was before",
    "reports": "`tidemark reports run` begins it anew; files of reports stay",
}
"""Gold tables that no cycle computes: what happens when one is moved away."""

STORAGE_VARIABLES: Final = ("AWS_",)
"""Environment variables with these beginnings are handed to the object store client, as its own
tools read them.
"""


TRACEBACK: Final = "Traceback (most recent call last):"
OUR_CLASS: Final = re.compile(r"^(?:engine|pipelines|expectations)(?:\.\w+)+: ")
"""How Python begins the last line of a trace of an error whose text is a sentence already."""


@dataclass(frozen=True, slots=True)
class Lake:
    """One lake: a root address and how to reach it."""

    root: str
    """A path, or a URI without a trailing slash."""
    storage_options: dict[str, str] = field(default_factory=dict)
    """For the object store; empty for local files."""

    @staticmethod
    def at(address: str) -> Lake:
        """The lake at a path, a file URI or an s3 URI. Raises ConfigError for anything else."""
        parts = urlparse(address)
        if not address.strip():
            raise ConfigError("lake", address, "a path, file:///... or s3://...")
        if parts.scheme in ("", "file"):
            path = unquote(parts.path) if parts.scheme else address
            return Lake(os.path.abspath(path))  # noqa: PTH100 - must stay a plain string for URIs
        if parts.scheme not in LAKE_SCHEMES:
            raise ConfigError("lake", address, f"a path or one of {', '.join(LAKE_SCHEMES)}")
        options = {
            name: value for name, value in os.environ.items() if name.startswith(STORAGE_VARIABLES)
        }
        return Lake(address.rstrip("/"), options)

    def bronze(self, table: str) -> str:
        """Address of a bronze table."""
        return f"{self.root}/{BRONZE_FOLDER}/{table}"

    def gold(self, table: str) -> str:
        """Address of a gold table."""
        return f"{self.root}/{GOLD_FOLDER}/{table}"

    def state(self, table: str) -> str:
        """Address of a table of the pipelines' own state."""
        return f"{self.root}/{STATE_FOLDER}/{table}"

    def demand_folder(self) -> None:
        """Raise LakeError when its folder is not there: who reads a lake makes none, or a slip of
        the pen in an address would leave a folder. In an object store there are no folders.
        """
        if "://" not in self.root and not os.path.isdir(self.root):  # noqa: PTH112 - as it is kept
            raise LakeError(
                f"there is no lake at {self.root}: start an engine with it (`tidemark engine "
                f"--lake {self.root} ...`), or name another one"
            )

    def exists(self, address: str) -> bool:
        """Is there a Delta table at `address`?"""
        if "://" not in self.root and _is_table_on_disk(Path(address) / "_delta_log"):
            return True
        return DeltaTable.is_deltatable(address, storage_options=self.storage_options or None)

    def table(self, address: str) -> DeltaTable:
        """Open a Delta table. Raises LakeError that says what is wrong and what to do."""
        try:
            return DeltaTable(address, storage_options=self.storage_options or None)
        except TableNotFoundError:
            raise LakeError(
                f"no Delta table at {address}: start the engine and the shipper with this lake "
                f"(`tidemark engine --lake {self.root}`), or name another lake"
            ) from None
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"the Delta table at {address} cannot be read ({first_line(error)}): its log is "
                f"incomplete; restore the folder, or {self.made_again(address)}"
            ) from error

    def made_again(self, address: str) -> str:
        """How a table that cannot be restored is got back: facts are shipped, gold is computed."""
        folder, _, name = address.removeprefix(f"{self.root}/").partition("/")
        if folder == BRONZE_FOLDER:
            return "move it away and let it be shipped again"
        if folder == GOLD_FOLDER and name in BEGUN_ANEW:
            return f"move it away: {BEGUN_ANEW[name]}"
        return (
            f"move {self.root}/{GOLD_FOLDER} and {self.root}/{STATE_FOLDER} away and let "
            "`tidemark pipeline run` compute them again from bronze"
        )

    def rows(self, address: str, wanted: str, columns: Sequence[Column]) -> pa.Table:
        """The rows of a table for which the SQL condition `wanted` holds, in declared types.

        Files are skipped by their statistics inside delta-rs: over hundreds of small files this
        costs a fifteenth of a pyarrow dataset's CPU time. A nullable column that was declared
        after the table was made is null.
        """
        table = self.table(address)
        names = ", ".join(f'"{column.name}"' for column in columns)
        source = with_declared(table, "rows_of", columns)
        sql = f"SELECT {names} FROM {source} WHERE {wanted}"  # noqa: S608 - ours
        return sql_over({"rows_of": table}, sql, what=address).cast(arrow_schema(columns))


def _is_table_on_disk(log: Path) -> bool:
    """Does a table's log begin, or go on from a checkpoint? delta-rs would list all of it; where
    this says no, it is asked."""
    if (log / f"{0:020d}.json").exists():
        return True
    try:
        version = int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return (log / f"{version:020d}.checkpoint.parquet").exists()


def sql_over(tables: Mapping[str, DeltaTable], sql: str, *, what: str) -> pa.Table:
    """Carry out SQL over open tables, by their names. LakeError, naming `what`, for data that
    cannot be read."""
    query = QueryBuilder()
    for name, table in tables.items():
        query = query.register(name, table)
    try:
        return pa.table(query.execute(sql).read_all())
    except Exception as error:
        # Of a missing data file delta-rs's reader says so in a bare Exception.
        again = ", or replay the table" if f"/{GOLD_FOLDER}/" in what else ""
        raise LakeError(
            f"rows of {what} cannot be read ({first_line(error)}): a data file is missing or "
            f"damaged; restore it from a copy of the lake{again}"
        ) from error


def declared_later(table: DeltaTable, columns: Sequence[Column]) -> list[Column]:
    """The columns that were declared after the table was made: they are null in all its rows.

    Raises LakeError when one of them is never null.
    """
    there = {field.name for field in table.schema().fields}
    later = [column for column in columns if column.name not in there]
    if not all(column.nullable for column in later):
        raise LakeError(
            f"the Delta table at {table.table_uri} has no {', '.join(one.name for one in later)}: "
            "it is not one of ours, or of another version; name another lake"
        )
    return later


def with_declared(table: DeltaTable, name: str, columns: Sequence[Column]) -> str:
    """What a query reads a table from that is registered by `name`: where columns were declared
    since it was made, with these, null. Raises LakeError as `declared_later`.
    """
    later = declared_later(table, columns)
    if not later:
        return name
    nulls = ", ".join(f'NULL AS "{column.name}"' for column in later)
    return f"(SELECT *, {nulls} FROM {name}) AS {name}"  # noqa: S608 - ours


def arrow_files(table: DeltaTable) -> SubTreeFileSystem | None:
    """What Arrow reads a table's files with: its own file system for a local table.

    delta-rs's default is Python called from Arrow's threads; a thread still at work when the
    process ends aborts it (7 of 135 processes). None, for object stores, keeps that default.
    """
    scheme, separator, path = table.table_uri.partition("://")
    if separator and scheme != "file":
        return None
    folder = unquote(path) if separator else table.table_uri
    return SubTreeFileSystem(folder, LocalFileSystem())


def whole_table(table: DeltaTable) -> pa.Table:
    """Every row of an open table, as it is. For small tables."""
    return table.to_pyarrow_table(filesystem=arrow_files(table))


def declared_rows(table: DeltaTable, columns: Sequence[Column]) -> FileSystemDataset:
    """Every row of an open table, to be scanned, with all declared columns.

    Raises LakeError as `Lake.rows` does for a table that lacks one it must have.
    """
    schema = pa.schema(table.schema().to_arrow())
    for later in arrow_schema(declared_later(table, columns)):
        schema = schema.append(later)
    return table.to_pyarrow_dataset(filesystem=arrow_files(table), schema=schema)


def sql_text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_moment(micros: int) -> str:
    """A moment, µs since 1970 UTC, as an SQL value."""
    return f"""arrow_cast({micros}, 'Timestamp(Microsecond, Some("UTC"))')"""


def first_line(error: BaseException) -> str:
    """The line of an error's text that says what is wrong: the first, as libraries append whole
    reports to it; of what went wrong in a worker of Spark the end of its last traceback, which says
    what the ones before it meant.
    """
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    traces = [number for number, line in enumerate(lines) if TRACEBACK in line]
    behind = lines[traces[-1] + 1 :] if traces else []
    said = next((line for line in behind if not line.startswith(" ")), lines[0])
    return OUR_CLASS.sub("", said)
