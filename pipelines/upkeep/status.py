"""The table that `tidemark lake status` prints.

Absent on purpose: reading of data files; all of it is in the log.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.table import Table

from pipelines.lake.lake import Lake
from pipelines.upkeep.maintainer import noted, preview
from pipelines.upkeep.plan import TableFacts
from pipelines.upkeep.settings import TIERS_BYTES, Upkeep

_COLUMNS: Final = (
    "table",
    "writer",
    "version",
    "files",
    "today",
    "small",
    "bytes",
    "rows",
    "days",
    "last upkeep",
    "next",
)
_KIB: Final = 1024.0


def status_table(lake: Lake, upkeep: Upkeep, now: datetime) -> Table:
    """One row a table. LakeError when there is no lake."""
    table = Table(title=f"lake {lake.root}")
    for column in _COLUMNS:
        is_number = column in ("version", "files", "today", "small", "bytes", "rows")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for facts, work in preview(lake, upkeep, now):
        if isinstance(facts, str):
            table.add_row(facts, *[""] * (len(_COLUMNS) - 2), str(work))
            continue
        note = noted(lake, facts.name)
        last = "never" if note.at is None else f"{note.at:%Y-%m-%d %H:%M:%S} {note.did}"
        table.add_row(facts.name, *_figures(facts, now), last, str(work))
    return table


def _figures(facts: TableFacts, now: datetime) -> list[str]:
    sizes = [size for one in facts.partitions for size in one.sizes]
    today = [len(one.sizes) for one in facts.partitions if one.day == now.date()]
    rows = [one.rows for one in facts.partitions]
    known = [count for count in rows if count is not None]
    days = sorted(one.day for one in facts.partitions if one.day is not None)
    return [
        facts.writer.value,
        str(facts.version),
        str(len(sizes)),
        str(sum(today)),
        str(sum(size < TIERS_BYTES[0] for size in sizes)),
        readable_bytes(sum(sizes)),
        f"{sum(known):,}" if len(known) == len(rows) else "unknown",
        f"{days[0]} to {days[-1]}" if days else "",
    ]


def readable_bytes(count: int) -> str:
    """1536 as 1.5 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} TiB"
