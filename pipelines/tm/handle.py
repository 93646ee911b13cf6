"""Represents a connected lake, with one method for every question about it.

Invariant: a question's names are checked before it is answered, its conditions run where the rows
lie, and its sentence says to when the data was judged. Absent on purpose: writing, words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import polars as pl

from engine.foundation.errors import ConfigError, LakeError
from pipelines.base.wording import bound_of, plural
from pipelines.cycles.plan import cycles_kept
from pipelines.lake.lake import Lake
from pipelines.reading.alert_history import STATES as ALERT_STATES
from pipelines.reading.alert_history import open_alerts
from pipelines.reading.at_risk import at_risk
from pipelines.reading.catalogue import ALERTS, BY_NAME
from pipelines.reading.check_results import of_each_check, recent_results, trust_at
from pipelines.reading.emitters import emitters_at
from pipelines.reading.known import (
    held_to,
    lag_known,
    states_at,
    states_with,
    stood_until,
    summed_up,
)
from pipelines.reading.long_ranges import ROLLUPS
from pipelines.reading.moment import cluster_of, cycle_moment, last_complete, sql_time
from pipelines.reading.reading import OpenTables, Reading, equals, judged_by, present_causes
from pipelines.reading.revisions import revision_after, revision_of
from pipelines.reading.rollbacks import FIRST as ROLLBACK_FIRST
from pipelines.reading.trust import Doubts
from pipelines.sentences import answers_on_groups as on_groups
from pipelines.sentences import events
from pipelines.sentences.checks import WITHHELD
from pipelines.sentences.emitters import of_emitters
from pipelines.sentences.recent_changes import of_rollbacks
from pipelines.tm import drawing, stories
from pipelines.tm.arguments import (
    A_MOMENT,
    STATES,
    STATUSES,
    Asked,
    When,
    asked_of,
    capped,
    not_there,
    require_kept,
    slots_asked,
    the_cluster,
    the_judged_moment,
    the_name,
    the_number,
    the_text,
)
from pipelines.tm.clusters import NOTHING_NAMED, Answer, answered, as_result, judged
from pipelines.tm.engines import NAMES, sql_answer, views_in_spark
from pipelines.tm.group_notes import left_text, pop_text
from pipelines.tm.results import Result, escaped
from pipelines.tm.table_answers import (
    answer_of_events,
    judged_answer,
    rollbacks_in,
    table_answer,
    windows_of,
)
from pipelines.tm.withholding import believed, known_at

ROWS_MAX: Final = 5_000_000
"""Rows one answer may bring into this process."""
Cycle = int
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class LakeHandle:
    """A connected lake; `as_of` in a question asks what was known at an earlier moment of data
    time, or at the end of a cycle by its number; `cluster` asks one of several clusters: without it
    each answers for itself."""

    lake: Lake
    tables: OpenTables
    clock: Clock = lambda: datetime.now(UTC)

    def groups(
        self,
        state: str | None = None,
        *,
        cluster: str | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """The state of every group, the worst time lag first; `state` keeps one state."""

        def answer(reading: Reading, _: str | None) -> Answer:
            states = states_at(reading.newest("group_state"), reading.moment)
            lag = lag_known(held_to(reading.newest("consumer_lag"), reading.moment), states)
            trust = trust_at(reading)
            rows = trust.over_states(states_with(lag, states), reading.moment.newest)
            rows = rows.sort(
                bound_of("time_lag_ms"), descending=True, nulls_last=True, maintain_order=True
            )
            unjudged = sorted({*lag["group"].to_list()} - {*rows["group"].to_list()})
            said = on_groups.of_groups(rows, unjudged)
            if state is not None:
                known = {*STATES, WITHHELD, *rows["state"].to_list()}
                wanted = the_name("state", state, known, of="the states a group may have")
                said = on_groups.of_state(rows, wanted, unjudged)
                rows = rows.filter(pl.col("state") == wanted)
            names = rows["group"].unique(maintain_order=True).to_list()
            figure = lambda: drawing.heatmap(reading, Asked(), groups=names)  # noqa: E731
            verdict = believed(
                reading, NOTHING_NAMED, "group_state", lambda _: said, trust=trust, anyway=said
            )
            return table_answer(reading, verdict, rows, "group_state", draw=figure)

        return answered(self._reading(as_of, cluster), answer, order=(bound_of("time_lag_ms"),))

    def lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        queue: int | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        by: str | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Lag of a group; its sentence is about the end of the range. Row by row, or, of more than
        some hours, by slots with their least, greatest and last: `by` is "row", "1m", "5m" or "1h".
        """

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(
                reading, group=name, topic=topic, queue=queue, since=since, until=until
            )
            span_s = slots_asked(by, asked, reading)
            table, times = "consumer_lag", asked.times
            if span_s is not None:
                table, times = ROLLUPS, [*times, f"span_s = {span_s}"]
            rows = reading.rows(table, *asked.place, *times, since=asked.since)
            if rows.height > ROWS_MAX:
                most = f"a range of at most {ROWS_MAX:,} rows, or by slots"
                raise ConfigError("since", since, most)
            at_end = reading if asked.until is None else capped(reading, asked.until)
            lag = held_to(at_end.newest("consumer_lag", *asked.place), at_end.moment)
            states = at_end.newest("group_state", equals("group", asked.group or group))
            newest = lag_known(lag, states)
            more = left_text(at_end, asked, newest) + pop_text(at_end, asked)
            said = on_groups.of_lag(asked, summed_up(newest), at_end.moment.judged_to) + more
            verdict = believed(at_end, asked, "consumer_lag", lambda _: said)
            drawn = rows if span_s is None else None
            figure = lambda: drawing.timeline(reading, asked, lag=drawn)  # noqa: E731
            found = table_answer(at_end, verdict, rows, table, draw=figure, asked=asked)
            return replace(found, until=asked.until)

        return answered(self._reading(as_of, cluster), answer, group=the_text("group", group))

    def stalls(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Intervals in which consumption was not OK; of those still open, what is true now."""

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(
                reading, group=name, topic=topic, queue=queue, since=since, until=until
            )
            windows = windows_of(reading, "stalled_windows", asked)
            lag = reading.newest("consumer_lag", *asked.place)
            rows = stood_until(windows, lag, reading.moment)
            at_end = reading if asked.until is None else capped(reading, asked.until)
            of_group = [] if asked.group is None else [equals("group", asked.group)]
            states = states_at(at_end.newest("group_state", *of_group), at_end.moment)

            def say(doubts: Doubts) -> str:
                return on_groups.of_stalls(asked, doubts.rest_of(rows), doubts.rest_of(states))

            verdict = believed(reading, asked, "stalled_windows", say)
            figure = drawing.of(reading, asked, rows)
            return table_answer(reading, verdict, rows, "stalled_windows", draw=figure, asked=asked)

        return answered(self._reading(as_of, cluster), answer, group=group)

    def why(
        self,
        group: str | None = None,
        *,
        cluster: str | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Why groups are behind: every cause that held at the newest tick with one."""

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(reading, group=name)
            rows = present_causes(reading, *asked.place)
            states = states_at(reading.newest("group_state", *asked.place), reading.moment)
            lag = held_to(reading.newest("consumer_lag", *asked.place), reading.moment)
            now = states_with(lag_known(lag, states), states)

            def say(doubts: Doubts) -> str:
                return on_groups.of_causes(asked, doubts.rest_of(rows), doubts.rest_of(now))

            verdict = believed(reading, asked, "lag_causes", say)
            return table_answer(reading, verdict, rows, "lag_causes", asked=asked)

        return answered(self._reading(as_of, cluster), answer, group=group)

    def duplicates(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Intervals in which messages were at risk of being consumed twice, and what came of it."""

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(
                reading, group=name, topic=topic, queue=queue, since=since, until=until
            )
            table = "duplicate_risk_windows"
            found = windows_of(reading, table, asked)

            def say(asked: Asked, rows: pl.DataFrame) -> str:
                together, open_ = (
                    rollbacks_in(reading, rows),
                    rows.filter(pl.col("state") == "OPEN"),
                )
                return on_groups.of_duplicates(asked, rows, together, at_risk=at_risk(open_))

            return judged_answer(reading, asked, table, found, say=say)

        return answered(self._reading(as_of, cluster), answer, group=group)

    def rollbacks(
        self,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Brokers that went back on many groups at once: one row each, with the groups' names."""

        def answer(reading: Reading, _: str | None) -> Answer:
            asked = asked_of(reading, since=since, until=until)
            table = "duplicate_risk_windows"
            windows = windows_of(reading, table, asked)

            def say(doubts: Doubts) -> str:
                return of_rollbacks(rollbacks_in(reading, doubts.rest_of(windows)))

            said, rows = believed(reading, asked, table, say), rollbacks_in(reading, windows)
            return table_answer(reading, said, rows, table, first=ROLLBACK_FIRST, asked=asked)

        return answered(self._reading(as_of, cluster), answer)

    def ownership(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Who read which queue, from when until when."""

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(
                reading, group=name, topic=topic, queue=queue, since=since, until=until
            )
            rows = windows_of(reading, "ownership", asked)
            return judged_answer(reading, asked, "ownership", rows, say=events.of_ownership)

        return answered(self._reading(as_of, cluster), answer, group=group)

    def rebalances(
        self,
        group: str | None = None,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Changes of membership and subscription."""
        asks = partial(answer_of_events, since=since, until=until)
        found = partial(asks, table="rebalances", say=events.of_rebalances)
        return answered(self._reading(as_of, cluster), found, group=group)

    def dead_letters(
        self,
        group: str | None = None,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Messages that ended in a dead-letter queue, with the place they came from."""
        asks = partial(answer_of_events, since=since, until=until)
        found = partial(asks, table="dead_letters", say=events.of_dead_letters)
        return answered(self._reading(as_of, cluster), found, group=group)

    def replaced(
        self,
        group: str | None = None,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Messages that were pulled and lost, with those that have their offsets now."""
        asks = partial(answer_of_events, since=since, until=until)
        found = partial(asks, table="replaced_messages", say=events.of_replaced)
        return answered(self._reading(as_of, cluster), found, group=group)

    def lost(
        self,
        group: str | None = None,
        *,
        topic: str | None = None,
        queue: int | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Messages that were deleted before a group had read them: a row a range."""
        named: dict[str, Any] = {"topic": topic, "queue": queue, "since": since, "until": until}
        asks = partial(answer_of_events, table="lost_unread_messages", say=events.of_lost, **named)
        return answered(self._reading(as_of, cluster), asks, group=group)

    def passed_over(
        self,
        group: str | None = None,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Topics that were made again, and what groups passed over of their new lives."""

        def answer(reading: Reading, name: str | None) -> Answer:
            asked = asked_of(reading, group=name, since=since, until=until)
            table = "passed_over_messages"
            rows = reading.rows(table, *asked.place, *asked.times, since=asked.since)
            lives = reading.rows("topic_lives", *asked.times, since=asked.since)
            say = partial(events.of_passed_over, lives=lives)
            return judged_answer(reading, asked, table, rows, say=say)

        return answered(self._reading(as_of, cluster), answer, group=group)

    def emitters(self, *, cluster: str | None = None, as_of: When | Cycle | None = None) -> Result:
        """Who reports, how far each has been judged, what is unknown of it, and how far its clock
        is from the lake's; the one judged least far first."""

        def answer(reading: Reading, _: str | None) -> Answer:
            rows = emitters_at(reading)
            first = tuple(rows.columns)
            return Answer(reading, of_emitters(rows), rows, "emitter_health", first=first)

        return answered(self._reading(as_of, cluster), answer)

    def checks(self, status: str | None = None, *, as_of: When | Cycle | None = None) -> Result:
        """What every data-quality check last found, with critical failures that still count; as of
        a moment, in runs that were kept by then. `status` "failed" or "passed" keeps those."""
        reading = self._whole(as_of)
        if status is not None:
            status = the_name("status", status, STATUSES, of="the outcomes of a check")
        rows = of_each_check(recent_results(reading))
        verdict = events.of_checks(rows, by_then=as_of is not None)
        if status is not None:
            rows = rows.filter(pl.col("success") == (status == "passed"))
        return as_result(table_answer(reading, verdict, rows, "dq_results"))

    def alerts(
        self,
        group: str | None = None,
        *,
        rule: str | None = None,
        state: str | None = None,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """Every change of alerts, the oldest first, as long as the lake keeps it; the sentence says
        which are open at the end. `rule` and `state` keep changes of one rule, or to one state."""
        reading = self._reading(as_of, cluster)
        asked = asked_of(reading, group=group, since=since, until=until)
        named = asked.place
        if reading.moment.cluster is not None:
            named.append(equals("cluster", reading.moment.cluster))
        if rule is not None:
            known = reading.distinct(ALERTS.name, "rule", *named)
            rule = the_name("rule", rule, known, of="the alerts that there were")
            named.append(equals("rule", rule))
        end = asked.until or (None if as_of is None else reading.moment.newest)
        if end is not None:
            named.append(f"observed_at <= {sql_time(end)}")
        if reading.known_at is not None:
            named.append(f"recorded_at <= {sql_time(reading.known_at)}")
        rows = reading.rows(ALERTS.name, *named).sort("recorded_at", "seq", maintain_order=True)
        verdict = events.of_alerts(asked, open_alerts(rows), rule)
        if rows.is_empty() and not reading.distinct(ALERTS.name, "rule"):
            verdict = events.NO_ALERTS
        if state is not None:
            wanted = the_name("state", state, ALERT_STATES, of="the states an alert may have")
            rows = rows.filter(pl.col("state") == wanted)
        if asked.since is not None:
            rows = rows.filter(pl.col("observed_at") >= asked.since)
        if rows.height > ROWS_MAX:
            raise ConfigError("since", since, f"a range of at most {ROWS_MAX:,} rows")
        return as_result(table_answer(reading, verdict, rows, ALERTS.name, asked=asked))

    def message(
        self,
        message_id: str,
        *,
        cluster: str | None = None,
        as_of: When | Cycle | None = None,
    ) -> Result:
        """What the lake knows of a message: tries, dead letter, second deliveries, a stall it
        heads."""

        def answer(reading: Reading, _: str | None) -> Answer:
            rows = stories.of_message(reading, the_text("message_id", message_id))
            verdict = events.of_message(message_id, rows)
            return Answer(reading, verdict, rows, "retry_dlq_flow", first=stories.FIRST)

        return answered(self._reading(as_of, cluster), answer, is_sought=True)

    def explain(
        self, window: Any, *, cluster: str | None = None, as_of: When | Cycle | None = None
    ) -> Result:
        """The evidence behind a window, in the order of time: its revisions, and of its queue and
        interval the lag, rebalances and redeliveries. `window`: its id, or a row that has one."""
        whole = self._reading(as_of, cluster)
        name, found = stories.the_window(whole, window)

        def answer(reading: Reading, _: str | None) -> Answer:
            rows = stories.of_window(reading, name, found)
            asked = stories.around(found, reading.moment)
            said = events.of_window(name, stories.as_it_is(reading, name, found), rows)
            verdict = believed(reading, asked, name, lambda _: said)
            figure = lambda: drawing.timeline(reading, asked)  # noqa: E731
            return Answer(reading, verdict, rows, name, figure, stories.FIRST, asked)

        several = len(whole.moment.clusters) > 1
        return answered(whole.of_cluster(found["cluster"]) if several else whole, answer)

    def sql(
        self, query: str, *, cluster: str | None = None, as_of: When | Cycle | None = None
    ) -> Result:
        """Any SELECT over gold and bronze by the tables' names, as they are at the moment: of
        intervals the newest revision of each, and all in `NAME_revisions`; of several clusters, as
        the query picks them."""
        reading = self._reading(as_of, cluster)
        rows, used = sql_answer(reading, the_text("query", query))
        verdict = f"The query brings {plural(rows.height, 'row')}."
        return as_result(Answer(reading, verdict, rows, used))

    def spark(
        self,
        master: str = "local[2]",
        *,
        tables: Sequence[str] = (),
        cluster: str | None = None,
        as_of: When | Cycle | None = None,
    ) -> Any:
        """A Spark session in which gold and bronze of this lake are views by the tables' names, as
        they are at the moment. `tables`: only these, for each one takes Spark a while to open."""
        named = [the_name("table", name, NAMES) for name in tables] or NAMES
        return views_in_spark(self._reading(as_of, cluster), master, names=named)

    def timeline(
        self,
        group: str,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Any:
        """Lag, stalls, duplicate risk and rebalances of a group on one time axis."""
        return self.lag(group, cluster=cluster, since=since, until=until, as_of=as_of).plot()

    def overview(
        self,
        *,
        cluster: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | Cycle | None = None,
    ) -> Any:
        """Time lag of all groups over time."""
        reading = self._reading(as_of, cluster)
        return drawing.heatmap(reading, asked_of(reading, since=since, until=until))

    def _reading(self, as_of: When | Cycle | None, cluster: str | None = None) -> Reading:
        """The lake at a moment, whole or one cluster of it. Raises ConfigError, LakeError."""
        whole = self._whole(as_of)
        name = the_cluster(whole, cluster)
        if name is None:
            return whole
        late = () if whole.revision is None else whole.revision.emitters
        own = tuple(one for one in late if cluster_of(one) == name)
        revision = replace(whole.revision, emitters=own) if whole.revision and own else None
        if whole.revision is not None and whole.revision.known_at is None:
            revision = whole.revision
        return replace(whole.of_cluster(name), revision=revision)

    def _whole(self, as_of: When | Cycle | None) -> Reading:
        moment = last_complete(self.lake)
        self.tables.follow(moment.run_id if moment is not None else None)
        judged_to = moment.judged_to if moment is not None else None
        if moment is None or judged_to is None:
            raise LakeError(
                f"no cycle of {self.lake.root} is complete yet: let `tidemark pipeline run --lake "
                f"{self.lake.root}` finish its first one"
            )
        if as_of is None:
            return Reading(self.tables, moment, asked_at=self.clock())
        if not isinstance(as_of, datetime | timedelta | str):
            as_of = the_number("as_of", as_of, or_else=f" (a cycle) or {A_MOMENT}")
            found = cycle_moment(self.lake, as_of) if as_of <= moment.cycle else None
            found = None if found is None else replace(found, gold=moment.gold)
            at = None if found is None else found.newest
            if found is None or at is None:
                raise ConfigError("as_of", as_of, cycles_kept(self.lake, moment.cycle))
            revision, end = revision_after(self.lake, moment, found, at), f"--cycle {as_of}"
            known = known_at(found)
            require_kept(self.tables, at, end)
        else:
            at = the_judged_moment(as_of, judged_to)
            revision, end = revision_of(self.lake, moment, at), f"--to {at.isoformat()}"
            known = at
            require_kept(self.tables, at, end)
            found = judged_by(Reading(self.tables, moment), at)
            if not found.reached:
                raise LakeError(not_there(self.lake, f"{at:%Y-%m-%d %H:%M:%S} UTC", end))
        return Reading(self.tables, found, revision=revision, known_at=known)

    def __repr__(self) -> str:
        lines = [f"Lake at {self.lake.root}"]
        moment = None
        try:
            moment = last_complete(self.lake)
            lines.append(judged(None if moment is None else moment.judged_to))
        except LakeError as error:
            lines.append(str(error))
        for name in BY_NAME:
            try:
                table = self.tables.opened(name) if moment is None else self.tables.at(name, moment)
                said = None if table is None else f"version {table.version()}"
            except LakeError as error:
                said = str(error)
            if said is not None:
                lines.append(f"  {name:24} {said}")
        lines.append("Ask: " + ", ".join(f"tm.{name}()" for name in QUESTIONS))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(repr(self))}</pre>"

    def _ipython_key_completions_(self) -> list[str]:
        try:
            rows = self._whole(None).newest("group_state", columns=["group"])
        except LakeError:  # A question will say what is wrong; a keystroke is no question.
            return []
        return sorted(rows["group"].unique().to_list())

    def __getitem__(self, group: str) -> Result:
        return self.lag(group)

    def __dir__(self) -> list[str]:
        return [*QUESTIONS, "lake"]


QUESTIONS: Final = tuple(
    name for name, value in vars(LakeHandle).items() if callable(value) and not name.startswith("_")
)
"""What `dir(tm)` lists."""


def handle_of(lake: Lake) -> LakeHandle:
    """A lake, connected. Nothing is read yet."""
    return LakeHandle(lake, OpenTables(lake))
