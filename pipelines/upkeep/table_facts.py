"""Reads the table metadata that upkeep needs from the Delta log.

Place in the walk: before `plan`. Absent on purpose: decisions, and any write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from engine.foundation.errors import LakeError
from engine.telemetry.tables import BRONZE_FOLDER
from pipelines.lake.lake import GOLD_FOLDER, STATE_FOLDER, Lake
from pipelines.lake.read_places import noted_places
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import Commit, parse_entry, read_entry
from pipelines.upkeep.plan import PartitionFacts, ReaderPlace, TableFacts, writer_of

COMMITS_LOOKED_AT: Final = 50
"""How many commits back the kind of writer is looked for, beyond those of upkeep itself."""

LOG_RETENTION: Final = "delta.logRetentionDuration"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table that is there."""

    name: str
    """Below the lake's root: `bronze/NAME`."""
    address: str


def tables_of(lake: Lake) -> list[LakeTable]:
    """Every table of the lake that exists. Raises LakeError when there is none at all."""
    files = SmallFiles(lake)
    names = [
        f"{folder}/{name}"
        for folder in (BRONZE_FOLDER, GOLD_FOLDER, STATE_FOLDER)
        for name in files.folders(f"{lake.root}/{folder}")
    ]
    found = [LakeTable(name, f"{lake.root}/{name}") for name in names]
    there = [table for table in found if lake.exists(table.address)]
    if not there:
        raise LakeError(
            f"there is no lake at {lake.root}: none of its tables exists; start an engine with it "
            f"(`tidemark engine --lake {lake.root} ...`), or name another one"
        )
    return there


def look(lake: Lake, table: LakeTable) -> tuple[DeltaTable, TableFacts]:
    """Open a table and say what is there."""
    handle = lake.table(table.address)
    metadata = handle.metadata()
    column = metadata.partition_columns[0] if metadata.partition_columns else None
    facts = TableFacts(
        name=table.name,
        version=handle.version(),
        writer=writer_of(
            [(one.operation, one.engine) for one in _newest(lake, table, handle.version())]
        ),
        partitions=tuple(_partitions(handle, column)),
        partition_column=column,
        readers=tuple(_readers(lake, table)),
        log_retention=metadata.configuration.get(LOG_RETENTION),
    )
    return handle, facts


def _partitions(handle: DeltaTable, column: str | None) -> Iterator[PartitionFacts]:
    files = pa.table(handle.get_add_actions(flatten=True))
    days = [None] * files.num_rows
    if column is not None:
        days = files[f"partition.{column}"].to_pylist()
    by_day: dict[date | None, list[tuple[int, int, int | None]]] = {}
    sizes = files["size_bytes"].to_pylist()
    written_ms = files["modification_time"].to_pylist()
    rows = files["num_records"].to_pylist()
    for day, *figures in zip(days, sizes, written_ms, rows, strict=True):
        by_day.setdefault(_day(day), []).append((figures[0], figures[1], figures[2]))
    for day, there in by_day.items():
        counts = [rows for _size, _ms, rows in there if rows is not None]
        yield PartitionFacts(
            day,
            tuple(size for size, _ms, _rows in there),
            max(ms for _size, ms, _rows in there) / 1000,
            sum(counts) if len(counts) == len(there) else None,
        )


def _day(value: date | str | None) -> date | None:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _newest(lake: Lake, table: LakeTable, version: int) -> list[Commit]:
    """The newest commits, back to the first that wrote rows."""
    files = SmallFiles(lake)
    found: list[Commit] = []
    for number in range(version, max(version - COMMITS_LOOKED_AT, -1), -1):
        entry = read_entry(files, table.address, number)
        if entry is None:
            break  # Cleaned away: what came before is not to be known.
        found.append(parse_entry(number, entry.data))
        if found[-1].added:
            break
    return found


def _readers(lake: Lake, table: LakeTable) -> Iterator[ReaderPlace]:
    files = SmallFiles(lake)
    places: Mapping[str, Mapping[str, int]] = noted_places(lake)
    for reader, versions in places.items():
        if table.name not in versions:
            continue
        version = max(versions[table.name], 0)  # Who has read nothing needs the first commit.
        entry = read_entry(files, table.address, version)
        commit = None if entry is None else parse_entry(version, entry.data)
        read_ms = None if commit is None else commit.committed_at_ms
        yield ReaderPlace(reader, None if read_ms is None else read_ms / 1000)
