"""Reads lake data for pages, each as of one moment, and caches results by cycle.

Place in the walk: after gold. A page takes a `Seen`, the lake at the last complete cycle, and asks
it (`rows`, `present`, `cells`), never tables; what only bronze holds goes through `topic_data`.
Invariant: no Spark, no writing; everything is of its moment. A table that does not exist yet is an
empty frame of its schema; one that is damaged is a LakeError, which a page shows. Of an interval
the newest revision alone is shown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from dashboards.reads.cache import FrameCache
from dashboards.reads.lag_series import held_cells
from dashboards.url_state import Span, View
from engine.foundation.errors import LakeError
from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from pipelines.lake.lake import Lake, declared_rows, first_line, sql_text
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import BY_NAME as GOLD
from pipelines.reading.catalogue import REPORTS
from pipelines.reading.check_results import recent_results, trust_at
from pipelines.reading.emitters import emitters_at, silent_clients
from pipelines.reading.fail_overs import fail_overs_in
from pipelines.reading.incremental import LAG_CELLS, Followed
from pipelines.reading.known import stood_until
from pipelines.reading.left_topics import left_topics
from pipelines.reading.long_ranges import lag_points, span_for
from pipelines.reading.moment import Moment, last_complete, sql_time
from pipelines.reading.reading import LOOK_BACK, OpenTables, Reading, equals, present_causes
from pipelines.reading.trust import Trust
from pipelines.sentences.new_lives import NewLife, new_lives
from pipelines.sentences.pop_groups import PopGroup, pop_groups

OWN_TABLES: Final = ("dq_results", "dq_failures")
"""Tables that speak of runs of their own, not of cycles."""
BROKER_KINDS: Final = ("BOOT", "SHUTDOWN", "ROLE_CHANGE", "SPOOL_LOSS", "DISK_FULL")
"""Events of a broker that a reader of lag must know."""
ROWS_MAX: Final = 2_000_000
"""Rows one question may bring into this process; what would bring more must be asked coarser."""
MOMENTS_MAX: Final = 8
"""Moments that open pages may still be at."""
NO_MOMENT: Final = Moment("", 0, ())

Question = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the lake is like now: if two pulses are equal, every page is still true."""

    moment: Moment | None
    """The last complete cycle; None when there is none."""
    checks: tuple[str | None, ...]
    """Identity and version of the tables of checks."""

    @property
    def first_run(self) -> bool:
        """No cycle was ever completed here."""
        return self.moment is None

    @property
    def data_end(self) -> datetime | None:
        """How far the emitters that speak have been judged."""
        return self.moment.judged_to if self.moment is not None else None

    @property
    def token(self) -> str:
        """A text that changes when a page might."""
        place = f"{self.moment.run_id}/{self.moment.cycle}" if self.moment is not None else "none"
        waited = f" {self.moment.waited}" if self.moment is not None and self.moment.waited else ""
        return f"{place}{waited} {self.checks}"


class LakeData:
    """The tables of one lake. Safe for use by several threads."""

    def __init__(self, lake: Lake, cache: FrameCache | None = None) -> None:
        self.lake = lake
        self._cache = cache or FrameCache()
        self._tables = OpenTables(lake)
        self._lock = threading.Lock()
        self._moments: OrderedDict[str, Pulse] = OrderedDict()
        self.followed = Followed()

    def pulse(self) -> Pulse:
        """Look how far the lake has come."""
        moment = last_complete(self.lake)
        self._tables.follow(moment.run_id if moment is not None else None)
        pulse = Pulse(moment, tuple(self._tables.version(name) for name in OWN_TABLES))
        with self._lock:
            self._moments[pulse.token] = pulse
            self._moments.move_to_end(pulse.token)
            while len(self._moments) > MOMENTS_MAX:
                self._moments.popitem(last=False)
        return pulse

    def pulse_of(self, token: str | None) -> Pulse:
        """The pulse of a page that has seen it already, so that all its parts are of one moment;
        the present one when it is not known any more."""
        with self._lock:
            known = self._moments.get(token or "")
        return known or self.pulse()

    def reports_version(self) -> str:
        """A text that changes when a report was made; of a table that cannot be read, why: only the
        pages of reports have to say so."""
        try:
            return self._tables.version(REPORTS.name) or ""
        except LakeError as error:
            return str(error)

    def seen(self, pulse: Pulse | None = None) -> Seen:
        """The lake at a pulse's moment; without any complete cycle all its tables are empty."""
        pulse = pulse or self.pulse()
        return Seen(self, pulse, Reading(self._tables, pulse.moment or NO_MOMENT))

    def kept(self, key: Hashable, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A frame by everything it depends on."""
        return self._cache.get(key, compute)

    def scanned(self, table: str, moment: Moment, ask: Question) -> pl.DataFrame:
        """What `ask` makes of a table's rows up to the moment."""
        opened = self._tables.at(table, moment)
        if opened is None:
            empty = arrow_schema(_columns(table)).empty_table()
            return ask(pl.DataFrame(pl.from_arrow(empty)).lazy()).collect()
        try:
            rows = pl.scan_pyarrow_dataset(declared_rows(opened, _columns(table)))
            frame = ask(rows.filter(_seen(table, moment))).collect()
        except (DeltaError, OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            again = ", or replay the table" * (table in GOLD)
            raise LakeError(
                f"rows of {self._tables.address(table)} cannot be read ({first_line(error)}): a "
                f"data file is missing or damaged; restore it{again}"
            ) from error
        return _bounded(table, frame)


@dataclass(frozen=True, slots=True)
class Seen:
    """The lake at one moment, as pages ask it."""

    data: LakeData
    pulse: Pulse
    reading: Reading
    whole: Seen | None = None
    """The same moment of all clusters, when this is of one."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that the lake holds, whichever this is of."""
        return self.moment.clusters

    def of_cluster(self, cluster: str) -> Seen:
        """The same, of one cluster: nothing that any other reported is in any answer."""
        whole = self.whole or self
        return Seen(self.data, self.pulse, whole.reading.of_cluster(cluster), whole)

    @property
    def moment(self) -> Moment:
        """The moment everything here is of."""
        return self.reading.moment

    def at(self, end: datetime) -> Seen:
        """The same cycle, asked about an earlier moment."""
        newest = self.moment.present
        if newest is None or end >= newest:
            return self
        if self.whole is not None:
            return self.whole.at(end).of_cluster(self.moment.cluster or "")
        earlier = Reading(self.reading.tables, self.moment.capped(end), self.reading.versions)
        return Seen(self.data, self.pulse, earlier)

    def rows(self, table: str, start: datetime, end: datetime) -> pl.DataFrame:
        """Rows that speak of moments in [start, end], in order."""
        return self._read(
            (table, "rows", start, end),
            lambda: self.reading.rows(table, _until(end), since=start),
        )

    def group_rows(self, table: str, group: str, start: datetime, end: datetime) -> pl.DataFrame:
        """The same, of one group."""
        return self._read(
            (table, "group", group, start, end),
            lambda: self.reading.rows(table, equals("group", group), _until(end), since=start),
        )

    def pop_groups(
        self, end: datetime, *, topic: str | None = None
    ) -> dict[tuple[str, str], PopGroup]:
        """How groups read by POP at the range's end; on one topic."""
        rows = self.rows("pop_progress", end - LOOK_BACK, end)
        return pop_groups(rows if topic is None else rows.filter(pl.col("topic") == topic))

    def new_lives(
        self, start: datetime, end: datetime, *, group: str | None = None, topic: str | None = None
    ) -> list[NewLife]:
        """Topics that were made again, and what groups passed over of them; of one topic, or what
        one group passed over."""
        lives = self.rows("topic_lives", start, end)
        passed = self.rows("passed_over_messages", start, end)
        if topic is not None:
            lives, passed = (rows.filter(pl.col("topic") == topic) for rows in (lives, passed))
        if group is not None:
            passed = passed.filter(pl.col("group") == group)
            lives = lives.join(passed, on=["cluster", "topic"], how="semi")
        return new_lives(lives.iter_rows(named=True), passed.iter_rows(named=True))

    def lag_of(self, groups: Sequence[str], start: datetime, end: datetime) -> pl.DataFrame:
        """Lag of some groups from a look-back before `start` on: what was reported before the range
        may hold into it. A long range is read from roll-ups."""
        if self.whole is not None:
            return self._own(self.whole.lag_of(groups, start, end))
        begin = start - LOOK_BACK
        span_s = span_for(end - start)

        def compute() -> pl.DataFrame:
            names = ", ".join(sql_text(group) for group in groups) or "NULL"
            if span_s is not None:
                of_groups = f'"group" IN ({names})'
                return lag_points(self.reading, span_s, of_groups, since=begin, until=end)
            if self._is_now and end >= (self.moment.present or end):
                return self.data.followed.lag_of(groups, begin, self.reading)
            return self.reading.rows(
                "consumer_lag",
                f'"group" IN ({names})',
                _until(end),
                since=begin,
                columns=LAG_CELLS,
            )

        return self._read(("consumer_lag", "lag of", tuple(groups), start, end), compute)

    @property
    def _is_now(self) -> bool:
        """Is this the moment of the pulse itself, not an earlier one?"""
        return self.moment == self.pulse.moment

    def present(self, table: str, start: datetime, end: datetime) -> pl.DataFrame:
        """The newest revision of every interval that meets the range."""
        return self._read(
            (table, "present", start, end),
            lambda: self.reading.windows(table, since=start, until=end),
        )

    def stalls(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Stalled windows that meet the range, with what is true of them at the moment."""
        return stood_until(
            self.present("stalled_windows", start, end), self.newest_lag(), self.moment
        )

    def everything(self, table: str) -> pl.DataFrame:
        """All rows of a small table."""
        return self._read((table, "everything"), lambda: self.reading.rows(table))

    def checks(self) -> pl.DataFrame:
        """What runs of the checks have found lately."""
        newest = replace(self.reading, moment=self.pulse.moment or self.moment)
        key = ("dq_results", "recent", self.pulse.checks)  # Not by cycle: a run comes seldom.
        return self.data.kept(key, lambda: recent_results(newest))

    def failing_rows(self, since: datetime) -> pl.DataFrame:
        """Rows that broke a check in runs about data time after a moment."""
        return self._read(
            ("dq_failures", since), lambda: self.reading.rows("dq_failures", since=since)
        )

    def trust(self, since: datetime | None = None) -> Trust:
        """What critical failures withhold of verdicts about the moment, or about a range of moments
        that begins with `since` and ends there."""

        def keep(question: Hashable, ask: Callable[[], pl.DataFrame]) -> pl.DataFrame:
            return self.data.kept((question, self.pulse.checks), ask)  # Not by cycle, as above.

        return trust_at(self.reading, since=since, keep=keep)

    def cells(self, span: Span, every: timedelta, groups: Sequence[str]) -> pl.DataFrame:
        """Largest known time lag and largest lag per group and bucket of the range."""
        until = min(span.end, self.moment.present or span.end)

        def compute() -> pl.DataFrame:
            lag = self.lag_of(groups, span.start, span.end)
            silences = self.silences(span.start - LOOK_BACK, span.end)
            found = held_cells(lag.lazy(), until=until, step=every, silences=silences).collect()
            return found.filter(pl.col("bucket") > span.start - every)

        return self._read(("cells", tuple(groups), span.start, span.end, every), compute)

    def newest_lag(self) -> pl.DataFrame:
        """The newest row of every queue a group reads."""
        return self.newest_of("consumer_lag")

    def newest_states(self) -> pl.DataFrame:
        """The newest state of every group on every broker."""
        return self.newest_of("group_state")

    def causes(self, group: str) -> pl.DataFrame:
        """Why the group is behind at the moment, a row a cause and broker."""
        place = f'"group" = {sql_text(group)}'
        return self._read(("lag_causes", group), lambda: present_causes(self.reading, place))

    def lifecycle(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Restarts, role changes and stops of brokers in the range."""
        kinds = ", ".join(sql_text(kind) for kind in BROKER_KINDS)
        return self._read(
            ("lifecycle", start, end),
            lambda: self.reading.facts(
                "lifecycle",
                f"kind IN ({kinds}) AND event_time <= {sql_time(end)}",
                since=start,
            ),
        )

    def fail_overs(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Changes of leaders in the range, and what they made groups read again at most."""
        ask = lambda: fail_overs_in(self.reading, start, end)  # noqa: E731
        return self._read(("fail-overs", start, end), ask)

    def emitters(self) -> pl.DataFrame:
        """Emitters, and what is known of each."""
        return self._read(("emitters",), lambda: emitters_at(self.reading))

    def left_topics(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Topics that groups have left in the range."""
        ask = lambda: left_topics(self.reading, start, end)  # noqa: E731
        return self._read(("left topics", start, end), ask)

    def silent_clients(self, group: str) -> pl.DataFrame:
        """Which clients of a group say nothing of what they hold."""
        place = equals("group", group)
        return self._read(("silent clients", group), lambda: silent_clients(self.reading, place))

    def silences(self, start: datetime, end: datetime) -> pl.DataFrame:
        """Stretches in which nothing is known of an emitter: emitter, since, until."""
        return self._read(("silences", start, end), lambda: self.reading.silences(start, end))

    def answer(self, table: str, question: Hashable, ask: Question) -> pl.DataFrame:
        """What `ask` makes of a table's rows; `question` names everything that `ask` depends on."""
        return self._read((table, question), lambda: self.data.scanned(table, self.moment, ask))

    def _own(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of this cluster, of those of all: what is followed is followed once."""
        return rows.filter(pl.col("cluster") == self.moment.cluster)

    def newest_of(self, table: str) -> pl.DataFrame:
        """The newest row of every key of a table of states."""
        if self.whole is not None:
            return self._own(self.whole.newest_of(table))

        def compute() -> pl.DataFrame:
            if self._is_now:
                return self.data.followed.newest(table, self.reading)
            return self.reading.newest(table)

        return self._read((table, "newest"), compute)

    def _read(self, question: Hashable, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        key = (self.pulse.token, self.moment, question)
        return self.data.kept(key, lambda: _bounded(str(question), compute()))


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the lake: what there is, what the URL asks for, and the range it comes to."""

    pulse: Pulse
    view: View
    span: Span
    seen: Seen
    """The lake at the pulse's moment; of one cluster, when the URL asks for it."""

    @property
    def data(self) -> Seen:
        """The lake at the end of the range."""
        return self.seen.at(self.span.end) if self.view.closed else self.seen

    @property
    def names_clusters(self) -> bool:
        """Does the lake hold several clusters, so that what is shown says of which it is?"""
        return len(self.seen.clusters) > 1

    def of_cluster(self, cluster: str) -> Look:
        """The same look at one cluster; links from it stay there."""
        view = self.view.of_cluster(cluster)
        return replace(self, view=view, seen=self.seen.of_cluster(cluster))

    def among(self, has: Callable[[Look], bool]) -> Look | tuple[str, ...]:
        """The look at the one cluster for which `has` holds; when it holds for several, their
        names: a page of one thing never shows two. The lake as it is, when it holds for none."""
        if self.view.cluster or not self.names_clusters:
            return self
        looks = [self.of_cluster(name) for name in self.seen.clusters]
        found = [look for look in looks if has(look)]
        if len(found) > 1:
            return tuple(look.view.cluster for look in found)
        return found[0] if found else self

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything that a page's content depends on, beside the page itself."""
        return self.pulse.token, self.span.start, self.span.end, self.view


def _bounded(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    if frame.height > ROWS_MAX:
        raise LakeError(
            f"{table} answers with {frame.height:,} rows, more than {ROWS_MAX:,}: "
            "choose a shorter range"
        )
    return frame


def _columns(table: str) -> Sequence[Column]:
    return GOLD[table].columns if table in GOLD else BRONZE[table].columns


def _until(end: datetime) -> str:
    return f"observed_at <= {sql_time(end)} AND observed_date <= DATE '{end:%Y-%m-%d}'"


def _seen(table: str, moment: Moment) -> pl.Expr:
    """Rows of emitters that had been judged so far."""
    at = "observed_at" if table in GOLD else "event_time"
    each = [
        (pl.col("emitter") == one.emitter)
        & (pl.col("seq") <= one.seq_to)
        & (pl.col(at) <= one.judged_to)
        for one in moment.reached
    ]
    return pl.any_horizontal(each) if each else pl.lit(False)


def within(
    rows: pl.LazyFrame, start: datetime, end: datetime, *, kind: str = "observed"
) -> pl.LazyFrame:
    """Rows of moments in [start, end], in order; `kind` is "event" for tables of bronze."""
    moment = pl.col("event_time" if kind == "event" else "observed_at")
    days = pl.col(f"{kind}_date").is_between(start.date(), end.date())
    return rows.filter(days & moment.is_between(start, end)).sort(moment)
