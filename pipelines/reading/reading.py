"""Reads gold and bronze with pushed-down filters that avoid loading unneeded rows.

Place in the walk: below `tm` and the dashboard, above Delta. Conditions are SQL, carried out by
delta-rs: files and row groups are skipped by their statistics. Invariant: every reading is of one
`Moment`; `newest` alone says what the newest state is: the last row of each key, within the period
in which gold has every key at least once, and nothing of what has ended. Absent on purpose: Spark,
caching, and words.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from pipelines.base.settings import LOOK_BACK_US, SECOND_US, SILENCE_US
from pipelines.cycles.plan import require_version
from pipelines.lake.lake import Lake, sql_over, sql_text, with_declared
from pipelines.lake.schemas import QUEUE, arrow_schema
from pipelines.marts.ended_queues import ENDED_QUEUES
from pipelines.marts.group_state import GONE
from pipelines.reading.catalogue import BY_NAME as GOLD
from pipelines.reading.known import GROUP, with_bounds
from pipelines.reading.moment import Moment, Reached, sql_time
from pipelines.reading.revisions import Revision
from pipelines.sentences.stalls import FOLLOWS, TAKEN_OUT
from pipelines.staging.facts import SHIPPER_SUFFIX

LOOK_BACK: Final = timedelta(microseconds=LOOK_BACK_US)
STATE_KEYS: Final = {
    "consumer_lag": QUEUE,
    "group_state": GROUP,
    ENDED_QUEUES.name: (*QUEUE, "emitter"),
}
"""Tables that report a state, and what has one."""
TOLD_ALWAYS: Final = ("consumer_lag", "emitter_health")
"""Tables that have rows as long as anybody reports."""
SILENT_KEPT: Final = timedelta(days=7)
"""For so long a broker that reports nothing any more is shown as one of which nothing is known;
after that it is reported by `emitter_health` alone.
"""


_NAMING: Final = {
    "consumer_lag": (*QUEUE, "seq", "emitter", "observed_at"),
    "group_state": ("state", "emitter"),
}
"""What shows whether a row is of something that has ended."""


class OpenTables:
    """The tables of a lake, opened once and followed. Safe for use by several threads."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._lock = threading.RLock()
        self._open: dict[str, DeltaTable] = {}
        self._run_id: str | None = None

    def follow(self, run_id: str | None) -> None:
        """Forget what was opened when another run began: its tables are others, at the same
        address."""
        with self._lock:
            if run_id != self._run_id:
                self._open.clear()
            self._run_id = run_id

    def address(self, name: str) -> str:
        """Where a gold or bronze table lies."""
        return self.lake.gold(name) if name in GOLD else self.lake.bronze(name)

    def opened(self, name: str) -> DeltaTable | None:
        """The table in its newest version; None when there is none. Raises LakeError."""
        address = self.address(name)
        with self._lock:
            if not self.lake.exists(address):
                self._open.pop(name, None)
                return None
            known = self._open.get(name)
            if known is None or not _followed(known):
                known = self._open[name] = self.lake.table(address)
            return known

    def at(self, name: str, moment: Moment) -> DeltaTable | None:
        """The same for a reading at a moment. LakeError as well when what its cycle has written is
        not there any more: that nothing is left is no answer.
        """
        table = self.opened(name)
        if name in moment.gold:
            there = None if table is None else table.version()
            require_version(self.lake, name, there, moment.gold[name])
        return table

    def oldest_day(self, name: str) -> date | None:
        """The oldest day that a table has rows of; None without any."""
        with self._lock:
            table = self.opened(name)
            parts = table.partitions() if table is not None else []
        days = [str(one["observed_date"]) for one in parts if "observed_date" in one]
        return min((date.fromisoformat(day) for day in days), default=None)

    def version(self, name: str) -> str | None:
        """Identity and version of a table; None when there is none."""
        with self._lock:
            table = self.opened(name)
            return None if table is None else f"{table.metadata().id}/{table.version()}"


def _followed(table: DeltaTable) -> bool:
    """Bring a table up to date; False when it was replaced by another one."""
    try:
        table.update_incremental()
    except (DeltaError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Reading:
    """The tables of a lake, seen at one moment."""

    tables: OpenTables
    moment: Moment
    versions: dict[str, int] = field(default_factory=dict)
    """Delta version of each table that was read."""
    asked_at: datetime | None = None
    """When somebody asked about now; None when it is about an earlier moment."""
    revision: Revision | None = None
    """How the moment, one of the past, was reported otherwise before, or is now."""
    known_at: datetime | None = None
    """Wall clock: of what checks found, only what was kept by then is known; None: all of it."""

    def rows(
        self,
        name: str,
        *conditions: str,
        since: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Rows of a gold table seen at the moment, in the order of their time."""
        wanted = self._where(name, conditions, since)
        sql = f"SELECT {_select(columns or _names(name))} FROM {name} WHERE {wanted}"  # noqa: S608
        shown = columns or _names(name)
        order = [one for one in order_of(name) if one in shown]
        return self.ask(sql, name, columns=columns).sort(order, maintain_order=True)

    def facts(self, name: str, *conditions: str, since: datetime | None = None) -> pl.DataFrame:
        """Rows of a bronze table that the moment's cycle had taken, in the order of their seq."""
        parts = [self.moment.fact_condition(since=since), *conditions]
        sql = f"SELECT {_select(_names(name))} FROM {name} WHERE {' AND '.join(parts)}"  # noqa: S608
        return self.ask(sql, name).sort("event_time", "seq", "emitter")

    def newest(
        self,
        name: str,
        *conditions: str,
        columns: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> pl.DataFrame:
        """The newest state of each key that is still there: its last row at or before the moment.

        A key that was not reported within the look-back (from `since`, when that is later) has
        none: gold reports every key that exists at least once in it.
        """
        if columns is None:
            return self.present(name, self.last_reported(name, *conditions, since=since))
        needed = dict.fromkeys((*columns, *_NAMING[name]))
        rows = self.last_reported(name, *conditions, columns=list(needed), since=since)
        return self.present(name, rows).select(columns)

    def present(
        self, name: str, last: pl.DataFrame, ended: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """Rows reported last of each key, without those of what has ended; `ended`: the last rows
        of ended_queues, where somebody follows them. What a node reported while it led holds until
        the one that leads now reports the same.
        """
        gone = [one for one in self.moment.ended if not one.follows]
        last = last.filter(~pl.col("emitter").is_in(names_of(gone)))
        if name == "group_state":
            return last.filter(pl.col("state") != GONE)
        if ended is None:
            ended = self.last_reported(ENDED_QUEUES.name)
        if not ended.height:
            return last
        return _without_ended(last, ended)

    def last_reported(
        self,
        name: str,
        *conditions: str,
        columns: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> pl.DataFrame:
        """The last row of each key, of what has ended as well."""
        key = STATE_KEYS[name]
        shown = columns or _names(name)
        begin, bounds = self._look_back(since)
        wanted = self._where(name, [*bounds, *conditions], begin)
        over = f"PARTITION BY {_select(key)} ORDER BY observed_at DESC, seq DESC"
        sql = (
            f"SELECT {_select(shown)} FROM (SELECT {_select(dict.fromkeys((*shown, *key)))},"  # noqa: S608
            f" row_number() OVER ({over}) AS nth FROM {name} WHERE {wanted}) WHERE nth = 1"
        )
        found = self.ask(sql, name, columns=columns)
        return found.sort([one for one in key if one in shown])

    def _look_back(self, since: datetime | None) -> tuple[datetime | None, list[str]]:
        """From when on rows are read, and of which emitters only later ones: those that speak are
        reported anew within the look-back before the moment, others were before they fell silent.
        """
        present = self.moment.present
        if present is None:
            return since, []
        begin = present - LOOK_BACK
        if since is not None and since > begin:
            return since, []
        silent = self._silent_from(present)
        if not silent:
            return begin, []
        bounds = [f"observed_at >= {sql_time(begin)}"]
        bounds += [
            f"(emitter = {sql_text(emitter)} AND observed_at >= {sql_time(from_then)})"
            for emitter, from_then in silent.items()
        ]
        return min(silent.values()), [f"({' OR '.join(bounds)})"]

    def held_from(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows without those that `last_reported` would not read again."""
        present = self.moment.present
        if present is None:
            return frame
        begin = pl.lit(present - LOOK_BACK)
        for emitter, from_then in self._silent_from(present).items():
            begin = pl.when(pl.col("emitter") == emitter).then(pl.lit(from_then)).otherwise(begin)
        return frame.filter(pl.col("observed_at") >= begin)

    def _silent_from(self, present: datetime) -> dict[str, datetime]:
        """From when rows count of each emitter that has fallen silent and is still shown."""
        return {
            one.emitter: one.judged_to - LOOK_BACK
            for one in self.moment.silent
            if one.judged_to >= present - SILENT_KEPT
        }

    def windows(
        self,
        name: str,
        *conditions: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> pl.DataFrame:
        """The newest revision of every interval, as it was known at the moment, oldest first.

        With `since` and `until`: those that have a moment in common with that range. The table's
        keys are looked through whole, since an interval may have been open for any time.
        """
        seen = self._where(name, conditions, None)
        kept = ["nth = 1"]
        if since is not None:
            kept.append(f"(closed_at IS NULL OR closed_at >= {sql_time(since)})")
        if until is not None:
            kept.append(f"opened_at <= {sql_time(until)}")
        newest = (
            "SELECT window_id AS newest_id, revision AS newest_revision FROM (SELECT window_id,"  # noqa: S608
            " revision, opened_at, closed_at, row_number() OVER (PARTITION BY window_id ORDER BY"
            f" revision DESC) AS nth FROM {name} WHERE {seen}) WHERE {' AND '.join(kept)}"
        )
        sql = (
            f"SELECT {_select(_names(name))} FROM {name} JOIN ({newest})"  # noqa: S608
            f" ON window_id = newest_id AND revision = newest_revision WHERE {seen}"
        )
        found = self.ask(sql, name).sort("opened_at", "window_id")
        return closed_with_brokers(found, self.moment)

    def of_cluster(self, cluster: str) -> Reading:
        """The same tables at the same moment, rows of one cluster alone."""
        return replace(self, moment=self.moment.of_cluster(cluster))

    def silences(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Stretches in which an emitter shipped nothing for so long that nothing is known of it:
        emitter, since, until."""
        columns = ("emitter", "event_time", "event_time_to")
        sql = (
            'SELECT emitter, known_before AS "event_time", event_time_to FROM (SELECT emitter,'  # noqa: S608
            " event_time_to, lag(event_time_to) OVER (PARTITION BY emitter ORDER BY seq)"
            f" AS known_before FROM shipments WHERE {self.moment.fact_condition(since=start)}"
            f" AND event_time <= {sql_time(end)}) WHERE event_time_to > known_before"
            f" + {self._allowed_silence()}"
        )
        return self.ask(sql, "shipments", columns=columns).select(
            pl.col("emitter").str.strip_suffix(SHIPPER_SUFFIX),
            pl.col("event_time").alias("since"),
            pl.col("event_time_to").alias("until"),
        )

    def _allowed_silence(self) -> str:
        """SQL: how long the emitter of a shipment may ship nothing."""
        longer = [one for one in self.moment.reached if one.silence_us > SILENCE_US]
        rest = f"INTERVAL '{SILENCE_US // SECOND_US} seconds'"
        if not longer:
            return rest
        each = (
            f"WHEN {sql_text(one.emitter + SHIPPER_SUFFIX)}"
            f" THEN INTERVAL '{one.silence_us // SECOND_US} seconds'"
            for one in longer
        )
        return f"(CASE emitter {' '.join(each)} ELSE {rest} END)"

    def distinct(self, name: str, column: str, *conditions: str) -> list[str]:
        """Every value a column has had up to the moment, sorted."""
        seen = self._where(name, conditions, None)
        sql = f'SELECT DISTINCT "{column}" FROM {name} WHERE {seen} AND "{column}" IS NOT NULL'  # noqa: S608
        values: list[str] = self.ask(sql, name, columns=[column])[column].to_list()
        return sorted(values)

    def has(self, name: str, *conditions: str) -> bool:
        """Is there a row seen at the moment for which the conditions hold?"""
        column = "observed_at"
        seen = self._where(name, conditions, None)
        sql = f'SELECT "{column}" FROM {name} WHERE {seen} LIMIT 1'  # noqa: S608
        return self.ask(sql, name, columns=[column]).height > 0

    def known_from(self) -> datetime | None:
        """The earliest moment that the lake still reports on; None when it reports on none."""
        found: list[datetime] = []
        for name in TOLD_ALWAYS:
            oldest = self.tables.oldest_day(name)
            if oldest is not None:
                of_day = self._where(name, [f"observed_date = DATE '{oldest}'"], None)
                sql = f'SELECT min("observed_at") AS observed_at FROM {name} WHERE {of_day}'  # noqa: S608
                found.extend(
                    self.ask(sql, name, columns=["observed_at"])["observed_at"].drop_nulls()
                )
        return min(found, default=None)

    def ask(self, sql: str, name: str, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """What a query over one declared table brings, in the declared types of its columns."""
        declared = _columns(name)
        if columns is not None:
            by_name = {column.name: column for column in declared}
            declared = [by_name[one] for one in columns]
        schema = arrow_schema(declared)
        table = self.tables.at(name, self.moment)
        if table is None:
            return pl.DataFrame(pl.from_arrow(schema.empty_table()))
        self.versions[name] = table.version()
        source = with_declared(table, name, _columns(name))
        sql = sql.replace(f"FROM {name} ", f"FROM {source} ")
        found = sql_over({name: table}, sql, what=self.tables.address(name))
        frame = pl.DataFrame(pl.from_arrow(found.cast(schema)))
        return with_bounds(frame) if name == "group_state" else frame

    def summed_up(
        self,
        name: str,
        figures: Mapping[str, str],
        *conditions: str,
        by: Sequence[str],
        since: datetime | None = None,
    ) -> pl.DataFrame:
        """A row a group of a table's rows, of gold or bronze: `by`, and figures, by their names the
        SQL that makes them. No rows, and no types, while there is no such table."""
        table = self.tables.at(name, self.moment)
        if table is None:
            names = dict.fromkeys((*by, *figures), pl.Null)
            return pl.DataFrame(schema=names)
        self.versions[name] = table.version()
        source = with_declared(table, name, _columns(name))
        made = ", ".join(f'{sql} AS "{figure}"' for figure, sql in figures.items())
        sql = (
            f"SELECT {_select(by)}, {made} FROM {source}"  # noqa: S608 - ours
            f" WHERE {self._seen_of(name, conditions, since)} GROUP BY {_select(by)}"
        )
        found = sql_over({name: table}, sql, what=self.tables.address(name))
        return pl.DataFrame(pl.from_arrow(found))

    def _seen_of(self, name: str, conditions: Iterable[str], since: datetime | None) -> str:
        if name in GOLD:
            return self._where(name, conditions, since)
        return " AND ".join([self.moment.fact_condition(since=since), *conditions])

    def _where(self, name: str, conditions: Iterable[str], since: datetime | None) -> str:
        return " AND ".join([self.moment.condition(GOLD[name], since=since), *conditions])


def _without_ended(last: pl.DataFrame, ended: pl.DataFrame) -> pl.DataFrame:
    """The last rows of queues, without those that lie before an end of their queue: by seq where
    one emitter reported both, by time where another node of the broker did.
    """
    ends = ended.select(*QUEUE, ended_by="emitter", ended_seq="seq", ended_at="observed_at")
    is_over = (
        pl.when(pl.col("emitter") == pl.col("ended_by"))
        .then(pl.col("seq") <= pl.col("ended_seq"))
        .otherwise(pl.col("observed_at") < pl.col("ended_at"))
    )
    over = last.join(ends, on=QUEUE).filter(is_over)
    return last.join(over, on=QUEUE, how="anti", maintain_order="left")


def names_of(emitters: Iterable[Reached]) -> list[str]:
    """Their names."""
    return [one.emitter for one in emitters]


def closed_with_brokers(windows: pl.DataFrame, moment: Moment) -> pl.DataFrame:
    """The newest revisions of intervals: those that are open still of a broker that was taken out
    for good, or of a node that does not lead any more, were closed when it was reported on last.
    """
    ended = {one.emitter: one.judged_to for one in moment.ended}
    if not ended:
        return windows
    followers = [one.emitter for one in moment.ended if one.follows]
    is_over = pl.col("closed_at").is_null() & pl.col("emitter").is_in(list(ended))
    time = windows.schema["closed_at"]
    last = pl.col("emitter").replace_strict(ended, default=None, return_dtype=time)
    said = {"closed_at": pl.max_horizontal("opened_at", last), "state": pl.lit("CLOSED")}
    said["evidence"] = (
        pl.when(pl.col("emitter").is_in(followers))
        .then(pl.format(FOLLOWS, pl.col("evidence")))
        .otherwise(pl.format(TAKEN_OUT, pl.col("evidence")))
    )
    return windows.with_columns(
        pl.when(is_over).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in said.items()
        if name in windows.columns
    )


def judged_by(reading: Reading, at: datetime) -> Moment:
    """The moment `at` of the past: of the emitters of which something had been judged by then.

    Judged is what has a row in the look-back, or any row in emitter_health, which reports on every
    shipment; of days that are not kept there, nothing is said.
    """
    moment = reading.moment.capped(at)
    past = replace(reading, moment=moment)
    known: set[str] = set()
    for name in STATE_KEYS:
        since = f"observed_at >= {sql_time(at - LOOK_BACK)}"
        known |= set(past.distinct(name, "emitter", since))
    oldest = reading.tables.oldest_day("emitter_health")
    if oldest is None or at.date() < oldest:
        return moment
    if len(known) < len(moment.reached):
        known |= set(past.distinct("emitter_health", "emitter"))
    return moment.only(known)


def present_causes(reading: Reading, *conditions: str) -> pl.DataFrame:
    """Why groups are behind at the moment: of each group the rows of the tick at which its causes
    were reported last; none of a group that was reported to be behind no more.
    """
    newest = reading.moment.newest
    since = None if newest is None else newest - LOOK_BACK
    rows = reading.rows("lag_causes", *conditions, since=since)
    last = pl.col("observed_at") == pl.col("observed_at").max().over("emitter", "group")
    present = rows.filter(last).filter(pl.col("cause") != "NONE")
    return present.sort("group", "broker", "cause")


def order_of(name: str) -> list[str]:
    """The columns by which rows of a gold table follow each other. Its key comes last: what is
    equal to there lies in the order of files, which upkeep changes.
    """
    columns = dict.fromkeys(("observed_at", "seq", *GOLD[name].key))
    return [one for one in columns if one in GOLD[name].column_names]


def equals(column: str, value: str | int) -> str:
    """An SQL condition."""
    return f'"{column}" = {value if isinstance(value, int) else sql_text(value)}'


def _select(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _columns(name: str) -> Sequence[Column]:
    return GOLD[name].columns if name in GOLD else BRONZE[name].columns


def _names(name: str) -> list[str]:
    return [column.name for column in _columns(name)]
