"""Row F3: routing: the executor that XXL-Job's own hash takes, and the law of each other way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.routing import COUNT_MAX, DAY_MS, Counters, Route, RouteStrategy, route

CASES = json.loads(
    (Path(__file__).parents[2] / "cases" / "xxl_cron_route.json").read_text(encoding="utf-8")
)["consistent_hash"]
ABC = ("http://a/", "http://b/", "http://c/")
ENTROPY = st.integers(0, 2**32 - 1)


def routed(
    strategy: RouteStrategy,
    addresses: tuple[str, ...] = ABC,
    counters: Counters | None = None,
    *,
    job_id: int = 7,
    now_ms: int = 1,
    entropy: int = 0,
) -> Route:
    return route(
        strategy, addresses, job_id=job_id, counters=counters or Counters(), now_ms=now_ms,
        entropy=entropy,
    )  # fmt: skip


def turns(strategy: RouteStrategy, count: int, entropies: list[int]) -> list[str]:
    """The addresses of so many triggers in a row."""
    counters, taken = Counters(), []
    for number in range(count):
        found = routed(strategy, counters=counters, entropy=entropies[number % len(entropies)])
        counters = found.counters
        taken.append(found.addresses[0])
    return taken


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_job_hashes_to_the_executor_that_xxl_job_takes(case: dict[str, Any]) -> None:
    taken = {
        job: routed(
            RouteStrategy.CONSISTENT_HASH, tuple(case["addresses"]), job_id=int(job)
        ).addresses[0]
        for job in case["jobs"]
    }
    assert taken == case["jobs"]


@given(st.integers(1, 10**9), st.sampled_from(ABC))
def test_a_job_stays_with_its_executor_when_another_leaves(job_id: int, leaver: str) -> None:
    before = routed(RouteStrategy.CONSISTENT_HASH, job_id=job_id).addresses[0]
    rest = tuple(address for address in ABC if address != leaver)
    after = routed(RouteStrategy.CONSISTENT_HASH, rest, job_id=job_id).addresses[0]
    assert before in {leaver, after}


@pytest.mark.parametrize("strategy", RouteStrategy)
def test_a_group_without_executors_has_no_route(strategy: RouteStrategy) -> None:
    assert routed(strategy, ()).addresses == ()


def test_first_last_and_those_that_ask_around() -> None:
    assert routed(RouteStrategy.FIRST).addresses == ABC[:1]
    assert routed(RouteStrategy.LAST).addresses == ABC[-1:]
    assert routed(RouteStrategy.FAILOVER).addresses == ABC
    assert routed(RouteStrategy.BUSYOVER).addresses == ABC
    broadcast = routed(RouteStrategy.SHARDING_BROADCAST, (*ABC, ABC[0]))
    assert broadcast.is_broadcast
    assert broadcast.addresses == ABC, "an address that is given twice has one shard"


def test_random_is_what_the_entropy_says() -> None:
    taken = [routed(RouteStrategy.RANDOM, entropy=number).addresses[0] for number in range(4)]
    assert taken == [*ABC, ABC[0]]


@given(st.lists(ENTROPY, min_size=1, max_size=5))
def test_round_goes_from_one_to_the_next(entropies: list[int]) -> None:
    taken = turns(RouteStrategy.ROUND, 7, entropies)
    begin = ABC.index(taken[0])
    assert taken == [ABC[(begin + number) % 3] for number in range(7)]


@given(st.lists(ENTROPY, min_size=1, max_size=5))
def test_least_frequently_used_is_even_within_the_beginning(entropies: list[int]) -> None:
    counts = Counter(turns(RouteStrategy.LEAST_FREQUENTLY_USED, 30, entropies))
    assert max(counts.values()) - min(counts.values()) <= len(ABC)


def test_least_recently_used_takes_the_one_that_waits_longest() -> None:
    assert turns(RouteStrategy.LEAST_RECENTLY_USED, 6, [0]) == [*ABC, *ABC]
    once = routed(RouteStrategy.LEAST_RECENTLY_USED)
    joined = routed(RouteStrategy.LEAST_RECENTLY_USED, ("http://d/", *ABC[:1]), once.counters)
    assert joined.addresses == ("http://d/",)
    assert set(joined.counters.uses) == {"http://d/", ABC[0]}, "who is gone is forgotten"


def test_counters_begin_anew_each_day_and_when_they_are_full() -> None:
    old = Counters(begun_ms=1, turns=41)
    assert routed(RouteStrategy.ROUND, counters=old, now_ms=DAY_MS).counters.turns == 42
    anew = routed(RouteStrategy.ROUND, counters=old, now_ms=DAY_MS + 1, entropy=103)
    assert anew.counters == Counters(begun_ms=DAY_MS + 1, turns=3)
    full = Counters(begun_ms=1, turns=COUNT_MAX)
    assert routed(RouteStrategy.ROUND, counters=full, entropy=5).counters.turns == 5
