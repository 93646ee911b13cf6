"""Records which brokers were retired by hand, by whom, when and why.

Place in the walk: `tidemark lake retire EMITTER` writes a row, a `Moment` reads them. Nobody else
can report in a broker's name, so this is a table of its own, beside the facts. Invariant: rows are
appended, never changed. An emitter that reports anything after it was retired is there again.
Absent on purpose: observers, which report it themselves (`tidemark observe --retire`), and marts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from engine.foundation.errors import ConfigError
from engine.telemetry.tables import SHIPMENTS, Column, must
from pipelines.base.settings import SILENCE_US
from pipelines.lake.lake import Lake, sql_text
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import append
from pipelines.marts.columns import STRING, TIMESTAMP
from pipelines.staging.facts import SHIPPER_SUFFIX

RETIREMENTS: Final = "retirements"
COLUMNS: Final = (
    must("emitter", STRING, "who is gone: cluster/broker/broker_id"),
    must("retired_at", TIMESTAMP, "when that was said, by the clock of who said it"),
    must("judged_to", TIMESTAMP, "how far the emitter had reported by then"),
    must("retired_by", STRING, "who said it"),
    Column("reason", STRING, "why, in words; null when none was given"),
)
_HORIZONS: Final = tuple(
    column for column in SHIPMENTS.columns if column.name in ("emitter", "event_time_to")
)


@dataclass(frozen=True, slots=True)
class Retirement:
    """What was said last of an emitter."""

    retired_at: datetime
    judged_to: datetime


def retirements(lake: Lake) -> dict[str, Retirement]:
    """Per emitter what was said last. Raises LakeError."""
    address = lake.bronze(RETIREMENTS)
    if not lake.exists(address):
        return {}
    rows = lake.rows(address, "true", COLUMNS).sort_by("retired_at").to_pylist()
    return {row["emitter"]: Retirement(row["retired_at"], row["judged_to"]) for row in rows}


def retire(lake: Lake, emitter: str, *, by: str, reason: str | None, now: datetime) -> None:
    """Write that the broker of an emitter is gone for good.

    Raises ConfigError for an emitter that the lake does not know, and for one that reports still.
    """
    horizons = _horizons(lake)
    judged_to = horizons.get(emitter)
    if judged_to is None:
        known = ", ".join(sorted(horizons)) or "none"
        raise ConfigError("emitter", emitter, f"one that {lake.root} has facts of: {known}")
    if now - judged_to < timedelta(microseconds=SILENCE_US):
        wanted = f"one that reports no more; this one did up to {judged_to:%H:%M:%S} UTC: stop it"
        raise ConfigError("emitter", emitter, wanted)
    row: dict[str, Any] = {
        "emitter": emitter,
        "retired_at": now.astimezone(UTC),
        "judged_to": judged_to,
        "retired_by": by,
        "reason": reason,
    }
    append(lake, lake.bronze(RETIREMENTS), pa.Table.from_pylist([row], arrow_schema(COLUMNS)))


def _horizons(lake: Lake) -> dict[str, datetime]:
    """How far each emitter has reported."""
    address = lake.bronze(SHIPMENTS.name)
    if not lake.exists(address):
        return {}
    found: dict[str, datetime] = {}
    wanted = f"emitter LIKE {sql_text('%' + SHIPPER_SUFFIX)}"
    for row in lake.rows(address, wanted, _HORIZONS).to_pylist():
        emitter = row["emitter"].removesuffix(SHIPPER_SUFFIX)
        found[emitter] = max(row["event_time_to"], found.get(emitter, row["event_time_to"]))
    return found
