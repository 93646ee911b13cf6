"""Gathers gold rows for a window and the preceding one, using Spark at a recorded cut.

Place in the walk: gold at a (run id, cycle) → frames of a row a group and slot, an interval, or a
count → `lag_report`, which needs no Spark. Roll-ups of every queue become one row a group and slot,
in which each queue's lag holds until it is reported again; what waits in it has waited for longer.

Invariant: rows are seen as the cut's cycle knew them, whatever came later. Checks have no seq:
theirs are seen by the moment at which the cut was recorded. Absent on purpose: bronze, which is
kept for days only, and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Final

import polars as pl
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from engine.foundation.errors import LakeError
from pipelines.base.settings import LOOK_BACK_US, SECOND_US
from pipelines.base.time_units import micros, moment_at, utc_text
from pipelines.lake.lake import Lake, first_line
from pipelines.reading.catalogue import BY_NAME
from pipelines.reading.moment import Moment
from pipelines.reading.reading import OpenTables, Reading, closed_with_brokers
from pipelines.reports.cuts import Cut, moment_of_cut
from pipelines.reports.windows import Window
from pipelines.tm.engines import spark_time, views_in_spark

TABLES: Final = (
    "consumer_lag", "consumer_lag_rollups", "ended_queues", "group_state", "stalled_windows",
    "duplicate_risk_windows", "dead_letters", "retry_flow", "offset_health", "emitter_health",
    "dq_results", "dq_failures",
)  # fmt: skip
CONF: Final = {
    # A dozen queries are each run once: compiling them well costs more than they do.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # What a query cannot read is reported in one sentence; Spark would print its report besides.
    "spark.log.level": "OFF",
}
INTERVALS_MAX: Final = 200_000
"""Intervals of one kind in two periods; of more the shortest are cut, and the report says so."""
_FATES: Final = ("dead_lettered", "redriven", "discarded", "expired")
_QUEUE: Final = "emitter, cluster, broker, `group`, topic, queue_id"


@dataclass(frozen=True, slots=True)
class Gathered:
    """What gold says. `is_now` is false in rows of the period before."""

    window: Window
    cut: Cut
    slots: pl.DataFrame
    """emitter, cluster, group, slot (its end, in slots since 1970), behind_ms, lag_messages,
    queues, unknown_queues: a row a group of an emitter and slot; null is unknown. The messages are
    those of the queues that are known; with one that is not the group is behind by these or more.
    """
    states: pl.DataFrame
    """emitter, cluster, group, observed_at, state, queues_known, retained_until: changes of state,
    and the last row of each group."""
    stalls: pl.DataFrame
    """Newest revisions that have a moment in common with the two periods."""
    risks: pl.DataFrame
    """The same of risks of duplicates."""
    dead: pl.DataFrame
    """is_now, cluster, group, topic, reason, letters."""
    fates: pl.DataFrame
    """emitter, cluster, group, edge (0 to 2: the beginnings and the end), dead_lettered, redriven,
    discarded, expired: totals as they stood there."""
    violations: pl.DataFrame
    """is_now, cluster, group, violations, unaccounted."""
    shipped: pl.DataFrame
    """is_now, emitter, rows_expected, rows_found, rows_distinct."""
    reached: pl.DataFrame
    """emitter, judged_to, polled_each_ms: how often it polls a broker that it watches from outside;
    null: it reports itself, or has not said."""
    results: pl.DataFrame
    """dq_results of runs that judged a moment of the window."""
    failures: pl.DataFrame
    """dq_failures of these runs."""
    known_from: datetime | None
    """The moment from which gold has lag, in these two periods; None: it has none."""
    checks_from: date | None = None
    """The oldest day of which outcomes of checks are there; None: there are none."""

    @property
    def judged_to(self) -> dict[str, datetime]:
        """Up to which moment each emitter was judged."""
        return dict(self.reached.select("emitter", "judged_to").iter_rows())


def gather(
    lake: Lake,
    window: Window,
    cut: Cut,
    *,
    master: str = "local[2]",
    address: str | None = None,
    conf: dict[str, str] | None = None,
) -> Gathered:
    """Everything that a lag report is made of, by Spark. Raises LakeError, ConfigError."""
    reading = Reading(OpenTables(lake), moment_of_cut(lake, cut))
    there = [name for name in TABLES if reading.tables.at(name, reading.moment) is not None]
    if not {"consumer_lag", "group_state"} <= set(there):
        raise LakeError(f"{lake.root} has no lag in gold: `tidemark pipeline run` computes it")
    spark = views_in_spark(reading, master, names=there, address=address, conf=CONF | (conf or {}))
    for name in sorted(set(TABLES) - set(there)):
        _empty_view(spark, name)
    for name in there:
        _complete_view(spark, name)

    def ask(sql: str) -> pl.DataFrame:
        try:
            return pl.DataFrame(pl.from_arrow(spark.sql(sql).toArrow()))
        except (PySparkException, Py4JError) as error:
            raise LakeError(
                f"the gold of {lake.root} cannot be read ({first_line(error)}): restore it from a "
                f"copy of the lake, or {lake.made_again(lake.gold(''))}"
            ) from error

    known_from = _known_from(ask, reading.tables, window)
    found = _gathered(ask, reading.moment, window, cut, known_from=known_from)
    return replace(found, checks_from=reading.tables.oldest_day("dq_results"))


def _known_from(
    ask: Callable[[str], pl.DataFrame], tables: OpenTables, window: Window
) -> datetime | None:
    """The moment from which gold has lag, searched from the day on which the period before begins:
    what was known of earlier days changes nothing, and goes with retention."""
    begin = window.before.begin
    found = []
    for name in ("consumer_lag", "consumer_lag_rollups"):
        oldest = tables.oldest_day(name)
        if oldest is not None and oldest < begin.date():
            return begin
        if oldest is not None:
            of_day = f"SELECT min(observed_at) AS at FROM {name} WHERE observed_date = '{oldest}'"  # noqa: S608
            found += ask(of_day)["at"].drop_nulls().to_list()
    return max(begin, min(found)) if found else None


def _gathered(
    ask: Callable[[str], pl.DataFrame],
    moment: Moment,
    window: Window,
    cut: Cut,
    *,
    known_from: datetime | None,
) -> Gathered:
    begin, middle, end = window.before.begin, window.begin, window.end
    results = ask(_results(window, cut))
    return Gathered(
        window,
        cut,
        slots=ask(_slots(window, moment)),
        states=ask(_states(begin, end)),
        stalls=closed_with_brokers(ask(_intervals("stalled_windows", begin, end)), moment),
        risks=closed_with_brokers(ask(_intervals("duplicate_risk_windows", begin, end)), moment),
        dead=ask(_dead(begin, middle, end)),
        fates=_edges(ask(_fates((begin, middle, end)))),
        violations=ask(_violations(begin, middle, end)),
        shipped=ask(_shipped(begin, middle, end)),
        reached=pl.DataFrame(
            {
                "emitter": [one.emitter for one in moment.reached],
                "judged_to": [one.judged_to for one in moment.reached],
                "polled_each_ms": [one.report_each_ms for one in moment.reached],
            },
            schema={
                "emitter": pl.String,
                "judged_to": pl.Datetime("us", "UTC"),
                "polled_each_ms": pl.Int64,
            },
        ),
        results=results,
        failures=ask(_failures(results["run_id"].unique().sort().to_list())),
        known_from=known_from,
    )


def _empty_view(spark: Any, name: str) -> None:
    columns = ", ".join(
        f"CAST(NULL AS {_spark_type(column.type)}) AS `{column.name}`"
        for column in BY_NAME[name].columns
    )
    spark.sql(f"SELECT {columns} WHERE false").createOrReplaceTempView(name)


def _complete_view(spark: Any, name: str) -> None:
    """With the columns that were declared since the table was made."""
    rows = spark.table(name)
    later = [one for one in BY_NAME[name].columns if one.name not in rows.columns]
    if later:
        nulls = ", ".join(f"CAST(NULL AS {_spark_type(one.type)}) AS `{one.name}`" for one in later)
        spark.sql(f"SELECT *, {nulls} FROM {name}").createOrReplaceTempView(name)  # noqa: S608


def _spark_type(column_type: Any) -> str:
    words = {"LONG": "BIGINT", "RANGES": "STRING"}
    name: str = column_type.name
    return words.get(name, name)


def _slots(window: Window, moment: Moment) -> str:
    """Lag of groups by slots: what was reported in each, and what holds on from those before."""
    span = window.slot_s
    first, last = micros(window.before.begin) // SECOND_US // span, _slot_of(window.end, span)
    held_slots = -(-LOOK_BACK_US // SECOND_US // span)
    since = moment_at((first - held_slots) * span * SECOND_US)
    rest = " OR ".join(_behind_rollups(moment, span)) or "true"
    slot_of = f"CAST(ceil(unix_micros(observed_at) / {span * SECOND_US}) AS BIGINT)"
    between = f"observed_at > {_at(since)} AND observed_at <= {_at(window.end)}"
    between += f" AND observed_date >= DATE '{since:%Y-%m-%d}'"
    return f"""
WITH reported AS (
  SELECT {_QUEUE}, {slot_of} AS slot, time_lag_ms_max AS behind_max, time_lag_ms_last AS behind,
         lag_last AS lag, unix_millis(last_at) AS last_ms, unknown_reason AS why, false AS is_end
  FROM consumer_lag_rollups WHERE span_s = {span} AND {between}
  UNION ALL
  SELECT {_QUEUE}, {slot_of} AS slot, max(time_lag_ms),
         max_by(struct(time_lag_ms), struct(observed_at, seq)).time_lag_ms,
         max_by(struct(lag_messages), struct(observed_at, seq)).lag_messages,
         unix_millis(max(observed_at)),
         max_by(struct(unknown_reason), struct(observed_at, seq)).unknown_reason, false
  FROM consumer_lag WHERE {between} AND ({rest}
    OR observed_at <= (SELECT coalesce(min(observed_at), timestamp'9999-01-01')
                         - make_dt_interval(0, 0, 0, {span})
                       FROM consumer_lag_rollups WHERE span_s = {span} AND {between}))
  GROUP BY {_QUEUE}, {slot_of}
  UNION ALL
  SELECT {_QUEUE}, {slot_of}, NULL, NULL, NULL, NULL, NULL, true FROM ended_queues WHERE {between}
), next_reported AS (
  SELECT *, lead(slot) OVER (PARTITION BY {_QUEUE} ORDER BY slot, is_end) AS next_slot FROM reported
), holding AS (
  SELECT *, explode(sequence(slot, greatest(slot,
      least(coalesce(next_slot - 1, slot + {held_slots}), slot + {held_slots}, {last})))) AS at_slot
  FROM next_reported WHERE NOT is_end
), queues AS (
  SELECT emitter, cluster, `group`, at_slot,
    CASE WHEN behind IS NULL THEN NULL
         WHEN at_slot = slot THEN behind_max
         WHEN lag = 0 THEN 0
         ELSE behind + at_slot * {span * 1000} - last_ms END AS behind_ms,
    lag, why
  FROM holding WHERE at_slot > {first}
)
SELECT emitter, cluster, `group`, at_slot AS slot, max(behind_ms) AS behind_ms,
       sum(lag) AS lag_messages, count(*) AS queues,
       count_if(behind_ms IS NULL
                AND coalesce(why, '') <> 'BROADCAST') AS unknown_queues
FROM queues GROUP BY emitter, cluster, `group`, at_slot
ORDER BY emitter, cluster, `group`, slot"""  # noqa: S608 - ours


def _slot_of(moment: datetime, span: int) -> int:
    return -(-micros(moment) // (span * SECOND_US))


def _behind_rollups(moment: Moment, span: int) -> Iterable[str]:
    """Rows behind the last slot that is over, of each emitter: no roll-up holds them yet."""
    for one in moment.reached:
        over = micros(one.judged_to) // (span * SECOND_US) * span * SECOND_US
        name = one.emitter.replace("\\", "\\\\").replace("'", "\\'")
        yield f"(emitter = '{name}' AND observed_at > {spark_time(over)})"


def _states(begin: datetime, end: datetime) -> str:
    since = moment_at(micros(begin) - LOOK_BACK_US)
    return f"""
SELECT emitter, cluster, `group`, observed_at, state, queues_known, retained_until FROM (
  SELECT *, lag(state) OVER key AS before, lead(state) OVER key AS after
  FROM group_state
  WHERE observed_at > {_at(since)} AND observed_at <= {_at(end)}
    AND observed_date >= DATE '{since:%Y-%m-%d}'
  WINDOW key AS (PARTITION BY emitter, cluster, `group` ORDER BY observed_at, seq))
WHERE before IS DISTINCT FROM state OR after IS NULL
ORDER BY emitter, cluster, `group`, observed_at"""  # noqa: S608


def _intervals(name: str, begin: datetime, end: datetime) -> str:
    return f"""
SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY window_id ORDER BY revision DESC) AS nth FROM {name})
WHERE nth = 1 AND opened_at < {_at(end)} AND (closed_at IS NULL OR closed_at > {_at(begin)})
ORDER BY coalesce(unix_micros(closed_at), 9e18) - unix_micros(opened_at) DESC, window_id
LIMIT {INTERVALS_MAX}"""  # noqa: S608


def _between(begin: datetime, end: datetime) -> str:
    return (
        f"observed_at > {_at(begin)} AND observed_at <= {_at(end)}"
        f" AND observed_date >= DATE '{begin:%Y-%m-%d}'"
    )


def _dead(begin: datetime, middle: datetime, end: datetime) -> str:
    return f"""
SELECT observed_at > {_at(middle)} AS is_now, cluster, `group`, origin_topic AS topic, reason,
       count(*) AS letters
FROM dead_letters WHERE {_between(begin, end)}
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"""  # noqa: S608


def _fates(edges: tuple[datetime, datetime, datetime]) -> str:
    """Totals at each edge, of each group and topic of origin; null before the first report.

    A column each: of a struct whose parts are never null Arrow takes no null.
    """
    at = [
        f"max_by({name}, struct(observed_at, seq)) "
        f"FILTER (WHERE observed_at <= {_at(edge)}) AS {name}_{number}"
        for number, edge in enumerate(edges)
        for name in _FATES
    ]
    return f"""
SELECT emitter, cluster, `group`, {", ".join(at)} FROM retry_flow
WHERE observed_at <= {_at(edges[-1])} GROUP BY emitter, cluster, `group`, origin_topic"""  # noqa: S608


def _edges(totals: pl.DataFrame) -> pl.DataFrame:
    """The same as a row a group and edge."""
    key = ["emitter", "cluster", "group"]
    parts = [
        totals.filter(pl.col(f"{_FATES[0]}_{number}").is_not_null())
        .select(
            *key,
            pl.lit(number, pl.Int32).alias("edge"),
            *(pl.col(f"{name}_{number}").alias(name) for name in _FATES),
        )
        .group_by(*key, "edge")
        .agg(pl.col(_FATES).sum())
        for number in range(3)
    ]
    return pl.concat(parts).sort(*key, "edge")


def _violations(begin: datetime, middle: datetime, end: datetime) -> str:
    return f"""
SELECT observed_at > {_at(middle)} AS is_now, cluster, `group`, sum(violations) AS violations,
       sum(unaccounted) AS unaccounted
FROM offset_health WHERE {_between(begin, end)} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""  # noqa: S608


def _shipped(begin: datetime, middle: datetime, end: datetime) -> str:
    return f"""
SELECT observed_at > {_at(middle)} AS is_now, emitter, sum(rows_expected) AS rows_expected,
       sum(rows_found) AS rows_found, sum(rows_distinct) AS rows_distinct
FROM emitter_health WHERE {_between(begin, end)} GROUP BY 1, 2 ORDER BY 1, 2"""  # noqa: S608


def _results(window: Window, cut: Cut) -> str:
    """Runs of checks that had ended when the cut was taken, and judged a moment of the window."""
    judged = f"(judged_from IS NULL OR judged_from < {_at(window.end)})"
    return f"""
SELECT * FROM dq_results WHERE coalesce(kept_at, started_at) <= {spark_time(cut.told_at_us)}
  AND observed_at > {_at(window.begin)} AND {judged} ORDER BY started_at, run_id, expectation"""  # noqa: S608


def _failures(run_ids: list[str]) -> str:
    named = ", ".join("'" + one.replace("\\", "\\\\").replace("'", "\\'") + "'" for one in run_ids)
    return f"""
SELECT * FROM dq_failures WHERE run_id IN ({named or "''"})
ORDER BY run_id, expectation, row_key"""  # noqa: S608


def _at(moment: datetime) -> str:
    return spark_time(micros(moment))


def cut_text(cut: Cut) -> str:
    """In words, for people."""
    taken = utc_text(moment_at(cut.told_at_us), timespec="seconds")
    return f"cycle {cut.cycle} of run {cut.run_id}, taken {taken}"
