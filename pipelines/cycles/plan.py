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
from pipelines.lake import Lake, sql_over, whole_table
from pipelines.settings import SECOND_US
from pipelines.staging.facts import SHIPPER_SUFFIX
from pipelines.tail import Place

PLANS: Final = "plans"
PLANNED: Final = "PLANNED"
DONE: Final = "DONE"
BEGUN: Final = "BEGUN"
"""Phases of a cycle; BEGUN: gold tables that are new begin with it."""

SNAPSHOT_US: Final = 3600 * SECOND_US
"""A state is kept for each so much of data time."""

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


def begins_of(cuts: Sequence[Cut]) -> dict[str, int]:
    """Where cuts begin: the last seq before them, per emitter and per shipper."""
    begins = {cut.emitter: cut.seq_from for cut in cuts}
    return begins | {f"{cut.emitter}{SHIPPER_SUFFIX}": cut.shipment_from for cut in cuts}


def ends_of(cuts: Sequence[Cut]) -> dict[str, int]:
    """Where cuts end: their last seq, per emitter and per shipper."""
    return begins_of([cut.rest() for cut in cuts])


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


def until(marks: Sequence[Cut], shipments: Iterable[Shipment], to_us: int) -> list[Shipment]:
    """The shipments up to the first of each emitter that reaches `to_us`."""
    reached = {cut.emitter for cut in marks if cut.time_to_us >= to_us}
    ends: dict[str, int] = {}
    left = [one for one in shipments if one.emitter not in reached]
    for one in left:
        if one.time_to_us >= to_us:
            ends[one.emitter] = min(one.seq, ends.get(one.emitter, one.seq))
    return [one for one in left if one.seq <= ends.get(one.emitter, one.seq)]


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
        self.run_id = run_id
        self.buckets = buckets
        """Into how many parts the run's keys are divided, for good."""
        self.last: Plan | None = None
        """The newest plan recorded."""
        self.is_done = True
        """Is the last plan carried out?"""
        self.chains: Mapping[int, tuple[str, ...]] = {}
        """The state's files behind the last cycle that is done."""
        self.begun: dict[str, int] = {}
        """Per gold table of the run, the first cycle that computes it."""
        self._snapshot_hour = 0

    @staticmethod
    def open(lake: Lake, settings: str, *, gold: Sequence[str], buckets: int) -> Plans:
        """The plans of the lake, begun when there is nothing yet, with so many buckets. `gold`:
        names of the gold tables that exist.

        LakeError when gold stands without plans, when a table that was begun is gone, or when the
        run was begun with other settings: each would mix or skip rows silently.
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
        missing = [name for name in plans.begun if name not in gold]
        if missing:
            cycle = 0 if plans.last is None else plans.last.cycle
            raise LakeError(
                f"{lake.root}: its plans say cycle {cycle}, but gold lacks {', '.join(missing)}: "
                "restore them, or remove the folders gold and state to start anew"
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
            plans.last = plan_of(planned[-1])
            plans.is_done = planned[-1]["cycle"] <= done["cycle"]
        for record in records:
            if record["phase"] == BEGUN:
                plans.begun.update(dict.fromkeys(json.loads(record["body"]), record["cycle"]))
        for snapshot in snapshots_of(rows):
            plans._snapshot_hour = max(plans._snapshot_hour, snapshot.judged_us // SNAPSHOT_US)
        return plans

    def begin_tables(self, names: Sequence[str]) -> None:
        """Write that tables are there which the run did not know: they begin with the next cycle,
        whatever lies before it.
        """
        new = [name for name in names if name not in self.begun]
        if not new:
            return
        cycle = 1 if self.last is None else self.last.cycle + 1
        self._append(cycle, BEGUN, new)
        self.begun.update(dict.fromkeys(new, cycle))

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
        """Write that the plan's gold is whole, and which files hold the state behind it.

        The first cycle that ends in another hour of data time is a snapshot: its state is kept for
        replays to start from.
        """
        hour = _newest_us(plan.cuts) // SNAPSHOT_US
        is_snapshot = hour > self._snapshot_hour
        self._snapshot_hour = max(hour, self._snapshot_hour)
        self._append(plan.cycle, DONE, {"chains": chains, "snapshot": is_snapshot})
        self.chains, self.is_done = chains, True

    def begin_at(self, cuts: Sequence[Cut], chains: Mapping[int, tuple[str, ...]]) -> None:
        """Start a new run at given positions and with a given state, as a cycle without rows."""
        assert self.last is None, "positions are chosen before the first cycle"
        self.chains = chains
        self.finish(self.record(tuple(cut.rest() for cut in cuts), {}), chains)

    def _append(self, cycle: int, phase: str, body: Mapping[str, Any] | Sequence[str]) -> None:
        record = {
            "run_id": self.run_id,
            "cycle": cycle,
            "phase": phase,
            "recorded_at": datetime.now(UTC),
            "body": json.dumps(body),
        }
        write_deltalake(
            self._lake.state(PLANS),
            pa.Table.from_pylist([record], _SCHEMA),
            mode="append",
            storage_options=self._lake.storage_options or None,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cycle whose state is kept."""

    plan: Plan
    """What the cycle took: its cuts' ends are where the state stands."""
    chains: Mapping[int, tuple[str, ...]]
    """The state's files behind it."""
    buckets: int

    @property
    def judged_us(self) -> int:
        """No emitter was judged beyond this moment."""
        return _newest_us(self.plan.cuts)


def snapshots_of(rows: pa.Table) -> list[Snapshot]:
    """The snapshots among the records of a run, oldest first."""
    records = rows.to_pylist()
    planned = {row["cycle"]: row for row in records if row["phase"] == PLANNED}
    buckets = next((json.loads(row["body"])["buckets"] for row in records if not row["cycle"]), 0)
    found = []
    for row in sorted(records, key=lambda one: one["cycle"]):
        body = json.loads(row["body"]) if row["phase"] == DONE else {}
        if body.get("snapshot") and row["cycle"] in planned:
            found.append(
                Snapshot(plan_of(planned[row["cycle"]]), _chains_of(body["chains"]), buckets)
            )
    return found


def snapshot_before(lake: Lake, moment_us: int) -> Snapshot | None:
    """The newest kept state of a lake's run that judged nothing beyond a moment; None without."""
    found = [one for one in snapshots_of(records_of(lake)) if one.judged_us <= moment_us]
    return found[-1] if found else None


def settings_of(lake: Lake) -> str | None:
    """The settings with which a lake's run was begun; None without a run."""
    rows = records_of(lake).to_pylist()
    return next((json.loads(row["body"])["settings"] for row in rows if not row["cycle"]), None)


def records_of(lake: Lake) -> pa.Table:
    """All records of a lake's run; none where no run was begun."""
    address = lake.state(PLANS)
    return whole_table(lake.table(address)) if lake.exists(address) else _SCHEMA.empty_table()


def last_done(lake: Lake) -> Plan | None:
    """The last cycle whose gold is whole; None when no cycle of this lake was ever completed.

    By the statistics of the table's files, whatever its age. LakeError when it cannot be read.
    """
    address = lake.state(PLANS)
    if not lake.exists(address):
        return None
    actions = pa.table(lake.table(address).get_add_actions(flatten=True))
    newest = pc.max(actions["max.cycle"]).as_py() if actions.num_rows else None
    for cycle in (newest, newest - 1) if newest else ():
        # The newest may be under way; then the one before it is done.
        if any(row["phase"] == DONE for row in _of_cycle(lake, cycle)):
            return plan_of_cycle(lake, cycle)
    return None


def plan_of_cycle(lake: Lake, cycle: int) -> Plan | None:
    """What a cycle of a lake has taken; None when there was no such cycle."""
    planned = [row for row in _of_cycle(lake, cycle) if row["phase"] == PLANNED]
    return plan_of(planned[0]) if planned else None


def _of_cycle(lake: Lake, cycle: int) -> list[dict[str, Any]]:
    if cycle < 1:
        return []
    address = lake.state(PLANS)
    query = f"SELECT run_id, cycle, phase, body FROM asked WHERE cycle = {cycle}"  # noqa: S608
    rows: list[dict[str, Any]] = sql_over(
        {"asked": lake.table(address)}, query, what=address
    ).to_pylist()
    return rows


def _newest_us(cuts: Sequence[Cut]) -> int:
    return max((cut.time_to_us for cut in cuts), default=0)


def plan_of(record: Mapping[str, Any]) -> Plan:
    """The plan that a record of the table tells."""
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
