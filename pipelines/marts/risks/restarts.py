"""Detects risks from broker restarts: unsaved consume offsets and lost log messages.

Place in the walk: lifecycle and the marks of queues → openings and ends, and queues that are gone.
Carried: cuts of the log by lives that have not booted yet. A reader that lives on goes on where it
was, so of a queue whose group had members nothing is at risk until somebody asks; of one without,
all that is lost is.

Invariant: only marks reported before the loss count. What marks of a lost log put at risk is known
at the boot. Absent on purpose: what comes of the risk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.lifecycle_events import GONE, broker_died, ended, log_cut, offsets_lost
from pipelines.marts.risks.events import Event, Place
from pipelines.marts.risks.holdings import Range, finished_ranges, size, united
from pipelines.marts.risks.marks import Marks
from pipelines.marts.risks.samples import Held, Holding
from pipelines.staging.facts import is_one_of

CUTS: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("broker_epoch", pa.int64()),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
    ]
)
"""Logs that were cut by a recovery whose boot has not been reported."""

_NAMING: Final = ("group", "topic", "queue_id_from", "seq_from")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """Queues that are not there any more."""

    event: Row
    """The row of lifecycle that says so."""
    still_there: pa.Table | None = None
    """Of a SNAPSHOT: the keys of its emitter that are there; all others of it are gone."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """What restarts put at risk, what is gone, and the cuts still without a boot."""

    openings: list[Event]
    gone: list[Gone]
    cuts: pa.Table


def restarts(
    lifecycle: pa.Table,
    cuts: pa.Table,
    marks: Marks,
    samples: pa.Table,
    *,
    fallen: Sequence[Event] = (),
) -> Restarts:
    """Takes the marks up to each event of the broker's life, as it judges it; `samples` of what
    clients hold, those carried and the new ones, in order; `fallen` are new falls of offsets.
    """
    flags = {
        "is_boot": is_one_of(lifecycle["kind"], "BOOT"),
        "is_death": broker_died(lifecycle),
        "is_damage": offsets_lost(lifecycle),
        "is_cut": log_cut(lifecycle),
    }
    events = lifecycle.select([*CUTS.names, "kind", *_NAMING])
    for name, flag in flags.items():
        events = events.append_column(name, flag)
    is_of_use = is_one_of(lifecycle["kind"], "BOOT", "SNAPSHOT", *GONE)
    is_of_use = pc.or_(is_of_use, pc.or_(flags["is_damage"], flags["is_cut"]))
    pending: dict[tuple[str, int], Row] = {
        (cut["emitter"], cut["broker_epoch"]): cut for cut in cuts.to_pylist()
    }
    openings: list[Event] = []
    gone: list[Gone] = []
    for event in events.filter(is_of_use).to_pylist():
        life = event["emitter"], event["broker_epoch"]
        marks.take_until(event["emitter"], event["seq"])
        if event["is_cut"]:
            pending[life] = event
        if event["is_boot"] and life in pending:
            openings.extend(_replays(pending.pop(life), event, marks))
        if event["is_death"] or event["is_damage"]:
            openings.extend(_losses(event, marks, samples, fallen))
        if event["is_boot"]:
            marks.forget_before(event["emitter"])
        if event["kind"] in GONE or event["kind"] == "SNAPSHOT":
            gone.append(_gone(event, marks))
    waiting = [{name: cut[name] for name in CUTS.names} for cut in pending.values()]
    return Restarts(openings, gone, pa.Table.from_pylist(waiting, schema=CUTS))


def _gone(event: Row, marks: Marks) -> Gone:
    """Forget the marks of what is gone."""
    if event["kind"] in GONE:
        marks.forget(event["emitter"], lambda last: np.asarray(ended(last, event)))
        return Gone(event)
    begin = event["seq_from"]
    marks.forget(event["emitter"], lambda last: np.asarray(last["seq"]) < begin)
    return Gone(event, marks.keys(event["emitter"]))


def _losses(loss: Row, marks: Marks, samples: pa.Table, fallen: Sequence[Event]) -> Iterator[Event]:
    """What the broker's memory knew beyond its disk comes again to whoever asks."""
    _, last = marks.before(loss["emitter"], loss["broker_epoch"])
    kept = last["min_offset"]
    if loss["is_death"]:
        kept = pc.coalesce(last["persisted"], kept)
    cause = "BROKER_CRASH" if loss["is_death"] else "OFFSET_STORE_LOST"
    rows = _at_risk(last, kept)
    held = Held(samples, (_holding(row) for row in rows), falls=fallen)
    for row in rows:
        begin, end = row["kept"], row["reached"]
        lives_on, is_gone = bool(row["members"]), row["members"] == 0
        finished = _finished(row, held.before(_holding(row), loss["seq"], loss["event_us"]))
        certain = size(finished) if is_gone else 0
        yield Event(
            **_opened_by(loss, cause, row),
            from_offset=end if lives_on else begin,  # Unknown members may have gone.
            to_offset=end,
            kept_offset=begin,
            certain=certain,
            uncertain=0 if lives_on else end - begin - certain,
            finished=finished,
            reader_is_gone=is_gone,
        )


def _finished(row: Row, sample: Row | None) -> tuple[Range, ...]:
    """What was committed is finished, and what the reader had finished beyond."""
    begin, end = row["kept"], row["reached"]
    committed = begin if row["committed"] is None else min(max(row["committed"], begin), end)
    beyond = () if sample is None else finished_ranges(sample, committed, end) or ()
    return united((begin, committed), *beyond)


def _holding(row: Row) -> Holding:
    """The last reader of the queue."""
    return Holding(row["emitter"], row["group"], row["topic"], row["queue_id"], row["last_puller"])


def _replays(cut: Row, boot: Row, marks: Marks) -> Iterator[Event]:
    """Recovery cut the log below what a group had pulled: those messages are gone, and what their
    producers send again is consumed again.
    """
    keys_before, before = marks.before(cut["emitter"], cut["broker_epoch"])
    keys_now, now = marks.now(cut["emitter"], cut["broker_epoch"])
    _, of_before, of_now = np.intersect1d(
        keys_before, keys_now, assume_unique=True, return_indices=True
    )
    last = before.take(pa.array(of_before))
    end = now["max_offset"].take(pa.array(of_now))
    for row in _at_risk(last, end):
        yield Event(
            **_opened_by(cut, "REPLAY_AFTER_TRUNCATION", row),
            from_offset=row["kept"],
            to_offset=row["reached"],
            certain=0,
            uncertain=row["reached"] - row["kept"],
            known_seq=boot["seq"],
        )


def _at_risk(last: pa.Table, kept: pa.ChunkedArray) -> list[Row]:
    """Queues whose group was beyond what was kept."""
    reached = pc.max_element_wise(last["committed"], last["pulled"])
    was_beyond = pc.fill_null(pc.less(kept, reached), False)
    is_lost = pc.and_(was_beyond, pc.invert(last["is_broadcast"]))
    rows = last.append_column("kept", kept).append_column("reached", reached).filter(is_lost)
    lost: list[Row] = rows.to_pylist()
    return lost


def _opened_by(loss: Row, cause: str, row: Row) -> dict[str, Any]:
    """What openings of a loss have in common."""
    return {
        "place": Place.of(row),
        "seq": loss["seq"],
        "event_us": loss["event_us"],
        "type": "OPENING",
        "basis": "RESTART",
        "cause": cause,
        "client_id": row["last_puller"],
    }
