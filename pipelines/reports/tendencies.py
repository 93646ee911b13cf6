"""Judges whether a figure got better or worse since the report before, where known.

Place in the walk: after `comparing`, for pages that mark differences.

Invariant: pure, and silent rather than wrong. What only depends on how long a period is, is not
judged between periods of other lengths; what is unknown on one side, or neither good nor bad in
itself, such as how many messages were sent again, is never judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipelines.base.wording import AtLeast
from pipelines.reports.comparing import Difference, differences, name_in
from pipelines.reports.numbers import Numbers, Verdict


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
