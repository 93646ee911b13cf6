"""A connected lake: every question is a method, every answer is of one moment.

Invariant: a question's names are checked before anything is answered (`asking`), its conditions are
carried out where the rows lie (`pipelines.reading`), and its sentence says to when the data had
been judged. Absent on purpose: writing, and keeping rows between questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from engine.foundation.errors import ConfigError, LakeError
from pipelines.catalogue import BY_NAME
from pipelines.lake import Lake
from pipelines.moment import Moment, cycle_moment, last_complete
from pipelines.reading import OpenTables, Reading, held_to, states_with, stood_until
from pipelines.tm import drawing, sentences, stories
from pipelines.tm.asking import (
    STATES,
    STATUSES,
    Asked,
    When,
    asked_of,
    the_moment,
    the_name,
)
from pipelines.tm.engines import sql_answer, views_in_spark
from pipelines.tm.results import FIRST, Result, escaped
from pipelines.wording import plural

ROWS_MAX: Final = 5_000_000
"""Rows one answer may bring into this process."""
Cycle = int


@dataclass(frozen=True, slots=True)
class LakeHandle:
    """A connected lake; `as_of` in a question asks what was known at an earlier moment of data
    time, or at the end of a cycle by its number."""

    lake: Lake
    tables: OpenTables

    def groups(self, state: str | None = None, *, as_of: When | Cycle | None = None) -> Result:
        """The state of every group, the worst time lag first; `state` keeps one state."""
        reading = self._reading(as_of)
        lag = held_to(reading.newest("consumer_lag"), reading.moment)
        rows = states_with(lag, reading.newest("group_state"))
        rows = rows.sort("time_lag_ms", descending=True, nulls_last=True)
        unjudged = sorted({*lag["group"].to_list()} - {*rows["group"].to_list()})
        verdict = sentences.of_groups(rows, unjudged)
        if state is not None:
            known = {*STATES, *rows["state"].to_list()}
            wanted = the_name("state", state, known, of="the states a group may have")
            verdict = sentences.of_state(rows, wanted, unjudged)
            rows = rows.filter(pl.col("state") == wanted)
        names = rows["group"].unique(maintain_order=True).to_list()
        figure = lambda: drawing.heatmap(reading, Asked(), groups=names)  # noqa: E731
        return _result(reading, verdict, rows, "group_state", draw=figure)

    def lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Lag of a group, row by row; its sentence is about the end of the range."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, topic=topic, queue=queue, since=since, until=until)
        rows = reading.rows("consumer_lag", *asked.place, *asked.times, since=asked.since)
        if rows.height > ROWS_MAX:
            raise ConfigError("since", since, f"a range of at most {ROWS_MAX:,} rows")
        at_end = reading if asked.until is None else _capped(reading, asked.until)
        newest = held_to(at_end.newest("consumer_lag", *asked.place), at_end.moment)
        verdict = sentences.of_lag(asked, newest, at_end.moment)
        figure = lambda: drawing.timeline(reading, asked, lag=rows)  # noqa: E731
        return _result(at_end, verdict, rows, "consumer_lag", draw=figure)

    def stalls(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Intervals in which consumption was not OK; of those still open, what is true now."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, topic=topic, queue=queue, since=since, until=until)
        windows = _windows(reading, "stalled_windows", asked)
        rows = stood_until(windows, reading.newest("consumer_lag", *asked.place), reading.moment)
        verdict = sentences.of_stalls(asked, rows)
        return _result(
            reading, verdict, rows, "stalled_windows", draw=drawing.of(reading, asked, rows)
        )

    def duplicates(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Intervals in which messages were at risk of being consumed twice, and what came of it."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, topic=topic, queue=queue, since=since, until=until)
        rows = _windows(reading, "duplicate_risk_windows", asked)
        verdict = sentences.of_duplicates(asked, rows)
        figure = drawing.of(reading, asked, rows)
        return _result(reading, verdict, rows, "duplicate_risk_windows", draw=figure)

    def ownership(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Who read which queue, from when until when."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, topic=topic, queue=queue, since=since, until=until)
        rows = _windows(reading, "ownership", asked)
        verdict = sentences.of_ownership(asked, rows)
        return _result(reading, verdict, rows, "ownership", draw=drawing.of(reading, asked, rows))

    def rebalances(
        self,
        group: str | None = None,
        *,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Changes of membership and subscription."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, since=since, until=until)
        rows = reading.rows("rebalances", *asked.place, *asked.times, since=asked.since)
        verdict = sentences.of_rebalances(asked, rows)
        return _result(reading, verdict, rows, "rebalances", draw=drawing.of(reading, asked, rows))

    def dead_letters(
        self,
        group: str | None = None,
        *,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Messages that ended in a dead-letter queue, with the place they came from."""
        reading = self._reading(as_of)
        asked = asked_of(reading, group=group, since=since, until=until)
        rows = reading.rows("dead_letters", *asked.place, *asked.times, since=asked.since)
        verdict = sentences.of_dead_letters(asked, rows)
        return _result(
            reading, verdict, rows, "dead_letters", draw=drawing.of(reading, asked, rows)
        )

    def checks(self, status: str | None = None) -> Result:
        """The newest run of the data-quality checks; `status` "failed" or "passed" keeps those."""
        reading = self._reading(None)
        if status is not None:
            status = the_name("status", status, STATUSES, of="the outcomes of a check")
        runs = reading.rows("dq_results", columns=["observed_at", "run_id", "started_at"])
        rows = reading.rows("dq_results")
        if runs.height:
            rows = rows.filter(pl.col("run_id") == runs.sort("started_at")["run_id"][-1])
        verdict = sentences.of_checks(rows)
        if status is not None:
            rows = rows.filter(pl.col("success") == (status == "passed"))
        return _result(reading, verdict, rows, "dq_results")

    def message(self, message_id: str, *, as_of: When | Cycle | None = None) -> Result:
        """What the lake knows of a message: tries, dead letter, second deliveries, a stall it
        heads."""
        reading = self._reading(as_of)
        rows = stories.of_message(reading, message_id)
        verdict = sentences.of_message(message_id, rows)
        return _told(reading, verdict, rows, "retry_dlq_flow", first=stories.FIRST)

    def explain(self, window: Any, *, as_of: When | Cycle | None = None) -> Result:
        """The evidence behind a window, in the order of time: its revisions, and of its queue and
        interval the lag, rebalances and redeliveries. `window`: its id, or a row that has one."""
        reading = self._reading(as_of)
        name, found = stories.the_window(reading, window)
        rows = stories.of_window(reading, name, found)
        verdict = sentences.of_window(name, found, rows)
        asked = stories.around(found, reading.moment)
        figure = lambda: drawing.timeline(reading, asked)  # noqa: E731
        return _told(reading, verdict, rows, name, draw=figure, first=stories.FIRST)

    def sql(self, query: str, *, as_of: When | Cycle | None = None) -> Result:
        """Any SELECT over gold and bronze by the tables' names, as they are at the moment; newest
        revisions are yours to pick."""
        reading = self._reading(as_of)
        rows, used = sql_answer(reading, query)
        return _told(reading, f"The query brings {plural(rows.height, 'row')}.", rows, used)

    def spark(self, master: str = "local[2]", *, as_of: When | Cycle | None = None) -> Any:
        """A Spark session in which gold and bronze of this lake are views by the tables' names, as
        they are at the moment."""
        return views_in_spark(self._reading(as_of), master)

    def timeline(self, group: str, *, since: When | None = None, until: When | None = None) -> Any:
        """Lag, stalls, duplicate risk and rebalances of a group on one time axis."""
        return self.lag(group, since=since, until=until).plot()

    def overview(self, *, since: When | None = None, until: When | None = None) -> Any:
        """Time lag of all groups over time."""
        reading = self._reading(None)
        return drawing.heatmap(reading, asked_of(reading, since=since, until=until))

    def _reading(self, as_of: When | Cycle | None) -> Reading:
        moment = last_complete(self.lake)
        self.tables.follow(moment.run_id if moment is not None else None)
        judged_to = moment.judged_to if moment is not None else None
        if moment is None or judged_to is None:
            raise LakeError(
                f"no cycle of {self.lake.root} is complete yet: let `tidemark pipeline run --lake "
                f"{self.lake.root}` finish its first one"
            )
        if isinstance(as_of, int):
            found = cycle_moment(self.lake, as_of) if as_of <= moment.cycle else None
            if found is None:
                raise ConfigError("as_of", as_of, f"a complete cycle, 1 to {moment.cycle}")
            moment = found
        elif as_of is not None:
            moment = _at(moment, as_of, judged_to)
        return Reading(self.tables, moment)

    def __repr__(self) -> str:
        moment = last_complete(self.lake)
        judged_to = moment.judged_to if moment is not None else None
        lines = [f"Lake at {self.lake.root}", sentences.judged(judged_to)]
        for name in BY_NAME:
            table = self.tables.opened(name)
            if table is not None:
                lines.append(f"  {name:24} version {table.version()}")
        lines.append("Ask: " + ", ".join(f"tm.{name}()" for name in QUESTIONS))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(repr(self))}</pre>"

    def _ipython_key_completions_(self) -> list[str]:
        rows = self._reading(None).newest("group_state", columns=["group"])
        return sorted(rows["group"].unique().to_list())

    def __getitem__(self, group: str) -> Result:
        return self.lag(group)


QUESTIONS: Final = tuple(
    name for name, value in vars(LakeHandle).items() if callable(value) and not name.startswith("_")
)
"""What `dir(tm)` lists."""


def handle_of(lake: Lake) -> LakeHandle:
    """A lake, connected. Nothing is read yet."""
    return LakeHandle(lake, OpenTables(lake))


def _at(moment: Moment, as_of: When, judged_to: datetime) -> Moment:
    at = the_moment("as_of", as_of, judged_to)
    if at > judged_to:
        raise ConfigError("as_of", as_of, f"a moment up to {judged_to:%Y-%m-%d %H:%M:%S} UTC")
    return moment.capped(at)


def _capped(reading: Reading, at: datetime) -> Reading:
    return Reading(reading.tables, reading.moment.capped(at), reading.versions)


def _windows(reading: Reading, name: str, asked: Asked) -> pl.DataFrame:
    return reading.windows(name, *asked.place, since=asked.since, until=asked.until)


def _result(
    reading: Reading, verdict: str, rows: pl.DataFrame, table: str, *, draw: Any = None
) -> Result:
    """Rows of one table, the columns that a person looks at first."""
    first = tuple(name for name in FIRST.get(table, ()) if name in rows.columns)
    ordered = rows.select(*first, *(name for name in rows.columns if name not in first))
    return _told(reading, verdict, ordered, table, draw=draw, first=first)


def _told(
    reading: Reading,
    verdict: str,
    rows: pl.DataFrame,
    table: str,
    *,
    draw: Any = None,
    first: tuple[str, ...] = (),
) -> Result:
    judged_to = reading.moment.judged_to
    said = f"{verdict} {sentences.judged(judged_to, reading.moment)}"
    return Result(said, rows, table, reading.versions.get(table), judged_to, draw, first)
