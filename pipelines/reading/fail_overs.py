"""Finds what groups may read again after a change of a broker's leader (FAIL_OVER).

Place in the walk: lifecycle (ROLE_CHANGE) and gold consumer_lag → one row per change and group, for
the overview. A new leader knows the offsets that it copied last: what was committed at the former
one since comes again to whoever asks where to go on.

Invariant: of each queue the last report before the change is held against the first one of the new
leader, unless that one made both: it was started or elected again. A queue that had an offset and
has none now is counted as unknown. It is computed where it is read: two spools are shipped in no
order. Absent on purpose: whether it came again.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.lake.lake import sql_text
from pipelines.lake.schemas import QUEUE
from pipelines.marts.lifecycle_events import MASTER, ROLE_CHANGE
from pipelines.reading.moment import sql_time
from pipelines.reading.reading import LOOK_BACK, Reading

REPORTED_WITHIN: Final = timedelta(seconds=120)
"""A leader reports all that there is in a snapshot, which takes half a minute at most."""
_BROKER: Final = ("cluster", "broker")
_CHANGE: Final = (*_BROKER, "emitter", "led_at", "epoch")
_LAG: Final = (*QUEUE, "emitter", "observed_at", "seq", "committed", "pulled")
FAIL_OVERS: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "cluster": pl.String,
    "broker": pl.String,
    "emitter": pl.String,
    "led_at": pl.Datetime("us", "UTC"),
    "epoch": pl.Int64,
    "group": pl.String,
    "queues": pl.UInt32,
    "queues_unknown": pl.UInt32,
    "at_risk_messages": pl.Int64,
    "handed_out_messages": pl.Int64,
}
"""at_risk_messages: committed at the former leader, and not at the new one. handed_out_messages:
given to clients and not committed at the new one, those among them."""


def fail_overs_in(reading: Reading, start: datetime, end: datetime) -> pl.DataFrame:
    """Those that happened in a range, oldest first."""
    nodes = Counter(one.emitter.rpartition("/")[0] for one in reading.moment.reached)
    several = [broker for broker, count in nodes.items() if count > 1]
    if not several:
        return pl.DataFrame(schema=FAIL_OVERS)
    role = f"kind = '{ROLE_CHANGE}' AND role = '{MASTER}' AND event_time <= {sql_time(end)}"
    changes = reading.facts("lifecycle", role, since=start).filter(
        pl.concat_str(*_BROKER, separator="/").is_in(several)
    )
    if changes.is_empty():
        return pl.DataFrame(schema=FAIL_OVERS)
    first, last = changes["event_time"][0], changes["event_time"][-1]
    brokers = ", ".join(sql_text(name) for name in changes["broker"].unique().sort())
    until = f"observed_at <= {sql_time(last + REPORTED_WITHIN)}"
    lag = reading.rows(
        "consumer_lag", f"broker IN ({brokers})", until, since=first - LOOK_BACK, columns=_LAG
    )
    return fail_overs(changes, lag)


def fail_overs(changes: pl.DataFrame, lag: pl.DataFrame) -> pl.DataFrame:
    """A row a change and group; `changes`: of lifecycle, who says that it leads."""
    led = changes.select(
        *_BROKER,
        "emitter",
        pl.col("event_time").alias("led_at"),
        pl.col("term").alias("epoch"),
    ).unique([*_BROKER, "emitter", "epoch"], keep="first", maintain_order=True)
    reports = led.join(lag, on=_BROKER, suffix="_of_row").sort("observed_at", "seq")
    is_own = pl.col("emitter_of_row") == pl.col("emitter")
    since = pl.col("observed_at") - pl.col("led_at")
    key = [*_CHANGE, *(name for name in QUEUE if name not in _BROKER)]
    before = reports.filter((since <= timedelta(0)) & (since >= -LOOK_BACK))
    after = reports.filter(is_own & (since >= timedelta(0)) & (since <= REPORTED_WITHIN))
    last = before.group_by(key).agg(
        pl.col("committed").last(), pl.col("pulled").last(), is_own.last().alias("led_before")
    )
    first = after.group_by(key).agg(pl.col("committed").first().alias("found"))
    of_another = last.filter(~pl.col("led_before"))
    queues = of_another.join(first, on=key).with_columns(
        pl.when(pl.col("committed").is_null())
        .then(0)
        .otherwise((pl.col("committed") - pl.col("found")).clip(0))
        .alias("at_risk"),
        (pl.max_horizontal("committed", "pulled") - pl.col("found")).clip(0).alias("handed_out"),
    )
    found = queues.group_by(*_CHANGE, "group").agg(
        pl.len().alias("queues"),
        pl.col("at_risk").null_count().alias("queues_unknown"),
        pl.col("at_risk").sum().alias("at_risk_messages"),
        pl.col("handed_out").sum().alias("handed_out_messages"),
    )
    return found.select(pl.col(name).cast(kind) for name, kind in FAIL_OVERS.items()).sort(
        "led_at", *_BROKER, "group"
    )
