"""Replays a past time range into a separate lake and compares it with the existing gold.

Place in the walk: the same cycles as the live run, over bronze that is there already. A range
begins where a state of the live run was kept, at or before `--from`, or with the first row of
bronze. It ends at the first shipped horizon that reaches `--to`, or with the very rows that a cycle
of the live run had taken: what was known then is there again, without late reports.

Invariant: rows of the same range are equal in all columns, unknown values included, whichever way
they were made; a difference names its table, key and columns. Absent on purpose: tolerance; Spark,
whose job is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.foundation.errors import ConfigError, LakeError
from pipelines.base.settings import Evaluation, Pace
from pipelines.base.time_units import moment_at, utc_text
from pipelines.cycles.cuts import Cut, until, until_cuts
from pipelines.cycles.driver import Driver, Job, Until
from pipelines.cycles.keyed_state import file_of, read_recorded
from pipelines.cycles.plan import PLANS, cycles_kept, last_done, plan_of_cycle, settings_of
from pipelines.cycles.snapshots import KeptState, kept_before
from pipelines.cycles.work import KEYED
from pipelines.lake.data_files import DataFiles
from pipelines.lake.lake import Lake, sql_moment, sql_over, sql_text
from pipelines.marts.declared import gold_tables
from pipelines.marts.keys import positions_of
from pipelines.marts.mart import GoldTable

SAMPLES: Final = 3
"""Differing rows reported per table."""


def evaluation_of(
    source: Lake, *, window_ms: int | None = None, slide_ms: int | None = None
) -> Evaluation:
    """The figures that a replay is judged with: those of the lake's own run, else the defaults,
    with what was asked for in their place.
    """
    text = settings_of(source)
    own = Evaluation() if text is None else Evaluation.from_text(text)
    return replace(
        own,
        window_ms=own.window_ms if window_ms is None else window_ms,
        slide_ms=own.slide_ms if slide_ms is None else slide_ms,
    )


def require(source: Lake, target: Lake, *, from_us: int, to: int | Sequence[Cut]) -> None:
    """What a replay needs, looked at before Spark is started.

    LakeError when nothing was shipped to `source` in the range, or when `target` has been computed
    before.
    """
    shipments = source.table(source.bronze("shipments"))
    sql = "SELECT min(event_time_to), max(event_time_to) FROM shipments"
    bounds = sql_over({"shipments": shipments}, sql, what=source.bronze("shipments"))
    first_us, last_us = (pc.cast(column, pa.int64())[0].as_py() for column in bounds.columns)
    is_before = isinstance(to, int) and first_us is not None and to < first_us
    if first_us is None or from_us > last_us or is_before:
        reach = "" if first_us is None else f": it reaches from {_utc(first_us)} to {_utc(last_us)}"
        raise LakeError(f"nothing was shipped in that range{reach} (see bronze/shipments)")
    if target.exists(target.state(PLANS)):
        raise LakeError(f"{target.root} has been computed before: name an empty place for a replay")


def replay(
    job: Job,
    source: Lake,
    target: Lake,
    *,
    from_us: int,
    to: int | Sequence[Cut],
    evaluation: Evaluation,
    pace: Pace,
    say: Callable[[str], None],
) -> tuple[Cut, ...]:
    """Compute gold from `from_us` on from the bronze of `source` into `target`; returns what was
    computed of each emitter.

    to: the moment, µs since 1970 UTC, or the cuts (`cuts_of_cycle`) at whose ends it ends.

    LakeError when nothing was shipped then, or when `target` has been computed before.
    """
    require(source, target, from_us=from_us, to=to)
    kept = kept_before(source, from_us)
    if kept is not None and settings_of(source) != evaluation.as_text():
        say("other settings than the lake's own: computing from the first row of bronze")
        kept = None
    buckets = pace.buckets if kept is None else kept.buckets
    driver = Driver(
        job,
        source,
        target,
        evaluation=evaluation,
        pace=replace(pace, buckets=buckets),
        until=_until(to),
    )
    begins: dict[str, Cut] = {}
    if kept is not None:
        _carry_over(source, target, kept, run_id=driver.plans.run_id)
        driver.plans.begin_at(kept.cuts, kept.chains)
        begins = {cut.emitter: cut.rest() for cut in kept.cuts}
    while (progress := driver.next_cycle()) is not None:
        say(str(progress))
    done = [
        replace(
            begins.get(cut.emitter, _from_the_first(cut)),
            seq_to=cut.seq_to,
            shipment_to=cut.shipment_to,
            time_to_us=cut.time_to_us,
            unused_to=cut.unused_to,
        )
        for cut in driver.plans.positions()
    ]
    if all(cut.is_empty for cut in done):
        raise LakeError("nothing was shipped in that range: look at the times in bronze/shipments")
    return tuple(done)


def cuts_of_cycle(lake: Lake, cycle: int) -> tuple[Cut, ...]:
    """What a complete cycle of a lake's run had taken of each emitter. Raises ConfigError."""
    done = last_done(lake)
    plan = plan_of_cycle(lake, cycle) if done is not None and cycle <= done.cycle else None
    if plan is None:
        known = "this lake has none" if done is None else cycles_kept(lake, done.cycle)
        raise ConfigError("--cycle", cycle, known)
    return plan.cuts


def _utc(moment_us: int) -> str:
    return utc_text(moment_at(moment_us), timespec="seconds")


def _until(to: int | Sequence[Cut]) -> Until:
    if isinstance(to, int):
        return lambda marks, shipments: until(marks, shipments, to)
    return lambda _marks, shipments: until_cuts(shipments, to)


def judged_part(computed: tuple[Cut, ...], live: Lake) -> tuple[Cut, ...]:
    """The part of a replay that the live run has come to; beyond its last cycle only the replay has
    rows.

    LakeError when there is no such part.
    """
    done = last_done(live)
    if done is None:
        raise LakeError(
            f"{live.root} has no gold that was computed live ({live.state(PLANS)} says so): run "
            f"`tidemark pipeline run --lake {live.root}` first, or name another lake"
        )
    marks = {cut.emitter: cut for cut in done.cuts}
    parts = []
    for cut in computed:
        mark = marks.get(cut.emitter)
        if mark is None or mark.time_to_us <= cut.time_from_us:
            continue
        parts.append(
            replace(
                cut,
                seq_to=min(cut.seq_to, mark.seq_to),
                shipment_to=min(cut.shipment_to, mark.shipment_to),
                time_to_us=min(cut.time_to_us, mark.time_to_us),
            )
        )
    if not parts:
        raise LakeError(
            f"nothing to compare: the gold of {live.root} ends before --from; let the live run "
            "catch up, or name an earlier moment"
        )
    return tuple(parts)


def differences(live: Lake, replayed: Lake, cuts: tuple[Cut, ...]) -> Iterator[Difference]:
    """Every gold table of both lakes inside the cuts."""
    return compare(live, replayed, gold_tables(), cuts)


def _from_the_first(cut: Cut) -> Cut:
    return replace(cut, seq_from=0, shipment_from=0, time_from_us=0, unused_from=0)


def _carry_over(source: Lake, target: Lake, state: KeptState, *, run_id: str) -> None:
    """Give the replay the state that was kept."""
    read, write = DataFiles(source), DataFiles(target)
    for bucket, chain in state.chains.items():
        held = f"{source.state(KEYED)}/{state.run_id}/{bucket}"
        for recorded in chain:
            address = f"{target.state(KEYED)}/{run_id}/{bucket}/{file_of(recorded)}"
            write.write(address, read_recorded(read, held, recorded))


@dataclass(slots=True)
class Difference:
    """How two lakes differ in one table."""

    table: str
    rows: int = 0
    """Of the first lake, in the range."""
    missing: int = 0
    """Rows of the first lake whose key the second one has not."""
    surplus: int = 0
    """Rows of the second lake whose key the first one has not."""
    changed: dict[str, int] = field(default_factory=dict)
    """Per column: rows of equal key in which it differs."""
    samples: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """The two are equal."""
        return not (self.missing or self.surplus or self.changed)

    def __str__(self) -> str:
        if self.is_none:
            return f"{self.table}: {self.rows} rows, equal"
        columns = ", ".join(f"{name} in {count}" for name, count in sorted(self.changed.items()))
        changed = f", differing in {columns}" if columns else ""
        return (
            f"{self.table}: {self.rows} rows, {self.missing} missing, {self.surplus} surplus"
            f"{changed}"
        )


def compare(
    one: Lake, other: Lake, tables: Iterable[GoldTable], cuts: Sequence[Cut]
) -> Iterator[Difference]:
    """The tables of both lakes inside the cuts, one after the other."""
    for table in tables:
        found = Difference(table.name)
        for day in _days(one, other, table):
            wanted = f"observed_date = DATE '{day}' AND ({within(table, cuts)})"
            _compare_rows(_rows(one, table, wanted), _rows(other, table, wanted), table, found)
        yield found


def within(table: GoldTable, cuts: Sequence[Cut]) -> str:
    """The SQL condition for the rows of a table that belong to these cuts."""
    parts = ["false"]
    seq, ticks = table.seq_column, table.on_ticks
    for cut in cuts:
        by_tick = (
            f"observed_at > {sql_moment(cut.time_from_us)} "
            f"AND observed_at <= {sql_moment(cut.time_to_us)}"
        )
        by_seq = f"{seq} > {cut.seq_from} AND {seq} <= {cut.seq_to}"
        chosen = f"(({ticks}) AND {by_tick}) OR (NOT ({ticks}) AND {by_seq})"
        parts.append(f"(emitter = {sql_text(cut.emitter)} AND ({chosen}))")
    return " OR ".join(parts)


def _days(one: Lake, other: Lake, table: GoldTable) -> list[str]:
    days: set[str] = set()
    for lake in (one, other):
        address = lake.gold(table.name)
        if lake.exists(address):
            days.update(str(part["observed_date"]) for part in lake.table(address).partitions())
    return sorted(days)


def _rows(lake: Lake, table: GoldTable, wanted: str) -> pa.Table:
    return lake.rows(lake.gold(table.name), wanted, table.columns)


def _compare_rows(ours: pa.Table, theirs: pa.Table, table: GoldTable, found: Difference) -> None:
    found.rows += ours.num_rows
    ours, theirs = _sorted(ours, table), _sorted(theirs, table)
    key = [*table.key, "_number"]
    keys = [_as_text(rows, table.key) for rows in (ours, theirs)]
    positions, new = positions_of(keys[0], keys[1], key)
    is_shared = positions < ours.num_rows
    shared_ours = ours.take(pa.array(positions[is_shared]))
    shared_theirs = theirs.filter(pa.array(is_shared))
    found.surplus += len(new)
    is_missing = np.ones(ours.num_rows, bool)
    is_missing[positions[is_shared]] = False
    found.missing += int(is_missing.sum())
    _add_rows(found, "only in the first", ours.filter(pa.array(is_missing)))
    _add_rows(found, "only in the second", theirs.filter(pa.array(~is_shared)))
    for name in table.column_names:
        differs = _differs(shared_ours[name], shared_theirs[name])
        if differs.any():
            found.changed[name] = found.changed.get(name, 0) + int(differs.sum())
            at = int(np.flatnonzero(differs)[0])
            row: dict[str, Any] = shared_ours.slice(at, 1).to_pylist()[0]
            named = {part: row[part] for part in table.key}
            values = f"{row[name]!r} and {shared_theirs[name][at].as_py()!r}"
            if len(found.samples) < SAMPLES:
                found.samples.append(f"{name} is {values} at {named}")


def _sorted(rows: pa.Table, table: GoldTable) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in table.key]) if rows.num_rows else rows


def _as_text(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys as texts, rows of one key numbered: a key that is there twice is not lost."""
    texts = pa.table({name: pc.fill_null(pc.cast(rows[name], pa.string()), "\0") for name in key})
    if not rows.num_rows:
        return texts.append_column("_number", pa.array([], pa.int64()))
    same = np.ones(rows.num_rows, bool)
    same[0] = False
    for name in key:
        column = texts[name].combine_chunks()
        same[1:] &= np.asarray(pc.equal(column[1:], column[:-1]))
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(rows.num_rows)))
    return texts.append_column("_number", pa.array(np.arange(rows.num_rows) - starts))


def _differs(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where two columns differ; unknown equals unknown."""
    if pa.types.is_nested(ours.type):
        pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), bool, len(ours))
    either = pc.xor(pc.is_null(ours), pc.is_null(theirs))
    return np.asarray(pc.or_(either, pc.fill_null(pc.not_equal(ours, theirs), False)))


def _add_rows(found: Difference, what: str, rows: pa.Table) -> None:
    for row in rows.slice(0, max(0, SAMPLES - len(found.samples))).to_pylist():
        found.samples.append(f"{what}: {row}")
