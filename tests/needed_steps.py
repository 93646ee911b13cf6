"""The steps that a test runs: some marts, and what they read."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.marts.declared import steps
from pipelines.marts.mart import Step


def needed_for(*names: str, given: Iterable[str] = ()) -> tuple[Step, ...]:
    """The steps of these names and all that they read, each behind what it reads; those in `given`
    are left out, with what only they read: their rows come from elsewhere.
    """
    declared, without = {step.name: step for step in steps()}, set(given)
    needed: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in declared and name not in needed | without:
            needed.add(name)
            left += declared[name].reads
    return tuple(step for step in steps() if step.name in needed)
