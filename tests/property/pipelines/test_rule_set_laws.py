"""Laws of rule sets: no verdict knows the future, none depends on the order of rows, on the time of
day or on how often an unchanged end is reported.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.burrow.storage import StorageSettings
from pipelines.rules.observations import Kind, Observation, RuleSet, Ticks, Verdict
from pipelines.rules.thresholds import Thresholds

S = 1_000_000
T0 = 1_700_000_000 * S

kinds = st.sampled_from([Kind.END, Kind.END, Kind.COMMIT, Kind.COMMIT, Kind.COMMIT, Kind.GONE])


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    """Up to two minutes of a queue, in order."""
    rows = draw(st.lists(st.tuples(st.integers(0, 8_000), kinds, st.integers(0, 60)), max_size=30))
    at_us, found = T0, []
    for order, (after_ms, kind, offset) in enumerate(rows, start=1):
        at_us += after_ms * 1000
        found.append(Observation(at_us, order, kind, None if kind is Kind.GONE else offset))
    return found


rule_sets: st.SearchStrategy[RuleSet] = st.one_of(
    st.builds(Thresholds, lag_max=st.integers(0, 40), for_s=st.integers(0, 40)),
    st.builds(
        BurrowRules,
        storage=st.builds(StorageSettings, intervals=st.integers(1, 5)),
        offset_refresh_s=st.sampled_from([1, 5, 10]),
    ),
)
GRID = Ticks(T0, T0 + 180 * S, 7 * S)


def at_ticks(verdicts: list[Verdict], grid: Ticks) -> list[tuple[str, bool | None]]:
    """What was said at each tick."""
    found = []
    for tick_us in grid:
        (one,) = [
            verdict
            for verdict in verdicts
            if verdict.begin_us <= tick_us and (verdict.end_us is None or tick_us < verdict.end_us)
        ]
        found.append((one.state, one.is_bad))
    return found


@given(rule_sets, histories(), st.integers(0, 25))
def test_what_is_said_at_a_tick_does_not_depend_on_what_comes_after(
    rules: RuleSet, history: list[Observation], known_ticks: int
) -> None:
    now_us = T0 + known_ticks * GRID.every_us
    past = [one for one in history if one.at_us <= now_us]
    grid = replace(GRID, end_us=now_us)
    assert (
        at_ticks(rules.judge(past, grid), grid)
        == (at_ticks(rules.judge(history, GRID), GRID)[: known_ticks + 1])
    )


@given(rule_sets, histories(), st.randoms(use_true_random=False))
def test_the_order_of_rows_plays_no_part(
    rules: RuleSet, history: list[Observation], random: Random
) -> None:
    mixed = list(history)
    random.shuffle(mixed)
    assert rules.judge(mixed, GRID) == rules.judge(history, GRID)


@given(rule_sets, histories(), st.integers(-10_000, 10_000))
def test_a_history_at_another_time_has_the_same_verdicts(
    rules: RuleSet, history: list[Observation], tens_of_s: int
) -> None:
    shift_us = tens_of_s * 10 * S
    later = [replace(one, at_us=one.at_us + shift_us) for one in history]
    grid = replace(GRID, begin_us=GRID.begin_us + shift_us, end_us=GRID.end_us + shift_us)
    assert at_ticks(rules.judge(later, grid), grid) == at_ticks(rules.judge(history, GRID), GRID)


@given(rule_sets, histories(), st.integers(1, 11))
def test_verdicts_at_shared_ticks_do_not_depend_on_the_ticks_between(
    rules: RuleSet, history: list[Observation], finer: int
) -> None:
    fine = replace(GRID, every_us=GRID.every_us // finer)
    between = at_ticks(rules.judge(history, fine), fine)
    said = dict(zip(fine, between, strict=True))
    for tick_us, expected in zip(GRID, at_ticks(rules.judge(history, GRID), GRID), strict=True):
        if tick_us in said:
            assert said[tick_us] == expected


@given(rule_sets, histories())
def test_an_end_reported_again_changes_nothing(rules: RuleSet, history: list[Observation]) -> None:
    again = []
    last: Observation | None = None
    for one in history:
        if last is not None and one.at_us > last.at_us:
            again.append(replace(last, at_us=(last.at_us + one.at_us) // 2))
        again.append(one)
        last = one if one.kind is Kind.END else None if one.kind is Kind.GONE else last
    assert rules.judge(again, GRID) == rules.judge(history, GRID)


@given(histories(), st.integers(0, 30), st.integers(0, 30), st.integers(0, 20))
def test_a_stricter_threshold_is_bad_whenever_a_laxer_one_is(
    history: list[Observation], lag_max: int, for_s: int, more: int
) -> None:
    strict = at_ticks(Thresholds(lag_max, for_s).judge(history, GRID), GRID)
    lax = at_ticks(Thresholds(lag_max + more, for_s + more).judge(history, GRID), GRID)
    for (_, strict_bad), (_, lax_bad) in zip(strict, lax, strict=True):
        assert not lax_bad or strict_bad
