"""Row F5: each planned time gets one run or is missed, and the ring gives each out once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.schedules import (
    RUNS_MAX,
    WINDOW_MS,
    MisfirePolicy,
    Plan,
    PlannedRun,
    plan,
    schedule_of,
)
from pipelines.scheduler.time_ring import SLOTS, TimeRing

NOTHING, ONCE_NOW = MisfirePolicy.DO_NOTHING, MisfirePolicy.FIRE_ONCE_NOW
HORIZON_MS = 3 * SLOTS * 1000
NOW = 1_700_000_000_000
EACH_SECOND = schedule_of("CRON", "* * * * * ?")
EACH_MINUTE = schedule_of("FIX_RATE", "60")


def test_what_is_due_within_the_window_is_planned() -> None:
    assert plan(EACH_MINUTE, NOTHING, next_ms=NOW + 3000, now_ms=NOW) == Plan(
        (PlannedRun(NOW + 3000, NOW + 3000),), NOW + 63_000
    )


def test_each_time_that_is_late_by_less_than_the_window_has_its_run() -> None:
    planned = plan(EACH_SECOND, NOTHING, next_ms=NOW - 3000, now_ms=NOW)
    assert [run.planned_ms - NOW for run in planned.runs] == list(range(-3000, 5001, 1000))
    assert all(run.due_ms == max(run.planned_ms, NOW) for run in planned.runs)
    assert planned.next_ms == NOW + 6000


def test_what_is_missed_is_left_or_made_up_for_once() -> None:
    missed = NOW - WINDOW_MS - 1
    left = plan(EACH_MINUTE, NOTHING, next_ms=missed, now_ms=NOW)
    assert left == Plan((), missed + 60_000, missed_from_ms=missed)
    made_up = plan(EACH_MINUTE, ONCE_NOW, next_ms=missed, now_ms=NOW)
    assert made_up == Plan((PlannedRun(missed, NOW),), missed + 60_000, missed_from_ms=missed)


def test_what_is_late_by_less_than_the_window_has_its_run_even_behind_what_was_missed() -> None:
    each_ten = schedule_of("FIX_RATE", "10")
    for misfire, made_up in ((NOTHING, []), (ONCE_NOW, [NOW - 54_000])):
        planned = plan(each_ten, misfire, next_ms=NOW - 54_000, now_ms=NOW)
        assert [run.planned_ms for run in planned.runs] == [*made_up, NOW - 4_000]
        assert planned.next_ms == NOW + 6_000


def test_a_delay_has_one_run_until_its_end_is_known() -> None:
    delay = schedule_of("FIX_DELAY", "1")
    assert plan(delay, NOTHING, next_ms=NOW, now_ms=NOW) == Plan((PlannedRun(NOW, NOW),), None)
    missed = NOW - 60_000
    assert plan(delay, ONCE_NOW, next_ms=missed, now_ms=NOW).next_ms is None
    assert [run.due_ms for run in plan(delay, NOTHING, next_ms=missed, now_ms=NOW).runs] == [
        NOW + 1000
    ]


def test_a_moment_that_was_missed_does_not_come_again() -> None:
    once = schedule_of("ONCE", "2020-01-01T00:00Z")
    assert plan(once, NOTHING, next_ms=once.once_ms, now_ms=NOW).next_ms is None
    assert len(plan(once, ONCE_NOW, next_ms=once.once_ms, now_ms=NOW).runs) == 1


@given(
    st.sampled_from([("CRON", "0/7 * * * * ?"), ("CRON", "* * * * * ?"), ("FIX_RATE", "3")]),
    st.sampled_from(MisfirePolicy),
    st.lists(st.integers(0, 15_000), max_size=12),
)
def test_no_time_is_planned_twice_and_none_left_out_but_what_was_missed(
    kind: tuple[str, str], misfire: MisfirePolicy, pauses: list[int]
) -> None:
    schedule, now, planned, missed = schedule_of(*kind), NOW, [], set()
    next_ms = schedule.next_ms(NOW)
    first = next_ms
    for pause in pauses:
        now += pause
        assert next_ms is not None
        if next_ms > now + WINDOW_MS:
            continue
        found = plan(schedule, misfire, next_ms=next_ms, now_ms=now)
        assert len(found.runs) <= RUNS_MAX
        assert all(0 <= run.due_ms - now <= WINDOW_MS for run in found.runs)
        planned += [run.planned_ms for run in found.runs]
        if found.missed_from_ms is not None:
            missed |= set(range(found.missed_from_ms, now - WINDOW_MS))
        next_ms = found.next_ms
    wanted = []
    while first is not None and next_ms is not None and first < next_ms:
        wanted.append(first)
        first = schedule.next_ms(first)
    assert planned == sorted(set(planned))
    assert set(wanted) - missed <= set(planned) <= set(wanted)


def test_the_ring_gives_out_at_the_first_look_after_the_time() -> None:
    ring = TimeRing(NOW)
    for log_id, due in ((1, 0), (2, 1500), (3, 5000), (4, -9000), (5, HORIZON_MS)):
        ring.put(log_id, NOW + due)
    assert ring.due(NOW) == [1, 4]
    assert ring.due(NOW + 1499) == []
    assert ring.due(NOW + 1500) == [2]
    assert len(ring) == 2
    assert ring.due(NOW + 3_600_000) == [3, 5]
    assert len(ring) == 0


def test_the_ring_goes_by_a_clock_that_was_set() -> None:
    ring = TimeRing(NOW)
    ring.put(1, NOW + 3_605_000)
    back = NOW - 3_600_000
    assert ring.due(back) == []
    ring.put(2, back + 1_000)
    ring.put(3, back - 9_000)
    assert ring.due(back + 900) == [3]
    assert ring.due(back + 1_000) == [2], "what is due by the clock as it is does not wait an hour"
    assert ring.due(NOW + 3_604_999) == []
    assert ring.due(NOW + 3_605_000) == [1], "what was put in for a later round waited for it"


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(-2000, HORIZON_MS)), max_size=40))
def test_the_ring_loses_nothing_and_gives_nothing_early(steps: list[tuple[int, int]]) -> None:
    ring, now, waiting, out = TimeRing(NOW), NOW, {}, []
    for log_id, (pause, due) in enumerate(steps):
        ring.put(log_id, now + due)
        waiting[log_id] = now + due
        now += pause
        taken = ring.due(now)
        assert set(taken) == {one for one, at in waiting.items() if at <= now}
        for one in taken:
            del waiting[one]
        out += taken
    assert sorted([*out, *ring.due(now + HORIZON_MS)]) == list(range(len(steps)))
