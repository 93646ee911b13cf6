"""Takes over a lake from an earlier version, keeping its gold but rebuilding its state.

Place in the walk: before the driver of a live run. Bronze is judged once more, up to where the last
complete cycle ended, in a place of its own; its state is what the next cycle starts from, its gold
is thrown away. The run keeps its name, settings, buckets and numbers of cycles.

Invariant: no row of gold is changed, and none is written that is seen at a cycle of the earlier
version: what its intervals are continued with is seen one microsecond behind. An interval that is
not open to the present rules is closed. A lake is taken over by one record: who is killed before it
begins again. Absent on purpose: the shapes of earlier states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.base.settings import Evaluation, Pace
from pipelines.base.time_units import moment_at
from pipelines.cycles.cuts import until_cuts
from pipelines.cycles.driver import Driver, Job
from pipelines.cycles.gold_files import PARTITION, GoldTables
from pipelines.cycles.keyed_state import file_of, read_recorded
from pipelines.cycles.plan import PLANS, Plan, Plans, last_done
from pipelines.cycles.work import KEYED
from pipelines.lake.data_files import DataFiles
from pipelines.lake.lake import Lake, sql_over, with_declared
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.small_files import remove_folder
from pipelines.lake.table_writes import append
from pipelines.marts.declared import gold_tables
from pipelines.marts.mart import GoldTable

AGAIN: Final = "judged_again"
"""Below the lake's state: what comes of judging bronze once more, as long as that takes."""

Ends = Mapping[str, tuple[datetime, int]]
"""Per emitter, how far the last complete cycle has judged it, and its newest row."""


def live_driver(
    job: Job,
    lake: Lake,
    *,
    evaluation: Evaluation,
    pace: Pace,
    say: Callable[[str], None] = lambda _: None,
) -> Driver:
    """The driver of a lake's live run, whichever version has begun it. Raises LakeError."""
    if Plans.is_of_earlier_version(lake):
        take_over(job, lake, evaluation=evaluation, pace=pace, say=say)
    again = _again(lake)
    if again.exists(again.state(PLANS)):  # Whoever took the lake over did not come to that.
        remove_folder(again)
    return Driver(job, lake, lake, evaluation=evaluation, pace=pace)


def take_over(
    job: Job, lake: Lake, *, evaluation: Evaluation, pace: Pace, say: Callable[[str], None]
) -> None:
    """Bring a lake to where the present version goes on. LakeError for other settings than those of
    the lake's run, and when gold is not whole."""
    gold = GoldTables(lake, gold_tables())
    plans = Plans.earlier(lake)
    plans.require(evaluation.as_text(), gold=gold.present())
    last = last_done(lake)
    chains: dict[int, tuple[str, ...]] = {}
    again = _again(lake)
    if last is not None:
        say(
            f"the gold of {lake.root} is of an earlier version: it stays up to cycle {last.cycle}, "
            "and its bronze is read once more to go on from there"
        )
        cuts = last.cuts
        driver = Driver(
            job,
            lake,
            again,
            evaluation=evaluation,
            pace=replace(pace, buckets=plans.buckets),
            until=lambda _marks, shipments: until_cuts(shipments, cuts),
        )
        while (progress := driver.next_cycle()) is not None:
            say(f"once more: {progress}")
        chains = _carry_over(again, lake, driver.plans, run_id=plans.run_id)
    gold.create()
    if last is not None:
        for table in gold_tables():
            if table.revised:
                _continue_intervals(lake, again, table, last)
    whole = GoldTables(lake, gold_tables())
    whole.create()
    plans.bring_up(chains, whole.versions())


def _again(lake: Lake) -> Lake:
    return Lake(lake.state(AGAIN), lake.storage_options)


def _carry_over(
    source: Lake, target: Lake, computed: Plans, *, run_id: str
) -> dict[int, tuple[str, ...]]:
    """Give the run the state that was computed; what is there already stays."""
    read, write = DataFiles(source), DataFiles(target)
    for bucket, chain in computed.chains.items():
        held = f"{source.state(KEYED)}/{computed.run_id}/{bucket}"
        for recorded in chain:
            address = f"{target.state(KEYED)}/{run_id}/{bucket}/{file_of(recorded)}"
            if not write.is_there(address):
                write.write(address, read_recorded(read, held, recorded))
    return dict(computed.chains)


def _continue_intervals(lake: Lake, again: Lake, table: GoldTable, last: Plan) -> None:
    """Append what makes the newest revisions of a table's intervals those of the present rules."""
    there, app = lake.table(lake.gold(table.name)), f"{table.name}/{last.run_id}/taken over"
    if there.transaction_version(app) is not None:
        return
    ends = {cut.emitter: (moment_at(cut.time_to_us), cut.seq_to) for cut in last.cuts}
    rows = continued(_newest(lake, table), _newest(again, table), ends)
    if rows.is_empty():
        return
    schema = arrow_schema(table.columns)
    append(
        lake,
        there,
        rows.select(schema.names).to_arrow().cast(schema),
        partition_by=[PARTITION],
        transaction=(app, last.cycle),
        refusal="takes no commit",
    )


def _newest(lake: Lake, table: GoldTable) -> pl.DataFrame:
    """The newest revision of every interval, whenever it is seen."""
    name, address = table.name, lake.gold(table.name)
    if not lake.exists(address):
        return pl.DataFrame(pl.from_arrow(arrow_schema(table.columns).empty_table()))
    handle = lake.table(address)
    source = with_declared(handle, name, table.columns)
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    sql = (
        f"SELECT {names} FROM (SELECT *, row_number() OVER (PARTITION BY window_id ORDER BY"  # noqa: S608
        f" revision DESC) AS nth FROM {source}) WHERE nth = 1"
    )
    found = sql_over({name: handle}, sql, what=address)
    return pl.DataFrame(pl.from_arrow(found.cast(arrow_schema(table.columns))))


def continued(old: pl.DataFrame, new: pl.DataFrame, ends: Ends) -> pl.DataFrame:
    """The revisions that follow the newest ones of an earlier version: what the present rules say
    of an interval at the end of its last cycle, where they say otherwise.

    Intervals that the earlier version has reported on behind that cycle stay as they are.
    """
    known = {row["window_id"]: row for row in old.iter_rows(named=True)}
    newer = {row["window_id"]: row for row in new.iter_rows(named=True)}
    rows = []
    for name in sorted({*known, *newer}):
        before, now = known.get(name), newer.get(name)
        row = before or now
        assert row is not None
        end = ends.get(row["emitter"])
        if end is None or (before is not None and before["observed_at"] > end[0]):
            continue
        next_revision = 1 if before is None else before["revision"] + 1
        if now is not None and now["state"] == "OPEN":
            if now["revision"] >= next_revision:
                rows.append(_seen_behind(now, end))
                continue
            if now["revision"] == next_revision - 1:
                continue  # The next revision is the one that the present rules will report.
        if before is not None and before["state"] == "OPEN":
            over = now if now is not None and now["state"] == "CLOSED" else before
            rows.append(_seen_behind(_closed(over, end, next_revision), end))
    return pl.DataFrame(rows, schema=old.schema)


def _closed(
    row: Mapping[str, object], end: tuple[datetime, int], revision: int
) -> dict[str, object]:
    closed_at = row["closed_at"] or end[0]
    return {**row, "state": "CLOSED", "closed_at": closed_at, "revision": revision}


def _seen_behind(row: Mapping[str, object], end: tuple[datetime, int]) -> dict[str, object]:
    """A row as it is seen by the next cycle, and by none before it."""
    at = end[0] + timedelta(microseconds=1)
    moments = {"observed_at": at, "valid_from": at, "observed_date": at.date(), "seq": end[1]}
    return {**row, **moments}
