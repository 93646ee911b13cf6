"""Builds metric families from gold frames, alerts and notices.

Place in the walk: `page` reads, this counts, `exposition` writes. Lag, states and stalls are those
of gold's last complete cycle; ages are held against the clock of this process.

Invariant: pure. Seconds and messages are the units; unknown has no series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from pipelines.alerting.alerts import Alert
from pipelines.alerting.metrics.exposition import Family, Sample
from pipelines.alerting.metrics.observed import Observed, families_of
from pipelines.base.settings import MS_US, SECOND_US
from pipelines.base.time_units import micros
from pipelines.base.wording import bound_of
from pipelines.reading.at_risk import at_risk_by
from pipelines.reading.moment import Moment, cluster_of

_PLACE = ("cluster", "broker", "group")
_QUEUE = (*_PLACE, "topic", "queue_id")
_MS = SECOND_US // MS_US


@dataclass(frozen=True, slots=True)
class Gold:
    """What gold says at one moment."""

    moment: Moment
    groups: pl.DataFrame
    """Of group_state, with the lag of now."""
    queues: pl.DataFrame
    """Of consumer_lag; no rows: queues are not asked for."""
    stalls: pl.DataFrame
    """Open windows."""
    risks: pl.DataFrame
    checks: pl.DataFrame
    shipped: pl.DataFrame
    """The newest shipment of each emitter: emitter, event_time_to, shipped_time."""
    rebalances: pl.DataFrame
    """Changes of members since the first look: cluster, broker, group, changes."""
    collect_s: float
    """How long all this took to read."""
    retries: pl.DataFrame | None = None
    """Of groups with failures within a day: cluster, broker, group, sent_back, dead_lettered,
    overdue; None: no message has ever failed."""
    observed: Observed | None = None
    """The figures of observed brokers; None: none is observed."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """How a receiver fares."""

    name: str
    waiting: int
    failures: int


@dataclass(frozen=True, slots=True)
class Process:
    """What this process knows of itself and of its database."""

    leads: bool
    rules: int
    look_s: float | None = None
    """How long the last look at gold took, deciding and storing included."""
    alerts: Sequence[Alert] = ()
    receivers: Sequence[Receiver] = ()
    changes_waiting: int | None = None
    readable: Mapping[str, bool] = field(default_factory=dict)
    """`lake` and `database`: could they be read?"""


def families(gold: Gold | None, process: Process, *, now_us: int) -> Iterator[Family]:
    """All of them; without gold those that need none."""
    yield from _of_process(process)
    if gold is not None:
        yield from _of_lag(gold)
        yield from _of_trouble(gold)
        yield from _of_retries(gold)
        yield from _of_pipeline(gold, now_us)
        if gold.observed is not None:
            yield from families_of(gold.observed)


def _of_process(process: Process) -> Iterator[Family]:
    yield _gauge("alerting_leads", "Does this process decide?", [({}, float(process.leads))])
    yield _gauge("alerting_rules", "Rules in force.", [({}, process.rules)])
    yield _gauge(
        "alerting_look_seconds",
        "How long the last look at gold took, deciding and storing included.",
        [({}, process.look_s)],
    )
    yield _gauge(
        "source_readable",
        "Could the lake and the database be read for this scrape?",
        [({"source": name}, float(yes)) for name, yes in process.readable.items()],
    )
    counted = Counter(
        (one.rule, one.severity, one.state.value, "yes" if one.muted else "no")
        for one in process.alerts
    )
    names = ("alertname", "severity", "state", "muted")
    yield _gauge(
        "alerts",
        "Alerts that are known, resolved ones for a while.",
        [(dict(zip(names, key, strict=True)), number) for key, number in sorted(counted.items())],
    )
    for name, what in (("waiting", "Notices that wait"), ("failures", "Failures in a row")):
        yield _gauge(
            f"receiver_{name}",
            f"{what}, of a receiver.",
            [({"receiver": one.name}, getattr(one, name)) for one in process.receivers],
        )
    yield _gauge(
        "history_changes_waiting",
        "Changes of alerts that the lake does not have yet.",
        [({}, process.changes_waiting)],
    )


_BOUNDS: Final = {name: bound_of(name) for name in ("lag_messages", "time_lag_ms")}
"""Of a group the lower bounds are served: a series does not end because a queue is unknown."""


def _of_lag(gold: Gold) -> Iterator[Family]:
    for kind, frame, place in (("group", gold.groups, _PLACE), ("queue", gold.queues, _QUEUE)):
        if kind == "queue" and frame.is_empty():
            continue
        bounds = _BOUNDS if kind == "group" else {}
        least = "; of a group at least, with queues unknown" if bounds else ""
        yield _gauge(
            f"{kind}_lag_messages",
            f"Messages that a {kind} is behind{least}.",
            _column(frame, place, bounds.get("lag_messages", "lag_messages")),
        )
        yield _gauge(
            f"{kind}_lag_seconds",
            "Age of the message at the consume offset; of a group the greatest of its queues.",
            _column(frame, place, bounds.get("time_lag_ms", "time_lag_ms"), per=_MS),
        )
    yield _gauge(
        "group_state",
        "1 for the state that a group is in.",
        [(labels, 1.0) for labels in _labels(gold.groups, (*_PLACE, "state"))],
    )
    yield _gauge("group_members", "Members of a group.", _column(gold.groups, _PLACE, "members"))
    yield Family(
        "tidemark_rebalances_total",
        "counter",
        "Members that joined a group, left it or were lost, since this process serves metrics.",
        _column(gold.rebalances, _PLACE, "changes"),
    )


def _of_trouble(gold: Gold) -> Iterator[Family]:
    by_kind = gold.stalls.group_by("cluster", "group", "kind").len("windows")
    yield _gauge(
        "stalled_windows",
        "Queues that stand still now, by what it looks like.",
        _column(by_kind.sort("cluster", "group", "kind"), ("cluster", "group", "kind"), "windows"),
    )
    place = ("cluster", "group")
    yield _gauge(
        "duplicate_risk_messages",
        "Messages that may be consumed twice, of ranges that are open.",
        _column(at_risk_by(gold.risks, *place), place, "at_risk_messages"),
    )
    checks = gold.checks.with_columns((~pl.col("success")).cast(pl.Int8).alias("failed"))
    yield _gauge(
        "dq_check_failed",
        "1: the check of data quality failed when it last ran.",
        _column(checks, ("expectation", "table", "severity"), "failed"),
    )


def _of_retries(gold: Gold) -> Iterator[Family]:
    if gold.retries is None:
        return
    for name, what, column in (
        ("retry_failures_total", "Messages that failed, since the first fact.", "sent_back"),
        ("dead_letters_total", "Messages that were given up, since then.", "dead_lettered"),
    ):
        samples = _column(gold.retries, _PLACE, column)
        yield Family(f"tidemark_{name}", "counter", what, samples)
    yield _gauge(
        "retry_overdue_messages",
        "Failed messages whose delay is over, and that have not come.",
        _column(gold.retries, _PLACE, "overdue"),
    )


def _of_pipeline(gold: Gold, now_us: int) -> Iterator[Family]:
    moment = gold.moment
    present = moment.present
    assert present is not None, "there is gold"
    horizon = moment.reported_to or present
    age_s = (now_us - micros(horizon)) / SECOND_US
    yield _gauge("pipeline_freshness_seconds", "How old gold is, by this clock.", [({}, age_s)])
    yield Family(
        "tidemark_pipeline_cycles_total",
        "counter",
        "Number of the last complete cycle: 1 / rate is how long a cycle takes.",
        [({}, moment.cycle)],
    )
    yield _gauge(
        "collect_seconds",
        "How long it took to read what this page shows of gold: once a cycle.",
        [({}, gold.collect_s)],
    )
    silent, there = moment.silent, moment.there
    yield _gauge(
        "emitter_silence_seconds",
        "How long an emitter has reported nothing: how far it was judged, before the present.",
        [
            (_of_emitter(one.emitter), (micros(present) - micros(one.judged_to)) / SECOND_US)
            for one in there
        ],
    )
    yield _gauge(
        "emitter_silent",
        "1: nothing is known of this emitter now.",
        [(_of_emitter(one.emitter), float(one in silent)) for one in there],
    )
    delay = pl.col("shipped_time") - pl.col("event_time_to")
    delays = gold.shipped.select(
        "emitter",
        delay.dt.total_microseconds().alias("us"),
    )
    yield _gauge(
        "shipping_delay_seconds",
        "How old the newest facts of an emitter were when they were in the lake, by its shipper's "
        "clock.",
        [
            (_of_emitter(row["emitter"]), None if row["us"] is None else row["us"] / SECOND_US)
            for row in delays.to_dicts()
        ],
    )


def _gauge(name: str, meaning: str, samples: Iterable[Sample]) -> Family:
    return Family(f"tidemark_{name}", "gauge", meaning, samples)


def _of_emitter(emitter: str) -> dict[str, str | None]:
    broker = emitter.split("/")[1] if "/" in emitter else emitter
    return {"cluster": cluster_of(emitter), "broker": broker, "emitter": emitter}


def _column(frame: pl.DataFrame, place: Sequence[str], name: str, *, per: int = 1) -> list[Sample]:
    values = frame[name].to_list()
    return [
        (labels, None if value is None else value / per)
        for labels, value in zip(_labels(frame, place), values, strict=True)
    ]


def _labels(frame: pl.DataFrame, place: Sequence[str]) -> list[dict[str, str | None]]:
    """As RocketMQ's boards name them: `queue`, not `queue_id`."""
    names = ["queue" if name == "queue_id" else name for name in place]
    rows = frame.select(pl.col(name).cast(pl.String) for name in place).rows()
    return [dict(zip(names, row, strict=True)) for row in rows]
