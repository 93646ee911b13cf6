"""Clients known not to read a queue: they left, or report that they do not hold it.

Place in the walk: rebalance_events and client_windows → NotReading, for queues on which something
is at risk. A broker asks a client that it answered where to begin, or that lost a queue to another
reader, a second later what it holds; a queue that it does not hold is a row of its own.

Invariant: only queues whose windows or events name the client are concerned; whoever else leaves
changes nothing. Absent on purpose: clients that are silent. They are awaited for a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.risks.events import Event, NotReading, Place
from pipelines.staging.facts import is_one_of

LEAVING: Final = ("LEFT", "EXPIRED")
_NAMED: Final = ("client_id", "next_client_id")
_ClientKey = tuple[str, str, str]
"""(emitter, group, client id)"""


def absences(
    members: pa.Table, samples: pa.Table, windows: pa.Table, events: Iterable[Event]
) -> Iterator[tuple[Place, NotReading]]:
    """Who does not read which queue: `members` are new rows of rebalance_events, `samples` new ones
    of what clients hold, `windows` those open before, `events` the others of this cycle.
    """
    left = members.filter(
        pc.and_(is_one_of(members["kind"], *LEAVING), pc.is_valid(members["client_id"]))
    )
    given_back = samples.filter(pc.fill_null(samples["dropped"], False))
    if not left.num_rows and not given_back.num_rows:
        return
    named = _places_by_client(windows, events)
    columns = ["emitter", "group", "client_id", "seq", "event_us"]
    for row in left.select(columns).to_pylist():
        for place in named.get(_key(row), ()):
            yield place, NotReading(row["seq"], row["event_us"], row["client_id"], has_left=True)
    for row in given_back.select([*columns, "topic", "queue_id"]).to_pylist():
        for place in named.get(_key(row), ()):
            if (place.topic, place.queue_id) == (row["topic"], row["queue_id"]):
                yield place, NotReading(row["seq"], row["event_us"], row["client_id"], False)


def _places_by_client(
    windows: pa.Table, events: Iterable[Event]
) -> Mapping[_ClientKey, Mapping[Place, None]]:
    """The queues at risk whose windows or events name each client."""
    named: defaultdict[_ClientKey, dict[Place, None]] = defaultdict(dict)
    wanted = [*Place._fields, *_NAMED, "awaited", "others"]
    for row in windows.select(wanted).to_pylist():
        place = Place.of(row)
        clients = {*(row[name] for name in _NAMED), *(row["others"] or ())}
        clients.update(one["client_id"] for one in row["awaited"] or ())
        for client in clients - {None}:
            named[place.emitter, place.group, client][place] = None
    for event in events:
        for client in {event.client_id, event.next_client_id} - {None}:
            named[event.place.emitter, event.place.group, str(client)][event.place] = None
    return named


def _key(row: Mapping[str, Any]) -> _ClientKey:
    return row["emitter"], row["group"], row["client_id"]
