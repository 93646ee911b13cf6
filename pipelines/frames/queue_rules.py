"""The grammar of a queue's state: which rule holds at a tick, and of which kind the trouble is.

Place in the walk: observed queues → judged queues, from which stalled windows and group states
follow.

In order, first match: BROADCAST (nothing to judge) | NO_OFFSET | DATA_LOST | OK (lag and time lag
within what is allowed) | STOPPED | REWOUND | STALLED | SLOW | OK. Windows are of time, not of
commits, so the verdict does not depend on how often a consumer commits. A queue whose window is not
complete is judged by the rules that need none.

Invariant: a paused consumer is silent. It told to be asked for nothing; its lag is shown, no rule
fires.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.settings import SECOND_US, Evaluation

PRODUCE_ALLOWANCE_US = 5 * SECOND_US
"""A lag of what is produced in this time is normal: clients report their offsets each five
seconds.
"""
HELD_PULL_US = 30 * SECOND_US
"""A pull that finds nothing is held by the broker for as long as this before the client asks
again.
"""


def judged_queues(observed: DataFrame, evaluation: Evaluation) -> DataFrame:
    """The observed rows with `lag`, `time_lag_us`, `rule` (OK, BROADCAST or what is wrong) and
    `kind`.
    """
    with_figures = observed.withColumns(
        {
            "lag": F.col("now.lag_messages"),
            "time_lag_us": _time_lag_us(),
            "reports": F.coalesce(
                F.col("now.reports_so_far") - F.col("before.reports_so_far"), F.lit(0)
            ),
            "is_paused": _is_paused(evaluation),
        }
    )
    with_rule = with_figures.withColumn("rule", _rule(evaluation))
    return with_rule.withColumn("kind", _kind(evaluation))


def _time_lag_us() -> Column:
    state = F.col("now.committed_state")
    waited = F.col("tick_us") - F.col("now.store_us_at_committed")
    return (
        F.when(F.col("now.is_broadcast"), None)
        .when(state.isin("EXACT", "UNREADABLE"), F.greatest(waited, F.lit(0)))
        .when(state == "AT_END", 0)
    )


def _rule(evaluation: Evaluation) -> Column:
    committed, least, most = (
        F.col("now.committed"),
        F.col("now.min_offset"),
        F.col("now.max_offset"),
    )
    has_none = (F.col("now.committed_state") == "NONE") | committed.isNull()
    had_none = (F.col("before.committed_state") == "NONE") & F.col("is_complete")
    return (
        F.when(~F.col("is_evaluated"), None)
        .when(F.col("now.is_broadcast"), "BROADCAST")
        .when(has_none, F.when(had_none & (most > least), "NO_OFFSET").otherwise("OK"))
        .when((committed < least) | (committed > most), "DATA_LOST")
        .when(_is_within_allowance(evaluation), "OK")
        .when(F.col("is_paused"), "OK")
        .when(_is_stopped(evaluation), "STOPPED")
        .when(committed < F.col("high"), "REWOUND")
        .when(_is_stalled(), "STALLED")
        .when(_is_slow(evaluation), "SLOW")
        .otherwise("OK")
    )


def _allowed_lag(evaluation: Evaluation) -> Column:
    produced = F.expr(
        f"((now.max_offset - before.max_offset) * {PRODUCE_ALLOWANCE_US})"
        f" div {evaluation.window_us}"
    )
    return F.greatest(F.lit(evaluation.allowed_lag), F.coalesce(produced, F.lit(0)))


def _is_within_allowance(evaluation: Evaluation) -> Column:
    allowed_us = evaluation.allowed_time_ms * 1000
    in_time = F.coalesce(F.col("time_lag_us") <= allowed_us, F.lit(True))
    return (F.col("lag") <= _allowed_lag(evaluation)) & in_time


def _is_stopped(evaluation: Evaluation) -> Column:
    """No report for a window, as of the row itself: reports that changed nothing are told with a
    delay.
    """
    last_report = F.coalesce("now.last_commit_us", "now.broker_epoch")
    silent_us = F.col("now.event_us") - last_report
    return F.col("is_complete") & (silent_us >= evaluation.window_us) & (F.col("lag_least") > 0)


def _is_stalled() -> Column:
    stood = F.col("committed_least") == F.col("committed_most")
    return F.col("is_complete") & stood & (F.col("lag_least") > 0)


def _is_slow(evaluation: Evaluation) -> Column:
    grown = F.col("lag") - F.col("before.lag_messages")
    never_below = F.col("lag_least") == F.col("before.lag_messages")
    # A queue that has just stood still is not slow: it is about to be STALLED.
    advances = F.col("now.committed") > F.col("committed_midway")
    return F.col("is_complete") & (grown > _allowed_lag(evaluation)) & never_below & advances


def _is_pulled(evaluation: Evaluation) -> Column:
    """Somebody asks for this queue: lately, or with a request that the broker holds since all is
    pulled.
    """
    age = F.col("tick_us") - F.col("now.last_pull_us")
    lately = age <= max(evaluation.window_us, PRODUCE_ALLOWANCE_US)
    waiting = (F.col("now.pulled") >= F.col("now.max_offset")) & (
        age <= evaluation.window_us + HELD_PULL_US
    )
    return F.coalesce(lately | waiting, F.lit(False))


def _is_paused(evaluation: Evaluation) -> Column:
    """The client works on the queue by its own account, holds nothing of it, and pulls nothing."""
    sampled = F.col("sample.held_count") == 0
    cares = F.col("sample.event_us") - F.col("sample.client_pull_us") <= evaluation.window_us
    return F.coalesce(sampled & cares & ~_is_pulled(evaluation), F.lit(False))


def _kind(evaluation: Evaluation) -> Column:
    in_flight = F.coalesce(F.col("now.pulled") > F.col("now.committed"), F.lit(False))
    holds = F.coalesce(F.col("sample.held_count") > 0, F.lit(False))
    locked = F.coalesce(F.col("sample.locked"), F.lit(False)) | F.col("now.lock_holder").isNotNull()
    stands = F.col("rule").isin("STOPPED", "STALLED", "NO_OFFSET")
    pulled = _is_pulled(evaluation)
    return (
        F.when(~stands, "UNDETERMINED")
        .when(F.col("now.members") == 0, "DEAD_CONSUMER")
        .when(locked & (in_flight | holds), "BLOCKED_ORDERLY")
        .when(holds | (in_flight & pulled), "FROZEN_HEAD")
        .when(~pulled, "DEAD_QUEUE")
        .otherwise("UNDETERMINED")
    )
