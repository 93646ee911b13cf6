"""What is remembered of questions and of client ids: who asked, who holds, and for how long."""

from __future__ import annotations

from typing import Any

from engine.broker.groups.members import ClientIds
from engine.broker.groups.open_requests import Questions


def test_a_question_is_found_by_its_account_its_client_and_its_name() -> None:
    questions = Questions()
    questions.note("shop", "c1", "7", "orders")
    assert questions.topic_of("shop", "c1", "7") == "orders"
    for other in (("rival", "c1", "7"), ("shop", "c2", "7"), ("shop", "c1", "8")):
        assert questions.topic_of(*other) is None
    assert questions.topic_of("shop", "c", "17") is None, "the words are distinguished"


def test_the_oldest_questions_of_an_account_make_room_for_its_own_only() -> None:
    questions = Questions(per_account_max=2)
    questions.note("rival", "c", "0", "private")
    for name in ("1", "2", "1", "3"):  # The first is asked again, so the second is the oldest.
        questions.note("shop", "c", name, "orders")
    found = [name for name in "123" if questions.topic_of("shop", "c", name)]
    assert found == ["1", "3"]
    assert questions.topic_of("rival", "c", "0") == "private"


def test_a_client_id_is_held_once_for_each_connection() -> None:
    ids, one, two = ClientIds(), _peer(), _peer()
    ids.hold("c", one, "shop")
    ids.hold("c", one, "shop")
    ids.hold("c", two, "shop")
    ids.release("c", two)
    ids.release("other", one)
    assert ids.accounts("c") == {"shop"}
    ids.release("c", one)
    ids.release("c", one)
    assert ids.accounts("c") == frozenset()


def _peer() -> Any:
    """A connection is nothing but itself here."""
    return object()
