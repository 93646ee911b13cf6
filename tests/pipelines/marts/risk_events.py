"""Events of one queue of a group: who was answered where to begin, who died, who left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipelines.marts.risks.events import Event, NotReading, Place, Progress
from pipelines.marts.risks.windows import Fold, Happening
from tests.pipelines.marts.literal_facts import SECOND

PLACE = Place("c", "b", "c/b/0", "g", "t", 0)


def event(seq: int, begin: int, end: int, **what: Any) -> Event:
    """Something of client c1 about [begin, end), `seq` seconds in."""
    return Event(
        place=PLACE,
        seq=seq,
        event_us=seq * SECOND,
        client_id="c1",
        from_offset=begin,
        to_offset=end,
        **what,
    )


def answer(seq: int, begin: int, end: int) -> Event:
    """Client c2 was answered to begin at `begin` when c1 had pulled up to `end`."""
    fields = {"type": "ANSWER", "basis": "OFFSET_ANSWER", "cause": "HAND_OVER"}
    return event(seq, begin, end, **fields, next_client_id="c2")


def departure(seq: int, begin: int, end: int) -> Event:
    """Client c1 was lost with [begin, end) pulled and not committed."""
    fields = {"type": "OPENING", "basis": "DEPARTURE", "cause": "CONSUMER_CRASH"}
    return event(seq, begin, end, **fields, reader_is_gone=True)


def again(seq: int, begin: int, end: int) -> Event:
    """Client c2 pulled [begin, end) once more."""
    fields = {"type": "REDELIVERY", "basis": "REDELIVERY", "cause": "HAND_OVER"}
    return event(seq, begin, end, **fields, next_client_id="c2", messages=end - begin)


def progress(seq: int, committed: int, pulled: int) -> Progress:
    """The group's marks on the queue."""
    return Progress(seq, seq * SECOND, committed, pulled)


def death(seq: int, kept: int, committed: int, end: int) -> Event:
    """The broker died; client c1 read the queue and may live on. Its disk knew `kept`."""
    fields = {"type": "OPENING", "basis": "RESTART", "cause": "BROKER_CRASH"}
    finished = ((kept, committed),)
    return event(seq, end, end, **fields, kept_offset=kept, certain=0, finished=finished)


def certainty(*happened: Event | Progress) -> list[tuple[int | None, Any]]:
    """(certain messages, their ranges) of each revision."""
    fold = Fold(PLACE)
    fold.take(happened)
    return [(one["certain"], one["certain_ranges"]) for one in fold.revisions]


def begun_anew(answer: Event, name: str) -> Event:
    """The answer to a client that read the queue before."""
    return replace(answer, client_id=name, next_client_id=name)


def away(seq: int, client: str, *, has_left: bool = True) -> NotReading:
    """The client left, or says that it does not hold the queue."""
    return NotReading(seq, seq * SECOND, client, has_left)


def ends_as(*happened: Happening) -> dict[str, Any]:
    """The newest revision."""
    fold = Fold(PLACE)
    fold.take(happened)
    return fold.revisions[-1]
