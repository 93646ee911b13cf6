"""State machine of a queue's risk of double consumption: one step per event.

Place in the walk: events → revisions of windows. At most one window is open per queue: a later
opening takes over from an earlier one, a redelivery belongs to the window that is open, and opens
one when none is.

    (none) --OPENING--> open --REDELIVERY--> open, CONFIRMED --progress past the range--> closed
    (none) --REDELIVERY--> open, CONFIRMED          open --OPENING--> closed, and a new one is open
    open --End--> closed                            open --ANSWER--> open, from where it reported
    all of it seen again --ANSWER--> closed, and a new one is open from where it reported
    (none) --ANSWER--> open, and an OPENING that takes it over is as wide as both say
    open, read by two --progress that brought no message again--> open, read by one
    open, read by two --NotReading, and its reader has left--> open, read by nobody

Invariant: the fold of a list of events equals the fold of its two halves, the open window carried
from one to the other: so revisions do not depend on where a cycle was cut. Absent on purpose: how
an event changes a window (`changes`), sentences, and columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.marts.risks import changes
from pipelines.marts.risks.changes import TOLD_FIELDS, Window
from pipelines.marts.risks.events import End, Event, NotReading, Place, Progress

Revision = dict[str, Any]
Happening = Event | Progress | NotReading | End


@dataclass(slots=True)
class Fold:
    """One queue: its open window, and the revisions reported so far."""

    place: Place
    window: Window | None = None
    revisions: list[Revision] = field(default_factory=list)
    """told_by of revisions: OPENED, ANSWERED (a reader was answered where to begin), AGAIN
    (redelivered), ALONE (of two readers one is left, or none), PASSED (the group went past the
    range), TAKEN_OVER (by a later opening), or the kind of End.
    """

    def take(self, events: Iterable[Happening]) -> None:
        """Step through events in their order."""
        for event in events:
            if isinstance(event, Progress):
                self._progress(event)
            elif isinstance(event, End):
                if self.window is not None:
                    self._close(event, event.kind)
            elif isinstance(event, NotReading):
                self._not_reading(event)
            elif event.type == "OPENING":
                wide = changes.widened(event, self.window)
                if self.window is not None:
                    if changes.goes_on_in(event):
                        self.window = changes.handed_on(self.window)
                    self._close(event, "TAKEN_OVER")
                self._open(wide)
            elif self.window is None:
                if event.from_offset < event.to_offset:
                    self._open(event)
            elif event.type == "ANSWER" and changes.is_through(self.window):
                self._ask_anew(self.window, event)
            elif event.type == "ANSWER":
                self._change(changes.answered(self.window, event), event, "ANSWERED")
            else:
                self._change(changes.confirmed(self.window, event), event, "AGAIN")

    def _progress(self, progress: Progress) -> None:
        if self.window is None:
            return
        if self.window.is_past(progress):
            self._close(progress, "PASSED")
        elif self.window.all_from_offset is not None:
            moved = changes.moved_on(self.window, progress)
            if moved.all_from_offset is None:
                self._change(moved, progress, "ALONE")
            else:
                self.window = moved

    def _ask_anew(self, window: Window, event: Event) -> None:
        """What comes again from now on is at risk by the answer."""
        anew = changes.asked_anew(window, event)
        self.window = changes.handed_on(window)
        self._close(event, "TAKEN_OVER")
        self.window = anew
        self._emit(anew, event, "OPEN", "OPENED")

    def _not_reading(self, gone: NotReading) -> None:
        if self.window is None:
            return
        left = changes.without_reader(self.window, gone)
        was, now = (
            (one.from_offset, one.certain, one.all_from_offset) for one in (self.window, left)
        )
        if was == now:
            self.window = left
        else:
            self._change(left, gone, "ALONE")

    def _open(self, event: Event) -> None:
        self.window = changes.opened(event)
        self._emit(self.window, event, "OPEN", "OPENED")

    def _change(self, window: Window, event: Happening, cause: str) -> None:
        self.window = replace(window, revision=window.revision + 1)
        self._emit(self.window, event, "OPEN", cause)

    def _close(self, event: Happening, cause: str) -> None:
        assert self.window is not None
        last = replace(self.window, revision=self.window.revision + 1)
        self._emit(last, event, "CLOSED", cause)
        self.window = None

    def _emit(self, window: Window, event: Happening, state: str, cause: str) -> None:
        self.revisions.append(
            {
                **self.place._asdict(),
                **{name: getattr(window, name) for name in TOLD_FIELDS},
                "observed_us": event.event_us,
                "seq": event.seq,
                "state": state,
                "told_by": cause,
                "message_id": None,
            }
        )
