"""A head that stands while what lies behind it is finished is reported within three slides; calls
that merely take long are not.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from tests.pipelines.marts.played_pool import Moments, Pool, frozen, gold_of, opened, steady_pool

SLIDE_S = Evaluation().slide_ms / 1000
BAR_S = 3 * SLIDE_S
COUNT = 5000


def lengths(usual_s: float, spread: str, seed: int = 1) -> Moments:
    """How long calls take that usually take `usual_s`."""
    chance = np.random.default_rng(seed)
    match spread:
        case "equal":
            return np.full(COUNT, usual_s)
        case "half more or less":
            return chance.uniform(usual_s / 2, usual_s * 1.5, COUNT)
        case "by chance":
            return chance.exponential(usual_s, COUNT)
    return usual_s * chance.lognormal(0, 0.7, COUNT)


def quick(seconds: int = 180, *, rate: float = 20, listeners: int = 20) -> Pool:
    """Calls of 20 ms."""
    return steady_pool(
        call_s=lengths(0.02, "skewed"), rate=rate, listeners=listeners, seconds=seconds
    )


@settings(max_examples=12, deadline=None)
@given(
    at=st.floats(100, 110),
    sampled_at=st.floats(0, 4.99),
    work=st.sampled_from([(2.0, 2), (20.0, 20), (200.0, 20), (200.0, 64)]),
    clock_s=st.sampled_from([0.0, -600.0, 600.0]),
)
def test_a_frozen_head_is_reported_within_three_slides(
    at: float, sampled_at: float, work: tuple[float, int], clock_s: float
) -> None:
    """Whenever it froze, whenever its client is asked, and whatever the client's clock shows."""
    rate, listeners = work
    pool = replace(quick(150, rate=rate, listeners=listeners), sampled_at=sampled_at)
    pool = frozen(replace(pool, client_clock_s=clock_s), at)
    begins = pool.arrive[np.searchsorted(pool.arrive, at)]
    [(reported_at, rule, kind)] = opened(gold_of(pool))
    assert (rule, kind) == ("STALLED", "FROZEN_HEAD")
    assert reported_at - begins <= BAR_S
    assert reported_at - begins > SLIDE_S


SPREADS = ("equal", "half more or less", "by chance", "skewed")
POOLS = ((0.02, 200, 20), (5, 2, 20), (5, 7, 64), (60, 0.4, 64))
# The suite has two spreads of each pool, and two pools of each spread.
SPREAD_POOLS = [
    pytest.param(spread, *pool, marks=[pytest.mark.slow] if (at + number) % 2 else [])
    for number, pool in enumerate(POOLS)
    for at, spread in enumerate(SPREADS)
]


@pytest.mark.parametrize(("spread", "usual_s", "rate", "listeners"), SPREAD_POOLS)
def test_calls_that_usually_take_as_long_are_no_stall(
    spread: str, usual_s: float, rate: float, listeners: int
) -> None:
    """Heads stand for a while in each of these, and others pass them: that is how a pool works."""
    pool = steady_pool(call_s=lengths(usual_s, spread), rate=rate, listeners=listeners, seconds=600)
    gold = gold_of(pool, allowed_time_ms=1_200_000)
    assert opened(gold) == []
    assert {row["state"] for row in gold["group_state"]} == {"OK"}


@pytest.mark.parametrize(
    ("slow_s", "late_s"), [(1, 0.0), (3, 0.5), (4.5, 0.0), (4.5, 0.5), (6, 0.5), (8, 0.0), (8, 0.5)]
)
def test_a_message_of_a_few_seconds_among_quick_ones_is_not_frozen(
    slow_s: float, late_s: float
) -> None:
    pool = replace(quick(400), late_s=late_s, sampled_at=4.8)
    for at in range(60, 390, 17):
        pool = frozen(pool, at + at % 10 / 2, for_s=slow_s)
    assert opened(gold_of(pool)) == []


def test_messages_that_wait_for_a_time_out_are_reported_once_and_then_known() -> None:
    """One of some thousands takes twelve seconds, again and again: that is how this queue is."""
    pool = quick(900)
    for at in range(100, 890, 40):
        pool = frozen(pool, at + at % 7, for_s=12)
    assert len(opened(gold_of(pool))) <= 1


@pytest.mark.parametrize("rate", [20, 400])
def test_what_all_listeners_wait_for_freezes_no_head(rate: float) -> None:
    """A store that answers nothing for a quarter of a minute holds up all: nothing passes."""
    pool = replace(quick(300, rate=rate), pauses=[(100.5, 114.5), (201.0, 213.0)])
    assert opened(gold_of(pool)) == []


def test_a_head_that_was_passed_until_the_window_was_full_is_reported_as_soon() -> None:
    """Of two thousand messages a second the window spans too much within a second."""
    calls = lengths(0.002, "skewed")
    pool = steady_pool(call_s=calls, rate=2000, listeners=20, seconds=150, before_s=60)
    pool = frozen(pool, 101.3)
    [(reported_at, _, kind)] = opened(gold_of(pool))
    assert kind == "FROZEN_HEAD"
    assert reported_at <= 101.3 + BAR_S


def test_one_among_long_calls_is_reported_when_it_takes_twice_as_long_as_they_hardly_ever_do() -> (
    None
):
    pool = steady_pool(call_s=lengths(5, "equal"), rate=3, listeners=20, seconds=300)
    [(reported_at, rule, kind)] = opened(gold_of(frozen(pool, 100)))
    assert (rule, kind) == ("STALLED", "FROZEN_HEAD")
    assert 130 <= reported_at <= 160
    pool = steady_pool(call_s=lengths(60, "equal"), rate=0.7, listeners=64, seconds=500)
    gold = gold_of(frozen(pool, 100), allowed_time_ms=1_200_000)
    [(reported_at, _, kind)] = opened(gold)
    assert kind == "FROZEN_HEAD"
    assert 100 + 2 * 60 <= reported_at <= 100 + 3 * 60 + 30


def test_of_calls_whose_length_nobody_reports_the_window_decides() -> None:
    pool = frozen(replace(quick(200), reports_times=False), 100)
    [(reported_at, _, _)] = opened(gold_of(pool))
    assert 130 <= reported_at <= 140


def test_the_finding_says_what_it_rests_on() -> None:
    gold = gold_of(frozen(quick(150), 101.3))
    first = min(gold["stalled_windows"], key=lambda row: row["observed_at"])
    words = first["evidence"]
    assert f": message {first['head_message_id']} has been in a listener of " in words
    assert re.search(r"\. It has been there for 1\d s while \d+ messages behind it", words), words
    assert "were finished; listener calls hardly ever take longer than" in words
    assert [row["state"] for row in gold["group_state"]][-1] == "STALLED"


def test_a_head_that_is_finished_at_last_closes_its_window() -> None:
    gold = gold_of(frozen(quick(200), 101.3, for_s=30))
    revisions = sorted(gold["stalled_windows"], key=lambda row: row["revision"])
    assert [row["state"] for row in revisions] == ["OPEN", "CLOSED"]


@settings(max_examples=5, deadline=None)
@given(st.sets(st.integers(0, 38)))
def test_any_cut_reports_it_at_the_same_tick(ends: set[int]) -> None:
    """One head stands for a while and moves on, another one stays."""
    pool = frozen(frozen(quick(200), 61.3, for_s=20), 133.3)
    whole = gold_of(pool)
    assert gold_of(pool, ends=sorted(ends)) == whole
    assert [kind for _, _, kind in opened(whole)] == ["FROZEN_HEAD"] * 2
