"""Writes rows in one transaction, and splits the batch on failure to isolate bad rows.

Place in the walk: around what the store does for many runs or jobs at once: a row that other hands
or a later version have written may be one that nothing here foresees. Invariant: a database that is
away is raised to the caller; whatever else goes wrong ends with the rows that it is about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from pipelines.database.database import StoreUnavailable

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Value = TypeVar("Value")


def in_parts(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Value]
) -> tuple[list[Value], list[tuple[Item, Exception]]]:
    """Do the work for all of them at once, or for halves of what could not be done so. What it
    gave, and the items that cannot be done even alone, with what was raised.

    Raises StoreUnavailable; what was done by then is done.
    """
    try:
        return [work(items)], []
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - one row's, whatever it is
        if len(items) == 1:
            _log.exception("%s cannot be done", items[0])
            return [], [(items[0], error)]
    half = len(items) // 2
    done, failed = in_parts(items[:half], work)
    more, also_failed = in_parts(items[half:], work)
    return done + more, failed + also_failed
