"""Warns once of each emitter that reports too seldom for the window of judging.

Place in the walk: beside the live run. An observer reports how often it looks (`lifecycle`,
`report_each_ms`); a window of which it saw nothing looks like a queue that stands, and a verdict
would come and go with each look.

Invariant: no warning about a period that a window holds twice: one look may fail. Absent on
purpose: brokers that report on themselves, which do so each second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.foundation.errors import LakeError
from engine.telemetry.tables import LIFECYCLE
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake

ASKED_EACH: Final = 60
"""Cycles from one look at the observers to the next."""
_COLUMNS: Final = tuple(
    column for column in LIFECYCLE.columns if column.name in ("emitter", "seq", "report_each_ms")
)


def too_seldom(lake: Lake, evaluation: Evaluation) -> dict[str, str]:
    """By emitter, what is wrong with the period that it reported last, and what to do."""
    address = lake.bronze(LIFECYCLE.name)
    if not lake.exists(address):
        return {}
    observed = lake.rows(address, "kind = 'OBSERVED'", _COLUMNS).sort_by("seq").to_pylist()
    periods = {row["emitter"]: row["report_each_ms"] or 0 for row in observed}
    window_ms = evaluation.window_ms
    return {
        emitter: (
            f"{emitter} is looked at each {period_ms / 1000:g} s, more than half of the window of "
            f"{window_ms / 1000:g} s in which queues are judged: verdicts on it may flicker; start "
            f"`tidemark observe` with --period {window_ms / 2000:g} or less, or judge by a longer "
            f"window (--window-ms {2 * period_ms}, into another lake)"
        )
        for emitter, period_ms in sorted(periods.items())
        if 2 * period_ms > window_ms
    }


class Periods:
    """Reports on each emitter once; again when its period is another one."""

    def __init__(self, lake: Lake, evaluation: Evaluation, say: Callable[[str], None]) -> None:
        self._lake = lake
        self._evaluation = evaluation
        self._say = say
        self._said: dict[str, str] = {}
        self._cycles = 0

    def cycle(self) -> None:
        """A cycle is complete. That the lake does not answer is reported by the next cycle."""
        self._cycles += 1
        if self._cycles % ASKED_EACH != 1:
            return
        try:
            found = too_seldom(self._lake, self._evaluation)
        except LakeError:
            return
        for emitter, sentence in found.items():
            if self._said.get(emitter) != sentence:
                self._say(sentence)
        self._said = found
