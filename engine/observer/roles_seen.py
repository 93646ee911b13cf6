"""Tracks which of a broker's addresses is the master, and detects changes.

Place in the walk: the name servers' list → `Look.roles` → `RolesSeen` → lifecycle. A controller, a
DLedger group or an administrator makes a slave the master; the name servers say so by the broker
ids, of which 0 is the master's. Pure.

Invariant: only an address whose role was known before changes it: one that is new may have been
anything, and one that is no longer listed keeps what it was until it is listed again. Absent on
purpose: numbers of slaves, which change without meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.foundation.observing import LifecycleEvent
from engine.protocol.names import MASTER_ID

ADDRESSES_KEPT_MAX: Final = 64
"""Of one broker; a container has another one after each start."""
CHANGES_TOLD_MAX: Final = 8
"""In one sentence: a broker has a few copies."""


class RolesSeen:
    """The roles of one broker's addresses."""

    def __init__(self, roles: Mapping[str, int] | None = None) -> None:
        """`roles`: as they were known before."""
        self._roles: dict[str, int] = dict(roles or {})

    def change(self, roles: Mapping[str, int]) -> Iterator[LifecycleEvent]:
        """The fact that the master is another one, when it is."""
        masters = [one for one, at in roles.items() if at == MASTER_ID and self._was(one, at)]
        slaves = [one for one, at in roles.items() if at != MASTER_ID and self._was(one, at)]
        words = [
            *(f"{one} is master, was slave {self._roles[one]}" for one in masters),
            *(f"{one} is slave {roles[one]}, was master" for one in slaves),
        ][:CHANGES_TOLD_MAX]
        if words and MASTER_ID not in roles.values():
            words.append("none is master")
        self._remember(roles)
        if words:
            master = masters[0] if masters else None
            yield LifecycleEvent("ROLE_CHANGE", "; ".join(words), address=master)

    @property
    def known(self) -> Mapping[str, int]:
        """For the broker's next life."""
        return self._roles

    def _was(self, address: str, broker_id: int) -> bool:
        """Did it have the other role?"""
        before = self._roles.get(address)
        return before is not None and (before == MASTER_ID) != (broker_id == MASTER_ID)

    def _remember(self, roles: Mapping[str, int]) -> None:
        for address, broker_id in roles.items():
            self._roles.pop(address, None)
            self._roles[address] = broker_id
        while len(self._roles) > ADDRESSES_KEPT_MAX:
            del self._roles[next(iter(self._roles))]
