"""How far the pipelines have come: the plan of every cycle, written before the cycle's first gold
row.

Place in the walk: `plan_cuts` reads the shipped horizons and decides what the next cycle takes;
`Marks` records that decision in <lake>/state/cycles and hands it back after a restart.

Invariant: plan n + 1 is written only after every row of cycle n is in gold, so a restart re-runs
the last plan: it takes the very same cut, and Delta skips what was written already. Run id and
marks live in one table; a gold without marks, or marks without their gold, is refused. Absent on
purpose: Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from engine.foundation.errors import LakeError
from engine.telemetry.tables import SHIPMENTS
from pipelines.catalogue import SPARK_TABLES
from pipelines.lake import Lake, sql_moment, sql_text, whole_table

CYCLES: Final = "cycles"
COMPLETED: Final = "completed"
"""The cycles whose gold is all there; the newest plan alone cannot tell."""
SHIPPER_SUFFIX: Final = "/shipper"
FILES_BEFORE_COMPACTION: Final = 500
"""One small file a cycle; beyond this many they are made one again."""
_OF_SHIPMENT: Final = ("emitter", "seq", "seq_from", "seq_to", "event_time_to")

_SCHEMA: Final = pa.schema(
    [
        pa.field("run_id", pa.string(), False),
        pa.field("settings", pa.string(), False),
        pa.field("cycle", pa.int64(), False),
        pa.field("emitter", pa.string(), False),
        pa.field("seq_from", pa.int64(), False),
        pa.field("seq_to", pa.int64(), False),
        pa.field("time_from_us", pa.int64(), False),
        pa.field("time_to_us", pa.int64(), False),
    ]
)

_COMPLETED_SCHEMA: Final = pa.schema(
    [pa.field("run_id", pa.string(), False), pa.field("cycle", pa.int64(), False)]
)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one cycle takes of one emitter: rows in (seq_from, seq_to], ticks in (time_from_us,
    time_to_us].
    """

    emitter: str
    seq_from: int
    seq_to: int
    time_from_us: int
    """0: from the emitter's first row."""
    time_to_us: int

    @property
    def is_empty(self) -> bool:
        """Nothing new, not even time."""
        return self.seq_from == self.seq_to and self.time_from_us == self.time_to_us

    def rest(self) -> Cut:
        """The empty cut that begins where this one ends."""
        return Cut(self.emitter, self.seq_to, self.seq_to, self.time_to_us, self.time_to_us)


@dataclass(frozen=True, slots=True)
class Plan:
    """One cycle: its number and, per emitter, what it takes.

    Every emitter ever seen has a cut in it.
    """

    run_id: str
    cycle: int
    cuts: tuple[Cut, ...]

    @property
    def rows(self) -> int:
        """Bronze rows it takes."""
        return sum(cut.seq_to - cut.seq_from for cut in self.cuts)


def plan_cuts(
    marks: Sequence[Cut], shipments: Sequence[Mapping[str, Any]], *, rows_max: int
) -> tuple[Cut, ...]:
    """The next cuts, from where each emitter stands and the shipments beyond that (any order).

    An emitter takes whole shipments until `rows_max` is passed, so a backlog is worked off in steps
    whose ends are the shipper's own; which ends they are changes no gold row.
    """
    by_emitter: dict[str, list[Mapping[str, Any]]] = {}
    for row in shipments:
        by_emitter.setdefault(str(row["emitter"]).removesuffix(SHIPPER_SUFFIX), []).append(row)
    known = {cut.emitter: cut for cut in marks}
    return tuple(
        _next_cut(emitter, known.get(emitter), by_emitter.get(emitter, []), rows_max)
        for emitter in sorted({*known, *by_emitter})
    )


def _next_cut(
    emitter: str, mark: Cut | None, shipments: list[Mapping[str, Any]], rows_max: int
) -> Cut:
    ordered = sorted(shipments, key=lambda row: int(row["seq"]))
    if mark is None:
        first = int(ordered[0]["seq_from"]) - 1
        mark = Cut(emitter, first, first, 0, 0)
    seq_to, time_to_us = mark.seq_to, mark.time_to_us
    for row in ordered:
        if seq_to - mark.seq_to >= rows_max:
            break
        seq_to = max(seq_to, int(row["seq_to"]))
        time_to_us = max(time_to_us, int(row["event_time_to_us"]))
    return Cut(emitter, mark.seq_to, seq_to, mark.time_to_us, time_to_us)


def shipped(lake: Lake, marks: Sequence[Cut]) -> list[dict[str, Any]]:
    """Shipments that lie beyond the marks, with their times in µs.

    LakeError when there is no such table.
    """
    names = [sql_text(cut.emitter + SHIPPER_SUFFIX) for cut in marks]
    wanted = [f"emitter NOT IN ({', '.join(names)})"] if marks else ["true"]
    for name, cut in zip(names, marks, strict=True):
        moment = sql_moment(cut.time_to_us)
        beyond = f"(seq_to > {cut.seq_to} OR event_time_to > {moment})"
        wanted.append(f"(emitter = {name} AND {beyond})")
    columns = [column for column in SHIPMENTS.columns if column.name in _OF_SHIPMENT]
    found = lake.rows(lake.bronze(SHIPMENTS.name), " OR ".join(wanted), columns)
    times = pc.cast(found["event_time_to"], pa.int64())
    rows: list[dict[str, Any]] = (
        found.append_column("event_time_to_us", times).drop_columns("event_time_to").to_pylist()
    )
    return rows


def last_marks(lake: Lake) -> tuple[Cut, ...]:
    """Where the lake's run stands, whatever its settings; the last cycle counts as carried out.

    LakeError when no run has begun there.
    """
    address = lake.state(CYCLES)
    rows = whole_table(lake.table(address)) if lake.exists(address) else _SCHEMA.empty_table()
    cycle = pc.max(rows["cycle"]).as_py()
    if not cycle:
        raise LakeError(
            f"{lake.root} has no gold that was computed live ({address} says so): run "
            f"`tidemark pipeline run --lake {lake.root}` first, or name another lake"
        )
    return tuple(cut.rest() for cut in _cuts_of(rows, cycle))


def _cuts_of(rows: pa.Table, cycle: int) -> tuple[Cut, ...]:
    """The plan of one cycle, from the rows of the table of cycles."""
    planned = rows.filter(pc.equal(rows["cycle"], cycle)).sort_by("emitter").to_pylist()
    return tuple(
        Cut(
            row["emitter"],
            row["seq_from"],
            row["seq_to"],
            row["time_from_us"],
            row["time_to_us"],
        )
        for row in planned
    )


def record_completed(lake: Lake, plan: Plan) -> None:
    """Say that every row of a cycle is in gold: readers go up to there, and no further."""
    address = lake.state(COMPLETED)
    row = {"run_id": plan.run_id, "cycle": plan.cycle}
    write_deltalake(
        address,
        pa.Table.from_pylist([row], _COMPLETED_SCHEMA),
        mode="append",
        storage_options=lake.storage_options or None,
    )
    if plan.cycle % FILES_BEFORE_COMPACTION == 0:
        lake.table(address).optimize.compact()


class Marks:
    """The table <lake>/state/cycles of one run."""

    def __init__(self, lake: Lake, settings: str, run_id: str, last: Plan | None) -> None:
        self._lake = lake
        self._settings = settings
        self.run_id = run_id
        self.last = last
        """The newest plan recorded; its gold may be incomplete."""

    @staticmethod
    def open(lake: Lake, settings: str) -> Marks:
        """The marks of the lake, begun when there is nothing yet.

        Raises LakeError when gold stands without marks, when marks stand without their gold, or
        when the run was begun with other settings: each would mix or skip rows silently.
        """
        address = lake.state(CYCLES)
        present = [table.name for table in SPARK_TABLES if lake.exists(lake.gold(table.name))]
        if not lake.exists(address):
            if present:
                raise LakeError(
                    f"{lake.root}: gold holds {', '.join(present)}, but its marks ({address}) are "
                    "gone: restore them, or move the gold folder away and start anew"
                )
            marks = Marks(lake, settings, uuid.uuid4().hex, None)
            marks._append(0, [Cut("", 0, 0, 0, 0)])
            return marks
        marks = Marks._restored(lake, settings, whole_table(lake.table(address)))
        missing = [table.name for table in SPARK_TABLES if table.name not in present]
        if marks.last is not None and missing:
            raise LakeError(
                f"{lake.root}: marks say cycle {marks.last.cycle}, but gold lacks "
                f"{', '.join(missing)}: remove {address} and the rest of gold to start anew"
            )
        return marks

    @staticmethod
    def _restored(lake: Lake, settings: str, rows: pa.Table) -> Marks:
        if rows.num_rows == 0:
            raise LakeError(f"{lake.state(CYCLES)} is empty: remove it and gold to start anew")
        if rows["settings"][0].as_py() != settings:
            raise LakeError(
                f"{lake.root}: its gold was made with {rows['settings'][0].as_py()}, not with "
                f"{settings}: use the same settings, or replay into another lake"
            )
        run_id = rows["run_id"][0].as_py()
        cycle = pc.max(rows["cycle"]).as_py()
        if cycle == 0:
            return Marks(lake, settings, run_id, None)
        return Marks(lake, settings, run_id, Plan(run_id, cycle, _cuts_of(rows, cycle)))

    def positions(self) -> tuple[Cut, ...]:
        """Where each emitter stands once the last plan is carried out."""
        return () if self.last is None else tuple(cut.rest() for cut in self.last.cuts)

    def begin_at(self, cuts: Sequence[Cut]) -> None:
        """Start a new run at given positions instead of the emitters' first rows, as cycle 1
        without rows.
        """
        assert self.last is None, "positions are chosen before the first cycle"
        self.record(tuple(cuts))

    def record(self, cuts: tuple[Cut, ...]) -> Plan:
        """Write the plan of the next cycle, and return it."""
        cycle = 1 if self.last is None else self.last.cycle + 1
        self._append(cycle, cuts)
        self.last = Plan(self.run_id, cycle, cuts)
        if cycle % FILES_BEFORE_COMPACTION == 0:
            self._lake.table(self._lake.state(CYCLES)).optimize.compact()
        return self.last

    def _append(self, cycle: int, cuts: Sequence[Cut]) -> None:
        rows = [
            {
                "run_id": self.run_id,
                "settings": self._settings,
                "cycle": cycle,
                "emitter": cut.emitter,
                "seq_from": cut.seq_from,
                "seq_to": cut.seq_to,
                "time_from_us": cut.time_from_us,
                "time_to_us": cut.time_to_us,
            }
            for cut in cuts
        ]
        write_deltalake(
            self._lake.state(CYCLES),
            pa.Table.from_pylist(rows, _SCHEMA),
            mode="append",
            storage_options=self._lake.storage_options or None,
        )
