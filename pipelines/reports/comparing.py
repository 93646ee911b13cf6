"""Compares the numbers in two reports and classifies changes as better or worse.

Place in the walk: a re-run says what later data changed; `tidemark reports compare`; pages.
Invariant: pure; equal numbers have no differences. What depends on how long a period is, is not
judged between periods of other lengths; what is unknown, or neither good nor bad in itself, never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from pipelines.base.wording import AtLeast, plural
from pipelines.reports.numbers import Numbers, Verdict

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
_DRAWN: Final = ("course", "course_ms", "is_part", "end_is_part", "again_is_least")
"""Told by the figures beside them."""
_LEAST_IF: Final = {
    "worst_ms": "is_part",
    "lag_max": "is_part",
    "end_ms": "end_is_part",
    "redelivered": "again_is_least",
}
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


class Tendency(StrEnum):
    """Of a figure, against the one before."""

    BETTER = "better"
    WORSE = "worse"
    OPEN = ""
    """Not known, or neither."""


_MORE_IS_WORSE: Final = {"groups": {"worst_ms", "lag_max", "end_ms"}}
"""Figures of a moment, which do not grow with the period."""
_SUMMED_IS_WORSE: Final = {
    "groups": {"behind_s", "stalls", "stood_s", "redelivered", "at_risk", "dead_letters"},
    "stalls": {"windows", "groups", "stood_s", "open_at_end", "longest_s"},
    "duplicates": {"windows", "groups", "redelivered", "confirmed", "exceeded"},
    "dead_letters": {"letters", "expired", "waiting"},
    "emitters": {"missing_rows", "doubled_rows"},
    "checks": {"failed_runs"},
    "offsets": {"violations", "unaccounted"},
}
_ROW_IS_WORSE: Final = ("stalls", "retention")
"""Parts of which a row is bad news by itself."""
_VERDICTS: Final = (Verdict.MISSED.value, Verdict.KEPT.value)


_BY_OBJECTIVE: Final = ("verdict", "share_percent", "behind_s")


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure that differs, and whether for the better."""

    difference: Difference
    tendency: Tendency


def judged(before: Numbers, after: Numbers) -> list[Judged]:
    """Every figure that differs between two reports, in the order of `differences`."""
    one_length = before.end_us - before.begin_us == after.end_us - after.begin_us
    doubtful = _doubtful(before, after)
    return [
        Judged(one, _tendency(one, of_one_length=one_length, doubtful=doubtful))
        for one in differences(before, after)
    ]


def _doubtful(before: Numbers, after: Numbers) -> frozenset[str]:
    """Groups that are held against another objective than before, or are not to be believed."""
    aims = [
        {
            name_in((one.cluster, one.group)): (one.objective_ms, one.target_percent)
            for one in numbers.groups
        }
        for numbers in (before, after)
    ]
    withheld = {
        name_in((one.cluster, one.group))
        for numbers in (before, after)
        for one in numbers.groups
        if one.withheld
    }
    moved = {name for name in aims[0].keys() & aims[1] if aims[0][name] != aims[1][name]}
    return frozenset(withheld | moved)


def _tendency(one: Difference, *, of_one_length: bool, doubtful: frozenset[str]) -> Tendency:
    before, after = one.before, one.after
    if one.figure == "row":
        if one.part not in _ROW_IS_WORSE or not of_one_length:
            return Tendency.OPEN
        return _of(is_better=after is None)
    if before is None or after is None:
        return Tendency.OPEN
    if one.part == "groups" and one.figure in _BY_OBJECTIVE and one.about in doubtful:
        return Tendency.OPEN
    if one.figure == "verdict":
        known = before in _VERDICTS and after in _VERDICTS
        return _of(is_better=after == Verdict.KEPT) if known else Tendency.OPEN
    if one.part == "groups" and one.figure == "share_percent":
        return _of(is_better=after > before)
    if one.part == "emitters" and one.figure == "reaches_end":
        return _of(is_better=bool(after))
    is_summed = one.figure in _SUMMED_IS_WORSE.get(one.part, ())
    if one.figure in _MORE_IS_WORSE.get(one.part, ()) or (is_summed and of_one_length):
        is_better = bool(after < before)
        # The least says nothing of a figure that may be more: neither 40 after "at least 30" nor
        # "at least 30" after 40.
        is_open = before == after or isinstance(after if is_better else before, AtLeast)
        return Tendency.OPEN if is_open else _of(is_better=is_better)
    return Tendency.OPEN


def _of(*, is_better: bool) -> Tendency:
    return Tendency.BETTER if is_better else Tendency.WORSE
