"""Queries one topic's data from gold, and from bronze where gold has none.

How far producers came, every step of a failed message and what was handed out again are facts of
bronze. Invariant: every answer is small: a row a queue, a failed message, or a step. Absent on
purpose: words (`models.topic_lines`, `models.message_path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from dashboards.reads.lake_data import Look, Seen, within
from pipelines.reading.known import held_to
from pipelines.reading.reading import LOOK_BACK

QUEUE: Final = ("cluster", "broker", "queue_id")
OF_GROUP: Final = ("%RETRY%", "%DLQ%")
POP_SEPARATORS: Final = ("_", "+")
"""Between group and topic in the name of a retry topic of POP."""
"""Beginnings of topics that a group has for itself: its failed messages are theirs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message lies."""

    broker: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicData:
    """One lake at one moment, asked about topics."""

    data: Seen

    def lag_on(self, topic: str, end: datetime) -> pl.DataFrame:
        """Every queue of the topic and group that reads it, as it is at the range's end."""
        seen = self.data.at(end)
        return held_to(seen.newest_lag().filter(pl.col("topic") == topic), seen.moment)

    def stalls_on(self, topic: str, start: datetime, end: datetime) -> pl.DataFrame:
        """Stalled windows of the topic's queues that meet the range."""
        return self.data.stalls(start, end).filter(pl.col("topic") == topic)

    def produced(self, topic: str, start: datetime, end: datetime) -> pl.DataFrame:
        """What is known of each queue's end in the range, one row a queue: what held at its
        beginning, and what was reported last.

        A queue whose watermarks were not reported is taken from the lag of the group that was
        reported last; who may read it is unknown then.
        """
        by_marks = self.data.answer(
            "queue_watermarks",
            ("produced", topic, start, end),
            lambda rows: _ends(
                within(rows, start - LOOK_BACK, end, kind="event").filter(pl.col("topic") == topic),
                *("event_time", "readable", "last_store_time"),
                start=start,
            ),
        )
        unknown = pl.lit(None)
        by_lag = self.data.answer(
            "consumer_lag",
            ("produced", topic, start, end),
            lambda rows: (
                _ends(
                    within(rows, start - LOOK_BACK, end)
                    .filter(pl.col("topic") == topic)
                    .with_columns(
                        unknown.cast(pl.Boolean).alias("readable"),
                        unknown.cast(pl.Datetime("us", "UTC")).alias("last_store_time"),
                    ),
                    *("observed_at", "readable", "last_store_time"),
                    key=(*QUEUE, "group"),
                    start=start,
                )
                .sort("last_at")
                .unique(QUEUE, keep="last")
                .drop("group")
            ),
        )
        rest = by_lag.join(by_marks, on=QUEUE, how="anti").select(by_marks.columns)
        return pl.concat([by_marks, rest]).sort(QUEUE)

    def failed(self, topic: str, start: datetime, end: datetime) -> pl.DataFrame:
        """Messages of the topic that a group failed on in the range: their newest step each."""
        wanted = is_about(topic)
        nameless = pl.format(
            "{}/{}", pl.col("origin_queue_id").fill_null(-1), pl.col("origin_offset").fill_null(-1)
        )
        return self.data.answer(
            "retry_dlq_flow",
            ("failed", topic, start, end),
            lambda rows: (
                within(rows, start, end, kind="event")
                .filter(wanted & (pl.col("step") != "SENT_AGAIN"))
                .sort("event_time", "seq")
                .group_by("group", pl.coalesce("message_id", nameless).alias("message"))
                .agg(
                    pl.col("message_id").last(),
                    pl.col("broker").last(),
                    pl.col("origin_topic").drop_nulls().last(),
                    pl.col("origin_queue_id").drop_nulls().last(),
                    pl.col("origin_offset").drop_nulls().last(),
                    pl.col("reconsume_times").max(),
                    pl.col("step").last(),
                    pl.col("delay_ms").last(),
                    pl.col("reason").drop_nulls().last(),
                    pl.col("event_time").first().alias("first_at"),
                    pl.col("event_time").last().alias("last_at"),
                )
                .sort(["last_at", "group", "message"], descending=[True, False, False])
            ),
        )

    def steps_of(self, message_id: str, start: datetime, end: datetime) -> pl.DataFrame:
        """Every step of one failed message, in order."""
        return self.data.answer(
            "retry_dlq_flow",
            ("steps", message_id, start, end),
            lambda rows: (
                within(rows, start, end, kind="event")
                .filter(pl.col("message_id") == message_id)
                .sort("event_time", "seq")
            ),
        )

    def handed_out_again(self, place: Place, start: datetime, end: datetime) -> pl.DataFrame:
        """Pulls that brought the message a second time."""
        offset = pl.lit(place.offset)
        return self.data.answer(
            "redeliveries",
            ("again", place, start, end),
            lambda rows: (
                within(rows, start, end, kind="event")
                .filter(_at(place))
                .filter((pl.col("from_offset") <= offset) & (offset < pl.col("to_offset")))
                .sort("event_time", "seq")
            ),
        )

    def stored(self, place: Place, start: datetime, end: datetime) -> pl.DataFrame:
        """When the queue's end was first reported beyond the message, and the report before; no row
        for a queue that was not reported."""
        return self.data.answer(
            "queue_watermarks",
            ("stored", place, start, end),
            lambda rows: (
                within(rows, start, end, kind="event")
                .filter(_at(place))
                .group_by("broker")
                .agg(*_crossing("max_offset", place.offset, moment="event_time", as_="stored"))
            ),
        )

    def passed(self, place: Place, start: datetime, end: datetime) -> pl.DataFrame:
        """When each group's pulled mark and consume offset were first reported beyond the message,
        and the report before, which still had them at or below it. Null when the first report had
        them beyond already, or none had."""

        return self.data.answer(
            "consumer_lag",
            ("passed", place, start, end),
            lambda rows: (
                within(rows, start, end)
                .filter(_at(place))
                .group_by("group")
                .agg(
                    *_crossing("pulled", place.offset, as_="pulled"),
                    *_crossing("committed", place.offset, as_="committed"),
                )
                .sort("group")
            ),
        )


def looked(look: Look, topic: str) -> Look | tuple[str, ...]:
    """The look at the one cluster that knows the topic; the names of several that do."""

    def knows(one: Look) -> bool:
        data, span = TopicData(one.data), one.span
        return bool(
            data.lag_on(topic, span.end).height
            or data.produced(topic, span.start, span.end).height
            or data.failed(topic, span.start, span.end).height
        )

    return look.among(knows)


def _ends(
    rows: pl.LazyFrame,
    moment: str,
    *names: str,
    start: datetime,
    key: tuple[str, ...] = QUEUE,
) -> pl.LazyFrame:
    """First and last of each queue's end; an earlier report holds at the range's beginning."""
    begin = pl.lit(start, pl.Datetime("us", "UTC"))
    before = pl.col("max_offset").filter(pl.col(moment) <= begin).last()
    return (
        rows.sort(moment, "seq")
        .group_by(*key)
        .agg(
            pl.col("min_offset").last(),
            pl.coalesce(before, pl.col("max_offset").first()).alias("first_offset"),
            pl.col("max_offset").last(),
            (pl.col("max_offset").filter(pl.col(moment) >= begin).diff() < 0).any().alias("fell"),
            pl.max_horizontal(pl.col(moment).first(), begin).alias("first_at"),
            pl.col(moment).last().alias("last_at"),
            *(pl.col(name).last() for name in names),
        )
    )


def _crossing(
    mark: str, offset: int, *, as_: str, moment: str = "observed_at"
) -> tuple[pl.Expr, pl.Expr]:
    """The first moment at which a mark is beyond an offset, and the last one before; both null when
    the first row has it beyond already, or none has."""
    at, beyond = pl.col(moment), pl.col(mark) > offset
    first = at.filter(beyond).min()
    before = at.filter(~beyond & (at < first)).max()
    return (
        pl.when(before.is_not_null()).then(first).alias(f"{as_}_at"),
        before.alias(f"{as_}_after"),
    )


def _at(place: Place) -> pl.Expr:
    return (
        (pl.col("broker") == place.broker)
        & (pl.col("topic") == place.topic)
        & (pl.col("queue_id") == place.queue_id)
    )


def is_about(topic: str) -> pl.Expr:
    """Of steps of failed messages: are they of this topic? Of a group's own topic those of the
    group, of a retry topic of POP (group and topic in one name) those of both.
    """
    mine = pl.col("origin_topic") == topic
    group = next((topic.removeprefix(p) for p in OF_GROUP if topic.startswith(p)), None)
    if group is None:
        return mine
    made = [
        pl.format(f"{{}}{sign}{{}}", "group", "origin_topic") == group for sign in POP_SEPARATORS
    ]
    of_pop = topic.startswith(OF_GROUP[0]) & pl.any_horizontal(made).fill_null(value=False)
    return mine.fill_null(value=False) | (pl.col("group") == group) | of_pop
