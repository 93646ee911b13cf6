"""To whom a broker reports which message that it has stored twice.

Feature rows: A10 (a producer's retry is stored again).
"""

from __future__ import annotations

from engine.broker.sending.resends import DuplicateCopies, SecondCopy


def copy(queue_offset: int, topic: str = "T") -> SecondCopy:
    return SecondCopy("ID", topic, 1, queue_offset, 0, 0, 3000)


def handed(copies: DuplicateCopies, span: range, *absent: int, group: str = "group") -> list[int]:
    brought = copies.handed((group, "T", 1), span, lambda offset: offset not in absent)
    return [one.queue_offset for one in brought]


def test_a_copy_is_reported_once_for_each_group_that_is_handed_it() -> None:
    copies = DuplicateCopies()
    copies.add(copy(5))
    assert handed(copies, range(5)) == []
    assert handed(copies, range(6, 9)) == []
    assert handed(copies, range(3, 6)) == [5]
    assert handed(copies, range(3, 6)) == []
    assert handed(copies, range(6), group="other") == [5]


def test_a_copy_that_a_filter_left_out_was_not_handed() -> None:
    copies = DuplicateCopies()
    copies.add(copy(5))
    copies.add(copy(6))
    assert handed(copies, range(9), 5) == [6]


def test_beyond_the_limit_the_copy_noted_first_goes_and_a_deleted_topic_is_forgotten() -> None:
    copies = DuplicateCopies(copies_max=2)
    for offset in (5, 6, 7):
        copies.add(copy(offset))
    assert (len(copies), handed(copies, range(9))) == (2, [6, 7])
    copies.forget_topic("T")
    assert (len(copies), handed(copies, range(9), group="other")) == (0, [])
    copies.add(copy(5))
    copies.add(copy(5, topic="U"))
    copies.add(copy(6, topic="U"))
    assert len(copies) == 2
