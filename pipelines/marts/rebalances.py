"""Records changes in a group's membership and subscriptions, as reported by the broker.

Place in the walk: rebalance_events → gold rebalances. Ownership of queues has a mart of its own.
Invariant: one row an event. Absent on purpose: anything that needs a second event.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.marts.columns import GROUP_AT, INT, LONG, STAMP, STRING, as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.staging.facts import is_one_of

REBALANCES: Final = GoldTable(
    "rebalances",
    "change of a group's membership or subscription, as reported",
    (
        *GROUP_AT,
        Column("client_id", STRING, "client it is about"),
        must(
            "kind",
            STRING,
            "JOINED, LEFT, EXPIRED, SUBSCRIPTION_CHANGED, SUBSCRIPTION_CONFLICT (members subscribe "
            "differently), SUBSCRIPTION_AGREED (alike again), QUEUES_CHANGED or CLIENT_ID_SHARED "
            "(two processes bear one client id)",
        ),
        must("generation", LONG, "membership changes of the group since the broker's boot"),
        Column("members_before", INT, "members before"),
        Column("members_after", INT, "members after"),
        Column("reason", STRING, "in the engine's words"),
        *STAMP,
        Column(
            "language", STRING, "JOINED: the client's language, as it says; null when not reported"
        ),
        Column(
            "client_version",
            LONG,
            "JOINED: RocketMQ's number of its version; null when not reported",
        ),
        Column("proxy", STRING, "JOINED: the proxy that it is connected with; null: the broker"),
        Column(
            "subscription",
            ColumnType.STRINGS,
            "JOINED with a proxy: what its group subscribes to, topic:expression",
        ),
    ),
    ("emitter", "seq"),
)

MEMBERSHIP: Final = ("JOINED", "LEFT", "EXPIRED")
"""Kinds by which a group has other members."""
KINDS: Final = (
    *MEMBERSHIP,
    *("SUBSCRIPTION_CHANGED", "SUBSCRIPTION_CONFLICT", "QUEUES_CHANGED", "CLIENT_ID_SHARED"),
)
AGREED: Final = "SUBSCRIPTION_AGREED"
"""Reported as a conflict of which nothing is left."""


def rebalances(given: Given) -> Made:
    """One row per change of a group's membership or subscription."""
    events = given.facts["rebalance_events"]
    changes = events.filter(is_one_of(events["kind"], *KINDS))
    counts_members = is_one_of(changes["kind"], *MEMBERSHIP)
    is_agreed = pc.and_(
        is_one_of(changes["kind"], "SUBSCRIPTION_CONFLICT"), pc.equal(changes["members_after"], 0)
    )
    unknown = pa.scalar(None, pa.int32())
    columns = {name: changes[name] for name in changes.column_names}
    columns |= {
        "observed_us": changes["event_us"],
        "kind": pc.if_else(pc.fill_null(is_agreed, False), AGREED, changes["kind"]),
        "members_before": pc.if_else(counts_members, changes["members_before"], unknown),
        "members_after": pc.if_else(counts_members, changes["members_after"], unknown),
    }
    return Made(as_declared(columns, REBALANCES))


MART: Final = mart(REBALANCES, rebalances, reads=("rebalance_events",))
