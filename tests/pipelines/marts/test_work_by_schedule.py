"""Who works and rests in turn, or takes batches, is judged by what that comes to in an hour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from pipelines.marts.judging.progress import CADENCES
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.played_group import (
    FIRST,
    Work,
    played,
    played_beside,
    rows_of,
    states,
    steady,
    windows,
)
from tests.pipelines.marts.reported_story import bronze, second
from tests.pipelines.marts.scheduled_work import Schedule
from tests.pipelines.partition import horizons_of, run

HOUR_S = 3600
SEEN_S = 240
"""So long after two periods the second turn of the last one has been seen."""


def rows_from(gold: dict[str, list[dict[str, Any]]], at: float) -> list[dict[str, Any]]:
    """Rows of the group's state from a second on, in the order of time."""
    rows = sorted(gold["group_state"], key=lambda row: row["observed_at"])
    return [row for row in rows if second(row["observed_at"]) >= at]


def verdicts(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """States and trends."""
    return {(row["state"], row["trend"]) for row in rows}


def batches(each_s: int, **options: Any) -> Schedule:
    """Everything is finished at once, so often; ten messages a second come."""
    return Schedule(10, 0, 0, each_s, in_batches=True, **options)


def test_who_takes_batches_on_the_dot_is_well_once_two_of_them_were_seen() -> None:
    schedules = [
        batches(s, reports=reports) for s in (60, 120, 300, 1200) for reports in (True, False)
    ]
    works = [one.work(2 * one.period_s + HOUR_S) for one in schedules]
    for schedule, gold in zip(schedules, played_beside(works), strict=True):
        begin = 2 * schedule.period_s
        assert verdicts(rows_from(gold, begin + SEEN_S)) == {("OK", "STEADY")}, schedule
        assert states(gold)[-1] == (begin + 5, "OK"), schedule


def test_batches_that_come_no_more_are_a_stall_after_twice_their_period() -> None:
    works = [batches(120, reports=reports).work(1200, dies_at=700) for reports in (True, False)]
    for gold in played_beside(works):
        at, state = states(gold)[-1]
        assert state == "STALLED"
        assert 600 + CADENCES * 120 <= at <= 600 + CADENCES * 120 + 15


def test_a_group_that_lost_its_members_is_not_waited_for_as_long_as_it_usually_rests() -> None:
    """It takes batches each five minutes, and dies two minutes behind one."""
    works = [
        replace(batches(300, reports=reports).work(1200), dies_at=1020) for reports in (True, False)
    ]
    dead_at = 1020 + works[0].expires_after_s
    for gold in played_beside(works):
        at, state = states(gold)[-1]
        assert state == "STOPPED"
        assert dead_at <= at <= dead_at + 15


def test_a_habit_of_resting_is_forgotten_when_it_is_given_up() -> None:
    """Two rests of 200 s, then work without a break, and a stand: that is no rest any more."""

    def finished(at: float) -> int:
        begin = next((one for one in (400, 1000, 3000) if one <= at < one + 200), at)
        return FIRST + int(50 * begin)

    steadily = steady(produced=50, consumed=80, commit_s=5, seconds=3200)
    opened = [
        at
        for at, _, _, state in windows(played(replace(steadily, finished=finished)))
        if state == "OPEN" and at > 3000
    ]
    assert opened[0] <= 3000 + 45


def test_a_deficit_within_what_is_allowed_is_shown_when_certain_and_reported_when_it_lasts() -> (
    None
):
    rates = ((1000, 999), (100_000, 99_900))
    works = [falling_behind(produced, consumed) for produced, consumed in rates]
    for (produced, consumed), gold in zip(rates, played_beside(works), strict=True):
        assert verdicts(rows_from(gold, 400)) == {("OK", "GROWING"), ("SLOW", "GROWING")}
        assert [state for _, state in states(gold)] == ["OK", "SLOW"]
        assert states(gold)[-1][0] <= 2100
        last = rows_from(gold, 400)[-1]
        deficit = (produced - consumed) * HOUR_S
        assert abs(last["lag_change_per_hour"] - deficit) <= deficit / 20
        assert last["unfinished_messages"] < 5 * produced
        assert "falls behind on" in last["reason"]
        assert last["retained_until"] is not None


def falling_behind(produced: int, consumed: int) -> Work:
    """An hour of it; what comes is finished a second later at the earliest."""
    work = steady(produced=produced, consumed=consumed, commit_s=5, seconds=HOUR_S)
    return replace(work, finished=lambda at: FIRST + int(consumed * max(0, at - 1)))


def test_who_keeps_up_with_more_and_more_is_well_though_more_is_on_its_way() -> None:
    """Offsets are reported each five seconds; a thousand a second grow to three thousand."""

    def end(at: float) -> int:
        return FIRST + int(1000 * at + at * at / HOUR_S * 1000)

    def stored(offset: int) -> float:
        return float((((offset - FIRST) * 4 / HOUR_S / 1000 + 1) ** 0.5 - 1) * HOUR_S / 2)

    work = Work(end, lambda at: end(max(0, at - 1)), 5, HOUR_S, stored=stored, reports=False)
    gold = played(work)
    assert ("OK", "GROWING") in verdicts(rows_from(gold, 600))
    assert states(gold) == [(10, "OK")]


SAWTOOTH = Schedule(100, 120, 450, 150, behind=30_000)
SHORT_TEETH = Schedule(100, 115, 240, 60, behind=30_000)
SCHEDULES = st.builds(
    lambda produced, work_s, rest_s, share, behind_s, reports: Schedule(
        produced,
        produced * (work_s + rest_s) / work_s * share,
        work_s,
        rest_s,
        behind=produced * behind_s,
        reports=reports,
    ),
    produced=st.sampled_from([10, 50, 200, 2000]),
    work_s=st.sampled_from([120, 240, 400]),
    rest_s=st.sampled_from([60, 80, 100]),
    share=st.sampled_from([0.85, 0.95, 1.1, 1.3]),
    behind_s=st.just(2400),
    reports=st.booleans(),
)


@settings(max_examples=1, deadline=None)
@given(st.lists(SCHEDULES, min_size=8, max_size=8, unique=True))
@example(
    [
        SAWTOOTH,
        SHORT_TEETH,
        Schedule(5000, 5000 * 7 / 3 * 0.9, 30, 40, behind=300_000),
        Schedule(10, 9.78, 450, 100, behind=600),
        Schedule(10, 10.2, 300, 60, behind=24_000),
    ]
)
def test_the_verdict_is_what_an_hour_comes_to(schedules: list[Schedule]) -> None:
    begins = [seen_from(one) for one in schedules]
    # A world costs by its ticks, not by its groups: two periods more of each, and many beside.
    lasts = [
        begin + max(2 * one.period_s, 600) for one, begin in zip(schedules, begins, strict=True)
    ]
    works = [one.work(seconds) for one, seconds in zip(schedules, lasts, strict=True)]
    for schedule, begin, gold in zip(schedules, begins, played_beside(works), strict=True):
        note(str(schedule))
        check_balance(schedule, [r for r in rows_from(gold, begin) if r["unfinished_messages"] > 0])


def seen_from(schedule: Schedule) -> int:
    """The second from which the verdict is what two periods come to."""
    # Who gains too little while it works turns late or never: three ends of rests are two periods.
    periods = 2 if schedule.turns_within(SEEN_S) else 3
    return max(periods * schedule.period_s + SEEN_S, 900)


def check_balance(schedule: Schedule, rows: list[dict[str, Any]]) -> None:
    """Rows in which something is to do show what the schedule comes to."""
    assert rows
    for row in rows:
        rate = row["lag_change_per_hour"] / HOUR_S
        assert abs(rate - schedule.balance) <= 0.2 * abs(schedule.balance)
    if schedule.balance > 0:
        assert verdicts(rows) == {("SLOW", "GROWING")}
    else:
        assert verdicts(rows) == {("CATCHING_UP", "SHRINKING")}
        for row in rows:
            seconds = row["unfinished_messages"] / -schedule.balance
            assert abs(row["drain_time_ms"] / 1000 - seconds) <= 0.25 * seconds


RESTFUL = st.builds(
    lambda produced, turns, share, reports: Schedule(
        produced, produced * sum(turns) / turns[0] * share, turns[0], turns[1], reports=reports
    ),
    st.sampled_from([10, 200, 2000]),
    st.sampled_from([(240, 60), (600, 120), (900, 300)]),
    st.sampled_from([1.1, 1.5]),
    st.booleans(),
)


@settings(max_examples=1, deadline=None)
@given(st.lists(RESTFUL, min_size=6, max_size=6, unique=True))
def test_who_is_done_after_each_rest_keeps_up(schedules: list[Schedule]) -> None:
    # Each begins at rest in what is to do: the third peak is the end of two periods.
    begins = [3 * one.period_s + SEEN_S for one in schedules]
    works = [one.work(begin + HOUR_S // 2) for one, begin in zip(schedules, begins, strict=True)]
    for schedule, begin, gold in zip(schedules, begins, played_beside(works), strict=True):
        note(str(schedule))
        assert verdicts(rows_from(gold, begin)) == {("OK", "STEADY")}


# A cycle for each shipment is 300 cycles; `test_judges_over_any_cut` draws cuts as short.
@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_swings_do_not_depend_on_cuts(every: int) -> None:
    schedules = (SHORT_TEETH, batches(120), batches(300, reports=False))
    facts = bronze(rows_of(*(one.work(1500) for one in schedules)))
    shipments = len(horizons_of(facts))
    whole = run(JUDGES, facts, Evaluation())
    assert run(JUDGES, facts, Evaluation(), ends=range(0, shipments, every)) == whole
