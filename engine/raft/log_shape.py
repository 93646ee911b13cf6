"""The shape of a replicated log: which index, term and configuration each byte belongs to.

Place in the walk: `core` decides by it, `term_starts` makes it durable beside the commit log.

A commit log holds RocketMQ's records and nothing else, so what Raft itself writes stands beside it:
marks. A mark begins a term (the no-op of its leader) or is a configuration. An index counts the
bytes of the log, and one for each mark between them:

    commit log        aaaaaaaa  bbbbbb            cccc
    marks           ^         ^       ^ members
    index           0 1......8 9....14 15 ......

The end of an entry (a put, a batch, a mark) is an index; with the term of the entry it names all
that stands before it. Invariant: marks are in order of index and term; each term with bytes begins
with a mark. Absent on purpose: the bytes, and where entries amid a term end: who sends them ends
where one does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace

from engine.raft.members import Members


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The end of an entry. Of two logs, that with the greater last position is more up to date."""

    term: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """An entry of Raft's own. It takes the index at which it stands, and no byte of the log."""

    index: int
    term: int
    members: Members | None = None
    """A configuration; None: the begin of its term."""


@dataclass(frozen=True, slots=True)
class Base:
    """Where a log begins: what stood before is gone, and was committed."""

    index: int = 0
    term: int = 0
    """Of the last entry that is gone."""
    offset: int = 0
    """Of the first byte that is there."""
    members: Members = field(default_factory=Members)
    """The configuration at that place."""

    @property
    def position(self) -> Position:
        """The end of what is gone."""
        return Position(self.term, self.index)


def _index_of(mark: Mark) -> int:
    return mark.index


def _term_of(mark: Mark) -> int:
    return mark.term


@dataclass(frozen=True, slots=True)
class LogShape:
    """One log, without its bytes."""

    base: Base = field(default_factory=Base)
    marks: tuple[Mark, ...] = ()
    end_offset: int = 0
    """Behind the last byte of the commit log."""

    @property
    def end_index(self) -> int:
        """Behind the last entry."""
        return self.base.index + self.end_offset - self.base.offset + len(self.marks)

    @property
    def last(self) -> Position:
        """The end of the last entry."""
        return Position(self.marks[-1].term if self.marks else self.base.term, self.end_index)

    @property
    def members(self) -> Members:
        """The configuration that counts: the last one, committed or not."""
        return self.members_at(self.end_index)

    @property
    def members_begin(self) -> int:
        """Where the configuration that counts stands; before the log's begin, if it is gone."""
        for mark in reversed(self.marks):
            if mark.members is not None:
                return mark.index
        return self.base.index - 1

    def members_at(self, index: int) -> Members:
        """The configuration that counts for a log that ends there."""
        for mark in reversed(self.marks[: self._marks_before(index)]):
            if mark.members is not None:
                return mark.members
        return self.base.members

    def term_at(self, end_index: int) -> int:
        """The term of the entry that ends there."""
        assert self.base.index <= end_index <= self.end_index, (end_index, self)
        before = self._marks_before(end_index)
        return self.marks[before - 1].term if before else self.base.term

    def position_at(self, end_index: int) -> Position:
        """The end of an entry, with its term."""
        return Position(self.term_at(end_index), end_index)

    def holds(self, position: Position) -> bool:
        """Does an entry of this log end there? Then all before it is the same in both logs."""
        index = position.index
        return self.base.index <= index <= self.end_index and self.term_at(index) == position.term

    def end_of_term(self, term: int) -> Position | None:
        """The end of the last entry of this term or an earlier one; None: it is gone."""
        if self.base.term > term:
            return None
        later = bisect_right(self.marks, term, key=_term_of)
        end = self.marks[later].index if later < len(self.marks) else self.end_index
        return self.position_at(end)

    def mark_at(self, index: int) -> Mark | None:
        """The mark that stands there."""
        at = self._marks_before(index)
        return self.marks[at] if at < len(self.marks) and self.marks[at].index == index else None

    def bytes_end(self, index: int) -> int:
        """Where the bytes from `index` on end: at the next mark, or at the log's end."""
        at = self._marks_before(index)
        return self.marks[at].index if at < len(self.marks) else self.end_index

    def offset_at(self, index: int) -> int:
        """The offset in the commit log of what stands at `index`."""
        base = self.base
        return base.offset + index - base.index - self._marks_before(index)

    def with_bytes(self, end_offset: int) -> LogShape:
        """More bytes at the end."""
        assert end_offset > self.end_offset, (end_offset, self.end_offset)
        return replace(self, end_offset=end_offset)

    def with_mark(self, term: int, members: Members | None = None) -> LogShape:
        """One more mark at the end."""
        assert term > self.last.term or (term == self.last.term and members is not None)
        return replace(self, marks=(*self.marks, Mark(self.end_index, term, members)))

    def cut(self, index: int) -> LogShape:
        """Without what stands at `index` and behind it."""
        assert self.base.index <= index <= self.end_index, (index, self)
        marks = self.marks[: self._marks_before(index)]
        return replace(self, marks=marks, end_offset=self.offset_at(index))

    def begun_at(self, offset: int) -> LogShape:
        """Without the bytes before `offset`, which are gone, and the marks among them."""
        assert self.base.offset <= offset <= self.end_offset, (offset, self)
        gone = 0
        while gone < len(self.marks) and self.offset_at(self.marks[gone].index) < offset:
            gone += 1
        index = self.base.index + offset - self.base.offset + gone
        base = Base(index, self.term_at(index), offset, self.members_at(index))
        return LogShape(base, self.marks[gone:], self.end_offset)

    def _marks_before(self, index: int) -> int:
        return bisect_left(self.marks, index, key=_index_of)
