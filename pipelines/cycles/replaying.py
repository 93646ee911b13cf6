"""Replays a past range into a lake of its own, and compares its gold with what is there.

Place in the walk: the same cycles as the live run, over bronze that is there already. A range
begins where a state of the live run was kept, at or before `--from`, or with the first row of
bronze. It ends at the first shipped horizon that reaches `--to`, or with the very rows that a cycle
of the live run had taken: what was known then is there again, without late reports.

Invariant: rows of the same range are equal in all columns, whichever way they were made. Absent on
purpose: Spark; the job is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from engine.foundation.errors import ConfigError, LakeError
from pipelines.base.settings import Evaluation, Pace
from pipelines.base.time_units import moment_at, utc_text
from pipelines.cycles.comparing import Difference, compare
from pipelines.cycles.cuts import Cut, until, until_cuts
from pipelines.cycles.driver import Driver, Job, Until
from pipelines.cycles.keyed_state import file_of, read_recorded
from pipelines.cycles.plan import PLANS, cycles_kept, last_done, plan_of_cycle, settings_of
from pipelines.cycles.snapshots import KeptState, kept_before
from pipelines.cycles.work import KEYED
from pipelines.lake.data_files import DataFiles
from pipelines.lake.lake import Lake, sql_over
from pipelines.marts.declared import gold_tables


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
