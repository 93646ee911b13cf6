"""Derives each alert's current state from the newest change in its history.

Place in the walk: the Delta table `alerts` → `tm`. Invariant: pure. The newest change of a
fingerprint says how its alert stands; of two histories (a database that was lost, and the one after
it) the one that was noted last. Absent on purpose: reading, and writing.
"""

from __future__ import annotations

from typing import Final

import polars as pl

STATES: Final = (
    "PENDING", "FIRING", "RESOLVED", "INACTIVE", "NO_DATA", "EVAL_ERROR", "WITHHELD",
)  # fmt: skip
"""After a change."""
OVER: Final = ("RESOLVED", "INACTIVE")
"""States of alerts that are not open."""


def present_alerts(changes: pl.DataFrame) -> pl.DataFrame:
    """The last change of every alert, with `acked_by`: who said that he looks after it, null for
    nobody. An acknowledgement is about the alert that began then: the next one is another."""
    by_number = changes.sort("history", "seq")
    last = (
        by_number.unique(["history", "fingerprint"], keep="last", maintain_order=True)
        .sort("recorded_at", maintain_order=True)
        .unique("fingerprint", keep="last", maintain_order=True)
    )
    acks = (
        by_number.filter(pl.col("kind") == "ACKED")
        .unique(["fingerprint", "active_at"], keep="last", maintain_order=True)
        .select("fingerprint", "active_at", acked_by="author")
    )
    return last.join(acks, on=["fingerprint", "active_at"], how="left", maintain_order="left")


def open_alerts(changes: pl.DataFrame) -> pl.DataFrame:
    """Of these, those that are open."""
    return present_alerts(changes).filter(~pl.col("state").is_in(OVER))
