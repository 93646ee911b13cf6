"""Formats metric families in Prometheus text format 0.0.4.

    # HELP name what it means
    # TYPE name counter
    name{label="value",other="value"} 12

Place in the walk: beside it, once a scrape.

Invariant: whatever the names of topics and groups hold, the text parses; at most `series_max`
series of a family are written, the others are counted. Absent on purpose: what is measured. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TURN_SERIES = 256
"""Series after which the text made so far is handed out, so that others get their turn: reported
ones, those that find no room, and looks that found nothing to report.
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One value with its labels; `suffix` is `_bucket`, `_sum` or `_count` of a histogram."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


@dataclass(slots=True)
class Family:
    """One metric; its series are asked for while they are written. None among them is a look at
    something that has no series, which costs its time as well.
    """

    name: str
    kind: str
    help: str
    series: Iterable[Series | None] = field(default_factory=list)


@dataclass(slots=True)
class LeftOut:
    """Series that found no room, by family."""

    by_family: dict[str, int] = field(default_factory=dict)


def written(families: Iterable[Family], *, series_max: int, left_out: LeftOut) -> Iterator[str]:
    """The text in pieces of at most TURN_SERIES series; empty ones where nothing was to report."""
    for family in families:
        lines = [
            f"# HELP {family.name} {_escaped_help(family.help)}",
            f"# TYPE {family.name} {family.kind}",
        ]
        looked_at, written_count = len(lines), 0
        for series in family.series:
            looked_at += 1
            if series is not None and written_count < series_max:
                written_count += 1
                lines.append(_line(family.name, series))
            elif series is not None:
                left_out.by_family[family.name] = left_out.by_family.get(family.name, 0) + 1
            if looked_at >= TURN_SERIES:
                yield "".join(f"{line}\n" for line in lines)
                lines, looked_at = [], 0
        if lines:
            yield "".join(f"{line}\n" for line in lines)


def histogram(
    labels: Mapping[str, str], bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[Series]:
    """Series of one histogram: `counts` has one entry for each bound and one beyond the last.

    Bounds are reported as RocketMQ reports them, `1.0` and not `1`: boards select by the word.
    """
    assert len(counts) == len(bounds) + 1, "one count for each bucket"
    below = 0
    for bound, count in zip(bounds, counts, strict=False):
        below += count
        yield Series({**labels, "le": repr(float(bound))}, below, "_bucket")
    below += counts[-1]
    yield Series({**labels, "le": "+Inf"}, below, "_bucket")
    yield Series(labels, total, "_sum")
    yield Series(labels, below, "_count")


def _line(name: str, series: Series) -> str:
    labels = ",".join(
        f'{label}="{_escaped_label(value)}"' for label, value in series.labels.items()
    )
    return f"{name}{series.suffix}{{{labels}}} {_number(series.value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
