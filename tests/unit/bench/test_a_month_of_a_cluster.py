"""The month by which noise is measured: its books add up, and its incidents are where it says."""

from __future__ import annotations

import numpy as np

from tests.month_of_a_cluster import BEGIN_US, DAY, MINUTE_US, Month, marks_of

FIVE_DAYS = Month(5)


def test_offsets_never_fall_nor_pass_the_end_and_stored_times_lie_in_the_past() -> None:
    for habit in FIVE_DAYS.habits:
        marks = marks_of(habit)
        moments = BEGIN_US + np.arange(5 * DAY) * MINUTE_US
        assert (np.diff(marks.committed) >= 0).all()
        assert (marks.committed <= marks.pulled).all()
        assert (marks.pulled <= marks.end).all()
        assert (marks.stored_us <= moments).all()
        assert (marks.committed_us <= moments).all()


def test_a_client_that_reports_each_ten_minutes_pulls_each_minute_and_reports_no_more_often() -> (
    None
):
    (rare,) = (one for one in FIVE_DAYS.habits if (one.group, one.queue_id) == ("silent", 1))
    marks = marks_of(rare)
    assert set(np.flatnonzero(marks.reports) % 10) == {0}
    assert (np.diff(marks.committed)[marks.reports[1:] == 0] == 0).all()
    assert (np.flatnonzero(np.diff(marks.committed_us)) % 10 == 9).all()
    assert (np.diff(marks.pulled_us) == MINUTE_US).all()


def test_five_days_have_one_incident_of_each_kind_and_a_month_two() -> None:
    kinds = sorted(one.kind for one in FIVE_DAYS.incidents)
    assert kinds == [
        *("DEAD_CONSUMER", "FLAPPING", "FROZEN_HEAD", "NOT_ACKNOWLEDGED"),
        *("SILENT_HEAD", "SLOW"),
    ]
    assert len(Month(30).incidents) == 12


def test_a_group_falls_behind_in_its_incident_and_is_well_before_it() -> None:
    for incident in FIVE_DAYS.incidents:
        habit = next(
            one
            for one in FIVE_DAYS.habits
            if one.group == incident.group and incident.queue_id in (None, one.queue_id)
        )
        marks = marks_of(habit)
        begin, end = ((at - BEGIN_US) // MINUTE_US for at in (incident.begin_us, incident.end_us))
        behind = marks.end - marks.committed
        assert behind[begin - 1] == 0
        if incident.kind == "NOT_ACKNOWLEDGED":
            handing = FIVE_DAYS.handing_of(habit)
            assert not handing.acknowledged[begin:end].any()
            assert handing.expired[begin:end].sum() > 1_000
            continue
        assert behind[begin:end].max() > (15 if incident.kind == "SILENT_HEAD" else 1_000)
