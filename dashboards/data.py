"""The one door from pages to the lake: tables by delta-rs, answers kept by table version.

Place in the walk: after gold. Pages ask questions (`rows`, `present`, `cells`), never tables; what
gold does not hold is asked of bronze by `topic_data`, through `answer`.

Invariant: no Spark, no writing. A table that does not exist yet is an empty frame of its schema;
one that is damaged is a LakeError, which a page shows as such. An interval's newest revision is
its present truth, and the only one shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from dashboards.cache import FrameCache
from dashboards.held import REPORTED_EACH, held_cells
from dashboards.view import Span
from engine.foundation.errors import LakeError
from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from pipelines.catalogue import BY_NAME as GOLD
from pipelines.lake import Lake, declared_rows, first_line
from pipelines.schemas import arrow_schema

TABLES: Final = (
    "consumer_lag",
    "group_state",
    "stalled_windows",
    "duplicate_risk_windows",
    "ownership",
    "rebalances",
    "dead_letters",
    "dq_results",
    "dq_failures",
)
ROWS_MAX: Final = 2_000_000
"""Rows one question may bring into this process; what would bring more must be asked coarser."""

Question = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the lake is like now: if two pulses are equal, every page is still true."""

    versions: tuple[tuple[str, str | None], ...]
    """Table -> identity and version; None when the table does not exist."""
    data_end: datetime | None
    """Newest moment of data time in consumer_lag."""

    @property
    def first_run(self) -> bool:
        """Gold was never made here."""
        return dict(self.versions)["consumer_lag"] is None


class LakeData:
    """The tables of one lake. Safe for use by several threads."""

    def __init__(self, lake: Lake, cache: FrameCache | None = None) -> None:
        self.lake = lake
        self._cache = cache or FrameCache()
        self._lock = threading.RLock()
        self._open: dict[str, DeltaTable] = {}

    def pulse(self) -> Pulse:
        """Look which versions there are, and how far data reaches."""
        versions = tuple((name, self._version(name)) for name in TABLES)
        return Pulse(versions, self._data_end("consumer_lag"))

    def rows(self, table: str, start: datetime, end: datetime) -> pl.DataFrame:
        """Rows that speak of moments in [start, end], in order."""
        return self.answer(
            table, ("rows", start, end), lambda all_rows: within(all_rows, start, end)
        )

    def group_rows(self, table: str, group: str, start: datetime, end: datetime) -> pl.DataFrame:
        """The same, of one group."""
        return self.answer(
            table,
            ("group", group, start, end),
            lambda all_rows: within(all_rows, start, end).filter(pl.col("group") == group),
        )

    def present(self, table: str) -> pl.DataFrame:
        """The newest revision of every interval."""
        return self.answer(
            table,
            "present",
            lambda all_rows: all_rows.sort("revision").unique("window_id", keep="last"),
        ).sort("opened_at", "window_id")

    def everything(self, table: str) -> pl.DataFrame:
        """All rows of a small table."""
        return self.answer(table, "everything", lambda all_rows: all_rows)

    def cells(self, span: Span, every: timedelta) -> pl.DataFrame:
        """Largest known time lag and largest lag per group and bucket of the range."""
        start, end = span.start, span.end
        until = min(end, span.data_end or end)
        found = self.answer(
            "consumer_lag",
            ("cells", start, end, until, every),
            # A queue's last report before the range may hold into it.
            lambda all_rows: held_cells(
                within(all_rows, start - REPORTED_EACH, end), until=until, step=every
            ),
        )
        return found.filter(pl.col("bucket") > start - every)

    def newest_lag(self, start: datetime, end: datetime) -> pl.DataFrame:
        """The newest row of every queue a group reads, as of `end`."""
        key = ["broker", "group", "topic", "queue_id"]
        return self.answer(
            "consumer_lag",
            ("newest lag", start, end),
            lambda all_rows: (
                within(all_rows, start, end)
                .sort("observed_at", "seq")
                .unique(key, keep="last")
                .sort(key)
            ),
        )

    def _data_end(self, table: str) -> datetime | None:
        """Newest moment a table speaks of; only its newest day is read."""
        with self._lock:
            opened = self._open.get(table)
            days = [part["observed_date"] for part in opened.partitions()] if opened else []
        if not days:
            return None
        newest_day = date.fromisoformat(max(days))
        newest = self.answer(
            table,
            ("data end", newest_day),
            lambda all_rows: all_rows.filter(pl.col("observed_date") == newest_day).select(
                pl.col("observed_at").max()
            ),
        )
        moment = newest["observed_at"].max()
        return moment if isinstance(moment, datetime) else None

    def answer(self, table: str, question: Hashable, ask: Question) -> pl.DataFrame:
        """What `ask` makes of a table's rows; `question` names everything that `ask` depends on."""
        with self._lock:
            version = self._version(table)
            opened = self._open.get(table)
        if opened is None:
            schema = arrow_schema(_columns(table))
            empty = pl.DataFrame(pl.from_arrow(schema.empty_table()))
            return ask(empty.lazy()).collect()
        return self._cache.get((table, version, question), lambda: self._ask(table, opened, ask))

    def _ask(self, table: str, opened: DeltaTable, ask: Question) -> pl.DataFrame:
        try:
            rows = declared_rows(opened, _columns(table))
            frame = ask(pl.scan_pyarrow_dataset(rows)).collect()
        except (DeltaError, OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise LakeError(
                f"rows of {self._address(table)} cannot be read ({first_line(error)}): a data "
                f"file is missing or damaged; restore it{', or replay the table' * (table in GOLD)}"
            ) from error
        if frame.height > ROWS_MAX:
            raise LakeError(
                f"{table} answers with {frame.height:,} rows, more than {ROWS_MAX:,}: "
                "choose a shorter range"
            )
        return frame

    def _version(self, table: str) -> str | None:
        """Identity and version of a table; opens it when it appeared, follows it when it grew."""
        address = self._address(table)
        with self._lock:
            if not self.lake.exists(address):
                self._open.pop(table, None)
                return None
            opened = self._open.get(table)
            if opened is not None and not self._followed(opened):
                opened = None
            if opened is None:
                opened = self._open[table] = self.lake.table(address)
            return f"{opened.metadata().id}/{opened.version()}"

    def _address(self, table: str) -> str:
        return self.lake.gold(table) if table in GOLD else self.lake.bronze(table)

    @staticmethod
    def _followed(opened: DeltaTable) -> bool:
        """Bring a table up to date; False when it was replaced by another one."""
        try:
            opened.update_incremental()
        except (DeltaError, OSError):
            return False
        return True


def _columns(table: str) -> Sequence[Column]:
    return GOLD[table].columns if table in GOLD else BRONZE[table].columns


def within(
    rows: pl.LazyFrame, start: datetime, end: datetime, *, kind: str = "observed"
) -> pl.LazyFrame:
    """Rows of moments in [start, end], in order; `kind` is "event" for tables of bronze."""
    moment = pl.col("event_time" if kind == "event" else "observed_at")
    days = pl.col(f"{kind}_date").is_between(start.date(), end.date())
    return rows.filter(days & moment.is_between(start, end)).sort(moment)
