"""Pure functions that format admin-command results as readable tables or JSON.

A table is a list of rows with the same columns. Unknown is an empty cell, null in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from engine.foundation.printable import printable, printable_json
from engine.protocol.names import Perm

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]


def shown(rows: Sequence[Row], *, as_json: bool, empty: str = "nothing") -> str:
    """Rows as text: a JSON list, or a table with one line a row and `empty` when there are none."""
    if as_json:
        return json_text([dict(row) for row in rows])
    return table(rows) if rows else empty


def shown_record(record: Row, *, as_json: bool) -> str:
    """One record: a JSON object, or one line a field."""
    if as_json:
        return json_text(dict(record))
    fields = {printable(name): _text(cell) for name, cell in record.items()}
    width = max(map(len, fields))
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in fields.items())


def json_text(document: object) -> str:
    """Values as a JSON document that a terminal can show."""
    return printable_json(json.dumps(document, indent=2, ensure_ascii=False))


def table(rows: Sequence[Row]) -> str:
    """Columns aligned, numbers to the right."""
    columns = list(rows[0])
    cells = [[_text(row[column]) for column in columns] for row in rows]
    by_column = zip(columns, zip(*cells, strict=True), strict=True)
    widths = [max(map(len, [name, *column])) for name, column in by_column]
    right = [all(_is_number(row[column]) for row in rows) for column in columns]
    lines = [_line(columns, widths, right), _line(["-" * width for width in widths], widths, right)]
    return "\n".join([*lines, *(_line(row, widths, right) for row in cells)])


def moment(timestamp_ms: int | None) -> str | None:
    """A time in UTC with milliseconds; None for none."""
    if not timestamp_ms or timestamp_ms < 0:
        return None
    when = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def perm_text(perm: int) -> str:
    """Permission bits as letters: `rw`, `r`, `w`, or `-` for none."""
    letters = ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "")
    return letters or "-"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(aligned).rstrip()


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return printable(str(cell))
