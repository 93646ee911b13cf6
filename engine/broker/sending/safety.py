"""Decides when a put is safe by combining flush, replica and majority conditions.

Place in the walk: between the put and its answer; `durability` asks with the end of the record.

A put waits for an end in a term: an end alone would be met by the bytes that another leader put
there. When the node steps down, every waiter is settled UNKNOWN: whoever leads next may have its
message, or cut it.

Invariant: a waiter is settled once. With nothing to wait for, none is made; puts that wait for one
sync and nothing else share theirs. Each condition bounds its own wait, as a group commit does.
Absent on purpose: what an answer says (durability), how a condition is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from engine.broker.identity import BrokerNode
from engine.store import GroupCommit


class PutStatus(IntEnum):
    """How safe a stored message is. Of several conditions that are not met, the greater one."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    UNKNOWN = 3
    """The node stepped down, or a majority did not answer: it may be stored, it may be cut."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the things that make a put safe, beside its flush."""

    when_met: Callable[[int, int], GroupCommit | None]
    """What settles True when it is met for (term, end offset), False when it is not in time; None:
    it is met already.
    """
    otherwise: PutStatus
    """The status of a put for which it is not met."""


class Waiter:
    """Puts that are not safe yet."""

    __slots__ = ("_calls", "_status", "_unmet", "_waiting")

    def __init__(
        self, unmet: Sequence[tuple[GroupCommit, PutStatus]], waiting: dict[Waiter, None]
    ) -> None:
        """`unmet`: what has to be met, and the status if it is not; `waiting` holds the waiter
        until it is settled.
        """
        self._waiting = waiting
        self._unmet = len(unmet)
        self._status = PutStatus.PUT_OK
        self._calls: list[Callable[[PutStatus], None]] = []
        waiting[self] = None
        for met, otherwise in unmet:
            met.call_when_settled(partial(self._note, otherwise))

    def when_settled(self, call: Callable[[PutStatus], None]) -> None:
        """Have `call` made with the status, as soon as it is known. Hot."""
        if self in self._waiting:
            self._calls.append(call)
        else:
            call(self._status)

    def settle(self, status: PutStatus) -> None:
        """This is the status, unless there is one already."""
        if self not in self._waiting:
            return
        del self._waiting[self]
        self._status = status
        for call in self._calls:
            try:
                call(status)
            except Exception as error:  # noqa: BLE001 - nobody else's answer may depend on it.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a waiter for a safe put failed", "exception": error}
                )

    def _note(self, otherwise: PutStatus, is_met: bool) -> None:
        if not is_met:
            self._status = max(self._status, otherwise)
        self._unmet -= 1
        if not self._unmet:
            self.settle(self._status)


class Safety:
    """Knows when the puts of one broker are safe."""

    def __init__(
        self,
        node: BrokerNode,
        when_flushed: Callable[[int], GroupCommit | None],
        *conditions: Condition,
    ) -> None:
        """`when_flushed` as the store has it."""
        self._node = node
        self._when_flushed = when_flushed
        self.conditions = conditions
        """What else has to be met; replication adds its own."""
        self._waiting: dict[Waiter, None] = {}
        self._shared: tuple[GroupCommit | None, Waiter | None] = (None, None)
        """The sync that puts wait for and nothing else, and their waiter."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def when_safe(self, end_offset: int) -> Waiter | None:
        """Who gets the status of a put of this step that ends there; None: it is safe. Hot."""
        commit = self._when_flushed(end_offset)
        if not self.conditions:
            shared, waiter = self._shared
            if commit is shared:  # None: nothing is to be waited for.
                return waiter
            if commit is None:
                return None
        unmet = [] if commit is None else [(commit, PutStatus.FLUSH_DISK_TIMEOUT)]
        for condition in self.conditions:
            met = condition.when_met(self._node.term, end_offset)
            if met is not None:
                unmet.append((met, condition.otherwise))
        if not unmet:
            return None
        waiter = Waiter(unmet, self._waiting)
        if not self.conditions:
            self._shared = (commit, waiter)
        return waiter

    def end_term(self) -> None:
        """The node stepped down, or leads in another term: nobody knows what becomes of what was
        put before, and whoever waits hears so.
        """
        self._shared = (None, None)
        for waiter in list(self._waiting):
            waiter.settle(PutStatus.UNKNOWN)
