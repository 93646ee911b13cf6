"""What a broker knows of the lives of its topics."""

from __future__ import annotations

from engine.broker.state.topic_lives import TopicLives


def new_store(until_ms: int | None = 100) -> TopicLives:
    """The lives of a store that is new until then."""
    lives = TopicLives(lives_max=2, witnesses_max=3, answers_max=2)
    lives.watch({}, new_until_ms=until_ms, is_first_start=True)
    return lives


def test_a_store_is_new_for_a_while_and_never_again() -> None:
    lives = new_store()
    lives.grow_older(99)
    assert lives.may_have_had_another("any")
    lives.grow_older(100)
    assert not lives.may_have_had_another("any")
    lives.grow_older(0)
    assert not lives.may_have_had_another("any"), "whatever a clock says afterwards"


def test_a_life_has_a_number_of_its_own_and_what_was_answered_counts_in_it_alone() -> None:
    lives = new_store(None)
    first = lives.number("t")
    lives.answered("10.0.0.1:5", "t", 0, 7)
    assert lives.answers("10.0.0.1:5", "t", 0) == (7,)
    lives.end("t")
    lives.begin("t")
    assert lives.number("t") != first
    assert lives.answers("10.0.0.1:5", "t", 0) == ()
    assert lives.began_since_boot("t")
    assert not lives.began_since_boot("other")


def test_the_newest_answers_of_the_newest_queues_are_remembered() -> None:
    lives = new_store()
    for offset in range(6):
        lives.answered("a", "t", 0, offset)
    assert lives.answers("a", "t", 0) == (2, 3, 4, 5)
    lives.answered("a", "t", 1, 1)
    lives.answered("a", "t", 2, 1)
    assert lives.answers("a", "t", 0) == (), "one queue too many: it begins anew"


def test_a_witness_counts_again_queue_by_queue_once_it_reads_the_present_life() -> None:
    lives = new_store()
    list(lives.add_witnesses("t", [("g", "c1"), ("g", "c2")]))
    assert lives.is_witness("t", "g", "c1")
    assert not lives.is_witness("t", "g", None)
    lives.reads("t", 0, "g", "c1")
    assert lives.has_read("t", 0, "g", "c1")
    assert not lives.has_read("t", 1, "g", "c1")
    lives.end("t")
    assert lives.is_witness("t", "g", "c1")
    assert not lives.has_read("t", 0, "g", "c1"), "that was another life"


def test_beyond_their_limit_the_witnesses_of_the_oldest_deletion_are_forgotten() -> None:
    lives = new_store()
    list(lives.add_witnesses("t1", [("g", "c1"), ("g", "c2")]))
    list(lives.add_witnesses("t2", [("g", "c1"), ("g", "c2")]))
    assert not lives.is_witness("t1", "g", "c1")
    assert lives.is_witness("t2", "g", "c1")


def test_who_knows_a_queue_of_a_deleted_group_knows_it_until_its_life_ends() -> None:
    lives = new_store()
    lives.keep_known(("g", "t", 0), ("c1",))
    assert lives.known_by(("g", "t", 0)) == ("c1",)
    lives.end("t")
    assert lives.known_by(("g", "t", 0)) == ()
