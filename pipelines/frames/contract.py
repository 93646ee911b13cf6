"""The schema contract at the end of every mart.

Invariant: what leaves a mart has exactly the declared columns, in order, in the declared types; a
mart that lacks one fails when its plan is made, not when somebody reads. Absent on purpose: repairs
of values.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from engine.telemetry.tables import Column as Declared
from pipelines.marts.mart import GoldTable
from pipelines.session import spark_type

QUEUE_KEY: Final = ("emitter", "group", "topic", "queue_id")
"""One queue of one group: an emitter is one broker, so cluster and broker follow from it."""
QUEUE_PLACE: Final = ("cluster", "broker", "group", "topic", "queue_id")


def as_declared(rows: DataFrame, table: GoldTable) -> DataFrame:
    """The declared columns of `table`; `observed_us` becomes observed_at, observed_date (and
    valid_from).
    """
    moment = F.timestamp_micros("observed_us")
    made = {
        "observed_at": moment,
        "valid_from": moment,
        "observed_date": F.to_date(moment),
    }
    return rows.select(
        *(
            made.get(column.name, _column(rows, column))
            .cast(spark_type(column.type))
            .alias(column.name)
            for column in table.columns
        )
    )


def _column(rows: DataFrame, column: Declared) -> Column:
    """Its column; null where the judges here do not make what a later mart tells."""
    is_later = column.nullable and column.name not in rows.columns
    return F.lit(None) if is_later else F.col(column.name)


def window_id(mart: str, *parts: str) -> Column:
    """Name of an interval: the same for the same opening, in every run."""
    words = [F.lit(mart), *(F.col(part).cast("string") for part in parts)]
    return F.substring(F.sha2(F.concat_ws("|", *words), 256), 1, 32)
