"""Computes one partition of a cycle by running every step, in order, over its facts.

Place in the walk: called by the task of an executor and by tests, with the facts of one hash bucket
and what the steps carried; what comes back is written by who called.

Invariant: a step is called when an input has rows, or not at all; what a step carries is its own.
Absent on purpose: where facts come from, and where rows go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from engine.foundation.errors import LakeError
from pipelines.base.settings import Evaluation
from pipelines.marts.mart import Given, Mart, Positions, Step, words_of

State = Mapping[str, Mapping[str, pa.Table]]
"""Per step, what it carries."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What the steps have made of a partition."""

    rows: dict[str, pa.Table]
    """Per mart that has rows, those."""
    state: dict[str, dict[str, pa.Table]]
    """Per step that ran, what it carries on."""
    touched: dict[str, dict[str, Positions]] = field(default_factory=dict)
    """See `Made.touched`."""


def compute(
    steps: Sequence[Step],
    facts: Mapping[str, pa.Table],
    state: State,
    evaluation: Evaluation,
    *,
    emitters: frozenset[str] | None = None,
) -> Computed:
    """Call the steps, each behind those it reads. `facts` has every input that is no step;
    `emitters` are those of the partition, all when it is the only one.
    """
    known = dict(facts)
    done = Computed({}, {})
    for step in steps:
        if not any(known[name].num_rows for name in step.woken_by):
            known[step.name] = step.none
            continue
        carried = _carried(step, state.get(step.name) or {})
        given = {name: known[name] for name in step.reads}
        made = step.compute(Given(given, carried, evaluation, emitters))
        known[step.name] = made.rows
        if made.state:
            done.state[step.name] = {**carried, **made.state}
            done.touched[step.name] = dict(made.touched)
        if isinstance(step, Mart) and made.rows.num_rows:
            done.rows[step.name] = made.rows
    return done


def means_the_same(rows: pa.Table, others: pa.Table) -> bool:
    """Have two tables the same columns, whose numbers stand for the same words?"""
    return _meaning(rows.schema) == _meaning(others.schema)


def _carried(step: Step, known: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What a step carries; tables and columns that an earlier version did not carry are empty, or
    null. Raises LakeError for numbers whose words this version does not have.
    """
    return {
        name: _declared(known[name], schema, f"{step.name}/{name}")
        if name in known
        else schema.empty_table()
        for name, schema in step.carries.items()
    }


def _declared(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    if _meaning(table.schema) == _meaning(schema):
        return table
    columns, names = [], table.schema.names
    for one in schema:
        if one.name in names:
            columns.append(_translated(table, one, where))
        else:
            columns.append(pa.nulls(table.num_rows, one.type))
    kinds = [one.with_type(column.type) for one, column in zip(schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(kinds))


def _meaning(schema: pa.Schema) -> list[tuple[str, list[str] | None]]:
    return [(one.name, words_of(one)) for one in schema]


def _translated(table: pa.Table, declared: pa.Field, where: str) -> pa.ChunkedArray:
    """A column as it is; of a coded one, the numbers by which this version knows its words."""
    name, known = declared.name, words_of(declared)
    column, own_words = table[name], words_of(table.schema.field(name))
    if known is None or own_words == known:
        return column
    own_words = own_words or []
    used = pc.unique(column).drop_null().to_pylist()
    meanings = [
        own_words[code] if 0 <= code < len(own_words) else f"the number {code}" for code in used
    ]
    if strange := [meaning for meaning in meanings if meaning not in known]:
        raise LakeError(
            f"the state of {where} is of another version: its {name} has "
            f"{', '.join(strange)}, which this one cannot read: move the folders gold "
            "and state of the lake away, and gold is computed anew from bronze"
        )
    meant = [known.index(word) if word in known else None for word in own_words]
    return pc.take(pa.array(meant, declared.type), column)


def beginning(step: Step) -> dict[str, pa.Table]:
    """What a step carries before its first cycle."""
    return {name: schema.empty_table() for name, schema in step.carries.items()}
