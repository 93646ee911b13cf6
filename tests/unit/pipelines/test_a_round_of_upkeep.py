"""A round of upkeep tends every table that it can, and reports every other one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.lake import Lake
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep

DAY = date(2026, 3, 1)
TABLES = ("bronze/lifecycle", "gold/consumer_lag", "gold/group_state")


def test_a_table_that_cannot_be_read_is_reported_and_the_others_are_tended(tmp_path: Path) -> None:
    rows = pa.table({"group": ["a"], "observed_date": pa.array([DAY])})
    for name in TABLES:
        for _ in range(2):
            address = str(tmp_path / name)
            write_deltalake(address, rows, mode="append", partition_by=["observed_date"])
    first, *others = TABLES
    for entry in (tmp_path / first / "_delta_log").glob("*.json"):
        entry.write_text("damaged")
    said: list[str] = []
    upkeep = Upkeep(gold_days=9999, bronze_days=9999)

    done = Maintainer(Lake.at(str(tmp_path)), upkeep, said.append).round(
        datetime.now(UTC) + timedelta(days=2)
    )

    assert [line for line in said if line.startswith(f"{first}: ")] != []
    assert done >= len(others)
    for name in others:
        assert len(DeltaTable(str(tmp_path / name)).file_uris()) == 1, f"{name} is merged"
