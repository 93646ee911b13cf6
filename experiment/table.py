"""Delta table of kills, with one row per kill and queue for later analysis.

Place in the walk: written once a run, after the verdict; a notebook reads it.

Invariant: delta-rs alone writes it; a run appends all its rows in one commit. Absent on purpose:
verdicts. They follow from the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from engine.telemetry.tables import ColumnType, must
from experiment.plan import Plan
from experiment.score import KillRow, Range
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import append as add

FOLDER: Final = "experiments"
NAME: Final = "kills"

_S, _I, _L, _T = ColumnType.STRING, ColumnType.INT, ColumnType.LONG, ColumnType.TIMESTAMP
COLUMNS: Final = (
    must("run", _S, "the run; also the name of its cluster in bronze and gold"),
    must("seed", _L, "what times, victims and flush modes were drawn from"),
    must("kills", _I, "kills of the run"),
    must("kill", _I, "number of the kill in its run, from 1"),
    must("victim", _S, "CONSUMER, BROKER or BOTH"),
    must("hosts", ColumnType.STRINGS, "consumers that died; each has a member in every group"),
    must("killed_at", _T, "just before the SIGKILL"),
    must("until", _T, "when the next kill came, or the end"),
    must("down_ms", _L, "from the kill until what died was started again"),
    must("flush", _S, "how the broker flushed in the life behind the kill: async or sync"),
    must("group", _S, "consumer group; its name says how its listeners work"),
    must("topic", _S, "topic"),
    must("queue_id", _I, "queue number inside topic and broker"),
    must("causes", ColumnType.STRINGS, "causes of the windows that predicted"),
    must(
        "predicted_ranges",
        ColumnType.RANGES,
        "at risk, as it stood when the first message came again, and at last",
    ),
    must("told_ranges", ColumnType.RANGES, "at risk by any revision, withdrawn ones as well"),
    must("certain_ranges", ColumnType.RANGES, "of the predicted: reported as finished"),
    must(
        "redelivered_ranges",
        ColumnType.RANGES,
        "delivered twice: a listener began with a message that one had begun with before",
    ),
    must("unforeseen_ranges", ColumnType.RANGES, "of these: in no range that was recorded before"),
    must("predicted_messages", _L, "messages in predicted_ranges"),
    must("told_messages", _L, "messages in told_ranges"),
    must("redelivered_messages", _L, "messages in redelivered_ranges"),
    must("foreseen_messages", _L, "redelivered messages in a range that was recorded before"),
    must("hit_messages", _L, "predicted messages that came again"),
    must("certain_messages", _L, "messages in certain_ranges"),
    must("certain_again_messages", _L, "of these: those that came again"),
)


def address(lake: Lake) -> str:
    """Where the table lies in a lake."""
    return f"{lake.root}/{FOLDER}/{NAME}"


def append(lake: Lake, plan: Plan, run: str, rows: Sequence[KillRow]) -> None:
    """Add a run."""
    made = pa.Table.from_pylist(
        [_row(plan, run, row) for row in rows], schema=arrow_schema(COLUMNS)
    )
    add(lake, address(lake), made)


def _row(plan: Plan, run: str, row: KillRow) -> dict[str, Any]:
    kill = row.killed.kill
    group, topic, queue_id = row.queue
    unforeseen = _count(row.unforeseen)
    return {
        "run": run,
        "seed": plan.seed,
        "kills": len(plan.kills),
        "kill": kill.number,
        "victim": kill.victim.value,
        "hosts": list(kill.hosts),
        "killed_at": row.killed.at_us,
        "until": row.killed.until_us,
        "down_ms": round(1000 * kill.down_s),
        "flush": row.killed.flush.value,
        "group": group,
        "topic": topic,
        "queue_id": queue_id,
        "causes": list(row.causes),
        "predicted_ranges": _range_rows(row.predicted),
        "told_ranges": _range_rows(row.ever_predicted),
        "certain_ranges": _range_rows(row.certain),
        "redelivered_ranges": _range_rows(row.redelivered),
        "unforeseen_ranges": _range_rows(row.unforeseen),
        "predicted_messages": _count(row.predicted),
        "told_messages": _count(row.ever_predicted),
        "redelivered_messages": _count(row.redelivered),
        "foreseen_messages": _count(row.redelivered) - unforeseen,
        "hit_messages": row.hits,
        "certain_messages": _count(row.certain),
        "certain_again_messages": row.certain_again,
    }


def _range_rows(ranges: Iterable[Range]) -> list[dict[str, int]]:
    return [{"from_offset": begin, "to_offset": end} for begin, end in ranges]


def _count(ranges: Iterable[Range]) -> int:
    return sum(end - begin for begin, end in ranges)
