"""Verdicts rest on what is finished, not on how often somebody says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.base.settings import Evaluation
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.played_group import (
    FIRST,
    Work,
    exposed,
    played,
    played_beside,
    states,
    steady,
    windows,
)
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import run

COMMITS_S = (0.02, 5, 60, 1200)
MINUTES_26 = 26 * 60


def stuck(work: Work, at: float) -> Work:
    """Its head does not get finished from that second on."""
    return replace(work, finished=lambda now: work.finished(min(now, at)))


HEALTHY = steady(produced=100, consumed=150, commit_s=5, seconds=MINUTES_26)
STUCK = stuck(HEALTHY, 400)
FALLING = steady(produced=1000, consumed=990, behind=60_000, commit_s=5, seconds=MINUTES_26)
CATCHING = steady(produced=1000, consumed=1020, behind=400_000, commit_s=5, seconds=MINUTES_26)
STORIES = {
    "healthy": (HEALTHY, ["OK"]),
    "stuck": (STUCK, ["OK", "UNKNOWN", "STALLED"]),
    "falling behind": (FALLING, ["UNKNOWN", "SLOW"]),
    "catching up": (CATCHING, ["UNKNOWN", "SLOW", "CATCHING_UP"]),
}


def test_the_same_work_gives_the_same_verdicts_however_often_it_is_committed() -> None:
    works = [replace(work, commit_s=s) for work, _ in STORIES.values() for s in COMMITS_S]
    found = [(states(gold), windows(gold)) for gold in played_beside(works)]
    for number, (story, (_, expected)) in enumerate(STORIES.items()):
        often, *others = found[number * len(COMMITS_S) :][: len(COMMITS_S)]
        assert [state for _, state in often[0]] == expected, story
        assert others == [often] * len(others), story


def test_who_reports_rarely_is_well_and_yet_a_crash_would_repeat_what_was_finished() -> None:
    assert exposed(replace(HEALTHY, commit_s=5, seconds=300)) == []
    assert exposed(replace(HEALTHY, commit_s=1200, seconds=300)) == [(FIRST, HEALTHY.end(296))]


def test_a_healthy_client_that_reports_nothing_is_never_called_stalled_once_it_reported_twice() -> (
    None
):
    """Before, it is taken to report each 5 s, and its standing offset is a window, as it may be."""
    mute = replace(HEALTHY, reports=False, seconds=45 * 60)
    golds = played_beside([replace(mute, commit_s=commit_s) for commit_s in COMMITS_S])
    for commit_s, gold in zip(COMMITS_S, golds, strict=True):
        assert {kind for _, _, kind, _ in windows(gold)} <= {"UNDETERMINED"}
        assert all(at <= 2 * commit_s + 10 for at, *_ in windows(gold))
        assert states(gold)[-1][1] == "OK"
        assert (windows(gold) == []) == (commit_s <= 5)


def newest(gold: dict[str, list[dict[str, Any]]], table: str) -> dict[str, Any]:
    """The last row of a table."""
    return max(gold[table], key=lambda row: (row["observed_at"], row.get("revision", 0)))


QUIET = Work(
    end=lambda _: FIRST + 3,
    finished=lambda _: FIRST,
    stored=lambda _: 0.0,
    commit_s=5,
    seconds=330,
)
"""Three messages, and no more."""


@pytest.mark.parametrize(("reports", "at"), [(True, 40), (False, 40)])
def test_three_messages_that_stand_are_too_much_however_few_they_are(
    reports: bool, at: float
) -> None:
    """Of a client that reports nothing, too: it is taken to report each 5 s, as RocketMQ's do."""
    gold = played(replace(QUIET, reports=reports))
    assert states(gold) == [(10, "OK"), (at, "STALLED")]
    assert newest(gold, "group_state")["time_lag_ms"] > Evaluation().allowed_time_ms


def test_silence_is_a_stall_when_it_is_twice_as_long_as_is_usual() -> None:
    """Pulls go on, and offsets that came each minute come no more."""
    work = replace(HEALTHY, reports=False, commit_s=60, held_max=10**6, seconds=600)
    gold = played(replace(work, finished=lambda at: HEALTHY.finished(min(at, 240))))
    *before, (at, rule, kind, state) = windows(gold)
    assert all(earlier <= 2 * 60 + 5 for earlier, *_ in before), "before it had reported twice"
    assert (rule, kind, state) == ("STALLED", "UNDETERMINED", "OPEN")
    assert 240 + 120 <= at <= 240 + 120 + 10
    evidence = newest(gold, "stalled_windows")["evidence"]
    assert ": its client does not say what it holds. " in evidence
    assert ". Offset 24900 has not moved for 2 min (usually it is reported each 60 s)" in evidence


@pytest.mark.parametrize("between_s", [60, 300])
def test_a_single_long_stand_is_no_habit(between_s: int) -> None:
    """The second time it is called a stall as soon as the first time, however soon it comes."""
    begins = (300, 600 + between_s)

    def finished(at: float) -> int:
        stands = next((begin for begin in begins if begin <= at < begin + 300), at)
        return HEALTHY.finished(stands)

    work = replace(HEALTHY, finished=finished, reports=False, commit_s=5, held_max=10**6)
    opened = [at for at, _, _, state in windows(played(work)) if state == "OPEN"]
    assert opened == [begin + 35 for begin in begins]


def test_a_group_that_lost_its_members_is_dead_however_rarely_it_reported() -> None:
    works = [
        replace(HEALTHY, commit_s=commit_s, reports=reports, dies_at=1300)
        for commit_s, reports in ((5, True), (300, False), (1200, True), (1200, False))
    ]
    found = [states(gold)[-1] for gold in played_beside(works)]
    assert {state for _, state in found} == {"STOPPED"}
    assert max(at for at, _ in found) <= 1300 + 30 + 35


def noisy(produced: int, consumed: int, behind: int, *, seed: int, seconds: int) -> Work:
    """Both come and go by chance, around their rates."""
    chance = np.random.default_rng(seed)
    ends = FIRST + behind + np.append(0, np.cumsum(chance.poisson(produced, seconds + 1)))
    steps = chance.poisson(consumed, seconds + 1)
    reached = list(_finished(ends.tolist(), steps.tolist()))

    def stored(offset: int) -> float:
        at = int(np.searchsorted(ends, offset, side="right"))
        return float(at) if at else (offset - int(ends[0])) / produced

    return Work(
        end=lambda at: int(ends[int(at)]),
        finished=lambda at: reached[int(at)],
        stored=stored,
        commit_s=5,
        seconds=seconds,
    )


def _finished(ends: list[int], steps: list[int]) -> Iterator[int]:
    reached = FIRST
    yield reached
    for end, step in zip(ends, steps, strict=False):
        reached = min(reached + step, end)
        yield reached


def test_chance_makes_no_state_go_to_and_fro() -> None:
    rates = {
        (1000, 990, 100_000): ["UNKNOWN", "SLOW"],
        (1000, 1050, 100_000): ["UNKNOWN", "CATCHING_UP", "OK"],
        (100, 110, 0): ["OK"],
    }
    works = [noisy(*rate, seed=seed, seconds=2400) for rate in rates for seed in (1, 2)]
    found = [[state for _, state in states(gold)] for gold in played_beside(works)]
    assert found == [expected for expected in rates.values() for _ in (1, 2)]


def test_chance_is_no_course() -> None:
    """A lag that is another one each minute, around the same, neither grows nor shrinks."""
    chance = np.random.default_rng(1).integers(0, 60, size=41).tolist()
    work = steady(produced=100, consumed=100, commit_s=5, seconds=2400)

    def finished(at: float) -> int:
        return max(FIRST, work.end(at) - 300 - chance[int(at) // 60])

    found = played(replace(work, finished=finished))["group_state"]
    courses = {
        (row["state"], row["trend"], row["lag_change_per_hour"])
        for row in found
        if second(row["observed_at"]) >= 420
    }
    assert courses == {("OK", "STEADY", 0)}


def test_however_small_a_deficit_is_it_is_reported_within_an_hour() -> None:
    """Of a hundred messages a second; a lag of a thousand hides nothing."""
    deficits = [(36_000, 250), (360, 3600), (36, 3700)]
    works = [
        steady(produced=100, consumed=100 - an_hour / 3600, behind=1000, commit_s=5, seconds=s + 60)
        for an_hour, s in deficits
    ]
    for (an_hour, within_s), gold in zip(deficits, played_beside(works), strict=True):
        assert [state for _, state in states(gold)] == ["OK", "SLOW"], an_hour
        assert states(gold)[-1][0] <= within_s + 10, an_hour
        newest_row = newest(gold, "group_state")
        assert abs(newest_row["lag_change_per_hour"] - an_hour) <= max(12, an_hour // 10)
        assert newest_row["trend"] == "GROWING"


@pytest.mark.parametrize(
    ("min_offset", "words"),
    [
        (0, "when they are deleted unread is unknown: the queue has deleted nothing yet"),
        (500, "the oldest of them are deleted unread in about"),
    ],
)
def test_retention_is_reported_where_the_queue_has_begun_to_delete(
    min_offset: int, words: str
) -> None:
    gold = played(replace(FALLING, min_offset=min_offset, seconds=300))
    group, window = newest(gold, "group_state"), newest(gold, "stalled_windows")
    assert words in group["reason"]
    assert words in window["evidence"]
    assert "on broker-a by 10.0 messages/s" in group["reason"]
    left = [one["retained_until"] for one in (group, window)]
    if min_offset == 0:
        assert left == [None, None]
        return
    reached = window["reached"] - min_offset
    seconds = (window["retained_until"] - window["observed_at"]).total_seconds()
    assert abs(seconds - reached / 10) <= 1


def test_an_offset_beyond_the_end_nets_out_no_other_queue_and_makes_the_sum_a_lower_bound() -> None:
    """One queue is 20 behind, one 50 beyond its end: 20 wait at least, and something is wrong."""
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    for at in range(1, 60):
        broker.at(at)
        broker.watermark(0, committed=80 + at, max_offset=100 + at, pulled=100 + at)
        if at > 6:
            broker.watermark(1, committed=150, max_offset=100, committed_state="AT_END", pulled=100)
        broker.ship()
    gold = run(JUDGES, bronze(rows), Evaluation())
    first = min(gold["group_state"], key=lambda row: row["observed_at"])
    figures = ("state", "lag_messages", "lag_at_least_messages", "queues_known")
    assert tuple(first[name] for name in figures) == ("UNKNOWN", None, 20, 1)
    assert first["reason"].startswith(
        "Group g has an offset on queue 1 of t on broker-a that lies beyond"
    )
    reported = newest(gold, "group_state")
    assert (reported["state"], reported["lag_messages"], reported["queues"]) == (
        "DATA_LOST",
        None,
        2,
    )
    assert (reported["lag_at_least_messages"], reported["unknown_reason"]) == (20, "BEYOND_END")
    beyond = [row for row in gold["consumer_lag"] if row["queue_id"] == 1]
    assert {
        (row["lag_messages"], row["time_lag_ms"], row["provenance"], row["unknown_reason"])
        for row in beyond
    } == {(None, None, "UNKNOWN", "BEYOND_END")}
    assert newest(gold, "stalled_windows")["evidence"] == (
        "Group g has an offset on queue 1 of t on broker-a that lies beyond the end of the queue. "
        "Its offset is 150, and the queue keeps [0, 100). Set the offset, and see which messages "
        "are missing."
    )
