"""Prometheus metrics of an observer: how its looks at each broker go.

Place in the walk: beside it, once a scrape. What the looks found is in the lake, and its metrics
are those of `tidemark alerts run`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from engine.broker.metrics.exposition import Family, LeftOut, Series, written
from engine.foundation.units import SECOND_MS
from engine.observer.look_times import LookTimes
from engine.observer.looks import BrokerKey

Figure = Callable[[LookTimes], float | None]

_FAMILIES: Final[Sequence[tuple[str, str, str, Figure]]] = (
    (
        "look_seconds", "gauge", "How long the last look at the broker took",
        lambda one: None if one.last_ms is None else one.last_ms / SECOND_MS,
    ),
    (
        "period_seconds", "gauge", "From one look to the next: one that takes longer is slow",
        lambda one: one.period_ms / SECOND_MS,
    ),
    ("looks_total", "counter", "Looks that have ended", lambda one: one.looks),
    ("slow_looks_total", "counter", "Looks that took longer than the period", lambda one: one.slow),
    (
        "failed_looks_total", "counter", "Looks that the broker did not answer whole enough",
        lambda one: one.failed,
    ),
)  # fmt: skip


def pages_of(times_of: Mapping[BrokerKey, LookTimes], *, series_max: int) -> Iterator[str]:
    """The text of one scrape, in pieces."""
    families = (
        Family(f"tidemark_observer_{name}", kind, meaning, _series(times_of, figure))
        for name, kind, meaning, figure in _FAMILIES
    )
    yield from written(families, series_max=series_max, left_out=LeftOut())


def _series(times_of: Mapping[BrokerKey, LookTimes], figure: Figure) -> Iterator[Series]:
    for (cluster, broker), times in sorted(times_of.items()):
        value = figure(times)
        if value is not None:
            yield Series({"cluster": cluster, "broker": broker}, value)
