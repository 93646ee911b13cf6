"""Epoch list that records which master wrote each part of the log.

Place in the walk: a master begins an epoch before it leads, a slave takes its master's list before
it reports anything; a cut of the log cuts the list, and so does a start.

    epochs.json  {"epochs": [{"epoch": .., "startOffset": .., "slaves": ..}],
                  "highest": .., "leads": ..}

Two logs hold the same bytes up to `last_common` of their lists. An epoch that begins at or behind
the log's end has no byte in it: it is a boundary that is known before its bytes come.

Invariant: what is in memory is on disk, in both versions of the file; numbers and offsets rise.
`highest` never falls: no number is given twice by a node that has heard of it. Absent on purpose:
who leads (broker).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.foundation.errors import CorruptRecord
from engine.foundation.observing import Observer
from engine.runtime import Runtime
from engine.store.table_file import TableFile

FILE_NAME = "epochs.json"

EPOCHS_MAX = 1000
"""The newest ones are remembered; a list of them fits the frame of any peer."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One master's part of the log."""

    number: int
    begin: int
    """The first byte that it wrote."""
    slaves: int = field(default=0, compare=False)
    """Slaves without whose word it acknowledged nothing."""


class Epochs:
    """The list of one store."""

    def __init__(self, runtime: Runtime, folder: str, store_id: str) -> None:
        self._file = TableFile(runtime, f"{folder}/{FILE_NAME}", store_id)
        self.entries: tuple[Epoch, ...] = ()
        """Ascending; empty for a log that never had a second copy."""
        self.highest = 0
        """The greatest number that this node has heard of."""
        self.leads = False
        """Did this node begin the newest epoch, and follow nobody since?"""

    @property
    def last(self) -> Epoch:
        """The newest epoch; that of number 0 when there is none."""
        return self.entries[-1] if self.entries else Epoch(0, 0)

    def number_before(self, end: int) -> int:
        """The epoch of the last byte before `end`."""
        numbers = [one.number for one in self.entries if one.begin < end]
        return numbers[-1] if numbers else 0

    def load(self, observer: Observer) -> None:
        """Take over the list of the last life. Raises CorruptRecord when it is unreadable."""
        self._file.load(observer, self._accept)

    def _accept(self, document: Mapping[str, object]) -> None:
        entries, highest = entries_in(document.get("epochs")), document.get("highest")
        if type(highest) is not int:
            raise CorruptRecord(f"{self._file.path} holds no highest epoch")
        self.entries, self.highest = entries, max([highest, *(one.number for one in entries)])
        self.leads = document.get("leads") is True

    async def begin(self, number: int, end: int, *, log_begin: int, slaves: int = 0) -> None:
        """This node leads in epoch `number`, greater than any it has heard of, what lies behind
        `end`; durably when this returns. Raises DiskFull, StorageError.
        """
        assert number > self.highest, f"epoch {number} after {self.highest}"
        before = [one for one in self.entries if one.begin < end]
        gone = [one for one in before if one.begin <= log_begin][:-1]
        entries = (*before[len(gone) :], Epoch(number, end, slaves))
        await self._write(entries[-EPOCHS_MAX:], max(number, self.highest), leads=True)

    async def take(self, entries: Sequence[Epoch], end: int) -> None:
        """This node, whose log ends at `end`, follows a master with this list; one without any
        (RocketMQ's) says nothing of what lies behind `end`. Raises StorageError.
        """
        taken = tuple(entries) or tuple(one for one in self.entries if one.begin < end)
        numbers = (one.number for one in taken)
        await self._write(taken, max([self.highest, *numbers]), leads=False)

    async def take_back(self, end: int) -> None:
        """The log ends at `end`: what begins behind it is forgotten. Raises StorageError."""
        rest = tuple(one for one in self.entries if one.begin <= end)
        await self._write(rest, self.highest, leads=self.leads and rest == self.entries)

    async def _write(self, entries: tuple[Epoch, ...], highest: int, *, leads: bool) -> None:
        if (entries, highest, leads) == (self.entries, self.highest, self.leads):
            return
        document = {
            "epochs": [as_listed(one) for one in entries],
            "highest": highest,
            "leads": leads,
        }
        await self._file.write(document, both=True)
        self.entries, self.highest, self.leads = entries, highest, leads


def as_listed(one: Epoch) -> dict[str, int]:
    """An epoch as `entries_in` reads it."""
    return {"epoch": one.number, "startOffset": one.begin, "slaves": one.slaves}


def entries_in(listed: object) -> tuple[Epoch, ...]:
    """A list as it was written, or as another node gives it. Raises CorruptRecord for one that
    does not rise.
    """
    if not isinstance(listed, list) or len(listed) > EPOCHS_MAX:
        raise CorruptRecord(f"{str(listed)[:80]} is no list of epochs")
    found: list[Epoch] = []
    for entry in listed:
        number = entry.get("epoch") if isinstance(entry, Mapping) else None
        begin = entry.get("startOffset") if isinstance(entry, Mapping) else None
        slaves = entry.get("slaves", 0) if isinstance(entry, Mapping) else None
        if type(number) is not int or type(begin) is not int or type(slaves) is not int:
            raise CorruptRecord(f"{str(entry)[:80]} is no epoch")
        if min(number, begin, slaves) < 0:
            raise CorruptRecord(f"{str(entry)[:80]} is no epoch")
        if found and (number <= found[-1].number or begin < found[-1].begin):
            raise CorruptRecord(f"epoch {number} at {begin} comes after {found[-1]}")
        found.append(Epoch(number, begin, slaves))
    return tuple(found)


def last_common(own: Iterable[Epoch], own_end: int, other: Iterable[Epoch], other_end: int) -> int:
    """Up to where two logs hold the same bytes, as far as their lists say: the end of the newest
    epoch that both have, in the log in which it ends first.
    """
    theirs = _ends(other, other_end)
    ends = [min(end, theirs[one]) for one, end in _ends(own, own_end).items() if one in theirs]
    return max(ends, default=0)


def _ends(entries: Iterable[Epoch], log_end: int) -> dict[Epoch, int]:
    """Where each epoch ends; what nobody led, if anything, is the first."""
    listed = [Epoch(0, 0), *(one for one in entries if one.number)]
    ends = [*(one.begin for one in listed[1:]), log_end]
    return {
        one: min(end, log_end)
        for one, end in zip(listed, ends, strict=True)
        if one.begin < min(end, log_end)
    }
