"""Checks that one node of a broker leads in an epoch: two would both acknowledge messages.

The two say so in spools of their own, which are shipped in no order: whoever has said that it leads
is carried from run to run, the newest MASTERS_MAX rows of it.

Invariant: carried rows are read, never counted as checked. Absent on purpose: which node is right.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.telemetry.tables import LIFECYCLE, Column
from expectations.check import Check, Severity
from pipelines.marts.lifecycle_events import MASTER, ROLE_CHANGE

TABLE: Final = LIFECYCLE.name
CHECK: Final = Check("one_master_an_epoch", TABLE, Severity.CRITICAL)
MASTERS_MAX: Final = 50_000
"""Rows that are carried: one per epoch and node."""
SHOWN: Final = ("term", "role")

_EPOCH: Final = ("cluster", "broker", "term")
_KEPT: Final = (*_EPOCH, "emitter", "seq")
KEPT: Final[tuple[Column, ...]] = tuple(
    column for column in LIFECYCLE.columns if column.name in _KEPT
)
"""What is carried of a node that leads."""


def masters_of_one_epoch(rows: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """New rows that say that a node leads in an epoch in which another node of its broker leads."""
    masters = _masters(rows)
    both = pl.concat([carried, masters.select(carried.columns)])
    nodes = both.group_by(_EPOCH).agg(pl.col("emitter").n_unique().alias("nodes"))
    several = nodes.filter(pl.col("nodes") > 1)
    return masters.join(several, on=_EPOCH, how="semi").sort("emitter", "seq")


def newest(rows: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """Who has led in which epoch, behind a batch."""
    both = pl.concat([carried, _masters(rows).select(carried.columns)]).sort("seq")
    last = both.unique([*_EPOCH, "emitter"], keep="last", maintain_order=True)
    return last.tail(MASTERS_MAX)


def _masters(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that say that their node leads; without an epoch there is one node."""
    is_role = pl.col("kind") == ROLE_CHANGE
    return rows.filter(is_role & (pl.col("role") == MASTER) & (pl.col("term") > 0))
