"""Writes metric families in version 0.0.4 of the Prometheus text format.

    # HELP name what it means
    # TYPE name gauge
    name{label="value",other="value"} 12

Invariant: whatever the names of topics and groups hold, the text parses; of each family at most
`series_max` samples are written, the others are counted. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LEFT_OUT: Final = "tidemark_metric_series_left_out"
VALUE_MAX: Final = 300
"""Characters of a label's value."""

Sample = tuple[Mapping[str, str | None], float | None]
"""Labels, and a value; None is unknown, and has no series. A label that is None is empty."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: str
    """gauge or counter."""
    help: str
    samples: Iterable[Sample]


def text_of(families: Iterable[Family], *, series_max: int) -> str:
    """The text of a scrape."""
    lines: list[str] = []
    left_out: list[Sample] = []
    for family in families:
        known = [(labels, value) for labels, value in family.samples if _is_known(value)]
        lines += _of_family(family, known[:series_max])
        left_out.append(({"metric": family.name}, max(0, len(known) - series_max)))
    meaning = "Series of a metric that found no room in this scrape."
    lines += _of_family(Family(LEFT_OUT, "gauge", meaning, ()), left_out)
    return "".join(f"{line}\n" for line in lines)


def _is_known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _of_family(family: Family, samples: Iterable[Sample]) -> Iterable[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in samples:
        assert value is not None, "what is unknown has no series"
        labels_text = ",".join(
            f'{name}="{_escaped(_text(one)).replace(chr(34), chr(92) + chr(34))}"'
            for name, one in labels.items()
        )
        yield (
            f"{family.name}{{{labels_text}}} {_number(value)}"
            if labels_text
            else (f"{family.name} {_number(value)}")
        )


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _text(text: str | None) -> str:
    """A text of somebody else's, as UTF-8 can say it, on one line of the page."""
    plain = "" if text is None else text[:VALUE_MAX]
    return plain.encode("utf-8", "replace").decode("utf-8")
