"""How much work something is, counted: the calls that Python makes meanwhile.

A count is the same on a busy machine and on a quiet one, so a bound on it can be tight. What
compiled code does inside one call is not in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_made(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's, that `work` makes in this thread."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
