"""Messages that are deleted unread move a group's offset on: that is a loss, and never progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.pipelines.marts.played_group import FIRST, Work, played, played_beside, states, windows
from tests.pipelines.marts.reported_story import second

Gold = dict[str, list[dict[str, Any]]]
KEPT_S = 60
"""The queue keeps what came in so many seconds, when a piece of it has been deleted."""
PREFETCHED = 100


def losing(
    pieces: Sequence[int],
    *,
    per_s: int = 100,
    finished_per_s: int = 50,
    kept_s: int = KEPT_S,
    shorter_s: float = 0.0,
    seconds: int = 240,
    reports: bool = True,
    behind_s: int = 120,
) -> Work:
    """A queue that falls behind; at each of these seconds all but the newest messages are deleted,
    and a second later its client is moved to the first that is kept. shorter_s: how much less is
    kept with each second.
    """
    end = FIRST + per_s * np.arange(behind_s, behind_s + seconds + 1)
    first, finished = np.full(seconds + 1, FIRST), np.full(seconds + 1, FIRST)
    for at in range(1, seconds + 1):
        kept = int(per_s * (kept_s - shorter_s * at))
        first[at] = max(first[at - 1], end[at] - kept) if at in pieces else first[at - 1]
        finished[at] = min(finished[at - 1] + finished_per_s, end[at])
        if finished[at] + PREFETCHED < first[at - 1]:
            finished[at] = first[at - 1]
    return Work(
        lambda at: int(end[int(at)]),
        lambda at: int(finished[int(at)]),
        commit_s=5,
        seconds=seconds,
        stored=lambda offset: (offset - FIRST) / per_s - behind_s,
        held_max=PREFETCHED,
        reports=reports,
        first_kept=lambda at: int(first[int(at)]),
    )


def shown_from(gold: Gold, at: float) -> set[str]:
    """States of the group from a second on."""
    return {row["state"] for row in gold["group_state"] if second(row["observed_at"]) >= at}


@pytest.mark.parametrize("reports", [True, False], ids=["says what it holds", "is silent"])
def test_who_loses_a_piece_each_20_s_loses_data_all_the_while(reports: bool) -> None:
    gold = played(losing(range(60, 240, 20), reports=reports))
    assert shown_from(gold, 65) == {"DATA_LOST"}
    assert len({row["window_id"] for row in gold["stalled_windows"]}) == 1


def test_who_loses_pieces_rarely_loses_data_between_them_too() -> None:
    """For twice the time between the last two, up to an hour."""
    gold = played(losing(range(60, 360, 60), seconds=360))
    assert shown_from(gold, 125) == {"DATA_LOST"}


def test_what_a_client_holds_is_not_lost_by_its_deletion() -> None:
    """It has pulled a hundred messages beyond those that are deleted, and finishes them."""
    work = losing(range(60, 200, 20), kept_s=121, finished_per_s=100)
    held = replace(work, held_max=2_000)
    assert "DATA_LOST" not in shown_from(played(held), 0)


def test_trouble_outlives_the_loss_while_messages_wait_too_long() -> None:
    """Behind a loss the lag neither grows nor falls: that is not well."""
    work = losing([61], finished_per_s=100, seconds=150)
    assert shown_from(played(work), 110) == {"SLOW"}


def test_a_lag_that_fell_by_deletions_was_no_course_of_its_group() -> None:
    """Five minutes long a piece more was deleted each minute; then none, and the lag stays."""
    kept: dict[str, Any] = {"kept_s": 500, "shorter_s": 1.0, "behind_s": 600}
    work = losing(range(60, 301, 60), finished_per_s=100, seconds=500, **kept)
    assert [state for _, state in states(played(work))][-2:] == ["DATA_LOST", "SLOW"]


@pytest.mark.parametrize("piece_at", [61, 63], ids=["seen below the first", "moved by then"])
def test_a_loss_between_two_evaluations_is_one_at_the_next(piece_at: int) -> None:
    gold = played(losing([piece_at], seconds=150))
    assert windows(gold)[1][:2] == (65.0 if piece_at == 61 else 70.0, "DATA_LOST")
    assert [state for _, state in states(gold)][-2:] == ["DATA_LOST", "SLOW"]
    (said,) = {row["headline"] for row in gold["stalled_windows"] if row["rule"] == "DATA_LOST"}
    assert said == (
        "Group g0 loses messages of queue 0 of topic of g0 on broker-a: they are deleted before it "
        "reads them."
    )


def test_a_loss_that_has_ended_is_over_when_messages_wait_no_longer_than_is_allowed() -> None:
    gold = played(losing([61], kept_s=5, finished_per_s=100, seconds=150))
    assert [state for _, state in states(gold)][-2:] == ["DATA_LOST", "OK"]
    assert 95 <= states(gold)[-1][0] <= 105
    assert windows(gold)[-1][3] == "CLOSED"


def test_what_was_read_before_it_is_deleted_is_no_loss() -> None:
    """Retention that follows a reader so closely takes nothing away from it."""
    work = losing(range(60, 200, 20), kept_s=130, finished_per_s=100)
    assert "DATA_LOST" not in shown_from(played(work), 0)


def test_a_queue_that_stands_goes_on_standing_over_a_deletion() -> None:
    """Its client is moved each 20 s and finishes nothing."""
    gold = played(losing(range(60, 240, 20), finished_per_s=0))
    assert states(gold)[-1][1] == "STALLED"


def any_losing(chance: np.random.Generator, *, seconds: int) -> Work:
    """A queue whose lag falls by nothing but deletions; it always keeps what is too old."""
    each_s = int(chance.choice([5, 11, 20, 33, 61, 90]))
    per_s = int(chance.choice([1, 20, 300]))
    regular = np.arange(30, seconds, each_s)
    pieces = regular + (chance.integers(0, each_s, len(regular)) if chance.random() < 0.5 else 0)
    return losing(
        pieces.tolist(),
        per_s=per_s,
        finished_per_s=int(per_s * chance.choice([0.0, 0.2, 0.9, 1.0])),
        kept_s=int(chance.choice([40, 100])),
        seconds=seconds,
        reports=bool(chance.random() < 0.5),
        behind_s=int(chance.choice([60, 500])),
    )


def check_lost(gold: Gold) -> None:
    """Nobody is on the mend by a deletion, and nobody is well who waits for too long."""
    shown = states(gold)
    assert not {"OK", "CATCHING_UP"} & {state for _, state in shown}, shown


@pytest.mark.parametrize("seed", range(1))
def test_no_deletion_makes_any_series_look_better(seed: int) -> None:
    chance = np.random.default_rng(seed)
    for gold in played_beside([any_losing(chance, seconds=240) for _ in range(60)]):
        check_lost(gold)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_no_deletion_makes_any_of_a_thousand_series_look_better(seed: int) -> None:
    chance = np.random.default_rng(100 + seed)
    for gold in played_beside([any_losing(chance, seconds=400) for _ in range(100)]):
        check_lost(gold)
