"""Latest pull and consume rates reported by group members, per topic.

Place in the walk: beside it; each answer to the question what a member holds (client_windows)
replaces what it reported before, a question without an answer removes it, and the port for metrics
shows it.

Invariant: at most `count_max` topics of members are kept: a member whose topics find no room is
counted, and kept as soon as there is some. Absent on purpose: figures of the broker's own making.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.foundation.limits import CLIENT_FIGURES_MAX
from engine.protocol.bodies import ConsumeStatus

Figures = Mapping[str, ConsumeStatus]
"""By topic."""
NOTHING: Figures = {}


class ClientStats:
    """The figures of one broker's members."""

    def __init__(self, count_max: int = CLIENT_FIGURES_MAX) -> None:
        self._count_max = count_max
        self._figures: dict[tuple[str, str], Figures] = {}
        self._count = 0
        self._left_out: dict[tuple[str, str], int] = {}

    def take(self, group: str, client_id: str, figures: Figures) -> None:
        """Take a member's figures; they replace its earlier ones."""
        key = (group, client_id)
        self._drop(key)
        if not figures:
            return
        if self._count + len(figures) > self._count_max:
            self._left_out[key] = len(figures)
            return
        self._figures[key] = figures
        self._count += len(figures)

    def of(self, group: str, client_id: str) -> Figures:
        """What the member reported last; empty for one that reported nothing."""
        return self._figures.get((group, client_id), NOTHING)

    def forget(self, group: str, client_id: str) -> None:
        """The member is gone."""
        self._drop((group, client_id))

    @property
    def left_out(self) -> int:
        """Topics of members that found no room."""
        return sum(self._left_out.values())

    def _drop(self, key: tuple[str, str]) -> None:
        self._left_out.pop(key, None)
        self._count -= len(self._figures.pop(key, NOTHING))
