"""Records each cycle's plan before its first gold row and closes the plan after its last.

Place in the walk: `next_cuts` decides what the next cycle takes; `Plans` records that in
<lake>/state/plans and hands it back after a restart: how far the run has come, and what a cycle has
left behind.

Invariant: cycle n + 1 is planned only when cycle n is recorded as done, and it is done when all its
gold is committed. So a restart repeats at most one cycle, with the very cut, settings and state
that it had; tables that were committed already are passed over. Gold without plans is refused.
Every record of a cycle that is done says all that the run needs, so opening costs the same at any
age, and older days may go. A record is taken only behind the one that its writer knows as the last:
a driver that was replaced records nothing, and so commits nothing. Absent on purpose: Spark.
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
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.foundation.errors import LakeError
from pipelines.cycles.cuts import Cut
from pipelines.cycles.cycle_records import CYCLES, cycle_records, least_cycle
from pipelines.cycles.snapshots import KeptState, ends_an_hour, keep
from pipelines.lake.lake import GOLD_FOLDER, STATE_FOLDER, Lake, first_line, sql_over
from pipelines.lake.table_writes import ShortLog, append, write_anew
from pipelines.lake.tail import Place

PLANS: Final = "plans"
PLANNED: Final = "PLANNED"
DONE: Final = "DONE"
BEGUN: Final = "BEGUN"
"""Phases of a cycle; BEGUN: gold tables that are new begin with it."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("run_id", pa.string(), False),
        pa.field("cycle", pa.int64(), False),
        pa.field("phase", pa.string(), False),
        pa.field("recorded_at", pa.timestamp("us", tz="UTC"), False),
        pa.field("recorded_date", pa.date32(), False),
        pa.field("body", pa.string(), False),
    ]
)


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
    """Per hash bucket, the files of the state that the cycle starts from, as they are recorded."""
    recorded_at: datetime | None = field(default=None, compare=False)
    """When it was recorded, by the clock of the machine that computes; None before that."""
    gold: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Per gold table, a version that it had when the cycle was done; of one that is done alone."""

    @property
    def rows(self) -> int:
        """Bronze rows it takes."""
        return sum(cut.rows for cut in self.cuts)


class Plans:
    """The table <lake>/state/plans of one run."""

    def __init__(self, lake: Lake, run_id: str, settings: str, *, buckets: int) -> None:
        self._lake = lake
        self.log = ShortLog(lake.state(PLANS), lake.storage_options)
        """The log of the table, to be kept short."""
        self.run_id = run_id
        self.settings = settings
        self.buckets = buckets
        """Into how many parts the run's keys are divided, for good."""
        self.last: Plan | None = None
        """The newest plan recorded."""
        self.is_done = True
        """Is the last plan carried out?"""
        self.chains: Mapping[int, tuple[str, ...]] = {}
        """The state's files behind the last cycle that is done."""
        self.gold: Mapping[str, int] = {}
        """Per gold table, a version that it had then."""
        self._records: int | None = None
        """How many the table has taken, as far as these plans know; None: there is no table yet."""
        self.begun: dict[str, int] = {}
        """Per gold table of the run, the first cycle that computes it."""

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
            plans = Plans(lake, uuid.uuid4().hex, settings, buckets=buckets)
            plans._append(0, DONE, plans._standing())
            return plans
        plans = Plans.restored(lake)
        plans.require(settings, gold=gold)
        return plans

    def require(self, settings: str, *, gold: Sequence[str]) -> None:
        """LakeError when the run was begun with other settings, or lacks a table of its gold."""
        if self.settings != settings:
            raise LakeError(
                f"{self._lake.root}: its gold was made with {self.settings}, not with {settings}: "
                "use the same settings, or replay into another lake"
            )
        missing = [name for name in self.begun if name not in gold]
        if missing:
            cycle = 0 if self.last is None else self.last.cycle
            raise LakeError(
                f"{self._lake.root}: its plans say cycle {cycle}, but gold lacks "
                f"{', '.join(missing)}: restore them, or remove the folders gold and state to "
                "start anew"
            )

    @staticmethod
    def is_of_earlier_version(lake: Lake) -> bool:
        """Was the lake's run begun by a version whose records of a cycle that is done say only
        part of what a run needs to go on?"""
        if not lake.exists(lake.state(PLANS)):
            return False
        done = _last_done_record(_newest_records(lake))
        return done is not None and "settings" not in json.loads(done["body"])

    @staticmethod
    def earlier(lake: Lake) -> Plans:
        """The plans of a lake of an earlier version: settings and buckets are in the record that
        has begun its run; state that could be gone on from there is none. LakeError when they are
        not ours.
        """
        records = _records(lake, f"cycle = 0 OR phase = '{BEGUN}'")
        first = _last_done_record([row for row in records if row["cycle"] == 0])
        beginning = {} if first is None else json.loads(first["body"])
        if first is None or not {"settings", "buckets"} <= set(beginning):
            raise _not_ours(lake)
        plans = Plans(lake, first["run_id"], beginning["settings"], buckets=beginning["buckets"])
        for record in records:
            if record["phase"] == BEGUN:
                plans.begun.update(dict.fromkeys(json.loads(record["body"]), record["cycle"]))
        return plans

    def bring_up(self, chains: Mapping[int, tuple[str, ...]], gold: Mapping[str, int]) -> None:
        """Rewrite the records of an earlier version, in one commit, so that the run is gone on with
        from this state: behind its last cycle that is done, be the next one planned or not.
        """
        address = self._lake.state(PLANS)
        records = _records(self._lake, "true")
        done = _last_done_record(records)
        assert done is not None, "a run begins with a record of a cycle that is done"
        self.chains, self.gold = chains, gold
        for record in records:
            if record is done:
                body = {**json.loads(record["body"]), **self._standing()}
                record["body"] = json.dumps(body)
            elif record["phase"] == PLANNED and record["cycle"] > done["cycle"]:
                body = {**json.loads(record["body"]), "chains": chains}
                record["body"] = json.dumps(body)
            record["recorded_date"] = record["recorded_at"].date()
        write_anew(
            self._lake,
            self._lake.table(address),
            pa.Table.from_pylist(records, _SCHEMA),
            partition_by=["recorded_date"],
            transaction=(PLANS, len(records)),
            refusal="takes no record",
        )

    @staticmethod
    def restored(lake: Lake) -> Plans:
        """The plans of a lake that has some, as the present version writes them. LakeError when
        they are not ours."""
        # Asked first: whatever is recorded after it is noticed when this run records.
        count = _records_of(lake.table(lake.state(PLANS)))
        records = _newest_records(lake)
        done = _last_done_record(records)
        standing = {} if done is None else json.loads(done["body"])
        if done is None or "settings" not in standing:
            raise _not_ours(lake)
        plans = Plans(lake, done["run_id"], standing["settings"], buckets=standing["buckets"])
        plans._records = count
        plans.chains = _chains_of(standing["chains"])
        plans.gold = standing.get("gold", {})
        plans.begun = standing["begun"]
        for record in records:
            if record["phase"] == BEGUN and record["cycle"] > done["cycle"]:
                plans.begun.update(dict.fromkeys(json.loads(record["body"]), record["cycle"]))
        planned = [row for row in records if row["phase"] == PLANNED]
        if planned:
            plans.last = plan_of(planned[-1])
            plans.is_done = planned[-1]["cycle"] <= done["cycle"]
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

    def require_gold(self, versions: Mapping[str, int], newest_cycle: int) -> None:
        """LakeError when a gold table or the plans were put back to an older copy: the run would
        go on without the rows between. `newest_cycle`: the newest of which gold has rows.
        """
        for name, version in self.gold.items():
            require_version(self._lake, name, versions.get(name), version)
        planned = 0 if self.last is None else self.last.cycle
        if newest_cycle > planned:
            raise LakeError(
                f"{self._lake.root}: gold has cycle {newest_cycle}, but its plans say cycle "
                f"{planned}: restore the plans ({self._lake.state(PLANS)}), or "
                f"{self._lake.made_again(self._lake.gold(''))}"
            )

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

    def finish(
        self,
        plan: Plan,
        chains: Mapping[int, tuple[str, ...]],
        gold: Mapping[str, int] | None = None,
    ) -> None:
        """Write that the plan's gold is whole, in these versions of its tables, and which files
        hold the state behind it.

        The first cycle that ends in another hour of data time leaves a state that is kept; it is
        noted first, so whatever is done is noted.
        """
        if ends_an_hour(plan.cuts):
            keep(self._lake, KeptState(plan.run_id, plan.cycle, plan.cuts, chains, self.buckets))
        self.chains = chains
        self.gold = self.gold if gold is None else gold
        self._append(plan.cycle, DONE, self._standing())
        self.is_done = True

    def begin_at(self, cuts: Sequence[Cut], chains: Mapping[int, tuple[str, ...]]) -> None:
        """Start a new run at given positions and with a given state, as a cycle without rows."""
        assert self.last is None, "positions are chosen before the first cycle"
        self.chains = chains
        self.finish(self.record(tuple(cut.rest() for cut in cuts), {}), chains)

    def _standing(self) -> dict[str, Any]:
        """All that the run needs to go on."""
        return {
            "settings": self.settings,
            "buckets": self.buckets,
            "begun": self.begun,
            "gold": self.gold,
            "chains": self.chains,
        }

    def _append(self, cycle: int, phase: str, body: Mapping[str, Any] | Sequence[str]) -> None:
        now = datetime.now(UTC)
        record = {
            "run_id": self.run_id,
            "cycle": cycle,
            "phase": phase,
            "recorded_at": now,
            "recorded_date": now.date(),
            "body": json.dumps(body),
        }
        address = self._lake.state(PLANS)
        known = None if self._records is None else self._lake.table(address)
        if known is not None and _records_of(known) != self._records:
            raise LakeError(
                f"{address} has records that this process did not write: another one computes "
                f"the gold of {self._lake.root}"
            )
        count = (self._records or 0) + 1
        version = None if known is None else known.version()
        try:
            # Of two that record at the same time, the second is refused.
            append(
                self._lake,
                address if known is None else known,
                pa.Table.from_pylist([record], _SCHEMA),
                is_new=known is None,
                partition_by=["recorded_date"],
                transaction=(PLANS, count),
                refusal="takes no record",
            )
            if version is not None:
                self.log.committed(version)
        except DeltaError as error:
            raise LakeError(f"{address} takes no record ({first_line(error)})") from error
        self._records = count


def _records_of(plans: DeltaTable) -> int:
    """How many records the table has taken; 0 as long as an earlier version wrote it."""
    return plans.transaction_version(PLANS) or 0


def _last_done_record(records: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Of records in their order, the last of a cycle that is done."""
    return next((row for row in reversed(records) if row["phase"] == DONE), None)


def _not_ours(lake: Lake) -> LakeError:
    return LakeError(
        f"{lake.state(PLANS)} names no cycle that is done, and not how its run was begun: move "
        f"{lake.root}/{GOLD_FOLDER} and {lake.root}/{STATE_FOLDER} away, and gold is computed anew "
        "from bronze"
    )


def settings_of(lake: Lake) -> str | None:
    """The settings with which a lake's run was begun, by whichever version; None without a run."""
    if not lake.exists(lake.state(PLANS)):
        return None
    is_earlier = Plans.is_of_earlier_version(lake)
    return (Plans.earlier(lake) if is_earlier else Plans.restored(lake)).settings


def last_done(lake: Lake) -> Plan | None:
    """The last cycle whose gold is whole; None when no cycle of this lake was ever completed.

    By the statistics of the table's files, whatever its age. LakeError when it cannot be read.
    """
    if not lake.exists(lake.state(PLANS)):
        return None
    records = _newest_records(lake)
    done = {row["cycle"]: json.loads(row["body"]) for row in records if row["phase"] == DONE}
    planned = [row for row in records if row["phase"] == PLANNED and row["cycle"] in done]
    if not planned:
        return None
    plan = plan_of(planned[-1])
    return replace(plan, gold=done[plan.cycle].get("gold", {}))


def require_version(lake: Lake, name: str, there: int | None, written: int) -> None:
    """LakeError when a gold table is gone (None), or older than a cycle that is done left it."""
    if there is not None and there >= written:
        return
    address = lake.gold(name)
    what = "is gone" if there is None else "is older than its plans"
    now = "" if there is None else f" and not {there}"
    raise LakeError(
        f"{address} {what}: version {written} was written{now}; restore it from a copy of the "
        f"lake, or {lake.made_again(address)}"
    )


def plan_of_cycle(lake: Lake, cycle: int) -> Plan | None:
    """What a cycle of a lake has taken; None when there was no such cycle, or when it is older than
    cycles are kept.
    """
    return plans_among(lake, [cycle]).get(cycle)


def plans_among(lake: Lake, cycles: Iterable[int]) -> dict[int, Plan]:
    """What some cycles have taken, by their numbers; those that there are not are missing. Of one
    whose plan went with its facts it is known how far it came, and nothing else.
    """
    wanted = [cycle for cycle in cycles if cycle >= 1]
    if not wanted:
        return {}
    asked = ", ".join(str(cycle) for cycle in wanted)
    rows = _records(lake, f"cycle IN ({asked}) AND phase = '{PLANNED}'")
    found = {row["cycle"]: plan_of(row) for row in rows}
    for cycle, one in cycle_records(lake, [one for one in wanted if one not in found]).items():
        found[cycle] = Plan(one.run_id, cycle, one.cuts, {}, recorded_at=one.recorded_at)
    return found


def oldest_kept(lake: Lake) -> int:
    """The oldest cycle that can be asked about; 1 for a lake that has all. Those before it were
    dropped by upkeep with the gold of their days, or by an earlier version with their facts.
    """
    tables = (lake.state(CYCLES), lake.state(PLANS))
    least_cycles = [least for one in tables if (least := least_cycle(lake, one)) is not None]
    first = max(1, min(least_cycles, default=1))
    # Of the first cycle in a table of plans maybe only its end was recorded on a day that is kept.
    return first if first == 1 or plans_among(lake, [first]) else first + 1


def cycles_kept(lake: Lake, newest: int) -> str:
    """Which cycles can be asked about, for a sentence that refuses another."""
    oldest = oldest_kept(lake)
    if oldest == 1:
        return f"a complete cycle, 1 to {newest}"
    return f"a complete cycle that is still kept, {oldest} to {newest}"


def _newest_records(lake: Lake) -> list[dict[str, Any]]:
    """The records of the newest cycles, found by the statistics of the table's files, whatever its
    age. One of them is done: of the newest there may be tables that begin only, and the one before
    may be under way.
    """
    actions = pa.table(lake.table(lake.state(PLANS)).get_add_actions(flatten=True))
    newest = pc.max(actions["max.cycle"]).as_py() if actions.num_rows else None
    return [] if newest is None else _records(lake, f"cycle >= {newest - 2}")


def _records(lake: Lake, wanted: str) -> list[dict[str, Any]]:
    """Records by an SQL condition, in the order in which they were written."""
    address = lake.state(PLANS)
    names = "run_id, cycle, phase, recorded_at, body"
    query = f"SELECT {names} FROM asked WHERE {wanted}"  # noqa: S608 - ours
    found = sql_over({"asked": lake.table(address)}, query, what=address).to_pylist()
    return sorted(found, key=lambda row: (row["cycle"], row["phase"] == DONE))


def plan_of(record: Mapping[str, Any]) -> Plan:
    """The plan that a record of the table reports."""
    body = json.loads(record["body"])
    return Plan(
        record["run_id"],
        record["cycle"],
        tuple(Cut(**cut) for cut in body["cuts"]),
        {name: Place(**place) for name, place in body["places"].items()},
        _chains_of(body["chains"]),
        record["recorded_at"],
    )


def _chains_of(body: Mapping[str, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    return {int(bucket): tuple(names) for bucket, names in body.items()}
