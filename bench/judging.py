"""Measures the CPU time that columnar marts take per partition.

    python -m bench.judging

Prints one table: rows, seconds for all judges (ticks, numbers, judged queues, consumer_lag,
stalled_windows, group_state), and the bar. Facts are made beforehand, in the columns in which a
cycle stages them; nothing is read or written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.bars import at_most
from pipelines.base.settings import Evaluation
from pipelines.base.time_units import moment_at
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import no_rows
from pipelines.marts.computing import Computed, compute
from pipelines.marts.consumer_lag import MART as CONSUMER_LAG
from pipelines.marts.declared import needed_for
from pipelines.marts.group_state import MART as GROUP_STATE
from pipelines.marts.stalled_windows import MART as STALLED_WINDOWS
from pipelines.reading.catalogue import OFFSET_VIOLATIONS
from pipelines.staging.facts import as_facts, no_facts

JUDGES: Final = needed_for(
    *(CONSUMER_LAG.name, STALLED_WINDOWS.name, GROUP_STATE.name), given=[OFFSET_VIOLATIONS.name]
)
START_US: Final = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US: Final = 1_000_000
EMITTER: Final = "cluster-1/broker-a/0"
QUEUES_PER_GROUP: Final = 10
AT_REST: Final = 8
"""At this second a queue that is reported has been consumed."""
RATE: Final = 20
State = dict[str, dict[str, pa.Table]]


def watermarks(queues: np.ndarray, seconds: np.ndarray, first_seq: int) -> pa.Table:
    """A row a queue and second, as staged: five messages behind, or at rest."""
    count = len(queues)
    event_us = START_US + seconds.astype(np.int64) * SECOND_US
    end = (seconds.astype(np.int64) + 10) * RATE
    is_at_rest = seconds == AT_REST
    committed = end - np.where(is_at_rest, 0, 5)
    group = queues // QUEUES_PER_GROUP
    names = group.max() + 1 if count else 1
    made = {
        "cluster": _one("cluster-1", count),
        "broker": _one("broker-a", count),
        "broker_epoch": np.full(count, START_US - 3600 * SECOND_US),
        "emitter": _one(EMITTER, count),
        "seq": first_seq + np.arange(count),
        "event_us": event_us,
        "group": _texts("group", group, names),
        "topic": _texts("topic", group, names),
        "queue_id": pa.array((queues % QUEUES_PER_GROUP).astype(np.int32)),
        "pulled": end,
        "processed": committed,
        "committed": committed,
        "persisted": committed,
        "committed_state": _words(["EXACT", "AT_END"], is_at_rest.astype(np.int32)),
        "store_us_at_committed": pa.array(event_us - SECOND_US, mask=is_at_rest),
        "min_offset": np.zeros(count, np.int64),
        "max_offset": end,
        "last_store_us": event_us,
        "last_puller": _texts("client", group, names),
        "last_pull_us": event_us,
        "last_commit_us": event_us,
        "reports": np.ones(count, np.int64),
        "message_model": _one("CLUSTERING", count),
        "members": pa.array(np.full(count, 2, np.int32)),
        "is_broadcast": np.zeros(count, bool),
        "lag_messages": end - committed,
        "time_lag_us": np.where(is_at_rest, 0, SECOND_US),
    }
    facts = no_facts("group_watermarks").schema
    columns = []
    for field in facts:
        value = made.get(field.name)
        if value is None:
            columns.append(pa.nulls(count, field.type))
        else:
            columns.append(value if isinstance(value, pa.Array) else pa.array(value))
    return pa.table(columns, schema=facts)


def _one(word: str, count: int) -> pa.Array:
    return _words([word], np.zeros(count, np.int32))


def _words(words: list[str], codes: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), words)


def _texts(word: str, numbers: np.ndarray, count: int) -> pa.Array:
    words = pa.array([f"{word}-{number}" for number in range(count)])
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), words).cast(KEY_TEXT)


def given(rows: pa.Table, shipment: int, to_second: int, last_seq: int) -> dict[str, pa.Table]:
    """The facts of a cycle that ends at `to_second`."""
    first = last_seq - rows.num_rows + 1
    shipped = {
        "cluster": "cluster-1",
        "broker": "broker-a",
        "broker_epoch": START_US - 3600 * SECOND_US,
        "emitter": f"{EMITTER}/shipper",
        "seq": shipment,
        "seq_from": first,
        "seq_to": last_seq,
        "event_time_to": _moment(to_second),
    }
    return {
        "group_watermarks": rows,
        "shipments": as_facts("shipments", pa.Table.from_pylist([shipped])),
        "client_windows": no_facts("client_windows"),
        "consume_stats": no_facts("consume_stats"),
        "lifecycle": snapshot(last_seq),
        "offset_violations": no_rows(OFFSET_VIOLATIONS),
    }


def snapshot(seq: int) -> pa.Table:
    """The emitter reports snapshots: what it does not speak of has not changed."""
    row = {"emitter": EMITTER, "seq": seq, "kind": "SNAPSHOT", "event_time": _moment(0)}
    facts = as_facts("lifecycle", pa.Table.from_pylist([row]))
    named = [name for name in facts.schema.names if name != "seq_from"]
    return facts.select(named).append_column("seq_from", pa.array([1], pa.int64()))


def _moment(second: int) -> datetime:
    return moment_at(START_US + second * SECOND_US)


def cycles(parts: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> tuple[Computed, float, int]:
    """Queues, seconds and end of each cycle: the last one's result, CPU seconds and rows."""
    state: State = {}
    seq = 0
    done, seconds, count = Computed({}, {}), 0.0, 0
    for number, (queues, moments, end) in enumerate(parts, start=1):
        rows = watermarks(queues, moments, seq + 1)
        seq += rows.num_rows
        facts = given(rows, number, end, seq)
        begun = time.process_time()
        done = compute(JUDGES, facts, state, Evaluation())
        seconds = time.process_time() - begun
        state.update(done.state)
        count = rows.num_rows
    return done, seconds, count


def every_second(queues: int, begin: int, end: int, step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Queues and seconds: all queues at each step, in the order of time."""
    moments = np.arange(begin, end, step)
    return np.tile(np.arange(queues), len(moments)), np.repeat(moments, queues)


def few_that_move() -> tuple[Computed, float, int]:
    """1,000 queues that all move each second."""
    warm = (*every_second(1_000, 1, 67), 66)
    return cycles([warm, (*every_second(1_000, 67, 71), 70)])


def many_rows() -> tuple[Computed, float, int]:
    """100,000 queues, of which 52,000 rows come in five seconds."""
    warm = (*every_second(100_000, 40, 41), 65)
    random = np.random.default_rng(7)
    moments = np.sort(random.integers(66, 71, 52_000))
    return cycles([warm, (random.integers(0, 100_000, 52_000), moments, 70)])


def a_million_of_which_few_move() -> tuple[Computed, float, int]:
    """A tick of 1,000,000 queues, 10,000 of which have moved."""
    warm = (*every_second(1_000_000, AT_REST, AT_REST + 1), 10)
    settled = (np.empty(0, np.int64), np.empty(0, np.int64), 59)
    random = np.random.default_rng(7)
    moved = np.sort(random.choice(1_000_000, 10_000, replace=False))
    return cycles([warm, settled, (moved, np.full(10_000, 60), 60)])


def ten_facts_each() -> tuple[Computed, float, int]:
    """1,000,000 queues with a fact at each of ten ticks."""
    return cycles([(*every_second(1_000_000, 5, 55, 5), 55)])


PARTS: Final = {
    "1,000 queues, 4 s of facts": (few_that_move, at_most(0.05, "s")),
    "100,000 queues, 52,000 rows": (many_rows, at_most(0.4, "s")),
    "1,000,000 queues, 1 % moved, a tick": (a_million_of_which_few_move, at_most(0.4, "s")),
    "1,000,000 queues, ten facts each": (ten_facts_each, at_most(12, "s")),
}


def main() -> None:
    """Measure every part and print the table."""
    table = Table(title="judging a partition, CPU seconds")
    for heading in ("what", "facts", "rows made", "CPU s", "bar", "state MiB"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, (part, bar) in PARTS.items():
        done, seconds, count = part()
        made = sum(rows.num_rows for rows in done.rows.values())
        size = sum(one.nbytes for step in done.state.values() for one in step.values())
        table.add_row(
            what, f"{count:,}", f"{made:,}", f"{seconds:.3f}", str(bar), f"{size / 2**20:,.0f}"
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
