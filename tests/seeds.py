"""Chooses the seeds that a seeded test plays, by environment variables.

    (none set)                as many as the suite has time for, from 0 on
    TIDEMARK_SEED=137         that one: `make sim SEED=137`
    TIDEMARK_SEEDS=500        that many, from 0 on: `make sim SEEDS=500`
    TIDEMARK_SEEDS=100-199    that range, both ends included

Invariant: nobody else reads these variables, so that a seed that failed is played again by every
story alike. Absent on purpose: seeds drawn by chance. What CI has seen, everybody can see again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest

ONE, MANY = "TIDEMARK_SEED", "TIDEMARK_SEEDS"


def seeds(environment: Mapping[str, str], in_the_suite: int) -> range:
    """The seeds asked for, else 0 to `in_the_suite` - 1. Raises ValueError for what is no seed."""
    one, many = environment.get(ONE), environment.get(MANY)
    if one is not None and many is not None:
        raise ValueError(f"{ONE}={one} and {MANY}={many}: give one of them")
    if one is not None:
        return range(_seed(one), _seed(one) + 1)
    return range(in_the_suite) if many is None else range_of(many)


def range_of(text: str) -> range:
    """`500` → 0 to 499, `100-199` → as it says. Raises ValueError for anything else."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)", text, re.ASCII)
    if found is None:
        raise ValueError(f"seeds {text!r}: give how many, 500, or a range, 100-199")
    first, last = (0, int(found[2]) - 1) if found[1] is None else (int(found[1]), int(found[2]))
    if last < first:
        raise ValueError(f"seeds {text!r}: there is none of them")
    return range(first, last + 1)


def seeded(in_the_suite: int) -> pytest.MarkDecorator:
    """Play the story once for each seed, its parameter `seed`."""
    marked = [
        pytest.param(seed, marks=pytest.mark.seeded, id=str(seed))
        for seed in seeds(os.environ, in_the_suite)
    ]
    return pytest.mark.parametrize("seed", marked)


def one_seed() -> int:
    """For what draws a whole run of one seed, as a loop of kills does: TIDEMARK_SEED, or 1."""
    return _seed(os.environ.get(ONE, "1"))


def _seed(text: str) -> int:
    if re.fullmatch(r"\d+", text, re.ASCII) is None:
        raise ValueError(f"{ONE}={text}: a seed is a number from 0 on")
    return int(text)
