"""A sound lake to which a test adds cycle after cycle, and the round that checks it.

A cycle's facts get the next numbers, are shipped, and are judged by gold as the marts would; only
what a test plants on top of that is wrong.
"""

from __future__ import annotations

import shutil
from copy import copy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import ColumnType
from expectations.check import Finding
from expectations.checkpoints import CheckRun, Seen, look, run_checks
from expectations.memory import Memory
from expectations.work import Order, UnitDone, carry_out
from pipelines.cycles.plan import last_done
from pipelines.lake.lake import Lake, whole_table
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import BY_NAME as GOLD
from tests.lake_story import BROKER, CLUSTER, EMITTER, END, append_rows, complete_cycle

STEP_S = 5
_FILLING = {
    ColumnType.STRING: "x",
    ColumnType.INT: 0,
    ColumnType.LONG: 0,
    ColumnType.BOOLEAN: True,
    ColumnType.STRINGS: [],
    ColumnType.LONGS: [],
    ColumnType.RANGES: [],
    ColumnType.OWNED_QUEUES: [],
    ColumnType.TABLE_COUNTS: [],
    ColumnType.REPLICAS: [],
}


def in_this_process(order: Order) -> list[UnitDone]:
    """What executors would do, without Spark."""
    return [carry_out(order, unit) for unit in order.units]


def rows_of(lake: Lake, address: str) -> pl.DataFrame:
    """A whole table."""
    return pl.DataFrame(pl.from_arrow(whole_table(lake.table(address))))


class CheckedLake:
    """A lake whose cycles a test writes, and what was checked of it so far."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.moment = END
        shipments = rows_of(lake, lake.bronze("shipments"))
        self.seq = int(shipments["seq_to"].max())  # type: ignore[arg-type]
        self.shipment = int(shipments["seq"].max())  # type: ignore[arg-type]
        self.memory = Memory()
        self.orders: list[Order] = []
        self._shipped = self.seq
        self._skipped = self._unused = 0
        self._facts: dict[str, list[dict[str, Any]]] = {}
        self._answers: dict[str, list[dict[str, Any]]] = {}
        self._of_story: dict[tuple[Any, ...], dict[str, Any]] = {}
        """Rows that tests asked for: the story does not change."""

    def copied_to(self, root: Path) -> CheckedLake:
        """The same between two cycles in a lake of its own, with what was checked so far."""
        assert self._facts == self._answers == {}, "amid a cycle"
        shutil.copytree(self.lake.root, root)
        other = copy(self)
        other.lake = Lake.at(str(root))
        other.orders, other._facts, other._answers = list(self.orders), {}, {}
        return other

    def like(self, table: str, **wanted: Any) -> dict[str, Any]:
        """The newest row of the story, before any cycle was added, for which columns have some
        values; of the shipments the newest there is."""
        if table == "shipments":
            return self._newest(table, wanted)
        key = (table, *sorted(wanted.items()))
        if key not in self._of_story:
            self._of_story[key] = self._newest(table, wanted)
        return dict(self._of_story[key])

    def _newest(self, table: str, wanted: dict[str, Any]) -> dict[str, Any]:
        address = self.lake.gold(table) if table in GOLD else self.lake.bronze(table)
        rows = rows_of(self.lake, address)
        if table != "shipments":
            rows = rows.filter(pl.col("observed_at" if table in GOLD else "event_time") <= END)
        order = [name for name in ("observed_at", "seq", "seq_to") if name in rows.columns]
        return rows.filter(**wanted).sort(order).row(-1, named=True)

    def fact(self, table: str, **values: Any) -> int:
        """One more fact, now; returns its seq."""
        self.seq += 1
        common = {"cluster": CLUSTER, "broker": BROKER, "emitter": EMITTER, "broker_epoch": 1}
        fields = {**_filled(BRONZE[table].columns), **common, **values}
        at = values.get("event_time", self.next)
        fields |= {"seq": values.get("seq", self.seq), "event_time": at, "event_date": at.date()}
        self._facts.setdefault(table, []).append(fields)
        return self.seq

    def answer(self, table: str, **values: Any) -> None:
        """One more row of gold, of this cycle."""
        common = {"cluster": CLUSTER, "broker": BROKER, "emitter": EMITTER}
        at = values.get("observed_at", self.next)
        whole = {**_filled(GOLD[table].columns), **common, "seq": self.seq, **values}
        whole |= {"observed_at": at, "observed_date": at.date()}
        self._answers.setdefault(table, []).append(whole)

    def watermark(self, **changes: Any) -> None:
        """A fact about a queue of a group, and the lag that follows from it."""
        queue = {"group": "billing", "topic": "orders", "queue_id": 1}
        fact = {**self.like("group_watermarks", **queue), **changes}
        fact.pop("event_time"), fact.pop("seq")
        seq = self.fact("group_watermarks", **fact)
        lag = self.like("consumer_lag", **queue)
        same = {name: fact[name] for name in fact if name in lag and name != "event_date"}
        waiting = fact["max_offset"] - fact["committed"]
        at = {"observed_at": self.next, "seq": seq}
        self.answer("consumer_lag", **{**lag, **same, "lag_messages": waiting, **at})

    def pass_over(self, seqs: int) -> None:
        """A life of the emitter begins: its first fact has a seq so much higher."""
        assert self._shipped == self.seq, "a shipment is of one life"
        self._skipped = seqs
        self._shipped = self.seq = self.seq + seqs

    def append_fact(self, table: str, row: dict[str, Any]) -> None:
        """A row that no cycle has taken yet."""
        append_rows(self.lake.bronze(table), BRONZE[table].columns, [row], "event_date")

    @property
    def next(self) -> datetime:
        """To when the cycle that is being written will have judged."""
        return self.moment + timedelta(seconds=STEP_S)

    def complete(self, **shipped: Any) -> None:
        """Ship the facts, let gold judge the shipment, and complete the cycle."""
        self.moment = self.next
        self.shipment += 1
        last = {"seq_from": self._shipped + 1, "seq_to": self.seq, "event_time_to": self.moment}
        at = {"event_time": self.moment, "event_date": self.moment.date()}
        own = {"seq": self.shipment, "skipped": self._skipped}
        row = {**self.like("shipments"), **last, **at, **own, **shipped}
        for table, rows in self._facts.items():
            columns = BRONZE[table].columns
            append_rows(self.lake.bronze(table), columns, rows, "event_date")
        append_rows(self.lake.bronze("shipments"), BRONZE["shipments"].columns, [row], "event_date")
        count = self.seq - self._shipped
        if count:
            counts = dict.fromkeys(("rows_expected", "rows_found", "rows_distinct"), count)
            health = {"seq_from": self._shipped + 1, "seq_to": self.seq, **counts}
            self.answer("emitter_health", **{**health, "observed_at": self.moment})
        for table, rows in self._answers.items():
            self._commit(table, rows)
        self._unused += self._skipped
        reached = {EMITTER: (self.moment, self.seq)}
        complete_cycle(self.lake, reached, shipments=self.shipment, unused=self._unused)
        self._shipped, self._facts, self._answers = self.seq, {}, {}
        self._skipped = 0

    def _commit(self, table: str, rows: list[dict[str, Any]]) -> None:
        """As the pipeline does: a commit says of which cycle it is."""
        last = last_done(self.lake)
        assert last is not None
        done = Transaction(f"{table}/{last.run_id}", last.cycle + 1)
        schema = arrow_schema(GOLD[table].columns)
        columns = [pa.array([row.get(one.name) for row in rows], one.type) for one in schema]
        write_deltalake(
            self.lake.gold(table),
            pa.Table.from_arrays(columns, schema=schema),
            mode="append",
            partition_by=["observed_date"],
            commit_properties=CommitProperties(app_transactions=[done]),
        )

    def look(self, *, later_s: float = 8, rows_max: int = 300_000) -> Seen:
        """Count what is new, and remember it; Great Expectations judges nothing."""
        seen = look(
            self.lake,
            self._carry_out,
            self.memory,
            now=self.moment + timedelta(seconds=later_s),
            rows_max=rows_max,
        )
        self.memory = seen.memory
        return seen

    def check(self, *, later_s: float = 8, rows_max: int = 300_000) -> CheckRun:
        """Check what is new, and remember it."""
        run = run_checks(
            self.lake,
            self._carry_out,
            self.memory,
            run_id=f"at {self.moment}",
            now=self.moment + timedelta(seconds=later_s),
            rows_max=rows_max,
        )
        self.memory = run.memory
        return run

    def _carry_out(self, order: Order) -> list[UnitDone]:
        self.orders.append(order)
        return in_this_process(order)


def broken(seen: Seen) -> dict[str, str]:
    """Checks that rows break, with the sentence that says so."""
    return {one.check.name: one.broken for one in seen.findings if _breaks(one)}


def _breaks(finding: Finding) -> bool:
    return finding.checked_rows > 0 and finding.broken_rows > 0


def checked_rows(seen: Seen) -> dict[str, int]:
    """How many rows each check has looked at."""
    return {one.check.name: one.checked_rows for one in seen.findings}


def failing(run: CheckRun) -> dict[str, str]:
    """Failing checks with what was observed; those with nothing to look at are no findings."""
    return {
        one.check.name: one.observed_value
        for one in run.outcomes
        if not one.success and not one.nothing_to_check
    }


def _filled(columns: Any) -> dict[str, Any]:
    """A value for every column that may not be null."""
    return {column.name: _FILLING.get(column.type) for column in columns if not column.nullable}
