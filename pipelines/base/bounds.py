"""Lower bounds of partly unknown figures: their column names, and how they are shown.

Invariant: a bound stands in a column of its own and never in that of the figure. Absent on purpose:
working bounds out (`marts.groups.sums`, `known`).
"""

from __future__ import annotations

from typing import Final

AT_LEAST: Final = "_at_least_"
"""In the name of a column that is the lower bound of another one."""


def bound_of(name: str) -> str:
    """The column that is the lower bound of a figure: lag_messages → lag_at_least_messages."""
    figure, _, unit = name.rpartition("_")
    return f"{figure}{AT_LEAST}{unit}"


class AtLeast(int):
    """A number of which only a lower bound is known."""

    def __str__(self) -> str:
        return f"at least {int(self)}"
