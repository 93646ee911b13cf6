"""Literal facts for one mart at a time: what goes in, what must come out, and what is carried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from engine.telemetry.tables import BY_NAME
from pipelines.base.settings import Evaluation
from pipelines.marts.computing import beginning
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import QUEUES, queue_numbers
from pipelines.marts.mart import ROW_NUMBERS, Given, Mart, Step
from pipelines.marts.offset_violations import MART as OFFSET_VIOLATIONS
from pipelines.marts.polled import STEP as POLLED
from pipelines.marts.risks.windows import WINDOWS
from pipelines.staging.facts import NUMBERS, as_facts, no_facts
from tests.pipelines.bronze_lake import bronze_table

SECOND = 1_000_000
NOON = 1_772_366_400 * SECOND
Row = dict[str, Any]
State = dict[str, pa.Table]


def facts(table: str, *rows: Row) -> pa.Table:
    """Facts with `at` in seconds after noon; what a row does not name is unknown."""
    made = [
        {
            "cluster": "c",
            "broker": "b",
            "broker_epoch": NOON - 3600 * SECOND,
            "emitter": "c/b/0",
            "seq": number,
            "event_time": NOON + int(row.get("at", 0) * SECOND),
            **({} if table == "lifecycle" else {"group": "g", "topic": "t", "queue_id": 0}),
            **row,
        }
        for number, row in enumerate(rows, start=1)
    ]
    return as_facts(table, bronze_table(table, made))


def numbers(*seqs: int, emitter: str = "c/b/0") -> pa.Table:
    """Rows of bronze, of whatever table."""
    rows = [{"emitter": emitter, "seq": seq} for seq in seqs]
    return pa.Table.from_pylist(rows, schema=NUMBERS)


def computed(
    mart: Mart, tables: Mapping[str, pa.Table], state: State | None = None, **options: Any
) -> tuple[list[Row], State]:
    """Rows of one call, in the order of seq, and what is carried on."""
    given = {
        name: tables[name] if name in tables else _nothing(name)
        for name in mart.reads
        if name != QUEUE_NUMBERS
    }
    if QUEUE_NUMBERS in mart.reads:  # A number need only be the same within a cycle.
        known = {"queues": QUEUES.empty_table()}
        given[QUEUE_NUMBERS] = queue_numbers(Given(given, known, Evaluation())).rows
    carried = {**beginning(mart), **(state or {})}
    made = mart.compute(Given(given, carried, Evaluation(), **options))
    rows = made.rows.to_pylist()
    order = "seq" if rows and "seq" in rows[0] else "observed_at"
    rows.sort(key=lambda row: (row.get("emitter") or "", row[order], row.get("revision", 0)))
    return rows, {**carried, **made.state}


def only(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """These columns of the rows."""
    return [tuple(row[name] for name in names) for row in rows]


def _nothing(name: str) -> pa.Table:
    """None of an input's rows."""
    if name == ROW_NUMBERS:
        return numbers()
    return no_facts(name) if name in BY_NAME else _NOTHING[name]


def _no_exposures(given: Given) -> Any:
    raise AssertionError("never woken: no bronze table has rows for it")


EXPOSURES = Step("exposures", (), _no_exposures, makes=WINDOWS)
"""Stands for the step of that name where no queue is judged."""
_NOTHING = {step.name: step.none for step in (EXPOSURES, OFFSET_VIOLATIONS, POLLED)}
