"""Runs a cycle's tasks on executors: reading the cut's files and judging its buckets.

Place in the walk: Spark hands the two functions here to its executors (`cycles.job`). Invariant:
what a task does depends on the work order alone, so one that Spark repeats makes the same rows; its
files get names of their own, and only those of the task that was heard are committed. Absent on
purpose: Spark, and commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.telemetry.tables import BY_NAME
from pipelines.base.settings import Evaluation
from pipelines.cycles.buckets import bucket_of, split, within
from pipelines.cycles.gold_files import NewFile, write_rows
from pipelines.cycles.keyed_state import StateFiles
from pipelines.lake.data_files import DataFiles, understood
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.computing import compute
from pipelines.marts.declared import steps
from pipelines.marts.mart import ROW_NUMBERS, Step
from pipelines.staging.facts import (
    NUMBERS,
    Reach,
    as_facts,
    fact_schema,
    in_order,
    no_facts,
    reach_of,
)
from pipelines.staging.soundness import Odd, sound, summed

KEYED: Final = "keyed"
"""The folder of the state's files, beside the tables of a lake's state."""

ODD: Final = "odd"
"""Name of a part that reports which rows of a file were set aside, and why."""

Part = tuple[int, str, pa.Table]
"""Bucket, bronze table (or ROW_NUMBERS), rows."""


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Everything a task needs to know."""

    source: Lake
    """The lake whose bronze is read."""
    target: Lake
    """The lake whose gold and state are written."""
    run_id: str
    cycle: int
    buckets: int
    cuts: Mapping[str, tuple[int, int]]
    """Per emitter, and per shipper, the rows that are taken: seq in (from, to]."""
    readings: tuple[tuple[tuple[str, str], ...], ...]
    """Per reading task: bronze tables and paths of their files."""
    read_bytes: int
    """Size of all these files."""
    chains: Mapping[int, tuple[str, ...]]
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class BucketDone:
    """What the driver hears of a bucket."""

    bucket: int
    files: tuple[NewFile, ...]
    chain: tuple[str, ...]
    odd: tuple[Odd, ...] = ()
    """What readers of the cut's files found that cannot be judged, or not wholly."""

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> BucketDone:
        """The reverse."""
        values: dict[str, Any] = json.loads(text)
        return BucketDone(
            values["bucket"],
            tuple(NewFile(**one) for one in values["files"]),
            tuple(values["chain"]),
            tuple(Odd(**one) for one in values["odd"]),
        )


def read(order: WorkOrder, task: int) -> Iterator[Part]:
    """The parts of one reading task's files, for each bucket. Rows that cannot be judged are set
    aside here, and reported to the first bucket.
    """
    files, wanted = DataFiles(order.source), inputs_of(steps())
    for table, path in order.readings[task]:
        needs_numbers = ROW_NUMBERS in wanted and table != "shipments"
        if table not in wanted and not needs_numbers:
            continue
        rows = _rows(files, order.source, table, path, everything=table in wanted)
        rows, odd = _numbered(table, rows)
        rows = within(rows, dict(order.cuts))
        if table in wanted:
            judged, found = sound(table, rows)
            odd.extend(found)
            for bucket, part in split(judged, reach_of(table), order.buckets):
                yield bucket, table, part
        if odd:
            yield 0, ODD, pa.Table.from_pylist([asdict(one) for one in odd])
        if needs_numbers:
            numbers = rows.select(NUMBERS.names)
            for bucket, part in split(numbers, Reach.EMITTER, order.buckets):
                yield bucket, ROW_NUMBERS, part


def judge(order: WorkOrder, bucket: int, parts: Iterable[Part]) -> BucketDone:
    """Compute a bucket from its parts (any order) and the state of its chain; write what comes of
    it.
    """
    ordered = steps()
    files, chain = DataFiles(order.target), order.chains.get(bucket, ())
    kept = StateFiles(files, f"{order.target.state(KEYED)}/{order.run_id}/{bucket}")
    state = kept.load(chain)
    own = (name for name in order.cuts if bucket_of(name, buckets=order.buckets) == bucket)
    odd: list[Odd] = []
    facts, emitters = _facts(ordered, _without(odd, parts)), frozenset(own)
    done = compute(ordered, facts, state, order.evaluation, emitters=emitters)
    name = f"{order.run_id[:8]}-{order.cycle:09d}-{bucket:04d}"
    written = [
        file
        for table, rows in done.rows.items()
        for file in write_rows(files, order.target.gold(table), table, rows, name=name)
    ]
    saved = kept.save(chain, state, done, cycle=order.cycle)
    return BucketDone(bucket, tuple(written), saved, summed(odd))


def _without(odd: list[Odd], parts: Iterable[Part]) -> Iterator[Part]:
    """The parts that are facts; what was set aside goes to `odd`."""
    for part in parts:
        if part[1] == ODD:
            odd.extend(Odd(**one) for one in part[2].to_pylist())
        else:
            yield part


def inputs_of(ordered: Sequence[Step]) -> frozenset[str]:
    """The inputs of all steps that are no steps themselves."""
    made = {step.name for step in ordered}
    return frozenset(name for step in ordered for name in step.reads if name not in made)


def _facts(ordered: Sequence[Step], parts: Iterable[Part]) -> dict[str, pa.Table]:
    rows_of: dict[str, list[pa.Table]] = {name: [] for name in inputs_of(ordered)}
    for _, table, rows in parts:
        rows_of[table].append(rows)
    facts = {}
    for name, tables in rows_of.items():
        tables.sort(key=_begin)  # Then most are in order as they are.
        if name == ROW_NUMBERS:
            numbers = [NUMBERS.empty_table(), *(table.cast(NUMBERS) for table in tables)]
            facts[name] = in_order(pa.concat_tables(numbers))
        else:
            whole = pa.concat_tables(tables, promote_options="default") if tables else None
            facts[name] = no_facts(name) if whole is None else as_facts(name, whole)
    return facts


def _begin(rows: pa.Table) -> tuple[str, int]:
    """Emitter and seq of the first row."""
    if not rows.num_rows:
        return "", 0
    return rows["emitter"][0].as_py(), rows["seq"][0].as_py()


def _numbered(table: str, rows: pa.Table) -> tuple[pa.Table, list[Odd]]:
    """The rows that have an emitter and a number, without which nobody knows the cycle of a row;
    and what the others are.
    """
    if not (rows["emitter"].null_count or rows["seq"].null_count):
        return rows, []
    has_number = pc.and_(pc.is_valid(rows["emitter"]), pc.is_valid(rows["seq"]))
    return rows.filter(has_number), list(sound(table, rows.filter(pc.invert(has_number)))[1])


def _rows(files: DataFiles, lake: Lake, table: str, path: str, *, everything: bool) -> pa.Table:
    """A bronze file's rows, texts that repeat as dictionaries."""
    texts = [field.name for field in fact_schema(table) if field.type == KEY_TEXT]
    address = f"{lake.bronze(table)}/{path}"
    data = files.read(address)
    with understood(address):
        footer = pq.read_metadata(pa.BufferReader(data))
        there = set(footer.schema.to_arrow_schema().names)
        known = [name for name in texts if name in there]  # Files of an earlier version have less.
        file = pq.ParquetFile(pa.BufferReader(data), metadata=footer, read_dictionary=known)
        names = [column.name for column in BY_NAME[table].columns if column.name in there]
        return file.read(names if everything else NUMBERS.names)
