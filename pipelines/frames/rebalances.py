"""Changes of a group's membership and subscription, as the broker reported them.

Place in the walk: staged rebalance_events → gold rebalances. Ownership of queues has a mart of its
own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import REBALANCES
from pipelines.frames.contract import as_declared

MEMBERSHIP = ("JOINED", "LEFT", "EXPIRED")
KINDS = (*MEMBERSHIP, "SUBSCRIPTION_CHANGED", "SUBSCRIPTION_CONFLICT", "QUEUES_CHANGED")


def rebalances(events: DataFrame) -> DataFrame:
    """One row per change of a group's membership or subscription."""
    changes = events.where(F.col("is_new") & F.col("kind").isin(*KINDS))
    counts_members = F.col("kind").isin(*MEMBERSHIP)
    return as_declared(
        changes.withColumns(
            {
                "observed_us": F.col("event_us"),
                "members_before": F.when(counts_members, F.col("members_before")),
                "members_after": F.when(counts_members, F.col("members_after")),
            }
        ),
        REBALANCES,
    )
