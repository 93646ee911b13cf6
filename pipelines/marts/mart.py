"""Defines a mart as a declared gold table and the pure function that computes its rows.

Place in the walk: one file of this folder a gold table: what its rows mean, what they are made
from, what is remembered between cycles, and how they are made. Cycles, replays, expectations and
documentation take the list of declarations (`pipelines.marts.declared`); nothing else names a mart.
A cycle hands every partition (the groups of a hash bucket) to one call: (state, facts) → (rows,
state'). A step is a mart without a table: what several marts start from.

Invariant: rows are a function of facts in the order of their seq, and of ticks: two calls over the
halves, the state carried, give the rows of one call over the whole. Absent on purpose: Spark,
clocks and I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from engine.telemetry.tables import Column
from pipelines.base.settings import Evaluation
from pipelines.lake.schemas import arrow_schema

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Row numbers in a table."""


@dataclass(frozen=True, slots=True)
class GoldTable:
    """One gold table: name, what a row stands for, columns, and those that identify a row."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    revised: bool = False
    """Are rows revisions of intervals (window_id, revision)?"""
    on_ticks: str = "false"
    """An SQL condition: which rows belong to the cycle of their tick (`observed_at`); all others
    belong to that of their `seq`.
    """

    @property
    def seq_column(self) -> str:
        """The column that says which bronze row a row follows."""
        return "seq" if "seq" in self.column_names else "seq_to"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Given:
    """What a function is called with: the part of one hash bucket."""

    facts: Mapping[str, pa.Table]
    """Per input: new rows. Those of a bronze table are staged (`pipelines.staging.facts`) and lie
    in the order of (emitter, seq); those of a step are what it has made in this cycle.
    """
    state: Mapping[str, pa.Table]
    """What the function carries, in its declared schemas; empty tables at the beginning of a run.
    """
    evaluation: Evaluation
    emitters: frozenset[str] | None = None
    """Emitters that belong to this partition: rows that every partition is given are judged here
    for these alone, where they are judged by emitter. None: all.
    """


@dataclass(frozen=True, slots=True)
class Made:
    """What a function returns."""

    rows: pa.Table
    """Of a mart: in the declared schema of its table."""
    state: Mapping[str, pa.Table] = field(default_factory=dict)
    """What is carried on: a table that is not named stays as it was given."""
    touched: Mapping[str, Positions] = field(default_factory=dict)
    """Per carried table: its row numbers that differ from the one given, or are new at its end, if
    no row was removed or moved; a table that is not named here is kept as a whole. Saves writing.
    """


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is computed from facts of a cycle, and what it remembers."""

    name: str
    reads: tuple[str, ...]
    """Its inputs: bronze tables, ROW_NUMBERS, and steps."""
    compute: Callable[[Given], Made]
    carries: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Names and schemas of what it remembers; numbers that stand for words are `coded`."""
    makes: pa.Schema | None = None
    """The columns of its rows; a mart's are those of its table."""
    wakes: tuple[str, ...] | None = None
    """Without rows of any of these inputs it is not called: it has no rows, and what it carries
    stays. None: all its inputs.
    """

    @property
    def none(self) -> pa.Table:
        """None of its rows."""
        if self.makes is None:
            raise TypeError(f"the step {self.name} must declare the columns that it makes")
        return self.makes.empty_table()

    @property
    def woken_by(self) -> tuple[str, ...]:
        """The inputs whose rows make it run."""
        return self.reads if self.wakes is None else self.wakes


@dataclass(frozen=True, slots=True)
class Mart(Step):
    """A step whose rows are a gold table."""

    table: GoldTable | None = None

    def __post_init__(self) -> None:
        if self.table is None or self.table.name != self.name:
            raise TypeError(f"the mart {self.name} must declare the gold table of its name")

    @property
    def none(self) -> pa.Table:
        """None of its rows."""
        assert self.table is not None
        return arrow_schema(self.table.columns).empty_table()


def mart(
    table: GoldTable,
    compute: Callable[[Given], Made],
    *,
    reads: tuple[str, ...],
    carries: Mapping[str, pa.Schema] | None = None,
    wakes: tuple[str, ...] | None = None,
) -> Mart:
    """The declaration of a gold table's mart."""
    return Mart(table.name, reads, compute, carries or {}, wakes=wakes, table=table)


_SMALL: Final = pa.int8()
_WORDS: Final = b"words"
_FLEETING: Final = b"fleeting"


def coded(name: str, words: Sequence[str], kind: pa.DataType = _SMALL) -> pa.Field:
    """A carried column of numbers that stand for words. What is written holds the words as well as
    the numbers, so that a version with other words, or another order, reads what was meant.
    """
    return pa.field(name, kind, metadata={_WORDS: json.dumps(list(words)).encode()})


def words_of(column: pa.Field) -> list[str] | None:
    """The words of a coded column, by their numbers; None when it holds none."""
    stated = (column.metadata or {}).get(_WORDS)
    return None if stated is None else list(json.loads(stated))


def fleeting(schema: pa.Schema) -> pa.Schema:
    """The schema of a carried table whose rows are of the last moments alone: it is written as a
    whole, cycle after cycle, and compressed, for fresh pages cost more than that. The others are
    mapped where they lie.
    """
    return schema.with_metadata({_FLEETING: b"1"})


def is_fleeting(schema: pa.Schema) -> bool:
    """Was the schema declared so?"""
    return _FLEETING in (schema.metadata or {})


ROW_NUMBERS: Final = "row_numbers"
"""An input that is no table: emitter and seq of every new row of every bronze table but shipments.
"""
