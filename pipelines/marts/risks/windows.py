"""Builds each queue's double-consumption risk windows from a sequence of events.

Place in the walk: events and the marks of queues → revisions. Carried: the open windows, at most
one a queue: a later opening takes over from an earlier one, a redelivery belongs to the window that
is open, and opens one when none is.

    (none) --OPENING--> open --REDELIVERY--> open, CONFIRMED --progress past the range--> closed
    (none) --REDELIVERY--> open, CONFIRMED          open --OPENING--> closed, and a new one is open
    open --End--> closed                            open --ANSWER--> open, from where it reported
    all of it seen again --ANSWER--> closed, and a new one is open from where it reported
    (none) --ANSWER--> open, and an OPENING that takes it over is as wide as both say
    open, read by two --progress that brought no message again--> open, read by one
    open, read by two --NotReading, and its reader has left--> open, read by nobody

Invariant: the fold of a list of events equals the fold of its two halves, so revisions do not
depend on where a cycle was cut. The marks of a queue matter only while it has a window, or events
in this cycle. Absent on purpose: how an event changes a window (`transitions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among, positions_of
from pipelines.marts.lifecycle_events import ended
from pipelines.marts.mart import Positions
from pipelines.marts.risks import transitions
from pipelines.marts.risks.events import Awaited, End, Event, NotReading, Place, Progress
from pipelines.marts.risks.holdings import Range
from pipelines.marts.risks.restarts import Gone
from pipelines.marts.risks.transitions import ANSWER_SPAN_US, TOLD_FIELDS, WINDOW_FIELDS, Window
from pipelines.staging.facts import is_one_of

AWAITED: Final = pa.struct(
    [("client_id", pa.string()), ("from_offset", pa.int64()), ("told_us", pa.int64())]
)
WINDOWS: Final = pa.schema(
    [
        ("cluster", KEY_TEXT),
        ("broker", KEY_TEXT),
        *QUEUE_FIELDS,
        ("opened_us", pa.int64()),
        ("revision", pa.int32()),
        ("basis", KEY_TEXT),
        ("cause", KEY_TEXT),
        ("client_id", KEY_TEXT),
        ("next_client_id", KEY_TEXT),
        *(
            (name, pa.int64())
            for name in (
                "from_offset",
                "to_offset",
                "certain",
                "uncertain",
                "redelivered_from",
                "redelivered_to",
                "redelivered",
                "all_from_offset",
                "first_from_offset",
            )
        ),
        ("finished", pa.list_(pa.list_(pa.int64(), 2))),
        ("reader_is_gone", pa.bool_()),
        ("awaited", pa.list_(AWAITED)),
        ("reached_us", pa.int64()),
        ("others", pa.list_(pa.string())),
        ("has_left", pa.bool_()),
    ]
)
"""Windows that are open."""
_PLACES: Final = pa.schema([WINDOWS.field(name) for name in Place._fields])
_BEFORE_ALL: Final = -1
"""An unknown mark: behind it lies every offset."""
Revision = dict[str, Any]
Happening = Event | Progress | NotReading | End


def folded(
    windows: pa.Table,
    events: Iterable[Event],
    marks: pa.Table,
    gone: Sequence[Gone] = (),
    *,
    absent: Iterable[tuple[Place, NotReading]] = (),
) -> tuple[pa.Table, list[Revision]]:
    """The windows open at the end, and the revisions reported; `marks` are the new
    group_watermarks, `absent` clients that are known not to read a queue.
    """
    of_queue: defaultdict[Place, list[Happening]] = defaultdict(list)
    for event in events:
        of_queue[event.place].append(event)
    for place, client in absent:
        of_queue[place].append(client)
    for place in _read_by_two(windows) if marks.num_rows else ():
        of_queue[place].extend(())
    for end in gone:
        _add_ends(of_queue, windows, end)
    if not of_queue and not windows.num_rows:
        return windows, []
    places = pa.Table.from_pylist([place._asdict() for place in of_queue], schema=_PLACES)
    queues, new = positions_of(windows, places, QUEUE_KEY)
    known = pa.concat_tables([windows.select(_PLACES.names), places.take(pa.array(new))])
    rows, _ = positions_of(known, marks, QUEUE_KEY)
    has_events = np.zeros(known.num_rows + 1, bool)
    has_events[queues] = True
    at = np.flatnonzero(has_events[np.minimum(rows, known.num_rows)])
    place_of = dict(zip(queues.tolist(), of_queue, strict=True))
    ends, ending = _ended(windows, marks, rows, has_events)
    place_of |= _places(windows, ending)
    at = np.sort(np.concatenate([at, ends]))
    for queue, progress in zip(rows[at].tolist(), _progress(marks, at), strict=True):
        of_queue[place_of[queue]].append(progress)

    is_touched = np.zeros(windows.num_rows, bool)
    is_touched[[*ending, *(at for at in queues if at < windows.num_rows)]] = True
    before = {
        Place.of(row): _as_window(row) for row in windows.filter(pa.array(is_touched)).to_pylist()
    }
    folds = [Fold(place, before.get(place)) for place in of_queue]
    for fold in folds:
        fold.take(sorted(of_queue[fold.place], key=lambda event: event.order))
    still = [_as_row(fold.place, fold.window) for fold in folds if fold.window is not None]
    kept = windows.filter(pa.array(~is_touched))
    return (
        pa.concat_tables([kept, pa.Table.from_pylist(still, schema=WINDOWS)]),
        [revision for fold in folds for revision in fold.revisions],
    )


def _read_by_two(windows: pa.Table) -> list[Place]:
    """Of these windows every mark is of interest, not only the one that ends them."""
    shared = windows.filter(pc.is_valid(windows["all_from_offset"]))
    return [Place.of(row) for row in shared.select(_PLACES.names).to_pylist()]


def _add_ends(of_queue: defaultdict[Place, list[Happening]], windows: pa.Table, gone: Gone) -> None:
    """Add the end of their queue to windows that are open, and to queues that have events."""
    concerned = pa.Table.from_pylist([place._asdict() for place in of_queue], schema=_PLACES)
    concerned = pa.concat_tables([concerned, windows.select(_PLACES.names)])
    if gone.still_there is None:
        is_gone = ended(concerned, gone.event)
    else:
        of_emitter = is_one_of(concerned["emitter"], gone.event["emitter"])
        is_there = are_among(concerned, gone.still_there, QUEUE_KEY)
        is_gone = pc.and_(of_emitter, pc.invert(is_there))
    end = End(gone.event["seq"], gone.event["event_us"], gone.event["kind"])
    for place in {Place.of(row) for row in concerned.filter(is_gone).to_pylist()}:
        of_queue[place].append(end)


def _ended(
    windows: pa.Table, marks: pa.Table, rows: Positions, has_events: np.ndarray[Any, Any]
) -> tuple[Positions, Positions]:
    """Of windows without events: the first mark that lies past each, and the window. See
    `Window.is_past`.
    """
    is_candidate = rows < windows.num_rows
    at = np.flatnonzero(is_candidate)
    at = at[~has_events[rows[at]]]
    of_row = rows[at]
    to_offset = np.asarray(windows["to_offset"])
    end = np.maximum(to_offset, _numbers(windows["redelivered_to"]))
    expects_pull = _has_basis(windows, "DEPARTURE") & (np.asarray(windows["redelivered"]) == 0)
    committed, pulled = (_numbers(marks[name])[at] for name in ("committed", "pulled"))
    reported_us = np.asarray(marks["event_us"])[at]
    is_said = (
        _has_basis(windows, "RESTART")
        & (np.asarray(windows["redelivered"]) == 0)
        & (np.asarray(windows["from_offset"]) == to_offset)
        & ~np.asarray(pc.fill_null(windows["reader_is_gone"], False))
    )
    until_us = np.where(is_said, np.asarray(windows["opened_us"]) + ANSWER_SPAN_US, 0)
    until_us = np.maximum(until_us, _awaited_until_us(windows))
    counts = reported_us >= until_us[of_row]
    is_past = (counts & (committed >= end[of_row])) | (
        expects_pull[of_row] & (pulled > to_offset[of_row])
    )
    past = np.flatnonzero(is_past)
    ending, first = np.unique(of_row[past], return_index=True)
    return at[past[first]], ending


def _has_basis(windows: pa.Table, basis: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(is_one_of(windows["basis"], basis))


def _awaited_until_us(windows: pa.Table) -> Positions:
    """Until when somebody who was answered where to begin may do so; 0: nobody is awaited."""
    until_us = np.zeros(windows.num_rows, np.int64)
    lists = windows["awaited"].combine_chunks()
    awaited = pc.list_flatten(lists)
    if len(awaited):
        last_us = np.asarray(pc.struct_field(awaited, "told_us")) + ANSWER_SPAN_US
        np.maximum.at(until_us, np.asarray(pc.list_parent_indices(lists)), last_us)
    return until_us


def _numbers(column: pa.ChunkedArray) -> Positions:
    return np.asarray(pc.fill_null(column, _BEFORE_ALL))


def _places(windows: pa.Table, at: Positions) -> dict[int, Place]:
    rows = windows.take(pa.array(at)).to_pylist()
    return {int(number): Place.of(row) for number, row in zip(at, rows, strict=True)}


def _progress(marks: pa.Table, at: Positions) -> Iterator[Progress]:
    """The marks at these rows."""
    chosen = marks.select(list(Progress._fields)).take(pa.array(at))
    return (
        Progress(*values) for values in zip(*(c.to_pylist() for c in chosen.columns), strict=True)
    )


def _as_row(place: Place, window: Window) -> dict[str, Any]:
    values = {name: getattr(window, name) for name in WINDOW_FIELDS}
    return {**place._asdict(), **values, "awaited": [one._asdict() for one in window.awaited]}


def _as_window(row: Mapping[str, Any]) -> Window:
    values = {name: row[name] for name in WINDOW_FIELDS}
    finished = values.pop("finished")
    awaited = tuple(Awaited(**one) for one in values.pop("awaited") or ())
    others, has_left = values.pop("others"), values.pop("has_left")
    if others is None:  # Of an earlier version, which did not know who else may read.
        others = () if values["all_from_offset"] is None else (None,)
    return Window(
        **values,
        finished=None if finished is None else _as_ranges(finished),
        awaited=awaited,
        others=tuple(others),
        has_left=bool(has_left),
    )


def _as_ranges(pairs: Iterable[Sequence[int]]) -> tuple[Range, ...]:
    return tuple((begin, end) for begin, end in pairs)


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
                wide = transitions.widened(event, self.window)
                if self.window is not None:
                    if transitions.goes_on_in(event):
                        self.window = transitions.handed_on(self.window)
                    self._close(event, "TAKEN_OVER")
                self._open(wide)
            elif self.window is None:
                if event.from_offset < event.to_offset:
                    self._open(event)
            elif event.type == "ANSWER" and transitions.is_through(self.window):
                self._ask_anew(self.window, event)
            elif event.type == "ANSWER":
                self._change(transitions.answered(self.window, event), event, "ANSWERED")
            else:
                self._change(transitions.confirmed(self.window, event), event, "AGAIN")

    def _progress(self, progress: Progress) -> None:
        if self.window is None:
            return
        if self.window.is_past(progress):
            self._close(progress, "PASSED")
        elif self.window.all_from_offset is not None:
            moved = transitions.moved_on(self.window, progress)
            if moved.all_from_offset is None:
                self._change(moved, progress, "ALONE")
            else:
                self.window = moved

    def _ask_anew(self, window: Window, event: Event) -> None:
        """What comes again from now on is at risk by the answer."""
        anew = transitions.asked_anew(window, event)
        self.window = transitions.handed_on(window)
        self._close(event, "TAKEN_OVER")
        self.window = anew
        self._emit(anew, event, "OPEN", "OPENED")

    def _not_reading(self, gone: NotReading) -> None:
        if self.window is None:
            return
        left = transitions.without_reader(self.window, gone)
        was, now = (
            (one.from_offset, one.certain, one.all_from_offset) for one in (self.window, left)
        )
        if was == now:
            self.window = left
        else:
            self._change(left, gone, "ALONE")

    def _open(self, event: Event) -> None:
        self.window = transitions.opened(event)
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
