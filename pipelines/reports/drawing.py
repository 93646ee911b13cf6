"""Draws a report's figures as inline SVG, without scripts or external files.

Place in the walk: numbers → small drawings → `page`. Colour is never alone: what is behind is
higher than the line of the objective, what is unknown is hatched, and every figure has its sentence
as a title and its numbers in a table.

Invariant: pure; texts of others are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WITHIN_COLOUR: Final = "#56B4E9"
BEHIND_COLOUR: Final = "#D55E00"
UNKNOWN_FILL: Final = "url(#hatch)"
INK: Final = "#1f2933"
PALE: Final = "#d5dbe1"
SECOND_COLOUR: Final = "#0072B2"

HATCH: Final = (
    "<svg width='0' height='0' style='position:absolute' aria-hidden='true'><defs>"
    "<pattern id='hatch' width='4' height='4' patternUnits='userSpaceOnUse' "
    "patternTransform='rotate(45)'><rect width='4' height='4' fill='#eceff1'/>"
    "<rect width='1.4' height='4' fill='#90a0ab'/></pattern></defs></svg>"
)
"""What is unknown; once a page."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a drawing, in its own units."""

    width: float
    height: float


SPARK: Final = Size(230, 26)
OVERVIEW: Final = Size(1000, 130)
_OBJECTIVE_AT: Final = 0.36
"""Of the height of a sparkline: the line of the objective, the same in every row."""


def sparkline(
    course_ms: Sequence[int | None], course: str, objective_ms: int, greatest: float
) -> str:
    """Time lag through the period; `greatest`: of all rows, as a multiple of the objective."""
    width = SPARK.width / max(1, len(course))
    bars: dict[str, list[str]] = {"w": [], "b": []}
    hatched = []
    for number, (letter, behind_ms) in enumerate(zip(course, course_ms, strict=True)):
        x = number * width
        if letter == "?":
            hatched.append(_bar(x, 0, width, SPARK.height))
        if behind_ms is not None and letter != "-":
            height = _height(behind_ms / objective_ms, greatest) * SPARK.height
            fill = "b" if behind_ms > objective_ms else "w"
            bars[fill].append(_bar(x, SPARK.height - height, width, height))
    line = SPARK.height * (1 - _OBJECTIVE_AT)
    return (
        f"<svg class='spark' viewBox='0 0 {SPARK.width:g} {SPARK.height:g}' "
        f"preserveAspectRatio='none' aria-hidden='true'>"
        f"<path d='{''.join(hatched)}' fill='{UNKNOWN_FILL}'/>"
        f"<path d='{''.join(bars['w'])}' fill='{WITHIN_COLOUR}'/>"
        f"<path d='{''.join(bars['b'])}' fill='{BEHIND_COLOUR}'/>"
        f"<path d='M0 {line:.1f}H{SPARK.width:g}' stroke='{INK}' stroke-width='.6' "
        f"stroke-dasharray='3 2'/></svg>"
    )


def _height(ratio: float, greatest: float) -> float:
    """Of a lag, up to 1: in step with it up to the objective, then by its logarithm."""
    if ratio <= 1:
        return max(ratio * _OBJECTIVE_AT, 0.04)
    most = max(greatest, 2.0)
    return _OBJECTIVE_AT + (1 - _OBJECTIVE_AT) * min(1.0, math.log(ratio) / math.log(most))


def _bar(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.2f}v{height:.1f}h-{width:.2f}z"


def overview(counts: Sequence[tuple[int, int]], labels: Sequence[str]) -> str:
    """How many groups were behind, and unknown, in each part of the period, and the time below.

    labels: moments, evenly spread.
    """
    most = max(sum(one) for one in counts)
    left, bottom = 40.0, 22.0
    wide = (OVERVIEW.width - left) / len(counts)
    tall = OVERVIEW.height - bottom - 8
    parts: dict[str, list[str]] = {BEHIND_COLOUR: [], UNKNOWN_FILL: []}
    for number, heights in enumerate(counts):
        base = 8 + tall
        for fill, count in zip(parts, heights, strict=True):
            height = tall * count / most
            base -= height
            if count:
                parts[fill].append(_bar(left + number * wide, base, wide, height))
    shown = "".join(f"<path d='{''.join(bars)}' fill='{fill}'/>" for fill, bars in parts.items())
    marks = "".join(
        f"<text x='{left + (OVERVIEW.width - left) * number / max(1, len(labels) - 1):.0f}' "
        f"y='{OVERVIEW.height - 5:g}' text-anchor='{_anchor(number, len(labels))}'>"
        f"{escape(label)}</text>"
        for number, label in enumerate(labels)
    )
    lines = "".join(
        f"<path d='M{left:g} {y:.1f}H{OVERVIEW.width:g}' stroke='{PALE}'/>" for y in (8, 8 + tall)
    )
    scale = (
        f"<text x='{left - 6:g}' y='16' text-anchor='end'>{most}</text>"
        f"<text x='{left - 6:g}' y='{8 + tall:g}' text-anchor='end'>0</text>"
    )
    return (
        f"<svg class='overview' viewBox='0 0 {OVERVIEW.width:g} {OVERVIEW.height:g}' role='img'>"
        f"<title>Up to {most} groups were behind, or unknown, at a time</title>"
        f"{lines}{shown}{scale}{marks}</svg>"
    )


def _anchor(number: int, count: int) -> str:
    return "start" if number == 0 else "end" if number == count - 1 else "middle"


def part_bar(parts: Iterable[tuple[float, str]], whole: float) -> str:
    """Parts of a whole side by side, each with its fill; what is left is pale."""
    x, shown = 0.0, []
    for part, fill in parts:
        width = 100 * part / whole if whole else 0
        shown.append(f"<rect x='{x:.2f}' width='{width:.2f}' height='10' fill='{fill}'/>")
        x += width
    return (
        "<svg class='bar' viewBox='0 0 100 10' preserveAspectRatio='none' aria-hidden='true'>"
        f"<rect width='100' height='10' fill='{PALE}' opacity='.5'/>{''.join(shown)}</svg>"
    )


def predicted_bar(certain: int | None, predicted: int, observed: int, most: int) -> str:
    """A bar from what was certain to what was possible, with what was observed as a mark."""
    whole = max(most, 1)
    low, high, seen = (100 * one / whole for one in (certain or 0, predicted, observed))
    return (
        "<svg class='bar tall' viewBox='0 0 100 16' preserveAspectRatio='none' aria-hidden='true'>"
        f"<rect y='3' width='100' height='10' fill='{PALE}' opacity='.5'/>"
        f"<rect y='3' width='{high:.2f}' height='10' fill='{WITHIN_COLOUR}' opacity='.55'/>"
        f"<rect y='3' width='{low:.2f}' height='10' fill='{WITHIN_COLOUR}'/>"
        f"<rect x='{max(0.0, min(seen, 100.0) - 0.8):.2f}' width='1.6' height='16' fill='{INK}'/>"
        "</svg>"
    )
