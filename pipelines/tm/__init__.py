"""Notebook API for querying a lake in domain terms, with answers that render themselves.

    from pipelines import tm
    lake = tm.connect("var/lake")
    lake.groups()                                    # who is behind
    lake.lag("orders", since="15m").plot()           # the dashboard's own figure
    lake.stalls("orders").df                         # pandas
    lake.explain(lake.stalls("orders").df.iloc[-1])  # the rows behind a window
    lake.sql('SELECT "group", count(*) FROM dead_letters GROUP BY 1')

Place in the walk: beside the dashboard, on the same gold. `tm.lag(...)` and the others ask the lake
that was connected last, or the one that `tidemark lab` has named in TIDEMARK_LAKE; `dir(tm)` lists
them.

Invariant: importing this starts no Spark and reads nothing; an answer is of the last complete
cycle, and names table and version it was read from; a name that the lake does not have is an error,
never an answer about nothing. Absent on purpose: writing.
"""

from __future__ import annotations

import os
from typing import Any, Final

from engine.foundation.errors import ConfigError, LakeError
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import BY_NAME
from pipelines.tm.handle import QUESTIONS, LakeHandle, handle_of
from pipelines.tm.results import Result

__all__ = ["LAKE_VARIABLE", "LakeHandle", "Result", "connect"]

LAKE_VARIABLE: Final = "TIDEMARK_LAKE"


class _Connected:
    """The lake that module-level questions go to."""

    def __init__(self) -> None:
        self.handle: LakeHandle | None = None


_connected: Final = _Connected()


def connect(address: str | os.PathLike[str] | None = None) -> LakeHandle:
    """Open a lake: a path, an s3 URI, or, without an address, what `tidemark lab` was given."""
    place = os.fspath(address) if address is not None else os.environ.get(LAKE_VARIABLE)
    if place is None:
        raise ConfigError("lake", place, 'a path: tm.connect("var/lake")')
    lake = Lake.at(place)
    if not any(lake.exists(lake.gold(name)) for name in BY_NAME):
        raise LakeError(
            f"no gold table in {lake.root}: start `tidemark pipeline run --lake "
            f"{lake.root}`, or `make demo` for a lake with a story in it"
        )
    _connected.handle = handle_of(lake)
    return _connected.handle


def __getattr__(name: str) -> Any:
    """`tm.lag`, `tm.stalls` and the other questions, asked of the lake connected last."""
    if name not in QUESTIONS:
        raise AttributeError(f"tm has no {name}; it has {', '.join(('connect', *QUESTIONS))}")
    return getattr(_connected.handle or connect(), name)


def __dir__() -> list[str]:
    """The questions, and how to connect."""
    return sorted((*__all__, *QUESTIONS))
