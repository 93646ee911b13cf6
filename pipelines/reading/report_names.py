"""Parses and formats report run names (REPORT/WINDOW/NUMBER) for URLs and job parameters.

Invariant: pure. A name is made of letters, digits and dashes with two slashes between, so that it
is no path that leads anywhere else, no option of a command and no condition of a query.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NAME: Final = re.compile(
    r"([a-z][a-z0-9-]{0,31})/([0-9]{8}T[0-9]{6}Z-[0-9]{1,7}s)/([1-9][0-9]{0,5})"
)


class RunName(NamedTuple):
    """The parts of a name."""

    report: str
    window: str
    number: int

    def __str__(self) -> str:
        return f"{self.report}/{self.window}/{self.number}"


def name_of(text: str) -> RunName | None:
    """The name that a text is; None for anything else."""
    found = _NAME.fullmatch(text)
    return None if found is None else RunName(found[1], found[2], int(found[3]))
