"""Measures what losing a master would cost: unreplicated messages and slave lag.

Place in the walk: flush_checkpoints (REPLICA), queue_watermarks, lifecycle → gold
replication_health. Carried: what of each queue is on no slave, each slave's last marks, where each
log ended in the last hour, and facts of slots that are not over.

A slave's time behind is counted from the slot in which the log grew beyond what the slave has. A
master that waits for slaves answers for none of the messages that only it has, unless their sender
does not wait; one that does not has answered for all of them.

Invariant: a broker and slot in which its slaves were reported, or one of them came or went, has one
row, emitted when the slot is over. Absent on purpose: what slaves say of themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.base.settings import MS_US, SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import (
    BROKER,
    CLUSTER,
    EMITTER,
    LONG,
    OBSERVED_AT,
    OBSERVED_DATE,
    SEQ,
    STRING,
    rows_as_declared,
)
from pipelines.marts.lifecycle_events import ROLE_CHANGE
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.polled import NAME as POLLED
from pipelines.marts.polled import OBSERVED
from pipelines.marts.slots import HORIZONS, horizons, slots_of, slots_over
from pipelines.marts.unsafe_queues import DELETED, deleted_in, marks_of, moved, queues_schema
from pipelines.staging.facts import is_one_of

SLOT_US: Final = 10 * SECOND_US
ENDS_MAX: Final = 360
"""Slots in which a log grew that are remembered of a broker: an hour of steady writes."""

REPLICATION_HEALTH: Final = GoldTable(
    "replication_health",
    "broker and ten seconds in which its slaves were reported",
    (
        OBSERVED_AT,
        CLUSTER,
        BROKER,
        must(
            "mode",
            STRING,
            "SYNC_MASTER: it answers a send when enough slaves have it; RAFT: when a majority has; "
            "ASYNC_MASTER: at once",
        ),
        must("replicas", LONG, "slaves that are connected"),
        must("written", LONG, "where its log ends"),
        Column("furthest_replica", STRING, "the slave that has most of it; null: unknown, or none"),
        Column(
            "loss_bytes",
            LONG,
            "bytes that only the master has: its loss would cost them; null: unknown",
        ),
        Column("loss_messages", LONG, "messages that only the master has; null: unknown"),
        Column(
            "unknown_reason",
            STRING,
            "why the loss is null: NO_REPLICA, or NOTHING_REPORTED (a slave has connected and has "
            "not reported yet what it has of what it was sent)",
        ),
        Column("slowest_replica", STRING, "the slave that lacks most; null: unknown, or none"),
        Column("behind_bytes", LONG, "bytes that this slave lacks; null: unknown"),
        Column(
            "behind_ms",
            LONG,
            "for how long it has lacked the first of them, to ten seconds; of one that has lacked "
            "it for longer than is remembered, for so long at least; null: unknown",
        ),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
        Column(
            "slaves",
            ColumnType.REPLICAS,
            "each of them: up to where it has the log, what it lacks, and for how long it has "
            "lacked the first of that, as behind_ms; null in each: it has reported nothing",
        ),
        Column("epoch", LONG, "in which its master leads; null: not reported, or it has none"),
        Column(
            "provenance",
            STRING,
            "OBSERVED: polled, not reported; bytes are known, messages are not but for none; null: "
            "reported",
        ),
    ),
    ("emitter", "observed_at"),
    on_ticks="true",
)
QUEUES: Final = queues_schema("unreplicated")
_OF_A_BROKER: Final = (("cluster", KEY_TEXT), ("broker", KEY_TEXT), ("emitter", KEY_TEXT))
MARKS: Final = pa.schema(
    [
        *_OF_A_BROKER,
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
        ("replica", KEY_TEXT),
        ("mode", KEY_TEXT),
        ("written", pa.int64()),
        ("replicated", pa.int64()),
    ]
)
"""What was reported of slaves. Without a replica: there is none."""
COMINGS: Final = pa.schema(
    [
        *_OF_A_BROKER,
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
        ("replica", KEY_TEXT),
        ("is_here", pa.bool_()),
        ("term", pa.int64()),
    ]
)
"""Slaves that came and went; without a replica: the master began, and has none yet. With a term:
the epoch of the broker's role from then on.
"""
ENDS: Final = pa.schema([("emitter", KEY_TEXT), ("slot_us", pa.int64()), ("written", pa.int64())])
"""Where a log ended, by slots in which it grew."""
EPOCHS: Final = pa.schema([("emitter", KEY_TEXT), ("term", pa.int64())])
_KINDS: Final = {"REPLICA_JOINED": True, "REPLICA_LOST": False, "BOOT": False, "SHUTDOWN": False}


def replication_health(given: Given) -> Made:
    """One row per broker and ten seconds in which its slaves were reported."""
    state = given.state
    known = horizons(state["horizons"], given.facts["shipments"])
    marks = given.facts["queue_watermarks"]
    new = {
        "queue_marks": marks_of(marks, "replicated_offset", QUEUES, SLOT_US),
        "marks": _marks(given.facts["flush_checkpoints"]),
        "comings": _comings(given.facts["lifecycle"]),
        "deleted": deleted_in(given.facts["lifecycle"], SLOT_US),
    }
    due, carried = slots_over(state, new, known)
    queues, brokers = state["queues"], _Brokers(state["last"], state["ends"], state["epochs"])
    rows = list[dict[str, Any]]()
    for slot_us, of_slot in due:
        queues = moved(queues, of_slot["queue_marks"], of_slot["deleted"])
        rows.extend(brokers.after(slot_us, of_slot["comings"], of_slot["marks"], queues))
    carried |= {"queues": queues, "horizons": known, **brokers.carried()}
    watched = set(given.facts[POLLED]["emitter"].to_pylist())
    rows = [_as_polled(row) if row["emitter"] in watched else row for row in rows]
    return Made(rows_as_declared(rows, REPLICATION_HEALTH), carried)


def _as_polled(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a master that counts bytes alone: which messages they are nobody says."""
    messages = 0 if row["loss_bytes"] == 0 else None
    return {**row, "loss_messages": messages, "provenance": OBSERVED}


def _marks(checkpoints: pa.Table) -> pa.Table:
    rows = checkpoints.filter(is_one_of(checkpoints["component"], "REPLICA"))
    rows = rows.append_column("slot_us", slots_of(rows["event_us"], SLOT_US))
    rows = rows.append_column("mode", rows["cause"]).append_column("replicated", rows["flushed"])
    return rows.select(MARKS.names).cast(MARKS)


def _comings(lifecycle: pa.Table) -> pa.Table:
    rows = lifecycle.filter(is_one_of(lifecycle["kind"], *_KINDS, ROLE_CHANGE))
    here = pa.array([_KINDS.get(kind) for kind in rows["kind"].to_pylist()], pa.bool_())
    rows = rows.append_column("slot_us", slots_of(rows["event_us"], SLOT_US))
    own = is_one_of(rows["kind"], "REPLICA_JOINED", "REPLICA_LOST")
    replica = pc.if_else(own, rows["address"], pa.scalar(None, rows["address"].type))
    rows = rows.append_column("replica", replica).append_column("is_here", here)
    return rows.select(COMINGS.names).cast(COMINGS)


class _Brokers:
    """The slaves of each emitter as they were reported last, and where its log ended when."""

    def __init__(self, last: pa.Table, ends: pa.Table, epochs: pa.Table) -> None:
        self._slaves: dict[str, dict[str, dict[str, Any]]] = {}
        self._ends: dict[str, list[tuple[int, int]]] = {}
        self._epochs = {row["emitter"]: row["term"] for row in epochs.to_pylist()}
        for row in last.to_pylist():
            self._slaves.setdefault(row["emitter"], {})[row["replica"]] = row
        for row in ends.to_pylist():
            self._ends.setdefault(row["emitter"], []).append((row["slot_us"], row["written"]))

    def carried(self) -> dict[str, pa.Table]:
        """What the next cycle needs of them."""
        last = [row for slaves in self._slaves.values() for row in slaves.values()]
        ends = [
            {"emitter": emitter, "slot_us": slot_us, "written": written}
            for emitter, known in self._ends.items()
            for slot_us, written in known
        ]
        return {
            "last": pa.Table.from_pylist(last, MARKS),
            "ends": pa.Table.from_pylist(ends, ENDS),
            "epochs": pa.Table.from_pylist(
                [{"emitter": one, "term": term} for one, term in self._epochs.items()], EPOCHS
            ),
        }

    def after(
        self, slot_us: int, comings: pa.Table, marks: pa.Table, queues: pa.Table
    ) -> list[dict[str, Any]]:
        """One row for each broker of which something was reported in the slot."""
        newest: dict[str, dict[str, Any]] = {}
        events = sorted(comings.to_pylist() + marks.to_pylist(), key=lambda row: row["seq"])
        for event in events:
            emitter = event["emitter"]
            self._take(event)
            if "written" in event:
                newest[emitter] = event
                self._grew(emitter, slot_us, event["written"])
        return [
            self._row(slot_us, event, queues.filter(is_one_of(queues["emitter"], emitter)))
            for emitter, event in newest.items()
        ]

    def _take(self, event: dict[str, Any]) -> None:
        slaves = self._slaves.setdefault(event["emitter"], {})
        replica = event["replica"]
        if event.get("term") is not None:
            self._epochs[event["emitter"]] = event["term"]
        if event.get("is_here", True) is None:  # A role: its slaves come and go by themselves.
            return
        if replica is None:  # It began, it ended, or there is no slave.
            slaves.clear()
        elif "written" in event:
            slaves[replica] = event
        elif not event["is_here"]:
            slaves.pop(replica, None)

    def _grew(self, emitter: str, slot_us: int, written: int) -> None:
        ends = [one for one in self._ends.get(emitter, ()) if one[0] < slot_us and one[1] < written]
        self._ends[emitter] = [*ends, (slot_us, written)][-ENDS_MAX:]

    def _row(self, slot_us: int, newest: dict[str, Any], queues: pa.Table) -> dict[str, Any]:
        slaves = sorted(self._slaves[newest["emitter"]].values(), key=lambda one: one["replica"])
        written = max(row["written"] for row in [newest, *slaves])
        reported = [row for row in slaves if row["replicated"] is not None]
        row = {
            **newest,
            "observed_us": slot_us,
            "replicas": len(slaves),
            "written": written,
            "provenance": None,
            "epoch": self._epochs.get(newest["emitter"]),
            "slaves": [self._lacks(slave, slot_us, written) for slave in slaves],
            "unknown_reason": "NOTHING_REPORTED" if slaves else "NO_REPLICA",
        }
        unknown = ("furthest_replica", "loss_bytes", "loss_messages")
        row |= dict.fromkeys((*unknown, "slowest_replica", "behind_bytes", "behind_ms"))
        if reported:
            furthest = max(reported, key=lambda one: one["replicated"])
            row |= {
                "unknown_reason": None,
                "furthest_replica": furthest["replica"],
                "loss_bytes": max(0, written - furthest["replicated"]),
                "loss_messages": int(np.asarray(queues["unreplicated"]).sum()),
            }
        if reported and len(reported) == len(slaves):
            slowest = self._lacks(
                min(reported, key=lambda one: one["replicated"]), slot_us, written
            )
            row |= {
                "slowest_replica": slowest["replica"],
                "behind_bytes": slowest["behind_bytes"],
                "behind_ms": slowest["behind_ms"],
            }
        return row

    def _lacks(self, slave: Mapping[str, Any], slot_us: int, written: int) -> dict[str, Any]:
        """What one slave lacks, and for how long."""
        replicated = slave["replicated"]
        if replicated is None:
            return {"replica": slave["replica"]}
        return {
            "replica": slave["replica"],
            "replicated": replicated,
            "behind_bytes": max(0, written - replicated),
            "behind_ms": self._behind_ms(slave["emitter"], slot_us, replicated),
        }

    def _behind_ms(self, emitter: str, slot_us: int, replicated: int) -> int:
        beyond = [at for at, written in self._ends[emitter] if written > replicated]
        return (slot_us - beyond[0]) // MS_US if beyond else 0


MART: Final = mart(
    REPLICATION_HEALTH,
    replication_health,
    reads=("flush_checkpoints", "queue_watermarks", "lifecycle", "shipments", POLLED),
    wakes=("flush_checkpoints", "queue_watermarks", "lifecycle", "shipments"),
    carries={
        "queue_marks": QUEUES,
        "marks": MARKS,
        "comings": COMINGS,
        "deleted": DELETED,
        "queues": QUEUES,
        "last": MARKS,
        "ends": ENDS,
        "epochs": EPOCHS,
        "horizons": HORIZONS,
    },
)
