"""Checks gold for evidence of each incident when our own broker reports the facts.

Place in the walk: `verdict` has a look for each incident of the play. Pure: gold in, the evidence
as a sentence out, or nothing.

Invariant: a scene says what was played and where, None that it was left out. In that case the least
that gold attributes to such an incident counts: it must leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from demo.plan import BILLING, SHIPPING, Incident, Scene

STALL_RULES = ("STALLED", "STOPPED")

Gold = Mapping[str, pl.DataFrame]
Look = Callable[[Scene | None, Gold], str]


def of_group(rows: pl.DataFrame, group: str) -> pl.DataFrame:
    """The rows of a group."""
    return rows if rows.is_empty() else rows.filter(pl.col("group") == group)


def where(rows: pl.DataFrame, **allowed: tuple[str, ...]) -> pl.DataFrame:
    """The rows that have one of the allowed values in each column."""
    for column, values in allowed.items():
        if rows.is_empty():
            break
        rows = rows.filter(pl.col(column).is_in(list(values)))
    return rows


def look_for_frozen_head(scene: Scene | None, gold: Gold) -> str:
    """A queue of the group stands, and its head is with a listener."""
    rows = where(
        of_group(gold["stalled_windows"], SHIPPING.name), kind=("FROZEN_HEAD",), rule=STALL_RULES
    )
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("queue_id") == scene.queue_id) & (pl.col("topic") == scene.group.topic)
        )
    return "" if rows.is_empty() else f"stalled_windows: {rows['evidence'][0]}"


def look_for_poison(scene: Scene | None, gold: Gold) -> str:
    """A message was dead-lettered."""
    rows = gold["dead_letters"]
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("group") == scene.group.name) & (pl.col("origin_topic") == scene.group.topic)
        )
    if rows.is_empty():
        return ""
    first = rows.row(0, named=True)
    tries = first["reconsume_times"]
    return f"dead_letters: {first['message_id']} of {first['group']} after {tries} failed tries"


def look_for_consumer_kill(scene: Scene | None, gold: Gold) -> str:
    """A member was lost with work that was not committed, and some of it was delivered again."""
    rows = where(gold["duplicate_risk_windows"], cause=("CONSUMER_CRASH",), outcome=("CONFIRMED",))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(
            (pl.col("group") == scene.group.name)
            & (pl.col("topic") == scene.group.topic)
            & (pl.col("queue_id") == scene.queue_id)
            & pl.col("client_id").str.ends_with(f"@{scene.victim}")
        )
    return "" if rows.is_empty() else f"duplicate_risk_windows: {rows['evidence'][0]}"


def look_for_join(scene: Scene | None, gold: Gold) -> str:
    """More members than the cast has; when it was played, by the one who was to join."""
    rows = where(of_group(gold["rebalances"], BILLING.name), kind=("JOINED",))
    if not rows.is_empty():
        rows = rows.filter(pl.col("members_after") > len(BILLING.members))
    if scene is not None and not rows.is_empty():
        rows = rows.filter(pl.col("client_id").str.ends_with(f"@{scene.victim}"))
    if rows.is_empty():
        return ""
    first = rows.row(0, named=True)
    members = f"{first['members_before']} → {first['members_after']}"
    return f"rebalances: {first['client_id']} joined, {members} members"


def look_for_broker_kill(scene: Scene | None, gold: Gold) -> str:
    """Its unclean boot: basis RESTART, which a clean restart never gives, with a decided outcome.

    When it was left out, the least that gold lays to a broker's death counts.
    """
    rows = where(gold["duplicate_risk_windows"], cause=("BROKER_CRASH",))
    if scene is not None and not rows.is_empty():
        rows = where(rows, basis=("RESTART",), outcome=("CONFIRMED", "PASSED"))
        rows = rows.filter(pl.col("broker") == scene.victim)
    return "" if rows.is_empty() else f"duplicate_risk_windows: {rows['evidence'][0]}"


def look_for_fail_over(scene: Scene | None, gold: Gold) -> str:
    """Another node leads, in a later epoch, and reports how far the others are."""
    del scene
    rows = gold["replication_health"]
    if rows.is_empty():
        return ""
    rows = rows.drop_nulls("epoch").sort("epoch", "observed_at")
    epochs = rows["epoch"].unique(maintain_order=True).to_list()
    if len(epochs) < 2:
        return ""
    first = rows.filter(pl.col("epoch") == epochs[-1]).row(0, named=True)
    return (
        f"replication_health: epoch {first['epoch']} of {first['broker']} since "
        f"{first['observed_at']:%H:%M:%S} UTC, before it {epochs[-2]}"
    )


LOOKS: Mapping[Incident, Look] = {
    Incident.FROZEN_HEAD: look_for_frozen_head,
    Incident.POISON: look_for_poison,
    Incident.CONSUMER_KILL: look_for_consumer_kill,
    Incident.JOIN: look_for_join,
    Incident.BROKER_KILL: look_for_broker_kill,
}

LOOKS_OF_A_GROUP: Mapping[Incident, Look] = {**LOOKS, Incident.BROKER_KILL: look_for_fail_over}
