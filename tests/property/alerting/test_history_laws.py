"""History, folded, is what the database knows of alerts, whatever happened, at any moment."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.alerting.alerts import Alert, Entry
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.history import rows_of
from pipelines.alerting.matchers import matcher_of
from pipelines.alerting.routing import routing_of
from pipelines.alerting.silences import Silence
from pipelines.alerting.state_rows import step_of
from pipelines.alerting.step import Known, judge, notify
from pipelines.base.settings import MINUTE_US, SECOND_US
from pipelines.base.time_units import moment_at
from pipelines.reading.alert_history import open_alerts, present_alerts
from tests.alert_stories import NOON_US, behind, rows, rule

RULES = (
    rule(**{"for": "10s"}, labels=["cluster", "group"]),
    rule(name="Far", when="time_lag_ms > 10m", labels=["cluster", "group"], severity="critical"),
)
ROUTING = routing_of(
    "routes.toml",
    {
        "receiver": "r",
        "inhibit": [
            {
                "source": ['alertname="Far"'],
                "target": ['alertname="Behind"'],
                "equal": ["cluster", "group"],
            }
        ],
    },
).routing
LOOKS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([0, 90, 900])),
        st.sampled_from([5, 20, 60, 1_900]),
        st.booleans(),
        st.sampled_from(["", "", "", "rule gone", "no table"]),
    ),
    max_size=12,
)


def silence(*, holds: bool) -> list[Silence]:
    matchers = (matcher_of('group="a"'),)
    ends_us = NOON_US + 10**12
    return [Silence("s", matchers, 0, ends_us, "ann", "known")] if holds else []


def folded(entries: list[Entry]) -> pl.DataFrame:
    frame = pl.from_arrow(rows_of("h", list(enumerate(entries, start=1))))
    assert isinstance(frame, pl.DataFrame)
    return frame


def as_recorded(alert: Alert) -> tuple[object, ...]:
    moments = (alert.active_at_us, alert.fired_at_us, alert.resolved_at_us)
    return (
        alert.state.value,
        alert.muted or None,
        alert.course.is_flapping,
        *(None if one is None else moment_at(one) for one in moments),
    )


@given(LOOKS)
@settings(max_examples=30)
def test_history_folded_is_what_is_stored(
    looks: list[tuple[dict[str, int], int, bool, str]],
) -> None:
    known, written, entries = Known(), dict[str, Alert](), list[Entry]()
    now_us = NOON_US
    assert ROUTING is not None
    for lags, after_s, is_silenced, odd in looks:
        now_us += after_s * SECOND_US
        frame = rows("group_state", *(behind(lag, group=group) for group, lag in lags.items()))
        rules = RULES[:1] if odd == "rule gone" else RULES
        looked = Looked(now_us, {} if odd == "no table" else {"group_state": frame})
        decided = judge(known, rules, looked, now_us=now_us)
        silences = silence(holds=is_silenced)
        decided = notify(decided, rules, ROUTING, silences=silences, now_us=now_us)
        all_figures = now_us % (2 * MINUTE_US) == 0
        step = step_of(known, written, decided, ("r", 1), all_figures=all_figures, now_us=now_us)
        known = decided.known
        for fingerprint in step.forgotten:
            del written[fingerprint]
        written |= {alert.fingerprint: alert for alert in step.alerts}
        entries += step.entries

    found = folded(entries)
    columns = ("state", "muted", "is_flapping", "active_at", "fired_at", "resolved_at")
    now = {row[0]: row[1:] for row in present_alerts(found).select("fingerprint", *columns).rows()}
    assert {one: now[one] for one in written} == {
        one: as_recorded(alert) for one, alert in written.items()
    }
    assert set(open_alerts(found)["fingerprint"]) <= written.keys()
