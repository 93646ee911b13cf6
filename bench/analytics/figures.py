"""Analytics benchmark figures, and the table that shows each beside its target.

Place in the walk: a part of `bench.analytics` measures some, in a process of its own, and hands
them back as JSON. Invariant: a figure that could not be measured is shown with the reason; it is
never left out, and never counts as held. Absent on purpose: measuring.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rich.table import Table

from bench.bars import Bar

HEADINGS = ("figure", "measured", "bar", "verdict", "wall s", "CPU s", "command")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row."""

    what: str
    """What was done, in the words of the table."""
    value: float | None
    """None: it could not be measured."""
    unit: str = ""
    bar: Bar | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    """What the measured work took, of all processes that did it; None where that says nothing."""
    note: str = ""
    """What belongs to the figure; the reason of one that could not be measured."""

    @property
    def measured(self) -> str:
        """The figure in words."""
        if self.value is None:
            return f"not measured: {self.note or 'no reason was given'}"
        figure = f"{_rounded(self.value)} {self.unit}".rstrip()
        return f"{figure} ({self.note})" if self.note else figure

    @property
    def verdict(self) -> str:
        """held, missed or unknown; empty without a bar."""
        if self.bar is None:
            return ""
        if self.value is None:
            return "unknown"
        return "held" if self.bar.is_held(self.value) else "missed"

    def cells(self, command: str) -> tuple[str, ...]:
        """The columns of HEADINGS."""
        bar = "" if self.bar is None else str(self.bar)
        times = ("" if spent is None else f"{spent:.1f}" for spent in (self.wall_s, self.cpu_s))
        return self.what, self.measured, bar, self.verdict, *times, command

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> Self:
        """The reverse of what `as_json` writes of each."""
        bar = fields.pop("bar")
        return cls(bar=None if bar is None else Bar(*bar), **fields)


def as_json(figures: Sequence[Figure]) -> str:
    """Figures on their way between processes."""
    return json.dumps([asdict(one) for one in figures])


def from_json(text: str) -> list[Figure]:
    """The reverse. ValueError when it is something else."""
    return [Figure.from_plain(one) for one in json.loads(text)]


Measured = Iterable[tuple[str, Figure]]
"""Commands with the figures that they measure."""


def as_table(rows: Measured, *, title: str) -> Table:
    """For the eye."""
    table = Table(title=title)
    for heading in HEADINGS[:-1]:
        table.add_column(heading, justify="right" if heading.endswith(" s") else "left")
    for command, figure in rows:
        table.add_row(*figure.cells(command)[:-1])
    return table


def as_markdown(rows: Measured) -> str:
    """For docs/measured.md."""
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
    for command, figure in rows:
        what, measured, bar, verdict, *rest = figure.cells(f"`{command}`")
        shown_verdict = f"**{verdict}**" if verdict in ("missed", "unknown") else verdict
        lines.append(_line((what, measured, bar, shown_verdict, *rest)))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rounded(value: float) -> str:
    """Three digits that count, and no fraction of thousands."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
