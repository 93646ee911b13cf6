"""Where a message was first that came back: known when one message of its id is there."""

from __future__ import annotations

from engine.observer.failed_messages import Originals
from engine.observer.poll_result import FailedMessage
from engine.protocol.message import MessageExt

KEY = ("orders", "m")
CAME_BACK = FailedMessage("g", False, "m", "orders", 1, is_expired=True)


def stored(queue_id: int, offset: int, message_id: str = "m") -> MessageExt:
    """A message of the topic of origin."""
    properties = {"UNIQ_KEY": message_id}
    return MessageExt("orders", b"", properties, queue_id=queue_id, queue_offset=offset)


def placed(*found: MessageExt) -> tuple[int | None, int | None]:
    """Where it was first, when the broker finds these."""
    originals = Originals()
    assert originals.wanted([CAME_BACK, CAME_BACK]) == [KEY]
    originals.found(KEY, found)
    assert originals.wanted([CAME_BACK]) == [], "it is asked for once"
    places = originals.placed(CAME_BACK)
    return places.origin_queue_id, places.origin_offset


def test_it_is_where_the_one_message_of_that_id_is() -> None:
    assert placed(stored(3, 4)) == (3, 4)


def test_it_is_unknown_when_there_is_none_or_two() -> None:
    assert placed() == (None, None)
    assert placed(stored(3, 4, "another")) == (None, None)
    assert placed(stored(3, 4), stored(1, 9)) == (None, None)


def test_a_message_that_failed_is_asked_for_as_well_and_one_without_an_id_is_not() -> None:
    originals = Originals()
    failed = FailedMessage("g", False, "m", "orders", 1)
    dead = FailedMessage("g", True, "m", "orders", 16)
    nameless = FailedMessage("g", False, None, "orders", 1)
    assert originals.wanted([failed, dead, nameless]) == [KEY]
    originals.found(KEY, [stored(3, 4)])
    places = [(one.origin_queue_id, one.origin_offset) for one in map(originals.placed, [failed])]
    assert places == [(3, 4)]
    assert originals.placed(nameless) is nameless


def test_no_more_places_are_remembered_than_may_be() -> None:
    originals = Originals(count_max=2)
    for offset in range(3):
        one = stored(0, offset, f"m{offset}")
        originals.found(("orders", f"m{offset}"), [one])
    wanted = [FailedMessage("g", False, f"m{n}", "orders", 1, is_expired=True) for n in range(3)]
    assert originals.wanted(wanted) == [("orders", "m0")]
