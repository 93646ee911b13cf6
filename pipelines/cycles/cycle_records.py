"""Replaces expired cycle plans with compact records that are retained as long as gold.

Place in the walk: upkeep keeps a day's cycles in <lake>/state/cycles before it drops that day of
plans; readers that ask about a moment of long ago find here to where, and to which row, each
emitter had been judged. A few bytes an emitter and cycle. Invariant: every cycle whose plan went is
here, once: one commit carries the day as its transaction. Absent on purpose: where a cycle began,
and merging of cycles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties

from pipelines.cycles.cuts import Cut
from pipelines.lake.lake import Lake, sql_over
from pipelines.lake.table_writes import append, shorten_log

CYCLES: Final = "cycles"
AT_ONCE: Final = 1_000
"""Plans that are read together when their day is kept; each has some KiB."""

_PLANNED: Final = "PLANNED"
_VERSION: Final = 1
_SCHEMA: Final = pa.schema(
    [
        pa.field("run_id", pa.string(), False),
        pa.field("cycle", pa.int64(), False),
        pa.field("recorded_at", pa.timestamp("us", tz="UTC"), False),
        pa.field("recorded_date", pa.date32(), False),
        pa.field("emitter", pa.string(), False),
        pa.field("seq_to", pa.int64(), False),
        pa.field("shipment_to", pa.int64(), False),
        pa.field("time_to_us", pa.int64(), False),
    ]
)


@dataclass(frozen=True, slots=True)
class KeptCycle:
    """A cycle whose plan is not kept any more."""

    run_id: str
    cycle: int
    recorded_at: datetime
    cuts: tuple[Cut, ...]
    """Empty ones: where the cycle's own ended."""


def keep_day(lake: Lake, plans: str, day: date, *, at_once: int = AT_ONCE) -> int:
    """Keep the cycles that were planned on a day, by the table at `plans`; how many there are. A
    day that is kept already stays as it is. Raises LakeError.
    """
    address = lake.state(CYCLES)
    application = f"{CYCLES}/{day.isoformat()}"
    if lake.exists(address) and lake.table(address).transaction_version(application) is not None:
        return 0
    parts = list(_ends_of_day(lake, plans, day, at_once=at_once))
    rows = pa.concat_tables([_SCHEMA.empty_table(), *parts])
    append(
        lake,
        address,
        rows,
        partition_by=["recorded_date"],
        writer=WriterProperties(compression="ZSTD"),
        transaction=(application, _VERSION),
        refusal=f"does not take {day}",
    )
    shorten_log(lake, address)
    return int(pc.count_distinct(rows["cycle"]).as_py())


def cycle_records(lake: Lake, cycles: Iterable[int]) -> dict[int, KeptCycle]:
    """Those of some cycles that are kept in short."""
    address = lake.state(CYCLES)
    asked = ", ".join(str(cycle) for cycle in cycles)
    if not asked or not lake.exists(address):
        return {}
    names = "run_id, cycle, recorded_at, emitter, seq_to, shipment_to, time_to_us"
    query = f"SELECT {names} FROM asked WHERE cycle IN ({asked}) ORDER BY cycle, emitter"  # noqa: S608 - ours
    found: dict[int, list[dict[str, Any]]] = {}
    for row in sql_over({"asked": lake.table(address)}, query, what=address).to_pylist():
        found.setdefault(row["cycle"], []).append(row)
    return {
        cycle: KeptCycle(
            rows[0]["run_id"],
            cycle,
            rows[0]["recorded_at"],
            tuple(_end(row["emitter"], row) for row in rows),
        )
        for cycle, rows in found.items()
    }


def least_cycle(lake: Lake, address: str) -> int | None:
    """The least cycle that a table of cycles reports on, by its files' statistics; None without."""
    if not lake.exists(address):
        return None
    actions = pa.table(lake.table(address).get_add_actions(flatten=True))
    if not actions.num_rows or "min.cycle" not in actions.column_names:
        return None
    found = pc.min(actions["min.cycle"]).as_py()
    return None if found is None else int(found)


def _ends_of_day(lake: Lake, plans: str, day: date, *, at_once: int) -> Iterator[pa.Table]:
    """Rows of the cycles that were planned on a day, in order of cycle and emitter."""
    table = lake.table(plans)
    of_day = f"recorded_date = DATE '{day.isoformat()}' AND phase = '{_PLANNED}'"
    bounds = f"SELECT min(cycle) AS least, max(cycle) AS greatest FROM asked WHERE {of_day}"  # noqa: S608 - ours
    [(least, greatest)] = [
        (row["least"], row["greatest"])
        for row in sql_over({"asked": table}, bounds, what=plans).to_pylist()
    ]
    if least is None:
        return
    for begin in range(least, greatest + 1, at_once):
        between = f"cycle BETWEEN {begin} AND {min(begin + at_once - 1, greatest)}"
        query = (
            f"SELECT run_id, cycle, recorded_at, body FROM asked WHERE {of_day} AND {between}"  # noqa: S608 - ours
            " ORDER BY cycle"
        )
        records = sql_over({"asked": table}, query, what=plans).to_pylist()
        yield pa.Table.from_pylist(_rows(records, day), _SCHEMA)


def _rows(records: Sequence[Mapping[str, Any]], day: date) -> list[dict[str, Any]]:
    return [
        {
            **{name: record[name] for name in ("run_id", "cycle", "recorded_at")},
            **{name: cut[name] for name in ("emitter", "seq_to", "shipment_to", "time_to_us")},
            "recorded_date": day,
        }
        for record in records
        for cut in sorted(json.loads(record["body"])["cuts"], key=lambda cut: str(cut["emitter"]))
    ]


def _end(emitter: str, row: Mapping[str, Any]) -> Cut:
    seq, shipment, time_us = row["seq_to"], row["shipment_to"], row["time_to_us"]
    return Cut(emitter, seq, seq, shipment, shipment, time_us, time_us)
