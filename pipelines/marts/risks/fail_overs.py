"""Finds what a change of a broker's leader makes groups consume twice, queue by queue.

Place in the walk: lifecycle (ROLE_CHANGE), and marks and samples of both nodes → revisions with the
basis FAIL_OVER, which duplicate_risk_windows words. A new leader knows the offsets that it copied
last; what the former one delivered or committed beyond them comes again to whoever asks. A change
is judged once, SETTLED_US after it: by then the new leader has reported every queue. Carried:
changes, the last marks of nodes, and windows that groups have not passed at the new leader.

Invariant: of a former leader counts what it reported, and shipped, before a change is judged, and
cycles take the nodes of a broker to one moment (`cycles.cuts`). So however cycles are cut, and
whether a dead node's last facts come later, the rows are the same. Absent on purpose: whether
anything came again, which the new leader cannot know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import (
    QUEUE_FIELDS,
    QUEUE_KEY,
    are_among,
    newest_of_each,
    overlaid,
    positions_of,
)
from pipelines.marts.lifecycle_events import GONE, MASTER, ROLE_CHANGE, concerns, without_ended
from pipelines.marts.mart import Given, Made, Positions, Step
from pipelines.marts.risks.exposures import REVISIONS
from pipelines.staging.facts import is_one_of

NAME: Final = "fail_overs"
SETTLED_US: Final = 45 * SECOND_US
"""A new leader reports all that there is in a snapshot, which takes half a minute at most."""
BASIS: Final = "FAIL_OVER"

_BROKER: Final = (("cluster", KEY_TEXT), ("broker", KEY_TEXT))
NODES: Final = pa.schema([*_BROKER, ("emitter", KEY_TEXT)])
"""Emitters that said of themselves that their broker has several nodes."""
CHANGES: Final = pa.schema(
    [
        *_BROKER,
        ("emitter", KEY_TEXT),
        ("epoch", pa.int64()),
        ("event_us", pa.int64()),
        ("seq", pa.int64()),
        ("is_judged", pa.bool_()),
    ]
)
"""Who began to lead, and in which epoch."""
MARKS: Final = pa.schema(
    [
        *_BROKER,
        *QUEUE_FIELDS,
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("pulled", pa.int64()),
        ("committed", pa.int64()),
        ("last_puller", KEY_TEXT),
        ("is_broadcast", pa.bool_()),
        ("shipped_us", pa.int64()),
    ]
)
FOUND: Final = MARKS.append(pa.field("epoch", pa.int64()))
"""The first marks that a leader reported in an epoch that is not judged yet."""
SAMPLES: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("client_id", KEY_TEXT),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("client_committed", pa.int64()),
        ("takes_all", pa.bool_()),
        ("shipped_us", pa.int64()),
    ]
)
"""Up to where a client had finished all of a queue, by its own offset."""
_FOUND_KEY: Final = (*QUEUE_KEY, "epoch")
_SAMPLE_KEY: Final = (*QUEUE_KEY, "client_id")
_QUEUE: Final = ("group", "topic", "queue_id")

Row = dict[str, Any]
Truths = np.ndarray[tuple[int], np.dtype[np.bool_]]


def fail_overs(given: Given) -> Made:
    """One row per revision of an interval in which a change of the leader may repeat messages."""
    facts, state = given.facts, given.state
    lifecycle = facts["lifecycle"]
    nodes = _nodes(state["nodes"], lifecycle)
    if not nodes.num_rows:
        return Made(STEP.none)
    changes = _changes(state["changes"].to_pylist(), lifecycle)
    shipments = _Shipments(facts["shipments"])
    news = shipments.dated(facts["group_watermarks"], MARKS, nodes)
    marks = _Latest(state["marks"], state["marks_ahead"], news, QUEUE_KEY)
    samples = shipments.dated(facts["client_windows"], SAMPLES, nodes)
    finished = _Latest(state["finished"], state["finished_ahead"], samples, _SAMPLE_KEY)
    found = _found(state["found"], news, changes)
    opened: list[Row] = []
    for change in changes:
        judged_seq = None if change["is_judged"] else shipments.reached(change)
        if judged_seq is not None:
            change |= {"is_judged": True, "judged_seq": judged_seq}
            opened += _openings(change, changes, marks=marks, found=found, finished=finished)
    ends = lifecycle.filter(is_one_of(lifecycle["kind"], ROLE_CHANGE, *GONE)).to_pylist()
    closed, still = _closed([*state["open"].to_pylist(), *opened], news, ends)
    gone = [end for end in ends if end["kind"] in GONE]
    carried = {
        "nodes": nodes,
        "changes": pa.Table.from_pylist(_latest(changes), CHANGES),
        "found": _waiting(found, changes),
        "open": pa.Table.from_pylist(still, REVISIONS),
    }
    touched: dict[str, Positions] = {}
    for name, one in (("marks", marks), ("finished", finished)):
        carried[name], carried[f"{name}_ahead"], moved = one.carried(changes, gone)
        if moved is not None:
            touched[name] = moved
    changed = {
        name: rows
        for name, rows in carried.items()
        if name in touched or not (rows is state[name] or rows.equals(state[name]))
    }
    return Made(pa.Table.from_pylist([*opened, *closed], REVISIONS), changed, touched)


def _nodes(known: pa.Table, lifecycle: pa.Table) -> pa.Table:
    """Nodes that report on themselves say their role; a master without an epoch, its slaves."""
    says_role = pc.and_(is_one_of(lifecycle["kind"], ROLE_CHANGE), pc.is_valid(lifecycle["role"]))
    has_slaves = is_one_of(lifecycle["kind"], "REPLICA_JOINED")
    said = lifecycle.filter(pc.or_(says_role, has_slaves)).select(NODES.names).cast(NODES)
    return newest_of_each(known, said, ("emitter",))


def _changes(known: list[Row], lifecycle: pa.Table) -> list[Row]:
    """All beginnings of an epoch of a leader; a leader that starts again goes on in its own."""
    leads = pc.and_(is_one_of(lifecycle["kind"], ROLE_CHANGE), is_one_of(lifecycle["role"], MASTER))
    epochs = {(one["emitter"], one["epoch"]) for one in known}
    for row in lifecycle.filter(leads).to_pylist():
        epoch = row["term"] or 0
        if (row["emitter"], epoch) not in epochs:
            epochs.add((row["emitter"], epoch))
            named = {name: row[name] for name in CHANGES.names if name in row}
            known.append({**named, "epoch": epoch, "is_judged": False})
    return sorted(known, key=lambda one: (one["cluster"], one["broker"], one["epoch"]))


def _latest(changes: Sequence[Row]) -> list[Row]:
    """Those that are not judged, and of each node the last one that is."""
    last = {one["emitter"]: one for one in changes if one["is_judged"]}
    return [one for one in changes if not one["is_judged"] or one is last[one["emitter"]]]


class _Shipments:
    """When the new rows of each emitter were shipped, and how far it has reported by them."""

    def __init__(self, shipments: pa.Table) -> None:
        rows = shipments.sort_by("seq_to")
        self._emitters = np.asarray(rows["emitter"].to_pylist(), dtype=object)
        self._seq_to = np.asarray(rows["seq_to"])
        self._horizon_us = np.asarray(rows["event_us_to"])
        self._shipped_us = np.asarray(pc.fill_null(rows["shipped_us"], 0))

    def reached(self, change: Row) -> int | None:
        """The seq up to which its leader had reported when the change is judged; None: not yet."""
        of_leader = self._emitters == change["emitter"]
        is_due = of_leader & (self._horizon_us >= _due_us(change))
        return int(self._seq_to[is_due].min()) if is_due.any() else None

    def dated(self, facts: pa.Table, schema: pa.Schema, nodes: pa.Table) -> pa.Table:
        """The facts of nodes, and when each was shipped; 0: its shipper did not say."""
        names = [name for name in schema.names if name != "shipped_us"]
        rows = facts.select(names).filter(are_among(facts, nodes, ("emitter",)))
        shipped_us = np.zeros(rows.num_rows, np.int64)
        seqs, emitters = np.asarray(rows["seq"]), rows["emitter"]
        for emitter in emitters.unique().to_pylist():
            own, of_shipments = np.asarray(is_one_of(emitters, emitter)), self._emitters == emitter
            at = np.searchsorted(self._seq_to[of_shipments], seqs[own])
            shipped_us[own] = np.append(self._shipped_us[of_shipments], 0)[at]
        return rows.append_column("shipped_us", pa.array(shipped_us)).cast(schema)


class _Latest:
    """The last row of each key, and rows that are ahead of a change that is not judged yet."""

    def __init__(self, known: pa.Table, ahead: pa.Table, new: pa.Table, key: Sequence[str]) -> None:
        self._known, self._was_ahead, self._key = known, ahead, key
        self._rows = pa.concat_tables([ahead, new]) if ahead.num_rows else new

    def before(self, change: Row, changes: Sequence[Row], emitter: str) -> pa.Table:
        """The last rows of an emitter by which a change is judged."""
        known = self._known.filter(is_one_of(self._known["emitter"], emitter))
        rows = self._rows.filter(is_one_of(self._rows["emitter"], emitter))
        in_time = rows.filter(pa.array(_in_time(rows, change, changes, emitter)))
        return newest_of_each(known, in_time, self._key)

    def nodes_of(self, broker: str) -> list[str]:
        """Emitters of a broker that have rows, by name."""
        seen = {*self._known["emitter"].unique().to_pylist()}
        seen |= {*self._rows["emitter"].unique().to_pylist()}
        return sorted(one for one in seen if _broker(one) == broker)

    def carried(
        self, changes: Sequence[Row], gone: Sequence[Row]
    ) -> tuple[pa.Table, pa.Table, Positions | None]:
        """The last rows, those that are ahead, and which of the former are new; None: some have
        moved.
        """
        rows = self._rows
        is_ahead = self._is_ahead(changes)
        ahead = rows.filter(pa.array(is_ahead))
        if not ahead.num_rows and not self._was_ahead.num_rows:
            ahead = self._was_ahead
        fresh = rows.filter(pa.array(~is_ahead))
        if not fresh.num_rows and not gone:
            return self._known, ahead, None
        places, _ = positions_of(self._known, fresh, self._key)
        last = overlaid(self._known, places, fresh)
        if gone:
            return without_ended(last, gone), without_ended(ahead, gone), None
        return last, ahead, np.unique(places)

    def _is_ahead(self, changes: Sequence[Row]) -> Truths:
        rows = self._rows
        found = np.zeros(rows.num_rows, bool)
        for change in changes:
            if change["is_judged"]:
                continue
            for emitter in set(rows["emitter"].unique().to_pylist()) - {change["emitter"]}:
                if _broker(emitter) == _broker(change["emitter"]):
                    own = np.asarray(is_one_of(rows["emitter"], emitter))
                    of_emitter = rows.filter(pa.array(own))
                    found[own] |= ~_in_time(of_emitter, change, changes, emitter)
        return found


def _in_time(rows: pa.Table, change: Row, changes: Sequence[Row], emitter: str) -> Truths:
    """Per row of an emitter: was it reported, and shipped, before the change is judged, and before
    the emitter led again?
    """
    again = (
        one["seq"]
        for one in changes
        if one["emitter"] == emitter and one["epoch"] > change["epoch"]
    )
    latest_us = np.maximum(np.asarray(rows["event_us"]), np.asarray(rows["shipped_us"]))
    is_before = np.asarray(rows["seq"]) < min(again, default=np.iinfo(np.int64).max)
    in_time: Truths = (latest_us <= _due_us(change)) & is_before
    return in_time


def _due_us(change: Row) -> int:
    moment_us: int = change["event_us"] + SETTLED_US
    return moment_us


def _broker(emitter: str) -> str:
    return emitter.rpartition("/")[0]


def _found(known: pa.Table, news: pa.Table, changes: Sequence[Row]) -> pa.Table:
    """The first marks of each leader that is not judged, behind its own row."""
    found = known
    for change in changes:
        if change["is_judged"]:
            continue
        of_leader = is_one_of(news["emitter"], change["emitter"])
        rows = news.filter(pc.and_(of_leader, pc.greater(news["seq"], change["seq"])))
        epochs = pa.repeat(pa.scalar(change["epoch"], pa.int64()), rows.num_rows)
        rows = rows.append_column(FOUND.field("epoch"), epochs).sort_by([("seq", "descending")])
        fresh = rows.filter(pc.invert(are_among(rows, found, _FOUND_KEY)))
        found = newest_of_each(found, fresh, _FOUND_KEY)
    return found


def _waiting(found: pa.Table, changes: Sequence[Row]) -> pa.Table:
    """Those of changes that are not judged."""
    is_wanted = np.zeros(found.num_rows, bool)
    for change in changes:
        if not change["is_judged"]:
            is_wanted |= np.asarray(_of(found, change))
    return found if is_wanted.all() else found.filter(pa.array(is_wanted))


def _of(found: pa.Table, change: Row) -> pa.ChunkedArray:
    of_leader = is_one_of(found["emitter"], change["emitter"])
    return pc.and_(of_leader, pc.equal(found["epoch"], change["epoch"]))


def _openings(
    change: Row,
    changes: Sequence[Row],
    *,
    marks: _Latest,
    found: pa.Table,
    finished: _Latest,
) -> Iterator[Row]:
    """Queues whose group was further at the former leader than at the new one."""
    former, before = _former(change, changes, marks)
    reached = _by_queue(before)
    done: dict[tuple[Any, ...], int] = {}
    for row in finished.before(change, changes, former).to_pylist():
        if row["takes_all"] and row["client_committed"] is not None:
            queue = tuple(row[name] for name in _QUEUE)
            done[queue] = max(done.get(queue, 0), row["client_committed"])
    own = found.filter(
        pc.and_(_of(found, change), pc.less_equal(found["seq"], change["judged_seq"]))
    )
    for queue, mark in sorted(_by_queue(own).items()):
        last = reached.get(queue)
        if last is None or last["is_broadcast"] or mark["committed"] is None:
            continue
        begin, committed = mark["committed"], last["committed"] or 0
        end = max(committed, last["pulled"] or 0)
        if end > begin:
            sure = max(0, min(max(committed, done.get(queue, 0)), end) - begin)
            yield _opening(change, mark, last, span=range(begin, end), certain=sure)


def _former(change: Row, changes: Sequence[Row], marks: _Latest) -> tuple[str, pa.Table]:
    """Who led before, and its last marks: the node of the greatest epoch below, or one that never
    said an epoch. No marks when the leader itself did, or nobody.
    """
    own = change["emitter"]
    nodes = [one for one in changes if _broker(one["emitter"]) == _broker(own)]
    led = [one["emitter"] for one in nodes if one["epoch"] < change["epoch"]]
    named = led[-1:] if led else marks.nodes_of(_broker(own))
    for emitter in named:
        if emitter != own and (last := marks.before(change, changes, emitter)).num_rows:
            return emitter, last
    return own, MARKS.empty_table()


def _by_queue(rows: pa.Table) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in _QUEUE): row for row in rows.to_pylist()}


def _opening(change: Row, mark: Row, before: Row, *, span: range, certain: int) -> Row:
    """The columns of a first revision; what is not named is unknown."""
    return {
        **dict.fromkeys(REVISIONS.names),
        **{name: mark[name] for name in ("emitter", "cluster", "broker", *_QUEUE)},
        "opened_us": change["event_us"],
        "revision": 1,
        "basis": BASIS,
        "cause": BASIS,
        "client_id": before["last_puller"],
        "from_offset": span.start,
        "to_offset": span.stop,
        "certain": certain,
        "uncertain": len(span) - certain,
        "redelivered": 0,
        "observed_us": change["event_us"] + SETTLED_US,
        "seq": change["judged_seq"],
        "state": "OPEN",
        "shown_by": "OPENED",
    }


def _closed(
    windows: Sequence[Row], news: pa.Table, ends: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """Last revisions, and the windows that stay open: a window ends when the group has committed
    all of it at the new leader, when its queue is gone, or when the node says another role."""
    if not windows:
        return [], []
    queues = pa.Table.from_pylist(list(windows), REVISIONS).select(QUEUE_KEY)
    places = queues.cast(pa.schema(QUEUE_FIELDS))
    passed: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in news.filter(are_among(news, places, QUEUE_KEY)).to_pylist():
        passed[tuple(row[name] for name in QUEUE_KEY)].append(row)
    closed, still = [], []
    for window in windows:
        happened = [
            (row, "PASSED")
            for row in passed[tuple(window[name] for name in QUEUE_KEY)]
            if (row["committed"] or 0) >= window["to_offset"]
        ]
        happened += [
            (end, end["kind"] if end["kind"] in GONE else "TAKEN_OVER")
            for end in ends
            if end["emitter"] == window["emitter"]
            and concerns(end, *(window[name] for name in _QUEUE))
        ]
        later = [one for one in happened if one[0]["seq"] > window["seq"]]
        if not later:
            still.append(window)
            continue
        row, why = min(later, key=lambda one: int(one[0]["seq"]))
        ended = {"revision": 2, "state": "CLOSED", "shown_by": why}
        closed.append({**window, **ended, "observed_us": row["event_us"], "seq": row["seq"]})
    return closed, still


STEP: Final = Step(
    NAME,
    ("lifecycle", "shipments", "group_watermarks", "client_windows"),
    fail_overs,
    {
        "nodes": NODES,
        "changes": CHANGES,
        "marks": MARKS,
        "marks_ahead": MARKS,
        "found": FOUND,
        "finished": SAMPLES,
        "finished_ahead": SAMPLES,
        "open": REVISIONS,
    },
    makes=REVISIONS,
)
