"""Decides, when a node starts, whether its disk lets it vote.

Place in the walk: before `core.begin`, with what was found on the disk.

A voter promises to remember its vote, and what it has acknowledged. Who cannot know that it does is
another node from then on: with a new identity, and no vote until the group makes it a voter again.
What is sound of its log stays, to be compared with the leader's.

Invariant: whatever is missing or damaged is never taken for "nothing yet" beside something that is
there. Absent on purpose: repair; a learner gets from its leader what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.raft.log_shape import LogShape
from engine.raft.term_starts import StoredMarks
from engine.raft.vote_file import StoredVote


class Standing(Enum):
    """How a node returns."""

    AS_IT_WAS = "AS_IT_WAS"
    NEW = "NEW"
    """It never was anybody."""
    AMNESIAC = "AMNESIAC"
    """It was somebody, and cannot say what it promised: it needs a new identity."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a start finds."""

    vote: StoredVote | None
    marks: StoredMarks | None
    faults: tuple[str, ...] = ()
    """Files that are there and cannot be read, in words."""
    log_begin: int = 0
    log_end: int = 0
    synced_offset: int = 0
    """The log was synced up to there, by what was noted of it."""
    has_holes: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from it."""

    standing: Standing
    log: LogShape | None
    """What the node goes on with; None: with nothing, whatever its log holds."""
    reason: str = ""


def judge(found: Found) -> Verdict:
    """Who is the node that has this disk?"""
    vote, marks = found.vote, found.marks
    has_log = found.log_end > found.log_begin
    if vote is None and marks is None and not found.faults and not has_log:
        return Verdict(Standing.NEW, None)
    if marks is None:
        reason = "; ".join(found.faults) or "where the terms of its log begin is not known"
        return Verdict(Standing.AMNESIAC, None, reason)
    if found.has_holes:
        return Verdict(Standing.AMNESIAC, None, "its log has a hole")
    if marks.begins_anew:
        shape = LogShape(marks.base, (), marks.base.offset)
    elif found.log_end < marks.least_end:
        reason = f"its log ends at {found.log_end}, before its last mark at {marks.least_end}"
        return Verdict(Standing.AMNESIAC, None, reason)
    else:
        shape = marks.shape_of(found.log_begin, found.log_end)
    if vote is None:
        reason = "; ".join(found.faults) or "its vote is gone"
        return Verdict(Standing.AMNESIAC, shape, reason)
    synced = found.synced_offset
    if marks.cut_offset is not None:
        synced = min(synced, marks.cut_offset)
    if shape.end_offset < synced and not marks.begins_anew:
        reason = f"its log ends at {shape.end_offset}, and was synced up to {synced}"
        return Verdict(Standing.AMNESIAC, shape, reason)
    return Verdict(Standing.AS_IT_WAS, shape)
