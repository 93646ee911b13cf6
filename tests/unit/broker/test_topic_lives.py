"""What a broker knows of the lives of its topics."""

from __future__ import annotations

from engine.broker.offsets.topic_lives import Answer, Asked, TopicLives


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
    end = Answer(Asked.END, 7)
    lives.answered("10.0.0.1:5", "t", 0, end)
    assert lives.answers("10.0.0.1:5", ("g", "t", 0)) == [end]
    lives.end("t")
    lives.begin("t")
    assert lives.number("t") != first
    assert lives.answers("10.0.0.1:5", ("g", "t", 0)) == []
    assert lives.began_since_boot("t")
    assert not lives.began_since_boot("other")


def test_the_newest_answers_of_the_newest_queues_are_remembered() -> None:
    lives = new_store()
    ends = [Answer(Asked.END, offset) for offset in range(14)]
    for end in (*ends, ends[-1]):
        lives.answered("a", "t", 0, end)
    assert lives.answers("a", ("g", "t", 0)) == ends[2:], "each once"
    lives.answered("a", "t", 1, ends[0])
    lives.answered("a", "t", 2, ends[0])
    assert lives.answers("a", ("g", "t", 0)) == [], "one queue too many: it begins anew"


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


def test_who_has_its_own_offsets_is_known_until_the_life_ends_or_the_store_is_old() -> None:
    lives = TopicLives(listeners_max=2)
    lives.watch({}, new_until_ms=100, is_first_start=True)
    key = ("g", "t", 0)
    for name in ("c1", "c1", "c2", "c3"):
        lives.listens(key, name)
    assert set(lives.listeners(key)) == {"c1", "c2"}
    assert not lives.has_room_for_listeners
    lives.end("t")
    assert not lives.listeners(key)
    lives.listens(key, "c3")
    assert set(lives.listeners(key)) == {"c3"}
    assert lives.has_room_for_listeners
    other = ("g", "other", 0)
    lives.listens(other, "c3")
    lives.grow_older(100)
    assert set(lives.listeners(key)) == {"c3"}, "its topic was deleted"
    assert not lives.listeners(other)
    assert lives.has_room_for_listeners
