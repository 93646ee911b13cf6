"""Composes one answer to "when is a put safe?" of flush, replicas and majority.

Place in the walk: between the put and its answer; `durability` asks with the end of the record.

A waiter waits for an end in a term: an end alone would be met by the bytes that another leader put
there. When the node steps down, every waiter is settled UNKNOWN: whoever leads next may have its
message, or cut it.

Invariant: a waiter is settled once. With nothing to wait for, none is made. Each condition bounds
its own wait, as a group commit does. Absent on purpose: what an answer says (durability), how a
condition is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from engine.broker.node import BrokerNode
from engine.store import GroupCommit, MessageStore


class PutStatus(IntEnum):
    """How safe a stored message is. Of several conditions that are not met, the greater one."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    UNKNOWN = 3
    """The node stepped down, or a majority did not answer: it may be stored, it may be cut."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the things that make a put safe."""

    when_met: Callable[[int, int], GroupCommit | None]
    """What settles True when it is met for (term, end offset), False when it is not in time; None:
    it is met already.
    """
    otherwise: PutStatus
    """The status of a put for which it is not met."""


class Waiter:
    """A put that is not safe yet."""

    __slots__ = ("_call", "_status", "_unmet", "_waiting", "end_offset", "term")

    def __init__(self, term: int, end_offset: int, waiting: dict[Waiter, None]) -> None:
        """`waiting` holds it until it is settled."""
        self.term = term
        self.end_offset = end_offset
        self._waiting = waiting
        self._unmet = 1  # The one that `when_safe` takes back when it has asked all.
        self._status = PutStatus.PUT_OK
        self._call: Callable[[PutStatus], None] | None = None
        waiting[self] = None

    def when_settled(self, call: Callable[[PutStatus], None]) -> None:
        """Have `call` made with the status, as soon as it is known. Hot."""
        if self in self._waiting:
            self._call = call
        else:
            call(self._status)

    def wait_for(self, condition: Condition, met: GroupCommit) -> None:
        """Not safe before `met` is settled. Hot."""
        self._unmet += 1
        otherwise = condition.otherwise
        met.tell(lambda is_met: self.note(PutStatus.PUT_OK if is_met else otherwise))

    def note(self, status: PutStatus) -> None:
        """One of the conditions is known now. Hot."""
        self._status = max(self._status, status)
        self._unmet -= 1
        if not self._unmet:
            self.settle(self._status)

    def settle(self, status: PutStatus) -> None:
        """This is the status, unless there is one already."""
        if self not in self._waiting:
            return
        del self._waiting[self]
        self._status = status
        if self._call is not None:
            self._call(status)


class Safety:
    """Knows when the puts of one broker are safe."""

    def __init__(self, node: BrokerNode, *conditions: Condition) -> None:
        self._node = node
        self.conditions = conditions
        """All must be met. Hot: a tuple."""
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        """How many puts wait."""
        return len(self._waiting)

    def when_safe(self, end_offset: int) -> Waiter | None:
        """Who gets the status of a put of this step that ends there; None: it is safe. Hot."""
        waiter, term = None, self._node.term
        for condition in self.conditions:
            met = condition.when_met(term, end_offset)
            if met is not None:
                if waiter is None:
                    waiter = Waiter(term, end_offset, self._waiting)
                waiter.wait_for(condition, met)
        if waiter is not None:
            waiter.note(PutStatus.PUT_OK)
        return waiter

    def end_term(self) -> None:
        """The node stepped down, or leads in another term: nobody knows what becomes of what was
        put before, and whoever waits hears so.
        """
        for waiter in list(self._waiting):
            try:
                waiter.settle(PutStatus.UNKNOWN)
            except Exception as error:  # noqa: BLE001 - nobody else's answer may depend on it.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a waiter for a safe put failed", "exception": error}
                )


def flushed(store: MessageStore) -> Condition:
    """The bytes are as durable as the flush mode wants them."""
    return Condition(
        lambda _term, end_offset: store.when_flushed(end_offset), PutStatus.FLUSH_DISK_TIMEOUT
    )
