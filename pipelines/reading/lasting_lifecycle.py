"""Keeps lifecycle rows that hold until a later one, however long ago they were reported.

Place in the walk: upkeep keeps those of a day in <lake>/bronze/lasting_lifecycle before it drops
that day of lifecycle; a `Moment` reads both. A dead node of a broker follows for as long as another
one leads, and a broker that is gone stays gone.

Invariant: a row is read once, whether it lies in one of the tables or in both. It lies beside the
facts, for nothing computes it again, and no cycle takes it. Absent on purpose: what a row means.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from engine.telemetry.tables import LIFECYCLE
from pipelines.lake.lake import Lake, sql_text
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import append
from pipelines.marts.lifecycle_events import ROLE_CHANGE

LASTING_LIFECYCLE: Final = "lasting_lifecycle"
KINDS: Final = (ROLE_CHANGE, "OBSERVED", "BROKER_GONE")
COLUMNS: Final = tuple(
    column
    for column in LIFECYCLE.columns
    if column.name
    in (
        *("emitter", "seq", "kind", "event_time", "term", "role", "report_each_ms"),
        *("address", "name_servers"),
    )
)


def lasting_rows(lake: Lake, kinds: Sequence[str], wanted: str) -> list[dict[str, Any]]:
    """The rows of these kinds for which the SQL condition holds, in the order of seq."""
    assert set(kinds) <= set(KINDS), f"upkeep forgets {kinds}"
    of_kinds = f"kind IN ({', '.join(map(sql_text, kinds))}) AND ({wanted})"
    found: dict[tuple[str, int], dict[str, Any]] = {}
    # In this order: what upkeep drops meanwhile is in the second.
    for table in (LIFECYCLE.name, LASTING_LIFECYCLE):
        address = lake.bronze(table)
        if lake.exists(address):
            rows = lake.rows(address, of_kinds, COLUMNS).to_pylist()
            found |= {(row["emitter"], row["seq"]): row for row in rows}
    return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]


def keep_lasting(lake: Lake, day: date) -> int:
    """Keep those of a day that are not kept yet; how many there were. Raises LakeError."""
    address = lake.bronze(LASTING_LIFECYCLE)
    kinds = ", ".join(map(sql_text, KINDS))
    of_day = f"event_date = DATE '{day.isoformat()}' AND kind IN ({kinds})"
    rows = lake.rows(lake.bronze(LIFECYCLE.name), of_day, COLUMNS)
    if rows.num_rows and lake.exists(address):
        there = lake.rows(address, "true", COLUMNS).select(["emitter", "seq"])
        rows = rows.join(there, ["emitter", "seq"], join_type="left anti")
    if rows.num_rows:
        append(lake, address, rows.cast(arrow_schema(COLUMNS)))
    return int(rows.num_rows)
