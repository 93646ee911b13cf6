"""Measures the unflushed data that each broker would lose in a crash.

Place in the walk: flush_checkpoints and queue_watermarks → gold flush_health. Carried: what of each
queue is not flushed, the last marks of the commit log, and facts of slots that are not over. While
a disk hangs no flush ends: queues alone show what waits, and the bytes are those reported last. A
SIGKILL costs what lies in the transient pool; a power cut all that was not flushed.

Invariant: a broker and slot with a flush or commit of the log, or with a queue that reports
messages not flushed, has one row, emitted when the slot is over. Absent on purpose: consume queues
and index, which are built again from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from engine.telemetry.tables import Column, must
from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import BROKER_AT, LONG, STAMP, STRING, rows_as_declared
from pipelines.marts.keys import newest_of_each
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.polled import NAME as POLLED
from pipelines.marts.polled import OBSERVED
from pipelines.marts.slots import HORIZONS, horizons, slots_of, slots_over
from pipelines.marts.unsafe_queues import DELETED, deleted_in, marks_of, moved, queues_schema
from pipelines.staging.facts import is_one_of

SLOT_US: Final = 10 * SECOND_US

FLUSH_HEALTH: Final = GoldTable(
    "flush_health",
    "broker and ten seconds in which its commit log was committed or flushed, or messages waited",
    (
        *BROKER_AT,
        must(
            "kill_bytes", LONG, "written and not committed at the last report: a SIGKILL costs them"
        ),
        Column(
            "kill_bytes_max", LONG, "the most at an instant of these seconds; null: not reported"
        ),
        must("power_cut_bytes", LONG, "written and not flushed at the last report"),
        Column(
            "power_cut_bytes_max",
            LONG,
            "the most at an instant of these seconds; null: not reported",
        ),
        must("power_cut_messages", LONG, "messages in queues and not flushed, at the last report"),
        must("power_cut_queues", LONG, "queues that have such messages"),
        must("flushes", LONG, "flushes of the commit log in these seconds"),
        Column("flush_us_max", LONG, "the longest of them, µs; null without any"),
        *STAMP,
        Column(
            "provenance",
            STRING,
            "OBSERVED: polled, not reported; bytes are right to a twentieth, messages are 1 for "
            "one or more, flushes one a look in which any has ended; null: reported",
        ),
    ),
    ("emitter", "observed_at"),
    on_ticks="true",
)
QUEUES: Final = queues_schema("unflushed")
CHECKPOINTS: Final = pa.schema(
    [
        ("cluster", KEY_TEXT),
        ("broker", KEY_TEXT),
        ("emitter", KEY_TEXT),
        ("slot_us", pa.int64()),
        ("seq", pa.int64()),
        ("action", KEY_TEXT),
        ("written", pa.int64()),
        ("committed", pa.int64()),
        ("flushed", pa.int64()),
        ("count", pa.int64()),
        ("duration_us_max", pa.int64()),
        ("at_risk_bytes_max", pa.int64()),
    ]
)
"""Commits and flushes of commit logs."""


def flush_health(given: Given) -> Made:
    """One row per broker and ten seconds with a commit or flush of its log."""
    state = given.state
    known = horizons(state["horizons"], given.facts["shipments"])
    new = {
        "marks": marks_of(given.facts["queue_watermarks"], "flushed_offset", QUEUES, SLOT_US),
        "checkpoints": _checkpoints(given.facts["flush_checkpoints"]),
        "deleted": deleted_in(given.facts["lifecycle"], SLOT_US),
    }
    due, carried = slots_over(state, new, known)
    queues, last = state["queues"], state["last"]
    rows = []
    for _, of_slot in due:
        queues = moved(queues, of_slot["marks"], of_slot["deleted"])
        rows.extend(_rows(of_slot["checkpoints"], queues))
        rows.extend(_waiting(of_slot, queues, last))
        last = newest_of_each(last, of_slot["checkpoints"].sort_by("seq"), ("emitter",))
    carried |= {"queues": queues, "last": last, "horizons": known}
    watched = set(given.facts[POLLED]["emitter"].to_pylist())
    rows = [_as_polled(row) if row["emitter"] in watched else row for row in rows]
    return Made(rows_as_declared(rows, FLUSH_HEALTH), carried)


def _checkpoints(checkpoints: pa.Table) -> pa.Table:
    of_log = checkpoints.filter(is_one_of(checkpoints["component"], "COMMIT_LOG"))
    rows = of_log.append_column("slot_us", slots_of(of_log["event_us"], SLOT_US))
    return rows.select(CHECKPOINTS.names).cast(CHECKPOINTS)


def _rows(checkpoints: pa.Table, queues: pa.Table) -> list[dict[str, Any]]:
    """One row a broker, of a slot."""
    by_emitter: dict[str, list[dict[str, Any]]] = {}
    for row in checkpoints.to_pylist():
        by_emitter.setdefault(row["emitter"], []).append(row)
    return [
        _row(actions, queues.filter(is_one_of(queues["emitter"], emitter)))
        for emitter, actions in by_emitter.items()
    ]


def _row(actions: list[dict[str, Any]], queues: pa.Table) -> dict[str, Any]:
    last = max(actions, key=lambda row: row["seq"])
    written = last["written"] or 0
    flushes = [row for row in actions if row["action"] == "FLUSH"]
    commits = [row for row in actions if row["action"] == "COMMIT"]
    return {
        **last,
        "observed_us": last["slot_us"],
        "kill_bytes": max(0, written - _or(last["committed"], written)),
        "kill_bytes_max": _most(commits, "at_risk_bytes_max"),
        "power_cut_bytes": max(0, written - _or(last["flushed"], written)),
        "power_cut_bytes_max": _most(flushes, "at_risk_bytes_max"),
        "power_cut_messages": int(np.asarray(queues["unflushed"]).sum()),
        "power_cut_queues": queues.num_rows,
        "flushes": sum(row["count"] for row in flushes),
        "flush_us_max": _most(flushes, "duration_us_max"),
        "provenance": None,
    }


def _as_polled(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a broker that reports how much is not flushed, and not what of it is messages,
    nor how long a flush took.
    """
    waits = int(row["power_cut_bytes"] > 0)
    polled = {"power_cut_messages": waits, "power_cut_queues": waits, "flush_us_max": None}
    return {**row, **polled, "power_cut_bytes_max": None, "provenance": OBSERVED}


def _waiting(
    of_slot: Mapping[str, pa.Table], queues: pa.Table, last: pa.Table
) -> Iterator[dict[str, Any]]:
    """One row a broker of whose log no flush or commit ended in the slot, while queues reported on
    messages that are not flushed.
    """
    marks = {row["emitter"]: row for row in of_slot["marks"].sort_by("seq").to_pylist()}
    for emitter in of_slot["checkpoints"]["emitter"].unique().to_pylist():
        marks.pop(emitter, None)
    for row in last.to_pylist():
        mark = marks.get(row["emitter"])
        own = queues.filter(is_one_of(queues["emitter"], row["emitter"]))
        if mark is not None and own.num_rows:
            now = {"seq": mark["seq"], "slot_us": mark["slot_us"], "action": ""}
            yield _row([{**row, **now}], own)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _most(rows: list[dict[str, Any]], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


MART: Final = mart(
    FLUSH_HEALTH,
    flush_health,
    reads=("flush_checkpoints", "queue_watermarks", "lifecycle", "shipments", POLLED),
    wakes=("flush_checkpoints", "queue_watermarks", "lifecycle", "shipments"),
    carries={
        "marks": QUEUES,
        "checkpoints": CHECKPOINTS,
        "deleted": DELETED,
        "queues": QUEUES,
        "last": CHECKPOINTS,
        "horizons": HORIZONS,
    },
)
