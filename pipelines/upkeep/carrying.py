"""Carries open intervals into the next day when a day of intervals is dropped.

Place in the walk: one step of `work`, in place of a plain drop. An interval that nothing has ended
was emitted once, maybe years ago; without this it would vanish with the day on which it was
emitted, and a queue would have no reader. What counts is how things stood when the day was over, so
that a reader finds what was true at every moment that is kept, even of what has ended since: its
end lies in a later day, and once that day goes, nothing of it is open any more.

Invariant: one commit removes all files of the day and adds the newest revision of each interval
that was open, with dataChange false: they are no news. A kill leaves the day, or the next one.
Absent on purpose: which days, and into which (`plan`).
"""

from __future__ import annotations

from datetime import date
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from pipelines.lake.lake import sql_over
from pipelines.lake.small_files import SmallFiles
from pipelines.upkeep.merging import as_in_table, commit, refuse_features, removals, write_rows

OPERATION: Final = "DELETE"


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
