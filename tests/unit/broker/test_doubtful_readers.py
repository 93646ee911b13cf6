"""Who may read a queue beside its reader is in doubt until it says what it holds."""

from __future__ import annotations

from engine.broker.groups.readers import DOUBT_MS, DOUBT_SPAN_MS, DoubtfulReaders

A, B = ("g", "a"), ("g", "b")
QUEUE, OTHER = ("t", 0), ("t", 1)


def test_who_does_not_hold_a_queue_a_second_after_its_answer_has_given_it_back() -> None:
    doubts = DoubtfulReaders()
    doubts.arises(A, QUEUE, 1000)
    doubts.arises(A, OTHER, 1000)
    assert not doubts.is_due(A, 1000 + DOUBT_MS - 1)
    assert doubts.is_due(A, 1000 + DOUBT_MS)
    assert not doubts.is_due(B, 1000 + DOUBT_MS)
    assert doubts.given_back(A, [OTHER], asked_ms=1000 + DOUBT_MS) == [QUEUE]
    assert len(doubts) == 1, "the other one it still holds"


def test_an_answer_to_a_question_that_came_too_early_settles_nothing() -> None:
    """It may have been answered meanwhile, and takes the queue up only now."""
    doubts = DoubtfulReaders()
    doubts.arises(A, QUEUE, 1000)
    doubts.arises(A, QUEUE, 1600)  # It asked again.
    assert doubts.given_back(A, [], asked_ms=1000 + DOUBT_MS) == []
    assert doubts.given_back(A, [], asked_ms=1600 + DOUBT_MS) == [QUEUE]


def test_a_doubt_ends_when_its_member_leaves_or_holds_the_queue_for_long() -> None:
    doubts = DoubtfulReaders()
    doubts.arises(A, QUEUE, 1000)
    doubts.arises(B, QUEUE, 1000)
    doubts.forget(A)
    assert not doubts.is_due(B, 1000 + DOUBT_SPAN_MS + 1)
    assert len(doubts) == 0


def test_no_more_doubts_are_kept_than_may_be_and_old_ones_make_room() -> None:
    doubts = DoubtfulReaders(count_max=1)
    doubts.arises(A, QUEUE, 1000)
    doubts.arises(B, QUEUE, 1000)
    assert not doubts.is_due(B, 1000 + DOUBT_MS)
    doubts.arises(B, QUEUE, 1001 + DOUBT_SPAN_MS)
    assert doubts.is_due(B, 1001 + DOUBT_SPAN_MS + DOUBT_MS)
    assert len(doubts) == 1
