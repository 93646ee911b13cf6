"""What a broker has emitted, read back from its spool: rows by table, as dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.runtime import Disk, SystemDisk
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow, arrow_rows
from engine.telemetry.tables import BY_NAME, TABLES


def spooled(store: Path, table: str) -> list[dict[str, Any]]:
    """The rows of one table, oldest first."""
    wanted = TABLES.index(BY_NAME[table])
    rows = []
    for turn in _turns(store):
        rows += [values for number, _, values in turn.rows if number == wanted]
    return [dict(zip(BY_NAME[table].own_names, values, strict=True)) for values in rows]


def spooled_in_order(store: Path) -> list[tuple[int, str, dict[str, Any]]]:
    """(seq, table, row) of every row, oldest first."""
    rows = []
    for turn in _turns(store):
        for seq, (number, _, values) in enumerate(turn.rows, turn.first_seq):
            table = TABLES[number]
            row = dict(zip(table.own_names, values, strict=True))
            rows.append((seq, table.name, row))
    return rows


def _turns(store: Path) -> Iterator[Turn]:
    """What the spool has. A segment may go while it is looked at: one that was shipped, or that
    found no room."""
    directory = store / "spool"
    for name in segment_names(SystemDisk(), str(directory)):
        try:
            content = (directory / name).read_bytes()
        except FileNotFoundError:
            continue
        placed, _ = decode_frames(content)
        yield from (one.frame for one in placed if isinstance(one.frame, Turn))


def picked(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """Some columns of a row."""
    return tuple(row[name] for name in names)


def into_the_lake(disk: Disk, directory: str) -> Counter[str]:
    """How many rows of each table are in this spool, every one of them as its columns of the lake.
    Raises LakeError naming the first that does not fit.
    """
    rows: dict[int, list[SpooledRow]] = defaultdict(list)
    for name in segment_names(disk, directory):
        placed, _ = decode_frames(disk.read(f"{directory}/{name}"))
        for frame in (one.frame for one in placed):
            if isinstance(frame, Turn):
                for number, event_time, values in frame.rows:
                    rows[number].append(SpooledRow(frame.first_seq, 0, event_time, values))
    speaker = Speaker("cluster", "broker", "emitter")
    return Counter(
        {
            TABLES[number].name: arrow_rows(TABLES[number], speaker, found).num_rows
            for number, found in rows.items()
        }
    )
