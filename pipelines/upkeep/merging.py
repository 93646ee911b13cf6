"""Merges a partition's files and carries open intervals forward from expiring days.

Place in the walk: steps of `work`. A file is a slice of time, sorted by group and time. An open
interval was emitted once, maybe years ago; when its day goes it is written into the next one, as
things stood when the day was over.

The log entry is written here, under the log's lock on a disk, and not by delta-rs, whose conflict
check (1.6) lets two merges of the same files pass: each row is there twice then. An entry is made
only where none is; when one came in between that removes a file that is merged, or changes what the
table is, the merge is given up. Appends of others pass.

Invariant: the entry removes exactly the files that were read and adds their rows and no others,
with dataChange false: who follows the log sees nothing of it. Memory: the rows of one slice, whose
files have TIERS_BYTES[-1] together. Absent on purpose: which partitions, and when (`plan`).
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from engine.foundation.errors import LakeError
from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at
from pipelines.lake.lake import sql_over
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import entry_address, read_entry
from pipelines.upkeep.settings import has_grown

ENGINE: Final = "tidemark-upkeep"

TIMES: Final = ("observed_at", "event_time")
"""The column by which files are slices of time: the first that a table has."""

ORDER: Final = ("group", *TIMES)
"""Inside a file rows lie by these, as far as the table has them: a question about one group and a
quarter of an hour reads a few pages of one or two files."""

ROW_GROUP_ROWS: Final = 65_536

SLICE_ROWS_MAX: Final = 2_000_000
"""A slice has no more rows than this, however well they are packed."""

COMMITS_PASSED_MAX: Final = 1_000
"""How many commits of others a merge lets pass before it gives up."""

_TEXT_BOUND_MAX: Final = 200
"""Longer texts get no bounds: they would fill the log."""
OPERATION: Final = "DELETE"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file in use, as the log names it."""

    path: str
    """Relative to the table and escaped, as in the log."""
    size_bytes: int
    rows: int
    begins: Any
    """Least value of the time column; the time of writing where there is none."""


class MergeRefused(LakeError):
    """Another commit came first, or the table is of a kind that is not rewritten here."""


def slices(
    files: Sequence[SourceFile], target_bytes: int, rows_max: int = SLICE_ROWS_MAX
) -> list[list[SourceFile]]:
    """Files that have not grown through the target, in order of time, cut into slices that fit; a
    slice of one file is left out."""
    found: list[list[SourceFile]] = []
    size, rows = 0, 0
    small = [file for file in files if not has_grown(file.size_bytes, target_bytes)]
    for file in sorted(small, key=lambda file: (file.begins, file.path)):
        if found and size + file.size_bytes <= target_bytes and rows + file.rows <= rows_max:
            found[-1].append(file)
        else:
            found.append([file])
            size, rows = 0, 0
        size, rows = size + file.size_bytes, rows + file.rows
    return [one for one in found if len(one) > 1]


def merge_partition(
    files: SmallFiles, address: str, handle: DeltaTable, *, day: date | None, target_bytes: int
) -> tuple[int, int]:
    """Merge the files of a partition that have not grown through `target_bytes`; return how many
    became how many.

    One commit a slice: a kill loses one slice's work. Raises MergeRefused, LakeError.
    """
    refuse_features(handle)
    metadata = handle.metadata()
    schema = pa.schema(handle.schema().to_arrow())
    partitions = metadata.partition_columns
    data_schema = pa.schema([field for field in schema if field.name not in partitions])
    place = {} if day is None else {partitions[0]: day.isoformat()}
    version, merged, made = handle.version(), 0, 0
    for one in slices(list(_sources(handle, schema, place)), target_bytes):
        rows = _rows(files, address, one, data_schema)
        add = write_rows(files, address, rows, place)
        try:
            removed = removals(((file.path, file.size_bytes) for file in one), place)
            version = commit(files, address, version, [*removed, add])
        except BaseException:
            files.remove(f"{address}/{unquote(add['add']['path'])}")
            raise
        merged, made = merged + len(one), made + 1
    return merged, made


def refuse_features(handle: DeltaTable) -> None:
    """MergeRefused for a table whose log entries would have to say more than ours do."""
    protocol = handle.protocol()
    mapped = handle.metadata().configuration.get("delta.columnMapping.mode", "none")
    if protocol.min_reader_version > 1 or protocol.min_writer_version > 2 or mapped != "none":
        raise MergeRefused(
            f"{handle.table_uri} has features that are not merged here (protocol "
            f"{protocol.min_reader_version}, {protocol.min_writer_version})"
        )
    if len(handle.metadata().partition_columns) > 1:
        raise MergeRefused(f"{handle.table_uri} has more than one partition column")


def _sources(
    handle: DeltaTable, schema: pa.Schema, place: Mapping[str, str]
) -> Iterator[SourceFile]:
    times = [name for name in TIMES if name in schema.names]
    for row in pa.table(handle.get_add_actions(flatten=True)).to_pylist():
        if any(str(row[f"partition.{name}"]) != value for name, value in place.items()):
            continue
        if row["num_records"] is None:
            continue  # Written without statistics, by nobody of ours.
        begins = row.get(f"min.{times[0]}") if times else None
        written = moment_at(row["modification_time"] * MS_US)
        yield SourceFile(
            row["path"],
            row["size_bytes"],
            row["num_records"],
            _moment(begins) if begins is not None else written,
        )


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _rows(
    files: SmallFiles, address: str, sources: Sequence[SourceFile], schema: pa.Schema
) -> pa.Table:
    """The rows of the files in the table's types, in order; a column that came later is null."""
    parts = []
    for source in sources:
        held = files.read(f"{address}/{unquote(source.path)}")
        if held is None:
            raise MergeRefused(f"{source.path} of {address} is gone: merged by another")
        try:
            with pq.ParquetFile(pa.BufferReader(held.data)) as data:
                parts.append(as_in_table(data.read(), schema))
        except (pa.ArrowException, OSError) as error:
            raise LakeError(f"{address}/{source.path} cannot be read ({error})") from error
        if parts[-1].num_rows != source.rows:
            raise LakeError(f"{address}/{source.path} has not the rows that the log names")
    rows = pa.concat_tables(parts)
    order = [(name, "ascending") for name in ORDER if name in schema.names]
    return rows.sort_by(order) if order else rows


def as_in_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns and types of a table; a column that they lack is null."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def write_rows(
    files: SmallFiles, address: str, rows: pa.Table, place: Mapping[str, str]
) -> dict[str, Any]:
    """Write the rows as one file; return the action that adds it."""
    out = pa.BufferOutputStream()
    pq.write_table(
        rows,
        out,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        write_page_index=True,
    )
    data = out.getvalue().to_pybytes()
    folder = "".join(f"{name}={value}/" for name, value in place.items())
    path = f"{folder}part-{uuid.uuid4()}.zstd.parquet"
    if not files.create(f"{address}/{path}", data):
        raise AssertionError("a random name is there already")
    return {
        "add": {
            "path": path,
            "partitionValues": dict(place),
            "size": len(data),
            "modificationTime": time.time_ns() // 1_000_000,
            "dataChange": False,
            "stats": json.dumps(statistics(rows)),
        }
    }


def statistics(rows: pa.Table) -> dict[str, Any]:
    """What the log reports on a file, as delta-rs does: its rows, and bounds of flat columns."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if pa.types.is_boolean(column.type) or column.null_count == len(column):
            continue
        bounds = pc.min_max(column)
        low, high = (_as_number(bounds[side].as_py()) for side in ("min", "max"))
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _as_number(value: Any) -> Any:
    """A bound in JSON; None when it is not reported."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _TEXT_BOUND_MAX else None
    return value if isinstance(value, int) else None


def removals(
    files: Iterable[tuple[str, int]], place: Mapping[str, str], *, takes_rows: bool = False
) -> list[dict[str, Any]]:
    """The actions that remove files of a partition, by path and bytes; `takes_rows`: rows of them
    leave the table.
    """
    now_ms = time.time_ns() // 1_000_000
    return [
        {
            "remove": {
                "path": path,
                "deletionTimestamp": now_ms,
                "dataChange": takes_rows,
                "extendedFileMetadata": True,
                "partitionValues": dict(place),
                "size": size_bytes,
            }
        }
        for path, size_bytes in files
    ]


def commit(
    files: SmallFiles,
    address: str,
    read_version: int,
    actions: Sequence[Mapping[str, Any]],
    *,
    operation: str = "OPTIMIZE",
) -> int:
    """Put the actions into the log after whatever came since `read_version`; return their version.

    Raises MergeRefused when one of those commits removed a file that is removed here.
    """
    removed = {one["remove"]["path"] for one in actions if "remove" in one}
    info = {
        "commitInfo": {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": operation,
            "operationParameters": {},
            "readVersion": read_version,
            "engineInfo": ENGINE,
        }
    }
    entry = "\n".join(json.dumps(one) for one in (info, *actions)).encode()
    with _locked_log(files, address):
        for version in range(read_version + 1, read_version + 1 + COMMITS_PASSED_MAX):
            place = entry_address(address, version)
            if files.create(place, entry):
                if files.is_local:
                    _refuse_old_number(files, address, version, entry)
                return version
            there = files.read(place)
            if there is not None and there.data == entry:
                return version  # Ours: the store had taken it, and was asked again.
            if there is None or _stands_against(there.data, removed):
                raise MergeRefused(f"a commit of another on {address} came before the merge")
    raise MergeRefused(f"{COMMITS_PASSED_MAX} commits of others on {address} came before the merge")


def _refuse_old_number(files: SmallFiles, address: str, version: int, entry: bytes) -> None:
    """MergeRefused when the number of an entry was free in the log because the one that had it was
    moved aside, while this process stood still: no reader would ever see it.
    """
    there = read_entry(files, address, version)
    if there is not None and there.data != entry:
        files.remove(entry_address(address, version))
        raise MergeRefused(f"commits of others on {address} came long before the merge")


def _stands_against(entry: bytes, removed: set[str]) -> bool:
    """Does a commit that came first remove a file of ours, or change what the table is?"""
    for line in entry.splitlines():
        action = json.loads(line)
        if "metaData" in action or "protocol" in action:
            return True
        if "remove" in action and action["remove"]["path"] in removed:
            return True
    return False


@contextmanager
def _locked_log(files: SmallFiles, address: str) -> Iterator[None]:
    """On a disk, hold the lock under which shippers merge: their check does not see ours."""
    if not files.is_local:
        yield
        return
    descriptor = os.open(f"{address}/_delta_log", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def carry_open(
    files: SmallFiles, address: str, handle: DeltaTable, *, day: date, into: date
) -> int:
    """Drop a day but for its open intervals; return how many there are. When there are none
    nothing was done. Raises MergeRefused when another commit came first, LakeError.
    """
    refuse_features(handle)
    [column] = handle.metadata().partition_columns
    schema = pa.schema(handle.schema().to_arrow())
    data_schema = pa.schema([field for field in schema if field.name != column])
    still_open = _open_in(handle, column, day, data_schema)
    if not still_open.num_rows:
        return 0
    there = pa.table(handle.get_add_actions(flatten=True))
    gone = [
        (row["path"], row["size_bytes"])
        for row in there.to_pylist()
        if str(row[f"partition.{column}"]) == day.isoformat()
    ]
    add = write_rows(files, address, still_open, {column: into.isoformat()})
    removed = removals(gone, {column: day.isoformat()}, takes_rows=True)
    try:
        commit(files, address, handle.version(), [*removed, add], operation=OPERATION)
    except BaseException:
        files.remove(f"{address}/{unquote(add['add']['path'])}")
        raise
    return int(still_open.num_rows)


def _open_in(handle: DeltaTable, column: str, day: date, schema: pa.Schema) -> pa.Table:
    """The newest revisions of a day, of the intervals that are open by them."""
    names = ", ".join(f'"{name}"' for name in schema.names)
    of_day = f"\"{column}\" = DATE '{day.isoformat()}'"
    newest = (
        "SELECT window_id AS newest_id, max(revision) AS newest_revision FROM intervals"  # noqa: S608 - ours
        f" WHERE {of_day} GROUP BY window_id"
    )
    sql = (
        f"SELECT {names} FROM intervals JOIN ({newest}) ON window_id = newest_id"  # noqa: S608 - ours
        f" AND revision = newest_revision WHERE {of_day} AND state = 'OPEN'"
    )
    found = sql_over({"intervals": handle}, sql, what=handle.table_uri)
    return as_in_table(found, schema).sort_by([("window_id", "ascending")])
