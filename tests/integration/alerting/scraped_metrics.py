"""All metrics that there are, and their labels: of a gold that has a row of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from pipelines.alerting.alerts import State
from pipelines.alerting.metrics.exposition import LEFT_OUT
from pipelines.alerting.metrics.families import Gold, Process, Receiver, families
from pipelines.alerting.metrics.observed import Observed, pairs_of, topics_of
from pipelines.reading.moment import Moment, Reached
from tests.alert_stories import NOON, NOON_US, rows
from tests.integration.alerting.stores import an_alert

OBSERVER = "c/b/observer"
PLACE = {"cluster": "c", "broker": "b", "group": "g"}


def a_gold() -> Gold:
    """One group on one broker that is observed, with one of everything."""
    lag = rows(
        "consumer_lag",
        *(
            {
                "emitter": OBSERVER,
                "group": "g",
                "topic": topic,
                "queue_id": 0,
                "lag_messages": 5,
                "time_lag_ms": 7,
                "inflight_messages": 2,
                "committed": 10,
                "pulled": 12,
                "max_offset": 15,
            }
            for topic in ("t", "%RETRY%g", "%DLQ%g")
        ),
    )
    groups = rows("group_state", {"emitter": OBSERVER, "group": "g", "members": 1,
                                  "lag_messages": 5, "time_lag_ms": 7})  # fmt: skip
    ends = pl.DataFrame(
        [
            {"emitter": OBSERVER, "cluster": "c", "broker": "b", "topic": topic, "queue_id": 0,
             "max_offset": 15}
            for topic in ("t", "%RETRY%g", "%DLQ%g")
        ]
    )  # fmt: skip
    rate = pl.lit(1.5).alias("rate")
    failures = pl.DataFrame([{**PLACE, "topic": "t", "dead_lettered": 3, "rate": 0.5}])
    return Gold(
        Moment("r", 1, (Reached(OBSERVER, NOON, 1),), NOON),
        groups,
        lag,
        rows("stalled_windows", {"kind": "FROZEN_HEAD"}),
        rows("duplicate_risk_windows", {"at_risk_messages": 9}),
        rows("dq_results", {"expectation": "e", "table": "t", "severity": "CRITICAL",
                            "success": True}),
        pl.DataFrame([{"emitter": OBSERVER, "event_time_to": NOON,
                       "shipped_time": NOON + timedelta(seconds=1)}]),
        pl.DataFrame([{**PLACE, "changes": 4}]),
        collect_s=0.1,
        retries=pl.DataFrame([{**PLACE, "sent_back": 9, "dead_lettered": 3, "overdue": 0}]),
        observed=Observed(
            pairs_of(lag, groups).with_columns(rate), topics_of(ends).with_columns(rate), failures
        ),
    )  # fmt: skip


def a_process() -> Process:
    return Process(
        leads=True,
        rules=1,
        look_s=0.1,
        alerts=[an_alert(state=State.FIRING)],
        receivers=[Receiver("mail", 0, 0)],
        changes_waiting=0,
        readable={"lake": True},
    )


def labels_of_all() -> Mapping[str, frozenset[str]]:
    """Names of metrics, and the labels that each has."""
    labels = {}
    for family in families(a_gold(), a_process(), now_us=NOON_US):
        samples = list(family.samples)
        assert samples, f"{family.name} has no sample here"
        labels[family.name] = frozenset(samples[0][0])
    return labels | {LEFT_OUT: frozenset({"metric"})}
