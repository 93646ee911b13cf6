"""Throttles sign-in: after each wrong try the next one has to wait longer.

Place in the walk: before a password is looked at. A try that has to wait is not looked at, whatever
its name and password; so waiting reveals nothing about names.

    by one name      5 at once, then 2 s, 4 s, 8 s ... 5 min between two
    by all names    40 at once, then 1 s, 2 s ... 15 s between two

Invariant: a try counts as wrong from its beginning, until it was right: many at once are no more
than many in a row. Pure: the clock is an argument. Absent on purpose: addresses, which a proxy
makes the same for everybody, and an attacker has many of.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

NAMES_MAX: Final = 10_000
"""Names that are remembered; beyond it the one tried longest ago is forgotten. All names together
are bounded by a law of their own."""


@dataclass(frozen=True, slots=True)
class Law:
    """How waits grow."""

    free: int
    """Wrong tries without a wait."""
    first_ms: int
    longest_ms: int
    forgotten_ms: int
    """After so long without a try, those before no longer count."""

    def wait_ms(self, wrong: int) -> int:
        """How long after the last of several wrong tries the next one may come."""
        if wrong < self.free:
            return 0
        return min(self.first_ms << min(wrong - self.free, 20), self.longest_ms)


A_NAME: Final = Law(free=5, first_ms=2_000, longest_ms=300_000, forgotten_ms=3_600_000)
ALL_NAMES: Final = Law(free=40, first_ms=1_000, longest_ms=15_000, forgotten_ms=600_000)


@dataclass(slots=True)
class _Tally:
    wrong: int = 0
    last_ms: int = 0


class WrongTries:
    """What was tried lately. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = _Tally()
        self._by_name: OrderedDict[bytes, _Tally] = OrderedDict()

    def begin(self, name: str, *, now_ms: int) -> int:
        """0: the password may be looked at, and the try counts. Else so many ms are to wait, and
        it does not count.
        """
        with self._lock:
            his = self._tally(name)
            wait_ms = max(
                _left_ms(his, A_NAME, now_ms=now_ms), _left_ms(self._all, ALL_NAMES, now_ms=now_ms)
            )
            if wait_ms == 0:
                for tally in (his, self._all):
                    tally.wrong, tally.last_ms = tally.wrong + 1, now_ms
            return wait_ms

    def was_right(self, name: str) -> None:
        """The try that was begun brought the right password: nothing counts against him."""
        with self._lock:
            self._by_name.pop(_key(name), None)
            self._all.wrong = max(0, self._all.wrong - 1)

    def was_not_looked_at(self, name: str) -> None:
        """Nobody looked at the password of the try that was begun."""
        with self._lock:
            for tally in (self._tally(name), self._all):
                tally.wrong = max(0, tally.wrong - 1)

    def _tally(self, name: str) -> _Tally:
        key = _key(name)
        tally = self._by_name.setdefault(key, _Tally())
        self._by_name.move_to_end(key)
        if len(self._by_name) > NAMES_MAX:
            self._by_name.popitem(last=False)
        return tally


def _left_ms(tally: _Tally, law: Law, *, now_ms: int) -> int:
    passed_ms = now_ms - tally.last_ms
    if passed_ms >= law.forgotten_ms:
        tally.wrong = 0
    if passed_ms < 0:  # The clock was set back: nobody waits longer than was announced.
        tally.last_ms, passed_ms = now_ms, 0
    return max(0, law.wait_ms(tally.wrong) - passed_ms)


def _key(name: str) -> bytes:
    """A name of any length costs as much as any other."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
