"""Discovers the marts and shared steps in this package and orders them by dependency.

Place in the walk: what cycles, replays, expectations and the documentation loop over. A new gold
table is a new file here; nothing else needs to know of it.

Invariant: a step comes behind the steps it reads. Absent on purpose: names of marts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

import pipelines.marts
from engine.telemetry.tables import BY_NAME
from pipelines.marts.mart import ROW_NUMBERS, GoldTable, Mart, Step


@cache
def steps() -> tuple[Step, ...]:
    """All steps, marts among them, each behind what it reads."""
    found: dict[str, Step] = {}
    for module in pkgutil.walk_packages(pipelines.marts.__path__, "pipelines.marts."):
        loaded = importlib.import_module(module.name)
        for name in ("MART", "STEP"):
            declared = getattr(loaded, name, None)
            if isinstance(declared, Step):
                found[declared.name] = declared
    return in_order(found.values())


@cache
def marts() -> tuple[Mart, ...]:
    """All marts, by name."""
    return tuple(
        sorted((step for step in steps() if isinstance(step, Mart)), key=lambda one: one.name)
    )


def gold_tables() -> tuple[GoldTable, ...]:
    """The tables that marts make, by name."""
    return tuple(mart.table for mart in marts() if mart.table is not None)


def in_order(unordered: Iterable[Step]) -> tuple[Step, ...]:
    """The steps so that each comes behind those it reads.

    ValueError for an input that is neither a bronze table nor a step, and for a circle.
    """
    left = {step.name: step for step in sorted(unordered, key=lambda one: one.name)}
    facts = {*BY_NAME, ROW_NUMBERS}
    known = facts | set(left)
    ordered: list[Step] = []
    done: set[str] = set()
    while left:
        ready = [
            step
            for step in left.values()
            if all(name in done or name in facts for name in step.reads)
        ]
        if not ready:
            lacking = {name for step in left.values() for name in step.reads}
            unknown = sorted(lacking - known)
            raise ValueError(
                f"steps read what nobody makes: {', '.join(unknown)}"
                if unknown
                else f"steps wait for each other: {', '.join(left)}"
            )
        for step in ready:
            ordered.append(left.pop(step.name))
            done.add(step.name)
    return tuple(ordered)
