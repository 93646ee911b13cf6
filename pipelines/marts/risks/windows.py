"""Folds the events of a cycle into the open windows of risk.

Place in the walk: events and the marks of queues → revisions. Carried: the open windows, at most
one a queue.

Invariant: the marks of a queue matter only while it has a window, or events in this cycle; which
windows they end is found for all queues at once. Absent on purpose: how one event changes a window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among, positions_of
from pipelines.marts.life_cycles import ended
from pipelines.marts.mart import Positions
from pipelines.marts.risks.changes import ANSWER_SPAN_US, WINDOW_FIELDS, Window
from pipelines.marts.risks.events import Awaited, End, Event, NotReading, Place, Progress
from pipelines.marts.risks.fold import Fold, Happening, Revision
from pipelines.marts.risks.holdings import Range
from pipelines.marts.risks.restarts import Gone
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
