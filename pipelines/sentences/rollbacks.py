"""Sentences on roll-backs: a broker that came back with old offsets of many groups.

Place in the walk: rows of `pipelines/reading/rollbacks` → overview and `tm`. Pure. Invariant: what
came again is not said to be none where it is unknown. Absent on purpose: finding them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.base.wording import plural, spoken
from pipelines.sentences.duplicate_counts import came_again
from pipelines.sentences.figures import moment, was, whole
from pipelines.sentences.questions import NAMED_MAX, listed


def rollback(row: Mapping[str, Any]) -> str:
    """Where, how many groups and queues, since when, and what came of it.

    A crash alone costs what was committed since the last persist, which may be nothing.
    """
    again = came_again([row])
    has_fallen = bool(again.messages) or any(one != "BROKER_CRASH" for one in row["causes"])
    came = f"{again.text} {was(again.messages or 0)} delivered again so far"
    if again.messages == 0:
        came = "none was delivered again so far"
    if again.messages is None:
        came = f"whether any was delivered again is {again.number}"
    causes = ", ".join(spoken(cause) for cause in row["causes"])
    went = "went" if has_fallen else "may have gone"
    at_risk = row["at_risk_messages"]
    queues, groups = plural(row["queues"], "queue"), plural(row["groups"], "group")
    return whole(
        f"broker {row['broker']} {went} back on {queues} of {groups} at "
        f"{moment(row['began_at'])} ({causes})",
        f"{plural(at_risk, 'message')} {was(at_risk)} at risk of a second delivery; {came}",
        f"the groups are {listed(row['group_names'])}",
        "see whether their listeners take a message twice without harm",
    )


def of_rollbacks(rows: pl.DataFrame) -> str:
    """Every broker that went back, the newest first."""
    if rows.is_empty():
        return "No broker went back on several groups at once."
    said = [rollback(row) for row in rows.reverse().iter_rows(named=True)]
    more = len(said) - NAMED_MAX
    return " ".join([*said[:NAMED_MAX], *([f"{more:,} more before."] if more > 0 else [])])
