"""Pull and consume rates that group members last reported, by topic.

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

Told = Mapping[str, ConsumeStatus]
"""By topic."""
NOTHING: Told = {}


class ClientStats:
    """The figures of one broker's members."""

    def __init__(self, count_max: int = CLIENT_FIGURES_MAX) -> None:
        self._count_max = count_max
        self._told: dict[tuple[str, str], Told] = {}
        self._count = 0
        self._left_out: dict[tuple[str, str], int] = {}

    def take(self, group: str, client_id: str, told: Told) -> None:
        """What a member reports takes the place of what it reported before."""
        key = (group, client_id)
        self._drop(key)
        if not told:
            return
        if self._count + len(told) > self._count_max:
            self._left_out[key] = len(told)
            return
        self._told[key] = told
        self._count += len(told)

    def of(self, group: str, client_id: str) -> Told:
        """What the member reported last; empty for one that reported nothing."""
        return self._told.get((group, client_id), NOTHING)

    def forget(self, group: str, client_id: str) -> None:
        """The member is gone."""
        self._drop((group, client_id))

    @property
    def left_out(self) -> int:
        """Topics of members that found no room."""
        return sum(self._left_out.values())

    def _drop(self, key: tuple[str, str]) -> None:
        self._left_out.pop(key, None)
        self._count -= len(self._told.pop(key, NOTHING))
