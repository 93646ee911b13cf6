"""The marks of a log on disk: where terms begin and members change, beside the commit log.

Place in the walk: `journal` writes it between what it does to the log; read when a node starts.

A mark is written once the log before it is synced, and before anything stands behind it. So a log
that ends before a mark has lost what was synced, and no byte is ever taken for another term's.
A cut is written down before it is made:

    1  the marks that stay, and the offset at which the log is about to be cut
    2  the log is cut there
    3  the same marks, and nothing about to be done

Invariant: whatever step the power cuts off, `LogShape` of file and log is that before the step or
after it. Absent on purpose: the ends of entries amid a term; a log ends with a whole record, and of
a batch that was not acknowledged a part may be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from engine.foundation.errors import CorruptRecord
from engine.raft.checked_file import read_checked, write_checked
from engine.raft.log_shape import Base, LogShape, Mark
from engine.raft.members import Members
from engine.runtime.disk import Disk

_MARK: Final = b"TMRT"


@dataclass(frozen=True, slots=True)
class StoredMarks:
    """What the file says."""

    base: Base
    marks: tuple[Mark, ...] = ()
    cut_offset: int | None = None
    """The log is to be cut there, before it is used."""
    begins_anew: bool = False
    """What the log holds is to go; it is to begin where `base` does."""

    @property
    def least_end(self) -> int:
        """No log that holds all that was synced ends before."""
        shape = LogShape(self.base, self.marks)
        return shape.offset_at(self.marks[-1].index) if self.marks else self.base.offset

    def shape_of(self, log_begin: int, log_end: int) -> LogShape:
        """The shape of a log with these marks. Raises CorruptRecord for one that ends before them.

        A log whose first files went since begins behind `base`.
        """
        end = log_end if self.cut_offset is None else min(log_end, self.cut_offset)
        if end < self.least_end:
            raise CorruptRecord(f"the log ends at {end}, its last mark stands at {self.least_end}")
        shape = LogShape(self.base, self.marks, end)
        return shape if log_begin <= self.base.offset else shape.begun_at(min(log_begin, end))


class TermStarts:
    """The file of one log."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.path = f"{folder}/termStarts"

    def load(self) -> StoredMarks | None:
        """What was written last; None: nothing ever was. Raises CorruptRecord, StorageError."""
        document = read_checked(self._disk, self.path, _MARK)
        if document is None:
            return None
        try:
            base, marks = document["base"], document["marks"]
            members = _members_of(base["members"])
            assert members is not None
            return StoredMarks(
                Base(base["index"], base["term"], base["offset"], members),
                tuple(Mark(index, term, _members_of(found)) for index, term, found in marks),
                document["cut"],
                document["anew"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptRecord(f"{self.path} is not as it was written: {error}") from error

    def save(self, stored: StoredMarks) -> None:
        """Make it durable. Raises DiskFull, StorageError."""
        base = stored.base
        document: dict[str, Any] = {
            "base": {
                "index": base.index,
                "term": base.term,
                "offset": base.offset,
                "members": _written(base.members),
            },
            "marks": [[mark.index, mark.term, _written(mark.members)] for mark in stored.marks],
            "cut": stored.cut_offset,
            "anew": stored.begins_anew,
        }
        write_checked(self._disk, self.path, _MARK, document)


def _written(members: Members | None) -> list[list[str]] | None:
    return None if members is None else [list(members.voters), list(members.learners)]


def _members_of(written: list[list[str]] | None) -> Members | None:
    return None if written is None else Members(*map(tuple, written))
