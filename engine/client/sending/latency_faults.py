"""Decides which brokers a producer avoids for a while, judged by their latest answers.

Place in the walk: before the first step.

A slow answer makes its broker unavailable for a time that grows with the slowness; an answer that
never came, or a refusal, counts as ten seconds. A producer asks three times: for a broker that is
available, then for one that answers at all, then for any.

Invariant: a broker without any answer so far is available and reachable; the latest answer replaces
what was known before. Absent on purpose: probing brokers in the background, which RocketMQ has
switched off by default too. Pure: times arrive as `now_ms`. Row D1.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.foundation.units import SECOND_MS

NOT_AVAILABLE_MS: tuple[tuple[int, int], ...] = (
    (15 * SECOND_MS, 30 * SECOND_MS),
    (5 * SECOND_MS, 10 * SECOND_MS),
    (3 * SECOND_MS, 6 * SECOND_MS),
    (1800, 5 * SECOND_MS),
    (550, 2 * SECOND_MS),
)
"""(latency from which on, how long the broker is left alone); below the last one: not at all.

RocketMQ's classes; its two lowest, 50 and 100 ms, leave a broker alone for 0 ms.
"""

FAILURE_LATENCY_MS = 10 * SECOND_MS
"""What a refusal or a missing answer counts as."""


def not_available_ms(latency_ms: int) -> int:
    """How long a broker is left alone after an answer that took this long."""
    for from_ms, rest_ms in NOT_AVAILABLE_MS:
        if latency_ms >= from_ms:
            return rest_ms
    return 0


@dataclass(slots=True)
class _Known:
    available_from_ms: int
    reachable: bool


class LatencyFaults:
    """What one producer knows of its brokers."""

    __slots__ = ("_brokers",)

    def __init__(self) -> None:
        self._brokers: dict[str, _Known] = {}  # As many as routes ever named.

    def answered(self, broker_name: str, latency_ms: int, *, now_ms: int) -> None:
        """The broker took a message after `latency_ms`, or was not asked in the end."""
        self._note(broker_name, latency_ms, now_ms, reachable=True)

    def unanswered(self, broker_name: str, *, now_ms: int) -> None:
        """No connection, or no answer in time. As in RocketMQ the broker stays reachable: without
        background probes nothing would ever say that it is back.
        """
        self._note(broker_name, FAILURE_LATENCY_MS, now_ms, reachable=True)

    def refused(self, broker_name: str, *, now_ms: int) -> None:
        """The broker answered that it does not take the message."""
        self._note(broker_name, FAILURE_LATENCY_MS, now_ms, reachable=False)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Has its rest ended?"""
        known = self._brokers.get(broker_name)
        return known is None or now_ms >= known.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Did its latest answer say anything but no?"""
        known = self._brokers.get(broker_name)
        return known is None or known.reachable

    def _note(self, broker_name: str, latency_ms: int, now_ms: int, *, reachable: bool) -> None:
        self._brokers[broker_name] = _Known(now_ms + not_available_ms(latency_ms), reachable)
