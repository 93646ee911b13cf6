"""Lists the observers of a cluster that are already known to a lake.

Called as `python -m engine.telemetry.shipper.known_observers LAKE CLUSTER`.

Place in the walk: `tidemark observe` asks it, in a process of its own: delta-rs and Arrow take more
memory than a whole observer. Standard output has one line of JSON, a list of `KnownObserver`.

Invariant: nothing is written. Absent on purpose: emitters that report on themselves; those that
were reported gone; those of an earlier version, which did not say where they asked.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from engine.telemetry.commands import lake_address, storage_options
from engine.telemetry.tables import BRONZE_FOLDER, LIFECYCLE

RETIREMENTS: Final = "retirements"
"""Which pipelines write; the engine knows nothing of them but this name."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class KnownObserver(msgspec.Struct, frozen=True):
    """An emitter of that cluster."""

    emitter: str
    broker: str
    address: str
    name_servers: str


def known_observers(lake: str, cluster: str) -> list[KnownObserver]:
    """Those that reported last where they ask. Raises what delta-rs does."""
    options = storage_options(os.environ)
    address = f"{lake}/{BRONZE_FOLDER}/{LIFECYCLE.name}"
    if not DeltaTable.is_deltatable(address, storage_options=options or None):
        return []
    table = DeltaTable(address, storage_options=options or None)
    there = {field.name for field in table.schema().fields}
    if not {"address", "name_servers"} <= there:
        return []
    quoted = cluster.replace("'", "''")
    query = (
        "SELECT emitter, broker, kind, seq, event_time, address, name_servers FROM lifecycle "  # noqa: S608 - quoted
        f"WHERE cluster = '{quoted}' AND kind IN ('OBSERVED', 'BROKER_GONE') ORDER BY emitter, seq"
    )
    rows = QueryBuilder().register("lifecycle", table).execute(query).read_all()
    newest: dict[str, dict[str, Any]] = {one["emitter"]: one for one in pa.table(rows).to_pylist()}
    retired = _retired(f"{lake}/{BRONZE_FOLDER}/{RETIREMENTS}", options)
    return [
        KnownObserver(row["emitter"], row["broker"], row["address"], row["name_servers"] or "")
        for row in newest.values()
        if row["kind"] == "OBSERVED" and row["address"]
        if row["event_time"] > retired.get(row["emitter"], _NEVER)
    ]


def _retired(address: str, options: dict[str, str]) -> dict[str, Any]:
    """Emitters that were retired by hand (`tidemark lake retire`), and when last."""
    if not DeltaTable.is_deltatable(address, storage_options=options or None):
        return {}
    table = DeltaTable(address, storage_options=options or None)
    query = "SELECT emitter, max(retired_at) AS at FROM retirements GROUP BY emitter"
    rows = QueryBuilder().register("retirements", table).execute(query).read_all()
    return {row["emitter"]: row["at"] for row in pa.table(rows).to_pylist()}


def main() -> None:
    """Print what is known."""
    lake, cluster = sys.argv[1:3]
    found = known_observers(lake_address(lake), cluster)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
