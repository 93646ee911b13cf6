"""Sentences about POP groups: invisible times, messages in flight and unknown values.

Place in the walk: rows of pop_progress → the page of a group and `tm` alike. Pure. Invariant: what
is unknown of one queue is unknown of the group, with the reason; that no queue stands does not say
that such a group goes on. Absent on purpose: lag, which of it is what was not handed out yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from pipelines.base.wording import clock, duration, plural
from pipelines.lake.schemas import QUEUE

HOLDINGS: Final = "what its members hold cannot be asked"


@dataclass(frozen=True, slots=True)
class PopGroup:
    """A group that reads by POP, as of its newest rows."""

    invisible_ms: int | None
    """The longest that its clients asked for last; None: no checkpoint was read."""
    unacknowledged: int | None
    """Messages that are handed out; None: unknown, for the reason."""
    since: datetime | None
    """When the oldest of them was handed out."""
    unknown_reason: str | None

    @property
    def reads_by(self) -> str:
        """How it reads, in short."""
        if self.invisible_ms is None:
            return "POP, invisible time unknown"
        return f"POP, invisible time {duration(self.invisible_ms)}"

    @property
    def out(self) -> str:
        """What is handed out and not acknowledged."""
        if self.unacknowledged is None:
            return f"unknown: {self.unknown_reason}"
        if not self.unacknowledged:
            return "0 messages"
        return f"{plural(self.unacknowledged, 'message')}, the oldest since {clock(self.since)} UTC"

    @property
    def words(self) -> str:
        """All of it, with what cannot be known; the group's name stands before it."""
        return f"reads by {self.reads_by}. Not acknowledged: {self.out}; {HOLDINGS}"

    def sentence(self, group: str) -> str:
        """The same of a group that is named."""
        return f"{group} {self.words}."


def stand_whole(states: pl.DataFrame, still: pl.DataFrame) -> list[str]:
    """Reasons of groups that are STALLED for they acknowledge nothing, of which no window says
    that a queue stands. `still`: stalled windows that are open.
    """
    if "unacknowledged_since" not in states.columns:  # Of an earlier version.
        return []
    is_whole = (pl.col("state") == "STALLED") & pl.col("unacknowledged_since").is_not_null()
    whole = states.filter(is_whole).join(still, on=["cluster", "group"], how="anti")
    return [str(reason) for reason in whole["reason"]]


def pop_groups(rows: pl.DataFrame) -> dict[tuple[str, str], PopGroup]:
    """(cluster, group) → how it reads by POP, of each that does so."""
    found: dict[tuple[str, str], PopGroup] = {}
    for (cluster, group), of_group in rows.group_by("cluster", "group", maintain_order=True):
        read = pop_group(of_group)
        if read is not None:
            found[str(cluster), str(group)] = read
    return found


def pop_group(rows: pl.DataFrame) -> PopGroup | None:
    """Of the rows of one group, within the look-back; None: it does not read by POP."""
    if rows.is_empty():
        return None
    newest = rows.sort("observed_at", "seq").group_by(QUEUE, maintain_order=True).last()
    reasons = newest["unknown_reason"].drop_nulls()
    is_unknown = newest["unacknowledged"].is_null().any()
    invisible_ms, since = newest["invisible_ms"].max(), newest["handed_out_since"].min()
    return PopGroup(
        invisible_ms=invisible_ms if isinstance(invisible_ms, int) else None,
        unacknowledged=None if is_unknown else int(newest["unacknowledged"].sum()),
        since=since if isinstance(since, datetime) else None,
        unknown_reason=str(reasons[0]) if is_unknown and len(reasons) else None,
    )
