"""The lake as one run of checks sees it: tables read by delta-rs, facts only up to the horizon.

Invariant: the shipped horizons are read first, so that every fact they promise is in the tables
read afterwards; what was shipped meanwhile is left out. A table that must exist and does not, or
cannot be read, is a LakeError of one sentence.

Absent on purpose: Spark, and writing (results does that).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import polars as pl
from pyarrow.dataset import FileSystemDataset

from engine.foundation.errors import LakeError
from engine.telemetry.tables import BY_NAME as BRONZE_TABLES
from engine.telemetry.tables import TABLES, Column
from pipelines.catalogue import BY_NAME as GOLD_TABLES
from pipelines.catalogue import COMPUTED_TABLES
from pipelines.lake import Lake, declared_rows, first_line
from pipelines.schemas import arrow_schema

SHIPPER_SUFFIX: Final = "/shipper"


class CheckedLake:
    """Reads tables of one lake, each at most once per set of columns."""

    def __init__(self, lake: Lake) -> None:
        """Raises LakeError when the lake holds no shipments or not all gold tables."""
        self.lake = lake
        self._versions: dict[str, int] = {}
        self._require()
        self.horizons: Final = self._horizons()

    def version(self, table: str) -> int | None:
        """Delta version a table was read at; None when it does not exist."""
        return self._versions.get(table)

    def gold(self, table: str, columns: list[str] | None = None) -> pl.DataFrame:
        """All rows of a gold table."""
        declared = GOLD_TABLES[table].columns
        return self._read(self.lake.gold(table), table, declared, columns)

    def bronze(self, table: str, columns: list[str] | None = None) -> pl.DataFrame:
        """Rows of a bronze table up to each emitter's shipped horizon."""
        declared = BRONZE_TABLES[table].columns
        wanted = None if columns is None else [*dict.fromkeys(["emitter", "seq", *columns])]
        rows = self._read(self.lake.bronze(table), table, declared, wanted)
        horizons = self.horizons.select("emitter", "horizon_seq")
        return rows.join(horizons, on="emitter", how="inner").filter(
            pl.col("seq") <= pl.col("horizon_seq")
        )

    @cached_property
    def all_seqs(self) -> pl.DataFrame:
        """(emitter, seq) of every fact up to the horizon, over all tables; repeats are kept."""
        names = [table.name for table in TABLES if table.name != "shipments"]
        return pl.concat([self.bronze(name, []).select("emitter", "seq") for name in names])

    def _require(self) -> None:
        missing = [
            table.name
            for table in COMPUTED_TABLES
            if not self.lake.exists(self.lake.gold(table.name))
        ]
        if not self.lake.exists(self.lake.bronze("shipments")):
            raise LakeError(
                f"{self.lake.root} holds no shipments: nothing was ever shipped there; start "
                f"`tidemark engine --lake {self.lake.root}`, or name another lake"
            )
        if missing:
            raise LakeError(
                f"{self.lake.root} has no gold table {', '.join(missing)}: start "
                f"`tidemark pipeline run --lake {self.lake.root}` and check again"
            )

    def _horizons(self) -> pl.DataFrame:
        """Per emitter: first and last seq shipped, and up to which moment it has reported."""
        columns = ["emitter", "seq", "seq_from", "seq_to", "event_time_to"]
        declared = BRONZE_TABLES["shipments"].columns
        shipped = self._read(self.lake.bronze("shipments"), "shipments", declared, columns)
        return (
            shipped.with_columns(pl.col("emitter").str.strip_suffix(SHIPPER_SUFFIX))
            .group_by("emitter")
            .agg(
                pl.col("seq_from").min().alias("first_seq"),
                pl.col("seq_to").max().alias("horizon_seq"),
                pl.col("event_time_to").max(),
            )
            .sort("emitter")
        )

    def _read(
        self, address: str, table: str, declared: tuple[Column, ...], columns: list[str] | None
    ) -> pl.DataFrame:
        names = columns if columns is not None else [column.name for column in declared]
        if not self.lake.exists(address):
            schema = arrow_schema([one for one in declared if one.name in names])
            return pl.DataFrame(pl.from_arrow(schema.empty_table()))
        opened = self.lake.table(address)
        self._versions[table] = opened.version()
        return _rows(declared_rows(opened, declared), address, names)


def _rows(rows: FileSystemDataset, address: str, names: list[str]) -> pl.DataFrame:
    try:
        return pl.DataFrame(pl.from_arrow(rows.to_table(columns=names)))
    except Exception as error:  # delta-rs and Arrow raise many kinds for one cause
        raise LakeError(
            f"rows of {address} cannot be read ({first_line(error)}): a data file is missing or "
            "damaged; restore it, or replay the table"
        ) from error
