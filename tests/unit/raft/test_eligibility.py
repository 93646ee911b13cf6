"""Row C11: who lost what it promised is another node."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import CorruptRecord
from engine.raft.eligibility import Found, Standing, judge
from engine.raft.log_shape import Base, LogShape, Mark
from engine.raft.members import Members
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.raft.vote_file import StoredVote, VoteFile
from engine.runtime import SystemDisk

VOTE = StoredVote("a", 4, "b")
MARKS = StoredMarks(
    Base(members=Members(("a", "b", "c"))), (Mark(0, 1), Mark(31, 3), Mark(52, 3, Members(("a",))))
)
"""30 bytes of term 1, then 20 of term 3, then a configuration."""


def standing(**changes: object) -> Standing:
    found: dict[str, object] = {"vote": VOTE, "marks": MARKS, "log_end": 60, "synced_offset": 60}
    return judge(Found(**found | changes)).standing


def test_a_sound_disk_is_who_it_was() -> None:
    assert standing() is Standing.AS_IT_WAS
    assert standing(log_end=70) is Standing.AS_IT_WAS


def test_a_disk_with_nothing_is_new() -> None:
    assert standing(vote=None, marks=None, log_end=0, synced_offset=0) is Standing.NEW


@pytest.mark.parametrize(
    ("changes", "keeps_log"),
    [
        ({"vote": None}, True),
        ({"vote": None, "faults": ("vote is not as it was written",)}, True),
        ({"vote": None, "marks": None}, False),
        ({"marks": None}, False),
        ({"vote": None, "marks": None, "log_end": 0, "faults": ("unreadable",)}, False),
        ({"has_holes": True}, False),
        ({"log_end": 49}, False),
        ({"log_end": 59}, True),
    ],
    ids=[
        "no vote",
        "a damaged vote",
        "a log of nobody",
        "no marks",
        "damaged and no log",
        "a hole",
        "a log that ends before its last mark",
        "a log shorter than its synced position",
    ],
)
def test_what_cannot_be_known_is_amnesia(changes: dict[str, object], keeps_log: bool) -> None:
    found: dict[str, object] = {"vote": VOTE, "marks": MARKS, "log_end": 60, "synced_offset": 60}
    verdict = judge(Found(**found | changes))
    assert verdict.standing is Standing.AMNESIAC
    assert verdict.reason
    assert (verdict.log is not None) is keeps_log


def test_a_cut_that_was_written_down_is_no_amnesia() -> None:
    marks = StoredMarks(MARKS.base, MARKS.marks[:1], cut_offset=12)
    verdict = judge(Found(VOTE, marks, (), 0, 60, 60))
    assert verdict.standing is Standing.AS_IT_WAS
    assert verdict.log == LogShape(marks.base, marks.marks, 12)


def test_a_log_that_let_its_first_files_go_has_its_terms() -> None:
    verdict = judge(Found(VOTE, MARKS, (), 40, 60, 60))
    assert verdict.log is not None
    assert verdict.log.base == Base(42, 3, 40, MARKS.base.members)
    assert verdict.log.marks == MARKS.marks[2:]


@pytest.mark.parametrize("name", ["vote", "termStarts"])
def test_every_flipped_bit_and_every_torn_file_is_seen(tmp_path: Path, name: str) -> None:
    disk = SystemDisk()
    VoteFile(disk, str(tmp_path)).save(VOTE)
    TermStarts(disk, str(tmp_path)).save(MARKS)
    assert VoteFile(disk, str(tmp_path)).load() == VOTE
    assert TermStarts(disk, str(tmp_path)).load() == MARKS
    file = VoteFile(disk, str(tmp_path)) if name == "vote" else TermStarts(disk, str(tmp_path))
    whole = (tmp_path / name).read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(0, 8, 3)
    ]
    for content in damaged:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptRecord):
            file.load()


def test_a_file_that_was_never_written_is_no_file(tmp_path: Path) -> None:
    assert VoteFile(SystemDisk(), str(tmp_path)).load() is None
    assert TermStarts(SystemDisk(), str(tmp_path)).load() is None
