"""What was notified, held against what happened: obvious answers, and laws."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pipelines.backtest.report import as_json, as_table
from pipelines.backtest.run import Outcome
from pipelines.backtest.scoring import Heard, Range, Score, Told, add_alerts, add_group
from pipelines.backtest.truths import Incident
from pipelines.base.settings import DAY_US

S = 1_000_000
HOUR = Range(0, 3600 * S, grace_us=60 * S)


def incident(begin_s: int, end_s: int, **more: object) -> Incident:
    """Of the group "orders"."""
    return Incident(begin_s * S, end_s * S, "orders", "FROZEN_HEAD", **more)  # type: ignore[arg-type]


def alert_of(
    begin_s: int, end_s: int | None, *, queue_id: int | None = 0, topic: str = "sales"
) -> Told:
    """Of a queue of the group "orders"."""
    ended = None if end_s is None else end_s * S
    return Told(begin_s * S, ended, "shop", "orders", topic, "broker-a", queue_id)


def score_of(incidents: list[Incident], says: list[Told], over: Range = HOUR) -> Score:
    """The score of one group."""
    score = Score()
    add_group(score, incidents, says, over)
    return score


def test_what_is_notified_within_an_incident_finds_it_after_that_time() -> None:
    score = score_of([incident(100, 200)], [alert_of(112, 205)])
    assert (score.found, score.missed, score.false, score.notices) == (1, 0, 0, 1)
    assert score.detections_us == [12 * S]


def test_an_incident_that_nobody_is_notified_of_is_missed() -> None:
    score = score_of([incident(100, 200)], [])
    assert (score.found, score.missed, score.notices) == (0, 1, 0)
    assert score.detection_us_median is None


def test_what_begins_before_an_incident_or_long_after_it_is_false() -> None:
    score = score_of([incident(100, 200)], [alert_of(20, 30), alert_of(261, 300)])
    assert (score.found, score.missed, score.false, score.notices) == (0, 1, 2, 2)


def test_the_traces_of_an_incident_are_not_false_and_do_not_count_as_early() -> None:
    score = score_of([incident(100, 200)], [alert_of(250, 270)])
    assert (score.found, score.false) == (1, 0)
    assert score.detections_us == [150 * S]


def test_what_was_notified_all_along_finds_an_incident_at_no_known_time() -> None:
    score = score_of([incident(100, 200)], [alert_of(20, 150)])
    assert (score.found, score.missed, score.false) == (1, 0, 1)
    assert score.detections_us == []


def test_a_queue_s_incident_is_not_found_by_what_is_reported_of_its_neighbour_or_of_the_group() -> (
    None
):
    of_queue_1 = incident(100, 200, topic="sales", queue_id=1)
    assert score_of([of_queue_1], [alert_of(110, None, queue_id=0)]).missed == 1
    assert score_of([of_queue_1], [alert_of(110, None, queue_id=None)]).missed == 1
    assert score_of([of_queue_1], [alert_of(110, None, queue_id=1, topic="other")]).missed == 1
    assert score_of([of_queue_1], [alert_of(110, None, queue_id=1)]).missed == 0
    assert score_of([incident(100, 200)], [alert_of(110, None, queue_id=None)]).missed == 0


def test_what_is_notified_of_many_queues_at_once_or_one_after_the_other_is_one_notice() -> None:
    says = [
        alert_of(110, 150, queue_id=0),
        alert_of(110, 130, queue_id=1),
        alert_of(140, 170, queue_id=2),
    ]
    assert score_of([incident(100, 200)], says).notices == 1
    assert score_of([incident(100, 200)], [alert_of(110, 120), alert_of(120, 130)]).notices == 1
    assert score_of([incident(100, 200)], [alert_of(110, 120), alert_of(121, 130)]).notices == 2


def test_what_lies_outside_the_range_is_not_counted_but_still_explains() -> None:
    over = Range(100 * S, 200 * S, grace_us=60 * S)
    before, behind = incident(50, 90), incident(210, 220)
    score = score_of(
        [before, behind], [alert_of(95, 97), alert_of(110, 120), alert_of(215, None)], over
    )
    assert (score.found, score.missed, score.notices, score.false) == (0, 0, 1, 0)


def test_notices_a_day_are_those_of_the_range_by_its_length() -> None:
    score = score_of([], [alert_of(10, 20), alert_of(30, 40)])
    assert score.notices_a_day(HOUR) == 48
    assert score.notices_a_day(Range(0, 2 * DAY_US, 0)) == 1


seconds = st.integers(0, 3599)
spans = st.tuples(seconds, st.integers(0, 300)).map(lambda two: (two[0], two[0] + two[1]))
queues = st.integers(0, 2)
incident_lists = st.lists(
    st.builds(lambda span, queue: incident(*span, queue_id=queue), spans, st.none() | queues),
    max_size=6,
)
alert_lists = st.lists(
    st.builds(lambda span, queue: alert_of(*span, queue_id=queue), spans, queues), max_size=12
)


@given(incident_lists, alert_lists)
def test_every_incident_is_found_or_missed_and_the_order_of_notices_means_nothing(
    incidents: list[Incident], says: list[Told]
) -> None:
    score = score_of(incidents, says)
    again = score_of(incidents[::-1], says[::-1])
    assert score.found + score.missed == len(incidents)
    assert score.false <= score.notices <= len(says)
    assert (score.findings, score.notices, score.false) == (
        again.findings,
        again.notices,
        again.false,
    )


@given(incident_lists, alert_lists, st.integers(0, 3600))
def test_who_notifies_more_misses_no_more(
    incidents: list[Incident], says: list[Told], at: int
) -> None:
    more = score_of(incidents, [*says, alert_of(at, None, queue_id=0)])
    assert more.missed <= score_of(incidents, says).missed


def test_what_nobody_can_know_is_unknown_and_not_nought_or_never() -> None:
    nothing_said = Outcome(HOUR, groups=0, scores={"ours": Score()}, has_truth=False)
    rule = json.loads(as_json(nothing_said))["rules"][0]
    assert {rule[name] for name in ("found", "detection_ms_max", "notices_a_day")} == {None}
    assert cells_of(nothing_said) == ["unknown"] * 6
    well = Outcome(HOUR, groups=3, scores={"ours": Score()}, has_truth=True)
    assert cells_of(well) == ["0", "0", "0", "never", "never", "0.0"]


def cells_of(outcome: Outcome) -> list[object]:
    """The only line of its table, without the name."""
    return [next(iter(column.cells)) for column in as_table(outcome).columns[1:]]


def alert(begin_s: int, end_s: int | None = None, **place: object) -> Told:
    """One that names its group, and what else is given."""
    named = {"group": "orders", **place}
    ended = None if end_s is None else end_s * S
    return Told(begin_s * S, ended, "shop", is_alert=True, **named)  # type: ignore[arg-type]


def score_of_alerts(incidents: list[Incident], alerts: list[Told], *notices: list[Told]) -> Score:
    score = Score()
    add_alerts(score, incidents, Heard(alerts, list(notices)), HOUR)
    return score


def test_an_alert_of_a_group_finds_what_befalls_its_queue_and_one_of_another_queue_does_not() -> (
    None
):
    stuck = incident(100, 200, queue_id=3)
    of_group, of_other = alert(130, 210), alert(130, 210, queue_id=2)
    assert score_of_alerts([stuck], [of_group], [of_group]).detections_us == [30 * S]
    score = score_of_alerts([stuck], [of_other], [of_other])
    assert (score.found, score.missed, score.false, score.notices) == (0, 1, 1, 1)


def test_each_notice_of_alerts_counts_and_one_is_false_when_all_that_it_names_are() -> None:
    stuck, needless = alert(130, 500), alert(130, 500, group="mails")
    again = alert(400, 500)
    score = score_of_alerts([incident(100, 200)], [stuck], [stuck, needless], [again])
    assert (score.found, score.notices, score.false) == (1, 2, 1)


def test_an_alert_without_a_group_finds_nothing_and_is_false_when_its_cluster_is_well() -> None:
    broker = alert(130, group="", broker="broker-a")
    during = score_of_alerts([incident(100, 200, cluster="shop")], [broker], [broker])
    elsewhere = score_of_alerts([incident(100, 200, cluster="yard")], [broker], [broker])
    assert (during.found, during.false) == (0, 0)
    assert (elsewhere.found, elsewhere.false) == (0, 1)
