"""One partition of a cycle: every step over its facts, in order.

Place in the walk: called by the task of an executor and by tests, with the facts of one hash bucket
and what the steps carried; what comes back is written by who called.

Invariant: a step is called when an input has rows, or not at all; what a step carries is its own.
Absent on purpose: where facts come from, and where rows go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.marts.mart import Given, Mart, Positions, Step
from pipelines.settings import Evaluation

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
        carried = state.get(step.name) or beginning(step)
        given = {name: known[name] for name in step.reads}
        made = step.compute(Given(given, carried, evaluation, emitters))
        known[step.name] = made.rows
        if made.state:
            done.state[step.name] = {**carried, **made.state}
            done.touched[step.name] = dict(made.touched)
        if isinstance(step, Mart) and made.rows.num_rows:
            done.rows[step.name] = made.rows
    return done


def beginning(step: Step) -> dict[str, pa.Table]:
    """What a step carries before its first cycle."""
    return {name: schema.empty_table() for name, schema in step.carries.items()}
