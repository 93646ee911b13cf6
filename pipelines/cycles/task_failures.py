"""Returns executor failures to the driver as messages rather than Spark exceptions.

Place in the walk: between an executor's work and the driver that collects it, in cycles and checks.
Spark makes fifty lines of an error raised in an executor; ours is one sentence for a person, so it
travels as one. Invariant: only TidemarkErrors travel so; a bug keeps its trace. Absent on purpose:
trying again within Spark, which the driver does with the whole cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from engine.foundation.errors import LakeError, TidemarkError

FAILED: Final = "failed: "
"""What is done begins with a brace."""


def reported(work: Callable[[], Iterable[str]]) -> Iterator[str]:
    """What the work reports; behind it, why it ended early."""
    try:
        yield from work()
    except TidemarkError as error:
        yield f"{FAILED}{error}"


def done(answers: Iterable[str]) -> list[str]:
    """What was reported on work that was done. LakeError, in the words of the first that failed."""
    found = list(answers)
    for answer in found:
        if answer.startswith(FAILED):
            raise LakeError(answer.removeprefix(FAILED))
    return found
