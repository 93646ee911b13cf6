"""Estimates from client responses how far each client's clock differs from the emitter's.

Place in the walk: a client has answered what it holds → what its moments have to be corrected by →
`answers.window_of`.

Our own clients say what their clock shows when they answer. RocketMQ's do not; but what they last
did, by their clock, lies before the answer, and where it is later than all that the answer before
named, it lies behind that one. Each answer so bounds the difference from both sides; it is known as
well as the client is asked often. Nothing is corrected that the bounds allow to be right.

Invariant: a correction stays as long as the bounds allow it, so that moments do not move with every
answer. Absent on purpose: clocks; callers bring the moment of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.foundation.limits import CLIENT_CLOCKS_MAX
from engine.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo
from engine.protocol.names import CLIENT_CLOCK_PROPERTY

SLACK_MS: Final = 2_000
"""An answer may have been on its way for so long, or a look at many members have taken it."""
_DIGITS_MAX: Final = 15
"""Of a moment in ms; a client may say what it likes."""


@dataclass(slots=True)
class _Clock:
    """What is known of one client's clock."""

    answered_ms: int
    newest_ms: int
    """The latest moment that an answer named."""
    least_ms: int
    """It is ahead by this at least; below 0: it is behind."""
    most_ms: int | None
    used_ms: int = 0
    """The correction of its moments."""


class ClientClocks:
    """The clocks of one emitter's clients."""

    def __init__(self, count_max: int = CLIENT_CLOCKS_MAX) -> None:
        self._count_max = count_max
        self._clocks: dict[str, _Clock] = {}

    def __len__(self) -> int:
        """Clients of which something is known."""
        return len(self._clocks)

    def ahead_ms(self, client_id: str, info: ConsumerRunningInfo, at_ms: int) -> int:
        """How much too late the moments of an answer of this moment are; below 0: too early."""
        said_ms = _said_ms(info)
        newest_ms = max(_moments(info.mq_table.values()), default=0)
        if said_ms is None and newest_ms <= 0:
            return 0
        clock = self._clocks.get(client_id)
        if clock is None:
            if len(self._clocks) >= self._count_max:
                return 0
            least_ms = newest_ms - at_ms - SLACK_MS
            clock = self._clocks[client_id] = _Clock(at_ms, newest_ms, least_ms, None)
        if said_ms is not None:
            clock.least_ms = said_ms - at_ms - SLACK_MS
            clock.most_ms = said_ms - at_ms + SLACK_MS
        elif newest_ms > clock.newest_ms:
            least_ms = newest_ms - at_ms - SLACK_MS
            _narrow(clock, least_ms, newest_ms - clock.answered_ms + SLACK_MS)
        clock.answered_ms, clock.newest_ms = at_ms, newest_ms
        if not _allows(clock, clock.used_ms):
            clock.used_ms = _nearest(clock) if said_ms is None else said_ms - at_ms
        return clock.used_ms

    def forget(self, client_id: str) -> None:
        """The client has left."""
        self._clocks.pop(client_id, None)


def _said_ms(info: ConsumerRunningInfo) -> int | None:
    """What its clock shows by its own account."""
    said = info.properties.get(CLIENT_CLOCK_PROPERTY, "")
    return int(said) if said.isdecimal() and len(said) <= _DIGITS_MAX else None


def _moments(infos: Iterable[ProcessQueueInfo]) -> Iterable[int]:
    for one in infos:
        yield max(one.last_pull_timestamp_ms, one.last_consume_timestamp_ms)


def _narrow(clock: _Clock, least_ms: int, most_ms: int) -> None:
    """Both bounds hold; where they leave nothing over, the clock was set."""
    least = max(clock.least_ms, least_ms)
    most = most_ms if clock.most_ms is None else min(clock.most_ms, most_ms)
    clock.least_ms, clock.most_ms = (least, most) if least <= most else (least_ms, most_ms)


def _allows(clock: _Clock, ahead_ms: int) -> bool:
    return clock.least_ms <= ahead_ms and (clock.most_ms is None or ahead_ms <= clock.most_ms)


def _nearest(clock: _Clock) -> int:
    """The least correction that the bounds allow."""
    if clock.least_ms > 0:
        return clock.least_ms
    return 0 if clock.most_ms is None else min(0, clock.most_ms)
