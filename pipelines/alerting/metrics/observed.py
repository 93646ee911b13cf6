"""Builds metrics for observed clusters under the names of rocketmq-exporter and RocketMQ.

Place in the walk: gold, as `page` reads it → families, beside ours, so that boards made for these
names work. Brokers of our own serve both themselves.

    rocketmq-exporter  rocketmq_group_diff{group,topic,countOfOnlineConsumers,msgModel} …
    RocketMQ's own     rocketmq_consumer_lag_messages{cluster,node_type,node_id,topic,…} …

Invariant: a sum of which a part is unknown has no series. Rates are those of the last minute or
two; where offsets fell, or nothing was read a minute ago, there is none. Absent on purpose: what an
observer does not see: bytes, addresses, message types, a broker's runtime and its disk. Pure, but
for what a reading is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.alerting.metrics.exposition import Family, Sample
from pipelines.reading.moment import is_observer, sql_time
from pipelines.reading.reading import LOOK_BACK, Reading

RETRY, DEAD = "%RETRY%", "%DLQ%"
MODEL: Final = "CLUSTERING"
"""Groups that broadcast have no offsets at a broker, and so no series."""
RATE_SPAN: Final = timedelta(seconds=60)
RATE_SPAN_MAX: Final = timedelta(minutes=5)
"""What was read longer ago says nothing of now."""
SEEN_MAX: Final = 64
"""Looks that are remembered for rates."""
_PAIR: Final = ("cluster", "broker", "topic", "group")
_TOPIC: Final = ("cluster", "broker", "topic")


@dataclass(frozen=True, slots=True)
class Observed:
    """What gold says of observed clusters at one moment."""

    pairs: pl.DataFrame
    """A row a group, topic and broker: members, sums over queues, and rates a second."""
    topics: pl.DataFrame
    """A row a topic and broker: max_offset, and how much it grows a second."""
    failures: pl.DataFrame
    """A row a group, topic of origin and broker: dead_lettered, and failures a second."""


@dataclass(slots=True)
class Observing:
    """Looks at observed clusters, each held against one a minute before."""

    _seen: deque[tuple[datetime, pl.DataFrame, pl.DataFrame]] = field(
        default_factory=lambda: deque(maxlen=SEEN_MAX)
    )

    def look(self, reading: Reading, lag: pl.DataFrame, groups: pl.DataFrame) -> Observed | None:
        """The figures of observed brokers; None where none is observed."""
        present = reading.moment.present
        if present is None or not reading.moment.is_observed:
            return None
        pairs = pairs_of(_of_observers(lag), _of_observers(groups))
        topics = topics_of(_ends(reading))
        before = self._before(present)
        if not self._seen or self._seen[-1][0] < present:
            self._seen.append((present, pairs, topics))
        if before is not None:
            at, pairs_then, topics_then = before
            span_s = (present - at).total_seconds()
            pairs = _with_rate(pairs, pairs_then, _PAIR, "committed", span_s=span_s)
            topics = _with_rate(topics, topics_then, _TOPIC, "max_offset", span_s=span_s)
        return Observed(pairs, topics, _failures(reading, present))

    def _before(self, present: datetime) -> tuple[datetime, pl.DataFrame, pl.DataFrame] | None:
        """The newest look that is a minute old, if it is not too old."""
        fitting = [one for one in self._seen if RATE_SPAN <= present - one[0] <= RATE_SPAN_MAX]
        return fitting[-1] if fitting else None


def _of_observers(rows: pl.DataFrame) -> pl.DataFrame:
    names = [one for one in rows["emitter"].unique().to_list() if is_observer(one)]
    return rows.filter(pl.col("emitter").is_in(names))


def _whole(name: str) -> pl.Expr:
    """A sum; unknown when any part of it is."""
    column = pl.col(name)
    return pl.when(column.is_null().any()).then(None).otherwise(column.sum()).alias(name)


def _known(name: str) -> pl.Expr:
    """A sum of what is known, which is a lower bound; unknown when nothing is."""
    column = pl.col(name)
    return pl.when(column.is_not_null().any()).then(column.sum()).alias(name)


def pairs_of(lag: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of consumer_lag, summed over queues, with the members of their groups. Of the lag, where
    it is unknown of some queues, the lower bound: a series does not end because of them.
    """
    names = ("inflight_messages", "committed", "pulled", "max_offset")
    lags = lag.filter(pl.col("unknown_reason").ne_missing("BROADCAST"))
    summed = lags.group_by(_PAIR).agg(
        *(_whole(name) for name in names), _known("lag_messages"), pl.col("time_lag_ms").max()
    )
    members = groups.group_by("cluster", "group").agg(pl.col("members").max())
    rate = pl.lit(None, pl.Float64).alias("rate")
    return summed.join(members, on=["cluster", "group"], how="left").with_columns(rate).sort(_PAIR)


def topics_of(ends: pl.DataFrame) -> pl.DataFrame:
    """Ends of queues, summed over those of a topic on a broker."""
    rate = pl.lit(None, pl.Float64).alias("rate")
    if ends.is_empty():
        kinds = dict.fromkeys(_TOPIC, pl.String) | {"max_offset": pl.Int64, "rate": pl.Float64}
        return pl.DataFrame(schema=kinds)
    return ends.group_by(_TOPIC).agg(pl.col("max_offset").sum()).with_columns(rate).sort(_TOPIC)


def _ends(reading: Reading) -> pl.DataFrame:
    present = reading.moment.present
    assert present is not None, "there is gold"
    found = reading.summed_up(
        "queue_watermarks",
        {"max_offset": "last_value(max_offset ORDER BY seq)"},
        by=("emitter", *_TOPIC, "queue_id"),
        since=present - LOOK_BACK,
    )
    return found if found.is_empty() else _of_observers(found)


def _failures(reading: Reading, present: datetime) -> pl.DataFrame:
    """Of groups that had failures within a day: totals, and how many a second of late."""
    before = sql_time(present - RATE_SPAN)
    found = reading.summed_up(
        "retry_flow",
        {
            "first": "min(sent_back)",
            "before": f"max(CASE WHEN observed_at <= {before} THEN sent_back END)",
            "newest": "max(sent_back)",
            "dead_lettered": "max(dead_lettered)",
        },
        by=("emitter", "cluster", "broker", "group", "origin_topic"),
        since=present - timedelta(hours=25),
    )
    if found.is_empty():
        kinds = dict.fromkeys(_PAIR, pl.String)
        return pl.DataFrame(schema=kinds | {"dead_lettered": pl.Int64, "rate": pl.Float64})
    rate = (pl.col("newest") - pl.coalesce("before", "first")) / RATE_SPAN.total_seconds()
    observed = _of_observers(found).rename({"origin_topic": "topic"})
    return observed.with_columns(rate.alias("rate")).sort(_PAIR)


def _with_rate(
    now: pl.DataFrame, then: pl.DataFrame, key: Sequence[str], total: str, *, span_s: float
) -> pl.DataFrame:
    before = then.select(*key, pl.col(total).alias("before"))
    grown = pl.col(total) - pl.col("before")
    rate = pl.when(grown >= 0).then(grown / span_s).alias("rate")
    return now.join(before, on=list(key), how="left").with_columns(rate).drop("before").sort(key)


def families_of(observed: Observed) -> Iterator[Family]:
    """Both families."""
    yield from _exporter(observed)
    yield from _native(observed)


def _exporter(observed: Observed) -> Iterator[Family]:
    for name, meaning, prefix in (
        ("group_diff", "Messages not consumed", ""),
        ("group_retrydiff", "Retried messages not consumed", RETRY),
        ("group_dlqdiff", "Dead letters not consumed", DEAD),
    ):
        yield _gauge(name, meaning, _diffs(_kind(observed.pairs, prefix)))
    for name, meaning, column in (
        ("consumer_offset", "Ends of a group's queues", "max_offset"),
        ("group_consume_total_offset", "A group's consume offsets", "committed"),
        ("message_accumulation", "Messages not consumed", "lag_messages"),
        ("group_get_latency_by_storetime", "Age of the oldest of them, ms", "time_lag_ms"),
        ("group_get_latency", "Age of the oldest of them, ms", "time_lag_ms"),
        ("consumer_tps", "Messages consumed a second", "rate"),
        ("group_consume_tps", "Messages consumed a second", "rate"),
    ):
        yield _gauge(name, meaning, _column(observed.pairs, _PAIR, column))
    backs = _column(observed.failures.drop_nulls("topic"), _PAIR, "rate")
    yield _gauge("send_back_nums", "Messages sent back a second", backs)
    topics = _kind(observed.topics, "")
    yield _gauge("producer_tps", "Messages put a second", _column(topics, _TOPIC, "rate"))
    ends = _column(topics, _TOPIC, "max_offset")
    yield _gauge("producer_offset", "Messages a topic has ever got", ends)
    retries = _column(_kind(observed.topics, RETRY), _TOPIC, "max_offset")
    yield _gauge("topic_retry_offset", "Messages a retry topic has ever got", retries)
    dead = _kind(observed.topics, DEAD).with_columns(group=pl.col("topic").str.strip_prefix(DEAD))
    yield _gauge(
        "topic_dlq_offset",
        "Messages a group's dead letters have ever got",
        _column(dead, ("cluster", "broker", "group"), "max_offset"),
    )


def _native(observed: Observed) -> Iterator[Family]:
    ready = (pl.col("max_offset") - pl.col("pulled")).alias("ready_messages")
    pairs = observed.pairs.with_columns(ready)
    for name, meaning, column in (
        ("lag_messages", "Messages a group has not consumed", "lag_messages"),
        ("inflight_messages", "Messages pulled by a group and not consumed", "inflight_messages"),
        ("ready_messages", "Messages not pulled by a group", "ready_messages"),
        (
            "lag_latency_milliseconds",
            "Age of the oldest message a group has not consumed",
            "time_lag_ms",
        ),
    ):
        samples: list[Sample] = [
            (
                _node(row)
                | {
                    "topic": row["topic"],
                    "consumer_group": row["group"],
                    "is_system": _word(_is_system(row["topic"], row["group"])),
                    "is_retry": _word(row["topic"].startswith(RETRY)),
                },
                row[column],
            )
            for row in pairs.iter_rows(named=True)
        ]
        yield _gauge(f"consumer_{name}", meaning, samples)
    yield Family(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        "Messages that a group gave up",
        [
            (
                _node(row)
                | {
                    "topic": row["topic"],
                    "consumer_group": row["group"],
                    "is_system": _word(_is_system(row["topic"], row["group"])),
                },
                row["dead_lettered"],
            )
            for row in observed.failures.drop_nulls("topic").iter_rows(named=True)
        ],
    )


def _diffs(pairs: pl.DataFrame) -> list[Sample]:
    """Over all brokers of a cluster, as the exporter does; of a group whose members nobody knows
    there is none, for their number is a label."""
    members = (
        pl.when(pl.col("members").is_null().any()).then(None).otherwise(pl.col("members").max())
    )
    summed = pairs.group_by("group", "topic").agg(_known("lag_messages"), members.alias("members"))
    return [
        (
            {
                "group": row["group"],
                "topic": row["topic"],
                "countOfOnlineConsumers": str(row["members"]),
                "msgModel": MODEL,
            },
            row["lag_messages"] if row["members"] is not None else None,
        )
        for row in summed.sort("group", "topic").iter_rows(named=True)
    ]


def _kind(rows: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Rows of retry topics, of dead letters, or of all others that are nobody's but users'."""
    topic = pl.col("topic")
    if prefix:
        return rows.filter(topic.str.starts_with(prefix))
    return rows.filter(~topic.str.starts_with(RETRY), ~topic.str.starts_with(DEAD))


def _column(rows: pl.DataFrame, key: Sequence[str], name: str) -> list[Sample]:
    labels = rows.select(key).iter_rows(named=True)
    return list(zip(labels, rows[name].to_list(), strict=True))


def _node(row: dict[str, str]) -> dict[str, str | None]:
    return {"cluster": row["cluster"], "node_type": "broker", "node_id": row["broker"]}


def _is_system(topic: str, group: str) -> bool:
    return topic.startswith("rmq_sys_") or group.startswith("CID_RMQ_SYS_")


def _word(value: bool) -> str:
    return "true" if value else "false"


def _gauge(name: str, meaning: str, samples: list[Sample]) -> Family:
    return Family(f"rocketmq_{name}", "gauge", meaning, samples)
