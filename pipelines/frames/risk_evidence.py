"""A duplicate-risk window in one sentence: what put messages at risk, what was seen, how it ended.

Place in the walk: the column `evidence` of gold duplicate_risk_windows, shown beside the figures.
Invariant: a sentence says nothing that the row's other columns do not. Absent on purpose: deciding.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.frames.sentences import messages, or_text, sentence

OF_ONE_MESSAGE: Final = ("SEND_BACK", "SEND_RETRY")
"""Bases whose windows are about one message, opened and closed at once."""


def evidence() -> Column:
    """The sentence about a row of revisions."""
    return F.concat_ws("", _opened(), _seen(), _beyond(), _ended())


def _opened() -> Column:
    """What put messages at risk, by basis."""
    basis = F.col("basis")
    client = or_text(F.col("client_id"), "an unknown client")
    span = sentence("[", F.col("from_offset"), ", ", F.col("to_offset"), ")")
    message = or_text(F.col("message_id"), "?")
    return (
        F.when(basis == "DEPARTURE", _departure(client, span))
        .when(basis == "RESTART", _restart(span))
        .when(basis == "OFFSET_FALL", _offset_fall())
        .when(
            basis == "EXPOSURE",
            sentence("commits stand still: a crash of ", client, " now would repeat ", span),
        )
        .when(
            basis == "SEND_BACK", sentence("message ", message, " failed and was delivered again")
        )
        .when(
            basis == "SEND_RETRY",
            sentence(
                "message ",
                message,
                " was sent again by its producer and stored twice: the second copy, at offset ",
                F.col("from_offset"),
                ", was delivered too",
            ),
        )
        .otherwise(sentence("pulls went back below what ", client, " had pulled"))
    )


def _departure(client: Column, span: Column) -> Column:
    verb = (
        F.when(F.col("cause") == "CONSUMER_CRASH", " was lost with ")
        .when(F.col("cause") == "DOUBLE_OWNER", " and another member read the queue in turn with ")
        .otherwise(" gave the queue up with ")
    )
    count = F.col("to_offset") - F.col("from_offset")
    return sentence(client, verb, messages(count), " pulled and not committed, ", span)


def _restart(span: Column) -> Column:
    died = sentence(
        "the broker died when its disk knew offset ",
        F.col("from_offset"),
        " and the group was at ",
        F.col("to_offset"),
    )
    damaged = sentence("the broker's offsets file was damaged; at risk is ", span)
    cut = sentence("the log lost its tail, and with it ", span, " that the group had pulled")
    return (
        F.when(F.col("cause") == "BROKER_CRASH", died)
        .when(F.col("cause") == "REPLAY_AFTER_TRUNCATION", cut)
        .otherwise(damaged)
    )


def _offset_fall() -> Column:
    cause = F.when(
        F.col("cause") == "RESET", "an operator reset the commit offset from "
    ).otherwise("the commit offset fell for no known reason from ")
    return sentence(cause, F.col("to_offset"), " to ", F.col("from_offset"))


def _seen() -> Column:
    """Which messages were delivered again, and to whom; null when none were."""
    count = F.col("redelivered")
    return F.when(
        (count > 0) & ~F.col("basis").isin(*OF_ONE_MESSAGE),
        sentence(
            "; ",
            messages(count),
            " of [",
            F.col("redelivered_from"),
            ", ",
            F.col("redelivered_to"),
            F.when(count == 1, ") was delivered again to ").otherwise(") were delivered again to "),
            or_text(F.col("next_client_id"), "an unknown client"),
        ),
    )


def _beyond() -> Column:
    """Why more came again than an event put at risk; null when no more did.

    A prediction speaks of the instant of the event. What readers pulled between it and the pull
    that went back comes again too.
    """
    is_predicted = F.col("basis").isin("DEPARTURE", "RESTART", "OFFSET_FALL")
    return F.when(
        is_predicted & (F.col("redelivered_to") > F.col("to_offset")),
        sentence("; those from ", F.col("to_offset"), " on had been pulled after the event"),
    )


def _ended() -> Column:
    """How the window ended; null while it is open."""
    return F.when(F.col("told_by") == "TAKEN_OVER", "; a later event took over").when(
        (F.col("state") == "CLOSED") & (F.col("redelivered") == 0), "; nothing came again"
    )
