"""Plain thresholds and Burrow's rules as rule sets: over the same observations, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.burrow.storage import StorageSettings
from pipelines.rules.observations import (
    Kind,
    Observation,
    Queue,
    RuleSet,
    State,
    Ticks,
    Verdict,
    as_intervals,
    in_order,
)
from pipelines.rules.thresholds import Thresholds

S = 1_000_000
T0 = 1_700_000_000 * S
END, COMMIT, GONE = Kind.END, Kind.COMMIT, Kind.GONE


def detected_us(verdicts: Sequence[Verdict], *, since_us: int) -> int | None:
    """When trouble that began at `since_us` was first reported; null: never.

    A verdict that was bad already counts from `since_us` on.
    """
    for verdict in verdicts:
        has_ended = verdict.end_us is not None and verdict.end_us <= since_us
        if verdict.is_bad and not has_ended:
            return max(verdict.begin_us, since_us)
    return None


def seen(*rows: tuple[float, Kind, int | None]) -> list[Observation]:
    """(second, kind, offset) rows."""
    return [
        Observation(T0 + round(second * S), order, kind, offset)
        for order, (second, kind, offset) in enumerate(rows, start=1)
    ]


def ticks(begin_s: int, end_s: int, every_s: int) -> Ticks:
    return Ticks(T0 + begin_s * S, T0 + end_s * S, every_s * S)


def states(verdicts: list[Verdict]) -> list[tuple[int, str]]:
    """Second and state."""
    return [((verdict.begin_us - T0) // S, verdict.state) for verdict in verdicts]


def test_a_lag_above_the_limit_is_found_after_the_time_and_not_before() -> None:
    rules = Thresholds(lag_max=100, for_s=60)
    observed = seen((0, END, 0), (0, COMMIT, 0), (10, END, 101), (100, COMMIT, 1))
    assert states(rules.judge(observed, ticks(0, 120, 1))) == [
        (0, "OK"),
        (70, "LAGGING"),
        (100, "OK"),
    ]


def test_a_lag_at_the_limit_is_fine_for_ever() -> None:
    observed = seen((0, COMMIT, 0), (0, END, 100))
    assert states(Thresholds(100, 60).judge(observed, ticks(0, 10_000, 100))) == [(0, "OK")]


def test_one_message_fewer_for_an_instant_begins_the_time_anew() -> None:
    observed = seen((0, COMMIT, 0), (0, END, 101), (59, COMMIT, 1), (59.5, END, 102))
    assert states(Thresholds(100, 60).judge(observed, ticks(0, 120, 1)))[1] == (120, "LAGGING")


def test_before_an_end_and_a_commit_nothing_is_known() -> None:
    observed = seen((10, END, 5), (20, COMMIT, 5), (30, GONE, None), (40, END, 0), (50, COMMIT, 0))
    verdicts = Thresholds(0, 0).judge(observed, ticks(0, 60, 5))
    assert states(verdicts) == [
        (0, "NO_END_OFFSET"),
        (10, "NO_COMMIT"),
        (20, "OK"),
        (30, "GONE"),
        (40, "NO_COMMIT"),
        (50, "OK"),
    ]
    assert [verdict.is_bad for verdict in verdicts] == [None, None, False, None, None, False]


def test_verdicts_are_intervals_without_gaps_and_the_last_one_is_open() -> None:
    ok, bad = State("OK", is_bad=False), State("BAD", is_bad=True)
    assert as_intervals([(1, ok), (2, ok), (3, bad), (4, ok)]) == [
        Verdict(1, 3, "OK", is_bad=False),
        Verdict(3, 4, "BAD", is_bad=True),
        Verdict(4, None, "OK", is_bad=False),
    ]
    assert as_intervals([]) == []


@pytest.mark.parametrize(
    ("since", "expected"), [(0, 3), (3, 3), (4, 4), (5, 9), (8, 9), (9, 9), (20, 20)]
)
def test_trouble_is_detected_at_the_first_bad_tick_from_when_it_began(
    since: int, expected: int
) -> None:
    verdicts = [
        Verdict(0, 3, "OK", is_bad=False),
        Verdict(3, 5, "BAD", is_bad=True),
        Verdict(5, 9, "UNKNOWN", is_bad=None),
        Verdict(9, None, "BAD", is_bad=True),
    ]
    assert detected_us(verdicts, since_us=since) == expected
    assert detected_us(verdicts[:1], since_us=0) is None


def consumer_that_dies(*, every_s: float, dies_s: int, ends_s: int = 900) -> list[Observation]:
    """Ten messages a second come; commits each `every_s`, 20 messages behind, until `dies_s`."""
    rows: list[tuple[float, Kind, int | None]] = [(s, END, 1000 + 10 * s) for s in range(ends_s)]
    number = 1
    while number * every_s <= dies_s:
        second = number * every_s
        rows.append((second, COMMIT, 1000 + int(10 * second) - 20))
        number += 1
    return seen(*sorted(rows, key=lambda row: row[0]))


RULE_SETS: list[RuleSet] = [
    BurrowRules(),
    Thresholds(lag_max=1_000, for_s=60),
]


@pytest.mark.parametrize(
    ("every_s", "burrow_s", "thresholds_s"),
    [(5, 90, 160), (60, 545, 160)],
    ids=["commits each 5 s", "commits each 60 s"],
)
def test_time_to_detect_a_dead_consumer_side_by_side(
    every_s: float, burrow_s: int, thresholds_s: int
) -> None:
    """Burrow needs a pause longer than its window of ten commits, 45 s or 540 s, and ten polls of
    the end, 100 s, since the end was last where the consumer stopped: 1,010 s here. It is WARN all
    along, for a lag that never falls: STOP is what shows the death.
    """
    observed = consumer_that_dies(every_s=every_s, dies_s=1_020, ends_s=2_000)
    last_s = int(max(o.at_us for o in observed if o.kind is COMMIT) - T0) // S
    grid = ticks(0, 1_999, 5)
    burrow, plain = (rules.judge(observed, grid) for rules in RULE_SETS)
    stopped = next(
        second for second, state in states(burrow) if state == "STOP" and second > last_s
    )
    lagging = detected_us(plain, since_us=T0 + last_s * S)
    assert stopped - last_s == burrow_s
    assert lagging is not None
    assert (lagging - T0) // S - last_s == thresholds_s


def test_burrow_polls_the_end_each_refresh_and_sees_nothing_between() -> None:
    """300 messages come right after the poll at 20 s: until the next one they are unknown."""
    observed = seen(
        *((second, END, 100) for second in range(0, 21, 5)),
        *((second, COMMIT, 100) for second in range(1, 20, 2)),
        (20.5, END, 400),
        (21, COMMIT, 100),
    )
    verdicts = BurrowRules(storage=StorageSettings(intervals=1)).judge(observed, ticks(0, 40, 1))
    assert states(verdicts) == [(0, "NOTFOUND"), (1, "OK"), (30, "STOP")]


def test_a_commit_before_the_first_poll_is_lost_to_burrow() -> None:
    observed = seen((1, END, 100), (2, COMMIT, 50), (30, COMMIT, 60))
    verdicts = BurrowRules().judge(observed, ticks(0, 30, 1))
    assert states(verdicts)[:2] == [(0, "NOTFOUND"), (30, "STALL")]


def test_a_poll_sees_the_end_of_its_own_instant_before_the_commits_of_it() -> None:
    assert states(BurrowRules().judge(seen((10, COMMIT, 7), (10, END, 9)), ticks(10, 10, 1))) == [
        (10, "STALL")
    ]


def test_years_of_silence_cost_no_more_polls_than_a_ring_keeps() -> None:
    """Behind by 40 since the start; the group is forgotten when its last commit is a week old."""
    week_s, ten_years_s = 604_800, 315_360_000
    observed = seen((0, END, 90), (1, COMMIT, 50), (ten_years_s, COMMIT, 60))
    verdicts = BurrowRules().judge(observed, ticks(1, ten_years_s + 8, week_s))
    assert [state for _, state in states(verdicts)] == ["STALL", "STOP", "NOTFOUND"]
    after = BurrowRules().judge(observed, ticks(ten_years_s, ten_years_s, 1))
    assert [state for _, state in states(after)] == ["OK"], "two commits, and the lag fell"


def queue(queue_id: int, broker: str = "a") -> Queue:
    return Queue("shop", "orders", "sales", broker, queue_id)


def test_a_group_is_as_bad_as_its_worst_queue_and_brokers_do_not_mix() -> None:
    fine = seen((0, END, 50), (1, COMMIT, 50))
    stands = seen((0, END, 50), (1, COMMIT, 20), (5, COMMIT, 20), (9, COMMIT, 20))
    said = BurrowRules().judge_group(
        {queue(0): fine, queue(0, "b"): stands, queue(3): []}, ticks(10, 10, 1)
    )
    assert states(said.group) == [(10, "ERR")]
    assert states(said.queues[queue(0)]) == [(10, "OK")]
    assert states(said.queues[queue(0, "b")]) == [(10, "STALL")]
    assert states(said.queues[queue(3)]) == [(10, "OK")], "a partition that Burrow has no commit of"


def test_a_topic_that_is_gone_is_forgotten_once_its_last_queue_is() -> None:
    def life(gone_s: int) -> list[Observation]:
        return seen((0, END, 50), (1, COMMIT, 20), (gone_s, GONE, None))

    said = BurrowRules().judge_group({queue(0): life(20), queue(1): life(30)}, ticks(10, 40, 10))
    assert states(said.queues[queue(0)])[-1] == (30, "NOTFOUND")
    assert states(said.queues[queue(1)])[-1] == (30, "NOTFOUND")
    assert states(said.group)[-1] == (30, "OK"), "a group without a topic is OK"


def test_observations_of_one_instant_are_put_in_order() -> None:
    mixed = [
        Observation(5, 1, COMMIT, 1),
        Observation(5, 9, END, 2),
        Observation(4, 3, GONE, None),
        Observation(5, 2, END, 1),
    ]
    assert [(one.kind, one.order) for one in in_order(mixed)] == [
        (GONE, 3),
        (END, 2),
        (END, 9),
        (COMMIT, 1),
    ]


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (Ticks, {"begin_us": 0, "end_us": 9, "every_us": 0}),
        (Ticks, {"begin_us": 10, "end_us": 9, "every_us": 1}),
        (Thresholds, {"lag_max": -1, "for_s": 1}),
        (Thresholds, {"lag_max": 1, "for_s": -1}),
        (BurrowRules, {"offset_refresh_s": 0}),
    ],
    ids=["no distance", "end before begin", "negative lag", "negative time", "no refresh"],
)
def test_settings_without_a_meaning_are_refused(made: type, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        made(**wrong)
