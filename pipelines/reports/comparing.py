"""Differences between the numbers of two reports: of two periods, or of one made twice.

Place in the walk: a re-run with later data says what it changed; `tidemark reports compare` holds
any two runs against each other. Invariant: pure; equal numbers have no differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pipelines.base.wording import AtLeast, plural
from pipelines.reports.numbers import Numbers

NAMED_MAX: Final = 5
_LISTS: Final = {
    "groups": ("cluster", "group"),
    "stalls": ("kind",),
    "duplicates": ("cause",),
    "dead_letters": ("cluster", "group"),
    "retention": ("cluster", "group"),
    "emitters": ("emitter",),
    "checks": ("expectation",),
}
"""Parts of the numbers that are rows, and what names a row."""
_DRAWN: Final = ("course", "course_ms", "is_part", "end_is_part")
"""Told by the figures beside them."""
_LEAST_IF: Final = {"worst_ms": "is_part", "lag_max": "is_part", "end_ms": "end_is_part"}
"""Figures that are lower bounds where another one of their row says so."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure that is not the same. None: there is no such row, or it is unknown."""

    part: str
    about: str
    figure: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return (
            f"{self.part}: {self.about}: {self.figure} {_said(self.before)} → {_said(self.after)}"
        )


def _said(value: Any) -> str:
    return "unknown" if value is None else str(value)


def differences(before: Numbers, after: Numbers) -> list[Difference]:
    """Every figure that differs, part by part."""
    one, other = msgspec.to_builtins(before), msgspec.to_builtins(after)
    found: list[Difference] = []
    for part, key in _LISTS.items():
        found += _of_rows(part, _by(one[part], key), _by(other[part], key))
    for name in ("violations", "unaccounted"):
        if one[name] != other[name]:
            found.append(Difference("offsets", "all", name, one[name], other[name]))
    return found


def _by(rows: Sequence[dict[str, Any]], key: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {name_in([str(row[name]) for name in key]): row for row in rows}


def name_in(parts: Iterable[str]) -> str:
    """What a difference calls the row with such a key."""
    return " / ".join(parts)


def _of_rows(
    part: str, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> Iterator[Difference]:
    for about in sorted({*before, *after}):
        one, other = before.get(about), after.get(about)
        if one is None or other is None:
            there = [None if row is None else "there" for row in (one, other)]
            yield Difference(part, about, "row", *there)
            continue
        for figure in one:
            if figure in _DRAWN:
                continue
            was, now = _known(one, figure), _known(other, figure)
            if was != now or isinstance(was, AtLeast) != isinstance(now, AtLeast):
                yield Difference(part, about, figure, was, now)


def _known(row: dict[str, Any], figure: str) -> Any:
    """A figure of a row; one that is the least says so."""
    value = row[figure]
    is_least = value is not None and row.get(_LEAST_IF.get(figure, ""), False)
    return AtLeast(value) if is_least else value


def revised(before: Numbers, after: Numbers, number: int) -> str:
    """What a re-run of a period says that was not said the time before; empty: the same."""
    if before.digest == after.digest:
        return ""
    found = differences(before, after)
    abouts = list(dict.fromkeys(one.about for one in found))
    named = ", ".join(abouts[:NAMED_MAX]) + (" …" if len(abouts) > NAMED_MAX else "")
    about = f": {named}" if named else ""
    is_earlier = before.run_id == after.run_id and after.cycle < before.cycle
    why = "What had not come by then" if is_earlier else "What came later"
    return (
        f"Revised: run {number - 1} of this report was made at cycle {before.cycle}, this one at "
        f"cycle {after.cycle}. {why} changed {plural(len(found), 'figure')}{about}."
    )
