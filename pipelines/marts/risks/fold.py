"""A queue's risk of double consumption as a state machine: one step per event.

Place in the walk: events → revisions of windows. At most one window is open per queue: a later
opening takes over from an earlier one, a redelivery belongs to the window that is open, and opens
one when none is.

    (none) --OPENING--> open --REDELIVERY--> open, CONFIRMED --progress past the range--> closed
    (none) --REDELIVERY--> open, CONFIRMED          open --OPENING--> closed, and a new one is open
    open --End--> closed                            open --ANSWER--> open, as wide as both say
    (none) --ANSWER--> open, and an OPENING that takes it over is as wide as both say

Invariant: the fold of a list of events equals the fold of its two halves, the open window carried
from one to the other: so revisions do not depend on where a cycle was cut. Absent on purpose:
sentences, and columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pipelines.marts.risks.events import End, Event, Place, Progress
from pipelines.settings import SECOND_US


@dataclass(frozen=True, slots=True)
class Window:
    """An interval in which messages of a queue were at risk, as its newest revision tells it."""

    opened_us: int
    revision: int
    basis: str
    cause: str
    client_id: str | None
    next_client_id: str | None
    from_offset: int
    to_offset: int
    certain: int | None
    uncertain: int | None
    redelivered_from: int | None
    redelivered_to: int | None
    redelivered: int

    @property
    def end(self) -> int:
        """A commit up to here ends it."""
        seen = self.redelivered_to
        return self.to_offset if seen is None else max(self.to_offset, seen)

    @property
    def expects_pull(self) -> bool:
        """Do pulls end it that go on behind its range without bringing it again?

        After a departure they do. After a restart readers pull on where they were; the range stays
        at risk until a commit.
        """
        return self.basis == "DEPARTURE" and not self.redelivered

    def is_past(self, progress: Progress) -> bool:
        """Has the group gone past the range?"""
        committed, pulled = progress.committed, progress.pulled
        is_expected = self.basis == "OFFSET_ANSWER" and not self.redelivered
        counts = not is_expected or progress.event_us >= self.opened_us + ANSWER_SPAN_US
        if counts and committed is not None and committed >= self.end:
            return True
        return self.expects_pull and pulled is not None and pulled > self.to_offset


ANSWER_SPAN_US: Final = 20 * SECOND_US
"""A reader that was told where to begin has pulled by then: members divide the queues each 20 s.
Until then commits of the reader before it end nothing.
"""
WINDOW_FIELDS: Final = tuple(one.name for one in fields(Window))
Revision = dict[str, Any]
Happening = Event | Progress | End


@dataclass(slots=True)
class Fold:
    """One queue: its open window, and the revisions told so far."""

    place: Place
    window: Window | None = None
    """told_by of revisions: OPENED, ANSWERED (a reader was told to begin within it or below it),
    AGAIN (redelivered), PASSED (the group went past the range), TAKEN_OVER (by a later opening), or
    the kind of End.
    """
    revisions: list[Revision] = field(default_factory=list)

    def take(self, events: Iterable[Happening]) -> None:
        """Step through events in their order."""
        for event in events:
            if isinstance(event, Progress):
                if self.window is not None and self.window.is_past(event):
                    self._close(event, "PASSED")
            elif isinstance(event, End):
                if self.window is not None:
                    self._close(event, event.kind)
            elif event.type == "OPENING":
                wide = _widened(event, self.window)
                if self.window is not None:
                    self._close(event, "TAKEN_OVER")
                self._open(wide)
            elif self.window is None:
                self._open(event)
            elif event.type == "ANSWER":
                self.window = _answered(self.window, event)
                self._tell(self.window, event, "OPEN", "ANSWERED")
            else:
                self.window = _confirmed(self.window, event)
                self._tell(self.window, event, "OPEN", "AGAIN")

    def _open(self, event: Event) -> None:
        self.window = _opened(event)
        self._tell(self.window, event, "OPEN", "OPENED")

    def _close(self, event: Happening, told_by: str) -> None:
        assert self.window is not None
        last = replace(self.window, revision=self.window.revision + 1)
        self._tell(last, event, "CLOSED", told_by)
        self.window = None

    def _tell(self, window: Window, event: Happening, state: str, told_by: str) -> None:
        self.revisions.append(
            {
                **self.place._asdict(),
                **{name: getattr(window, name) for name in WINDOW_FIELDS},
                "observed_us": event.event_us,
                "seq": event.seq,
                "state": state,
                "told_by": told_by,
                "message_id": None,
            }
        )


def _opened(event: Event) -> Window:
    """A window as an opening, or a redelivery that nobody expected, begins it."""
    is_again = event.type == "REDELIVERY"
    return Window(
        opened_us=event.event_us,
        revision=1,
        basis=event.basis,
        cause=event.cause,
        client_id=event.client_id,
        next_client_id=event.next_client_id,
        from_offset=event.from_offset,
        to_offset=event.to_offset,
        certain=event.certain,
        uncertain=event.uncertain,
        redelivered_from=event.from_offset if is_again else None,
        redelivered_to=event.to_offset if is_again else None,
        redelivered=event.messages,
    )


def _widened(event: Event, window: Window | None) -> Event:
    """A departure, with what the next reader was told before it was noticed."""
    if event.basis != "DEPARTURE" or window is None or window.basis != "OFFSET_ANSWER":
        return event
    return replace(
        event,
        from_offset=min(event.from_offset, window.from_offset),
        to_offset=max(event.to_offset, window.to_offset),
        next_client_id=window.next_client_id,
    )


def _answered(window: Window, event: Event) -> Window:
    """The window as wide as a reader's answer makes it."""
    return replace(
        window,
        revision=window.revision + 1,
        next_client_id=event.next_client_id,
        from_offset=min(window.from_offset, event.from_offset),
        to_offset=max(window.to_offset, event.to_offset),
    )


def _confirmed(window: Window, event: Event) -> Window:
    """The window with one more redelivery; one without a prediction grows with what it sees."""
    begin, end = event.from_offset, event.to_offset
    grows = window.basis == "REDELIVERY"
    before, behind = window.redelivered_from, window.redelivered_to
    return replace(
        window,
        revision=window.revision + 1,
        next_client_id=event.next_client_id,
        from_offset=min(window.from_offset, begin) if grows else window.from_offset,
        to_offset=max(window.to_offset, end) if grows else window.to_offset,
        redelivered_from=begin if before is None else min(before, begin),
        redelivered_to=end if behind is None else max(behind, end),
        redelivered=window.redelivered + event.messages,
    )
