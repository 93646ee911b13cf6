"""How far the run of a lake has come: the plan of every cycle, recorded before its first gold row,
and what it has left behind, recorded after its last.

Place in the walk: `next_cuts` reads the shipped horizons and decides what the next cycle takes;
`Plans` records that decision in <lake>/state/plans and hands it back after a restart.

Invariant: cycle n + 1 is planned only when cycle n is recorded as done, and it is done when all its
gold is committed. So a restart repeats at most one cycle, with the very cut, settings and state
that it had; tables that were committed already are passed over. Run, plans and the names of the
state's files live in one table; gold without it is refused. Absent on purpose: Spark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from engine.foundation.errors import LakeError
from pipelines.lake import Lake, whole_table
from pipelines.tail import Place

PLANS: Final = "plans"
FILES_BEFORE_COMPACTION: Final = 500
"""Two small files a cycle; beyond this many they are made one again."""

PLANNED: Final = "PLANNED"
DONE: Final = "DONE"

_SCHEMA: Final = pa.schema(
    [
        pa.field("run_id", pa.string(), False),
        pa.field("cycle", pa.int64(), False),
        pa.field("phase", pa.string(), False),
        pa.field("recorded_at", pa.timestamp("us", tz="UTC"), False),
        pa.field("body", pa.string(), False),
    ]
)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one cycle takes of one emitter: rows in (seq_from, seq_to], shipments likewise by their
    own seq, ticks in (time_from_us, time_to_us].
    """

    emitter: str
    seq_from: int
    seq_to: int
    shipment_from: int
    shipment_to: int
    time_from_us: int
    """0: from the emitter's first row."""
    time_to_us: int

    @property
    def is_empty(self) -> bool:
        """Nothing new, not even time."""
        return self.shipment_from == self.shipment_to

    def rest(self) -> Cut:
        """The empty cut that begins where this one ends."""
        return Cut(
            self.emitter,
            self.seq_to,
            self.seq_to,
            self.shipment_to,
            self.shipment_to,
            self.time_to_us,
            self.time_to_us,
        )


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipped run of rows of an emitter, whose own number is `seq`."""

    emitter: str
    seq: int
    seq_from: int
    seq_to: int
    time_to_us: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One cycle: what it takes, and where it starts from."""

    run_id: str
    cycle: int
    cuts: tuple[Cut, ...]
    """Every emitter ever seen has one."""
    places: Mapping[str, Place]
    """Per bronze table, a place in its log before everything that the cut takes."""
    chains: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Per hash bucket, the files of the state that the cycle starts from."""

    @property
    def rows(self) -> int:
        """Bronze rows it takes."""
        return sum(cut.seq_to - cut.seq_from for cut in self.cuts)


def next_cuts(
    marks: Sequence[Cut], shipments: Iterable[Shipment], *, rows_max: int
) -> tuple[Cut, ...]:
    """The next cuts, from where each emitter stands and shipments (any order; old ones are passed
    over).

    An emitter takes whole shipments until `rows_max` is passed, so a backlog is worked off in steps
    whose ends are the shipper's own; which ends they are changes no gold row.
    """
    by_emitter: dict[str, list[Shipment]] = {}
    for shipment in shipments:
        by_emitter.setdefault(shipment.emitter, []).append(shipment)
    known = {cut.emitter: cut.rest() for cut in marks}
    return tuple(
        _next_cut(emitter, known.get(emitter), by_emitter.get(emitter, []), rows_max)
        for emitter in sorted({*known, *by_emitter})
    )


def _next_cut(emitter: str, mark: Cut | None, shipments: list[Shipment], rows_max: int) -> Cut:
    ordered = sorted(shipments, key=lambda one: one.seq)
    if mark is None:
        seq, own = ordered[0].seq_from - 1, ordered[0].seq - 1
        mark = Cut(emitter, seq, seq, own, own, 0, 0)
    cut = mark
    for one in ordered:
        if one.seq <= cut.shipment_to:
            continue
        if cut.seq_to - mark.seq_to >= rows_max:
            break
        cut = replace(
            cut,
            seq_to=max(cut.seq_to, one.seq_to),
            shipment_to=one.seq,
            time_to_us=max(cut.time_to_us, one.time_to_us),
        )
    return cut


class Plans:
    """The table <lake>/state/plans of one run."""

    def __init__(self, lake: Lake, run_id: str, *, buckets: int) -> None:
        self._lake = lake
        self._records = 0
        self.run_id = run_id
        self.buckets = buckets
        """Into how many parts the run's keys are divided, for good."""
        self.last: Plan | None = None
        """The newest plan recorded."""
        self.is_done = True
        """Is the last plan carried out?"""
        self.chains: Mapping[int, tuple[str, ...]] = {}
        """The state's files behind the last cycle that is done."""

    @staticmethod
    def open(lake: Lake, settings: str, *, gold: Sequence[str], buckets: int) -> Plans:
        """The plans of the lake, begun when there is nothing yet, with so many buckets. `gold`:
        names of the gold tables that exist.

        LakeError when gold stands without plans, or when the run was begun with other settings:
        each would mix or skip rows silently.
        """
        address = lake.state(PLANS)
        if not lake.exists(address):
            if gold:
                raise LakeError(
                    f"{lake.root}: gold holds {', '.join(gold)}, but its plans ({address}) are "
                    "gone: restore them, or move the gold folder away and start anew"
                )
            plans = Plans(lake, uuid.uuid4().hex, buckets=buckets)
            body = {"settings": settings, "buckets": buckets, "chains": {}}
            plans._append(0, DONE, body)
            return plans
        plans = Plans._restored(lake, settings, whole_table(lake.table(address)))
        if plans.last is not None and not gold:
            raise LakeError(
                f"{lake.root}: its plans say cycle {plans.last.cycle}, but there is no gold: "
                f"remove {lake.root}/state to start anew"
            )
        return plans

    @staticmethod
    def _restored(lake: Lake, settings: str, rows: pa.Table) -> Plans:
        records = sorted(rows.to_pylist(), key=lambda row: (row["cycle"], row["phase"] == DONE))
        if not records:
            raise LakeError(f"{lake.state(PLANS)} is empty: remove it and gold to start anew")
        beginning = json.loads(records[0]["body"])
        begun = beginning["settings"]
        if begun != settings:
            raise LakeError(
                f"{lake.root}: its gold was made with {begun}, not with {settings}: use the same "
                "settings, or replay into another lake"
            )
        plans = Plans(lake, records[0]["run_id"], buckets=beginning["buckets"])
        done = next(row for row in reversed(records) if row["phase"] == DONE)
        plans.chains = _chains_of(json.loads(done["body"])["chains"])
        planned = [row for row in records if row["phase"] == PLANNED]
        if planned:
            plans.last = _plan_of(planned[-1])
            plans.is_done = planned[-1]["cycle"] <= done["cycle"]
        return plans

    def positions(self) -> tuple[Cut, ...]:
        """Where each emitter stands once the last plan is carried out."""
        return () if self.last is None else tuple(cut.rest() for cut in self.last.cuts)

    def record(self, cuts: tuple[Cut, ...], places: Mapping[str, Place]) -> Plan:
        """Write the plan of the next cycle, and return it."""
        assert self.is_done, "a plan is made when the last one is carried out"
        cycle = 1 if self.last is None else self.last.cycle + 1
        plan = Plan(self.run_id, cycle, cuts, dict(places), self.chains)
        body = {
            "cuts": [asdict(cut) for cut in cuts],
            "places": {name: asdict(place) for name, place in places.items()},
            "chains": plan.chains,
        }
        self._append(cycle, PLANNED, body)
        self.last, self.is_done = plan, False
        return plan

    def finish(self, plan: Plan, chains: Mapping[int, tuple[str, ...]]) -> None:
        """Write that the plan's gold is whole, and which files hold the state behind it."""
        self._append(plan.cycle, DONE, {"chains": chains})
        self.chains, self.is_done = chains, True

    def _append(self, cycle: int, phase: str, body: Mapping[str, Any]) -> None:
        record = {
            "run_id": self.run_id,
            "cycle": cycle,
            "phase": phase,
            "recorded_at": datetime.now(UTC),
            "body": json.dumps(body),
        }
        address = self._lake.state(PLANS)
        write_deltalake(
            address,
            pa.Table.from_pylist([record], _SCHEMA),
            mode="append",
            storage_options=self._lake.storage_options or None,
        )
        self._records += 1
        if self._records % FILES_BEFORE_COMPACTION == 0:
            self._lake.table(address).optimize.compact()


def judged_to(lake: Lake) -> dict[str, int]:
    """Per emitter, the moment (µs) up to which gold is whole: that of the last cycle that is done.

    LakeError when no run has begun there.
    """
    address = lake.state(PLANS)
    rows = whole_table(lake.table(address)) if lake.exists(address) else _SCHEMA.empty_table()
    done = rows.filter(pc.equal(rows["phase"], DONE))
    cycle = pc.max(done["cycle"]).as_py()
    if not cycle:
        raise LakeError(
            f"{lake.root} has no gold that was computed live ({address} says so): run "
            f"`tidemark pipeline run --lake {lake.root}` first, or name another lake"
        )
    of_cycle = rows.filter(
        pc.and_(pc.equal(rows["cycle"], cycle), pc.equal(rows["phase"], PLANNED))
    )
    return {cut.emitter: cut.time_to_us for cut in _plan_of(of_cycle.to_pylist()[0]).cuts}


def _plan_of(record: Mapping[str, Any]) -> Plan:
    body = json.loads(record["body"])
    return Plan(
        record["run_id"],
        record["cycle"],
        tuple(Cut(**cut) for cut in body["cuts"]),
        {name: Place(**place) for name, place in body["places"].items()},
        _chains_of(body["chains"]),
    )


def _chains_of(body: Mapping[str, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    return {int(bucket): tuple(names) for bucket, names in body.items()}
