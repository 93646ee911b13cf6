"""Drives a pipeline run by planning, computing and committing one cycle after another.

Place in the walk: the live stream and replays call `next_cycle`. What is decided is decided by
`plan`; what is computed is computed by executors; what is written to gold is committed here. Now
and then files of the state go that no cycle under way, restart or replay may start from.

Invariant: whatever kills this process, the next one repeats at most the cycle that was under way
and comes to the same rows. Absent on purpose: waiting, and progress lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import obstore
from pyspark.sql import SparkSession

from engine.telemetry.tables import BRONZE_FOLDER
from pipelines.base.settings import Evaluation, Pace
from pipelines.base.time_units import moment_at
from pipelines.cycles.bronze_tail import BronzeTail
from pipelines.cycles.cuts import Cut, Shipment, begins_of, ends_of, next_cuts
from pipelines.cycles.gold_files import GoldTables, NewFile
from pipelines.cycles.job import readings_of, run_job
from pipelines.cycles.keyed_state import file_of
from pipelines.cycles.plan import Plan, Plans
from pipelines.cycles.snapshots import kept
from pipelines.cycles.work import KEYED, BucketDone, WorkOrder
from pipelines.lake.lake import Lake
from pipelines.lake.read_places import note_places
from pipelines.lake.small_files import object_store
from pipelines.lake.table_writes import LogsTidied, shorten
from pipelines.marts.declared import gold_tables
from pipelines.staging.soundness import Odd, summed

COMMITTERS: Final = 4
"""Tables that are committed at the same time."""

READER: Final = "pipeline"
"""Under this name upkeep learns what the live run has still to read."""
SWEEP_EACH: Final = 200
"""Cycles after which files of the state that nobody needs are removed."""

Job = Callable[[WorkOrder], list[BucketDone]]
"""Carries out a work order."""
Until = Callable[[Sequence[Cut], list[Shipment]], list[Shipment]]
"""Of marks and the shipments beyond them, those that a run of the past takes."""
SPARED_S: Final = 3600.0
"""Files that are younger may belong to a cycle that nobody has recorded yet."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one cycle did."""

    cycle: int
    bronze_rows: int
    gold_rows: dict[str, int]
    horizon_us: int
    """The least moment up to which an emitter that brought something new has been judged."""
    seconds: float
    odd: tuple[Odd, ...] = ()
    """Rows of bronze that could not be judged, or not wholly."""
    logs: LogsTidied | None = None
    """What was done to keep the tables' logs short."""

    def __str__(self) -> str:
        return (
            f"cycle {self.cycle}: {self.bronze_rows} rows in, {sum(self.gold_rows.values())} out, "
            f"horizon {moment_at(self.horizon_us):%H:%M:%S}, {self.seconds:.1f} s"
            + "".join(f"\n  {one}" for one in (*self.odd, self.logs or "") if str(one))
        )


class Driver:
    """The run of one lake (or of a replay, whose gold has a lake of its own)."""

    def __init__(
        self,
        job: Job,
        source: Lake,
        target: Lake,
        *,
        evaluation: Evaluation,
        pace: Pace,
        until: Until | None = None,
    ) -> None:
        """`until`: the run is of a range of the past, which ends there.

        LakeError when the lake has gold that this run may not go on with.
        """
        self._job = job
        self._source = source
        self._target = target
        self._evaluation = evaluation
        self._pace = pace
        self._until = until
        self._gold = GoldTables(target, gold_tables())
        self.plans = Plans.open(
            target, evaluation.as_text(), gold=self._gold.present(), buckets=pace.buckets
        )
        self._gold.create()
        self.plans.require_gold(self._gold.versions(), self._gold.newest_cycle(self.plans.run_id))
        self.plans.begin_tables([table.name for table in gold_tables()])
        places = self.plans.last.places if self.plans.last is not None else {}
        self._bronze = BronzeTail(source, places, follows=until is None)

    def next_cycle(self) -> Progress | None:
        """Carry out the cycle that was interrupted, or the next one; None when nothing is new."""
        began_s = time.monotonic()
        plan = self._interrupted() or self._next_plan()
        if plan is None:
            return None
        done = self._carry_out(plan)
        counts = self._commit(plan, done)
        chains = {one.bucket: one.chain for one in done}
        self.plans.finish(plan, chains, self._gold.versions())
        self._bronze.finish(plan.cuts)
        if self._until is None:
            versions = {
                f"{BRONZE_FOLDER}/{name}": place.version
                for name, place in self._bronze.places.items()
            }
            note_places(self._target, READER, versions)
        logs = shorten([*self._gold.logs, self.plans.log])
        if plan.cycle % SWEEP_EACH == 0:
            sweep(self._target, plan.run_id, self.plans.chains)
        moved = [cut.time_to_us for cut in plan.cuts if not cut.is_empty]
        return Progress(
            plan.cycle,
            plan.rows,
            counts,
            min(moved, default=0),
            time.monotonic() - began_s,
            summed(odd for one in done for odd in one.odd),
            logs,
        )

    def _interrupted(self) -> Plan | None:
        return None if self.plans.is_done else self.plans.last

    def _next_plan(self) -> Plan | None:
        marks = self.plans.positions()
        shipments = self._bronze.shipments(marks)
        if self._until is not None:
            shipments = self._until(marks, shipments)
        cuts = next_cuts(marks, shipments, rows_max=self._pace.rows_per_cycle)
        if all(cut.is_empty for cut in cuts):
            return None
        return self.plans.record(cuts, self._bronze.places)

    def _carry_out(self, plan: Plan) -> list[BucketDone]:
        """Let the work be done. Files that somebody merged and vacuumed meanwhile, in spite of the
        place that is noted for upkeep, are no end: their rows lie in others.
        """
        try:
            return self._job(self._order(plan))
        except Exception:  # raised again unless a file was gone
            if not self._bronze.replace_gone(plan.cuts):
                raise
        return self._job(self._order(plan))

    def _order(self, plan: Plan) -> WorkOrder:
        begins, ends = begins_of(plan.cuts), ends_of(plan.cuts)
        files = self._bronze.files(plan.cuts)
        return WorkOrder(
            source=self._source,
            target=self._target,
            run_id=plan.run_id,
            cycle=plan.cycle,
            buckets=self.plans.buckets,
            cuts={name: (begins[name], ends[name]) for name in begins},
            readings=readings_of(files),
            read_bytes=sum(file.size_bytes for of_table in files.values() for file in of_table),
            chains=plan.chains,
            evaluation=self._evaluation,
        )

    def _commit(self, plan: Plan, done: list[BucketDone]) -> dict[str, int]:
        """Commit every table that has new files; rows per table."""
        by_table: dict[str, list[NewFile]] = {}
        for one in done:
            for file in one.files:
                by_table.setdefault(file.table, []).append(file)

        def commit(name: str) -> int:
            files = by_table[name]
            self._gold.commit(name, files, run_id=plan.run_id, cycle=plan.cycle)
            return sum(file.rows for file in files)

        with ThreadPoolExecutor(COMMITTERS) as committers:
            return dict(zip(by_table, committers.map(commit, by_table), strict=True))


def on_spark(spark: SparkSession) -> Job:
    """Work orders are carried out by the executors of a Spark session."""
    return lambda order: run_job(spark, order)


def sweep(lake: Lake, run_id: str, chains: Mapping[int, tuple[str, ...]]) -> int:
    """Remove files of a run's state that nobody needs any more; returns how many."""
    needed = {
        f"{bucket}/{file_of(recorded)}"
        for needed_chains in (chains, *(state.chains for state in kept(lake)))
        for bucket, names in needed_chains.items()
        for recorded in names
    }
    old_s = time.time() - SPARED_S
    folder = f"{lake.state(KEYED)}/{run_id}"
    if "://" not in lake.root:
        removed = [
            path
            for path in Path(folder).glob("*/*.state")
            if path.stat().st_mtime < old_s and str(path.relative_to(folder)) not in needed
        ]
        for path in removed:
            path.unlink()
        return len(removed)
    store, prefix = object_store(lake), folder.removeprefix(f"{lake.root}/")
    count = 0
    for listed in obstore.list(store, prefix=prefix):
        gone = [
            one["path"]
            for one in listed
            if one["last_modified"].timestamp() < old_s
            and one["path"].removeprefix(f"{prefix}/") not in needed
        ]
        if gone:
            obstore.delete(store, gone)
        count += len(gone)
    return count
