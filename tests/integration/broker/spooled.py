"""What a broker has told, read back from its spool: rows by table, as dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.runtime import SystemDisk
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.tables import BY_NAME, TABLES


def spooled(store: Path, table: str) -> list[dict[str, Any]]:
    """The rows of one table, oldest first."""
    directory = store / "spool"
    wanted = TABLES.index(BY_NAME[table])
    rows = []
    for name in segment_names(SystemDisk(), str(directory)):
        placed, _ = decode_frames((directory / name).read_bytes())
        for frame in (one.frame for one in placed):
            if isinstance(frame, Turn):
                rows += [values for number, _, values in frame.rows if number == wanted]
    return [dict(zip(BY_NAME[table].own_names, values, strict=True)) for values in rows]


def picked(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Some columns of a row."""
    return tuple(row[name] for name in names)
