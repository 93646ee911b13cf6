"""Text descriptions of figures for readers who cannot see them.

Place in the walk: what pages draw → the label of the figure. Pure. Absent on purpose: drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.base.wording import bound_of, duration, or_more, plural, size
from pipelines.sentences.figures import whole


def heatmap(groups: int, not_ok: int, worst: str, row: Mapping[str, Any]) -> str:
    """Time lag of groups over time; `row`: of the `worst`."""
    verb = "is" if not_ok == 1 else "are"
    shown = f"{plural(groups, 'group')} over time: {not_ok:,} {verb} not OK"
    return whole(
        f"this shows the time lag of {shown}", f"the furthest behind is {worst}: {_lag(row)}"
    )


def timeline(group: str, row: Mapping[str, Any] | None, *, stalls: int, risks: int) -> str:
    """Lag of a group on a time axis; `row`: its newest, None when it was not judged."""
    windows = f"{plural(stalls, 'stalled window')} and {plural(risks, 'window')} of duplicate risk"
    now = "" if row is None else _lag(row)
    return whole(f"this shows the lag of group {group} with {windows}", now)


def loss_window(brokers: int, dearest: str, size_bytes: int | None) -> str:
    """Bytes that a loss would cost, on a time axis; of the `dearest` broker now, None: of none."""
    shown = f"what the loss of a master or a power cut would cost, {plural(brokers, 'broker')}"
    now = "" if size_bytes is None else f"the loss of {dearest} would cost {size(size_bytes)} now"
    return whole(f"this shows {shown}", now)


def _lag(row: Mapping[str, Any]) -> str:
    lag = or_more(row["time_lag_ms"], row[bound_of("time_lag_ms")], duration)
    return f"its time lag is {lag} now"
