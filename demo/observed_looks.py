"""Checks gold for evidence of each incident when the cluster is observed from outside.

Place in the walk: as `looks`, from which those that see the same are taken. What the protocol hides
is not looked for: why a member is gone, what was delivered twice, how a broker ended, and who moved
an offset. For each of these docs/observed-clusters.md says what is reported instead, with what
error.

Invariant: as in `looks`, an incident that was left out leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from demo.looks import (
    Gold,
    Look,
    look_for_frozen_head,
    look_for_join,
    look_for_poison,
    of_group,
    where,
)
from demo.plan import LEDGER, Incident, Scene


def look_for_consumer_kill(scene: Scene | None, gold: Gold) -> str:
    """A member is not connected any more, and had pulled more of its queue than it had committed
    when it was seen last. A killed one and one that stopped look the same.
    """
    left = where(of_group(gold["rebalances"], LEDGER.name), kind=("LEFT", "EXPIRED"))
    if left.is_empty():
        return ""
    if scene is None:
        return f"rebalances: {left['client_id'][0]} is gone"
    left = left.filter(pl.col("client_id").str.ends_with(f"@{scene.victim}"))
    risks = where(of_group(gold["duplicate_risk_windows"], LEDGER.name), basis=("DEPARTURE",))
    if left.is_empty() or risks.is_empty():
        return ""
    risks = risks.filter(
        (pl.col("topic") == scene.group.topic)
        & (pl.col("queue_id") == scene.queue_id)
        & pl.col("client_id").is_in(left["client_id"].to_list())
        & pl.col("opened_at").is_in(left["observed_at"].to_list())
    )
    return "" if risks.is_empty() else f"duplicate_risk_windows: {risks['evidence'][0]}"


def look_for_reset(scene: Scene | None, gold: Gold) -> str:
    """A committed offset fell while the broker lived on; by whose hand is not known."""
    rows = where(gold["duplicate_risk_windows"], basis=("OFFSET_FALL",), cause=("RESET", "REWIND"))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("group") == scene.group.name) & (pl.col("topic") == scene.group.topic)
        )
    return "" if rows.is_empty() else f"duplicate_risk_windows: {rows['evidence'][0]}"


def look_for_broker_kill(scene: Scene | None, gold: Gold) -> str:
    """Membership of its groups is counted anew, which it is since the broker's boot; a clean stop
    looks the same.
    """
    rows = where(gold["rebalances"], kind=("JOINED", "LEFT", "EXPIRED"))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(pl.col("broker") == scene.victim)
    for (broker, group), changes in rows.group_by("broker", "group", maintain_order=True):
        counted = changes.sort("seq").select("generation", "observed_at")
        anew = counted.filter(pl.col("generation") <= pl.col("generation").shift(1))
        if not anew.is_empty():
            since = f"{anew['observed_at'][0]:%H:%M:%S} UTC"
            return f"rebalances: the members of {group} are counted anew by {broker} from {since}"
    return ""


LOOKS: Mapping[Incident, Look] = {
    Incident.FROZEN_HEAD: look_for_frozen_head,
    Incident.POISON: look_for_poison,
    Incident.CONSUMER_KILL: look_for_consumer_kill,
    Incident.JOIN: look_for_join,
    Incident.RESET: look_for_reset,
    Incident.BROKER_KILL: look_for_broker_kill,
}
