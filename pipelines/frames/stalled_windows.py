"""Intervals in which a queue's consumption was not OK, as revisions: opened, changed in rule or
kind, closed.

Place in the walk: verdicts → gold stalled_windows.

Invariant: the revisions of one window_id are numbered without gaps from 1; the last one of a CLOSED
window keeps the rule and kind that were shown before. Absent on purpose: updates of figures alone.
Lag over time is consumer_lag's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.catalogue import STALLED_WINDOWS
from pipelines.frames.contract import QUEUE_KEY, as_declared, window_id
from pipelines.frames.sentences import messages, or_text, sentence
from pipelines.settings import Evaluation

_HEAD_KINDS = ("FROZEN_HEAD", "BLOCKED_ORDERLY")


def stalled_windows(shown: DataFrame, evaluation: Evaluation) -> DataFrame:
    """One row per revision of an interval in which a queue was not OK."""
    changes = _changes(_named(shown))
    of_queue = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    islands = changes.withColumn(
        "island", F.sum(F.when(F.col("change") == "OPENED", 1).otherwise(0)).over(of_queue)
    )
    of_island = Window.partitionBy(*QUEUE_KEY, "island")
    is_carried = F.col("island") == 0
    first_bad_us = F.when(F.col("change") == "OPENED", F.col("tick_us") - evaluation.slide_us)
    earlier = F.when(is_carried, F.col("carried.revision")).otherwise(0)
    rows = islands.withColumns(
        {
            "revision": earlier + F.row_number().over(of_island.orderBy("tick_us")),
            "opened_us": F.when(is_carried, F.unix_micros("carried.opened_at")).otherwise(
                F.max(first_bad_us).over(of_island)
            ),
            "is_closed": F.col("change") == "CLOSED",
        }
    ).withColumn("window_id", window_id("stalled_windows", *QUEUE_KEY, "opened_us"))
    return as_declared(_figures(rows, evaluation), STALLED_WINDOWS)


def _named(shown: DataFrame) -> DataFrame:
    """Rule, kind and head as shown: those of the tick while bad, those shown last when it turned
    clean.
    """
    of_queue = Window.partitionBy(*QUEUE_KEY).orderBy("tick_us")
    before = of_queue.rowsBetween(Window.unboundedPreceding, -1)
    up_to_now = of_queue.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_bad = F.col("is_bad")
    has_head = is_bad & F.col("kind").isin(*_HEAD_KINDS) & F.col("sample").isNotNull()
    head = F.when(
        has_head & F.col("sample.head_message_id").isNotNull(),
        F.struct("sample.head_message_id", "sample.head_since", "sample.stack"),
    )
    carried_head = F.when(
        F.col("carried.head_message_id").isNotNull(),
        F.struct("carried.head_message_id", "carried.head_since", "carried.stack"),
    )
    verdict = F.when(is_bad, F.struct("rule", "kind"))
    carried_verdict = F.when(F.col("carried").isNotNull(), F.struct("carried.rule", "carried.kind"))
    return (
        shown.withColumns({"verdict": verdict, "head": head})
        .withColumn(
            "verdict_before",
            F.coalesce(F.last("verdict", ignorenulls=True).over(before), carried_verdict),
        )
        .withColumn(
            "head_before", F.coalesce(F.last("head", ignorenulls=True).over(before), carried_head)
        )
        .withColumn(
            "head", F.coalesce(F.last("head", ignorenulls=True).over(up_to_now), carried_head)
        )
        .withColumn("verdict", F.coalesce("verdict", "verdict_before"))
    )


def _changes(named: DataFrame) -> DataFrame:
    """The ticks that make a revision, with `change`: OPENED, CHANGED or CLOSED."""
    is_bad, was_bad = F.col("is_bad"), F.col("was_bad")
    other_verdict = F.col("verdict") != F.col("verdict_before")
    new_head = F.col("verdict.kind").isin(*_HEAD_KINDS) & ~F.col("head.head_message_id").eqNullSafe(
        F.col("head_before.head_message_id")
    )
    change = (
        F.when(is_bad & ~was_bad, "OPENED")
        .when(is_bad & (other_verdict | new_head), "CHANGED")
        .when(~is_bad & was_bad, "CLOSED")
    )
    return named.withColumn("change", change).where(F.col("change").isNotNull())


def _figures(rows: DataFrame, evaluation: Evaluation) -> DataFrame:
    is_head = F.col("verdict.kind").isin(*_HEAD_KINDS)
    seen = F.col("is_evaluated")
    measured = {
        "committed_from": "before.committed",
        "committed_to": "now.committed",
        "pulled_from": "before.pulled",
        "pulled_to": "now.pulled",
        "max_offset_from": "before.max_offset",
        "max_offset_to": "now.max_offset",
        "lag_messages": "lag",
    }
    figures = rows.withColumns({name: F.when(seen, F.col(of)) for name, of in measured.items()})
    told = figures.withColumns(
        {
            "observed_us": F.col("tick_us"),
            "state": F.when(F.col("is_closed"), "CLOSED").otherwise("OPEN"),
            "opened_at": F.timestamp_micros("opened_us"),
            "closed_at": F.when(F.col("is_closed"), F.timestamp_micros("tick_us")),
            "rule": F.col("verdict.rule"),
            "kind": F.col("verdict.kind"),
            "window_ms": F.lit(evaluation.window_ms),
            "slide_ms": F.lit(evaluation.slide_ms),
            "time_lag_ms": F.when(seen, F.expr("time_lag_us div 1000")),
            "client_id": F.coalesce("now.last_puller", "carried.client_id"),
            "head_message_id": F.when(is_head, F.col("head.head_message_id")),
            "head_since": F.when(is_head, F.col("head.head_since")),
            "stack": F.when(is_head, F.col("head.stack")),
            "seq": F.coalesce("now.seq", "carried.seq"),
        }
    )
    return told.withColumn("evidence", _evidence(evaluation))


def _evidence(evaluation: Evaluation) -> Column:
    """One sentence with the figures that fired the rule."""
    seconds = evaluation.window_ms // 1000
    closing = F.when(
        F.col("is_evaluated"),
        sentence(
            "clean again: commit offset ",
            _number("committed_to"),
            ", ",
            messages(F.col("lag_messages")),
            " behind",
        ),
    ).otherwise("the broker reports this queue of the group no more")
    return F.when(F.col("is_closed"), closing).otherwise(
        F.concat_ws("", _what(seconds), _who(), _head())
    )


def _what(seconds: int) -> Column:
    committed = _number("committed_to")
    moved = sentence(
        ", pulls went from ",
        _number("pulled_from"),
        " to ",
        _number("pulled_to"),
        ", ",
        messages(F.col("lag_messages")),
        " waiting",
    )
    rule = F.col("rule")
    return (
        F.when(
            rule == "STALLED",
            sentence("commit offset stood at ", committed, f" for {seconds} s", moved),
        )
        .when(
            rule == "STOPPED",
            sentence(f"no offset report for {seconds} s, the last said ", committed, moved),
        )
        .when(
            rule == "SLOW",
            sentence(
                "commits advance from ",
                _number("committed_from"),
                " to ",
                committed,
                f" in {seconds} s, yet the lag only grew, to ",
                messages(F.col("lag_messages")),
            ),
        )
        .when(
            rule == "REWOUND",
            sentence(
                "commit offset fell to ",
                committed,
                " and has not regained ",
                or_text(F.col("high"), "what it was"),
            ),
        )
        .when(
            rule == "DATA_LOST",
            sentence(
                "commit offset ",
                committed,
                " lies outside what the queue keeps, [",
                F.col("now.min_offset"),
                ", ",
                _number("max_offset_to"),
                "]",
            ),
        )
        .otherwise(
            sentence(
                f"no offset was ever committed in {seconds} s while messages up to ",
                _number("max_offset_to"),
                " wait",
            )
        )
    )


def _who() -> Column:
    return (
        F.when(F.col("kind") == "DEAD_CONSUMER", "; the group has no member")
        .when(
            F.col("kind") == "DEAD_QUEUE",
            sentence(
                "; nobody pulls, last ",
                or_text(F.col("client_id"), "nobody"),
                or_text(
                    sentence(
                        " at ",
                        F.date_format(F.timestamp_micros("now.last_pull_us"), "HH:mm:ss"),
                    ),
                    "",
                ),
            ),
        )
        .when(F.col("kind") == "BLOCKED_ORDERLY", "; the queue is locked by its orderly reader")
    )


def _head() -> Column:
    return F.when(
        F.col("head_message_id").isNotNull(),
        sentence(
            "; message ",
            F.col("head_message_id"),
            or_text(
                sentence(" is in a listener since ", F.date_format("head_since", "HH:mm:ss")),
                " is at the head",
            ),
        ),
    )


def _number(name: str) -> Column:
    return or_text(F.col(name), "unknown")
