"""A queue that falls behind is in trouble until that is over: no single message ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.base.settings import Evaluation
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.from_bronze import observations_of
from pipelines.rules.observations import Ticks
from tests.pipelines.bronze_lake import SECOND, START_US
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
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import run

ALLOWED_S = Evaluation().allowed_time_ms / 1000
WINDOW_S = Evaluation().window_ms / 1000
SEEN_S = 10
"""So long after it happened something stands in the rows of a tick: a sample, then a tick."""
Gold = dict[str, list[dict[str, Any]]]


def one_in(seconds: float, *, per_s: float = 20, reports: bool = True, until: float = 1e9) -> Work:
    """So many messages a second come; one is finished each so many seconds, and from `until` on all
    that come and sixty a second of those that wait.
    """

    def end(at: float) -> int:
        return FIRST + int(per_s * at)

    def finished(at: float) -> int:
        drained = int(max(0.0, at - until) * (per_s + 60))
        return min(FIRST + int(min(at, until) // seconds) + drained, end(max(0.0, at - 1)))

    return Work(
        end,
        finished,
        commit_s=5,
        seconds=240,
        stored=lambda offset: (offset - FIRST) / per_s,
        reports=reports,
    )


@pytest.mark.parametrize("reports", [True, False], ids=["says what it holds", "is silent"])
@pytest.mark.parametrize("each_s", [20, 29, 34, 90])
def test_a_queue_that_finishes_one_message_now_and_then_has_one_window(
    each_s: float, reports: bool
) -> None:
    gold = played(one_in(each_s, reports=reports))
    assert {state for *_, state in windows(gold)} == {"OPEN"}
    assert len({row["window_id"] for row in gold["stalled_windows"]}) == 1
    begun = next(at for at, state in states(gold) if state != "OK")
    later = {row["state"] for row in gold["group_state"] if second(row["observed_at"]) >= begun}
    assert later <= {"UNKNOWN", "SLOW", "STALLED"}
    assert states(gold)[-1][1] in ("SLOW", "STALLED")


def test_burrow_warns_of_such_a_queue_from_its_second_commit_on() -> None:
    """A row of docs/burrow.md."""
    facts = bronze(rows_of(one_in(20)))
    observed = observations_of([], [], facts["group_watermarks"].to_pylist())
    ticks = Ticks(START_US, START_US + 240 * SECOND, 5 * SECOND)
    (verdicts,) = BurrowRules().judge_group(observed, ticks).queues.values()
    assert [((one.begin_us - START_US) / SECOND, one.state) for one in verdicts] == [
        (0, "NOTFOUND"),
        (10, "STALL"),
        (20, "WARN"),
    ]


def growing(chance: np.random.Generator, *, seconds: int) -> Work:
    """A lag that grows from each tick to the next, by rates, bursts and rests of any kind."""
    per_s = chance.choice([0.5, 2, 20, 300])
    steps = seconds // 5 + 1
    comes = 1 + chance.poisson(5 * per_s * chance.choice([1.0, 0.1, 3.0], steps))
    share = chance.choice([0.0, 0.02, 0.5, 0.99])
    rests = chance.random(steps) < chance.choice([0.0, 0.3, 0.8])
    done = np.where(rests, 0, np.minimum(chance.poisson(share * comes), comes - 1))
    behind = int(chance.choice([0, 50, 5000]))
    ends = FIRST + behind + np.append(0, np.cumsum(comes))
    reached = FIRST + np.append(0, np.cumsum(done))
    late_s = float(chance.choice([1.0, 60.0, 200.0]))

    def stored(offset: int) -> float:
        place = int(np.searchsorted(ends, offset, side="right"))
        if not place:
            return -late_s * (1 - (offset - FIRST) / max(behind, 1))
        return 5.0 * place - 2

    return Work(
        lambda at: int(ends[int(at) // 5]),
        lambda at: int(reached[int(at) // 5]),
        commit_s=5,
        seconds=seconds,
        stored=stored,
        reports=bool(chance.random() < 0.5),
        held_max=int(chance.choice([1, 1000])),
    )


def check_grown(gold: Gold) -> None:
    """From where messages wait too long on: one window, and no OK."""
    group = sorted(gold["group_state"], key=lambda row: row["observed_at"])
    late = [row["time_lag_ms"] is not None and row["time_lag_ms"] > 30_000 for row in group]
    if not any(late):
        return
    begun = late.index(True)
    end = late.index(False, begun) if False in late[begun:] else len(late)
    if end < len(late):  # It came back to what is allowed.
        return
    shown = [(second(row["observed_at"]), row["state"]) for row in group[begun:]]
    assert "OK" not in {state for _, state in shown}, shown
    since = shown[0][0]
    later = {state for at, state in shown if at > since + 2 * WINDOW_S}
    assert later <= {"SLOW", "STALLED"}, shown
    found = windows(gold)
    assert {state for *_, state in found} <= {"OPEN"}, found
    assert len({row["window_id"] for row in gold["stalled_windows"]}) <= 1


@pytest.mark.parametrize("seed", range(1))
def test_no_series_that_only_grows_is_ever_ok_once_messages_wait_too_long(seed: int) -> None:
    chance = np.random.default_rng(seed)
    for gold in played_beside([growing(chance, seconds=200) for _ in range(100)]):
        check_grown(gold)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_no_one_of_a_thousand_series_that_only_grow_is_ever_ok(seed: int) -> None:
    chance = np.random.default_rng(100 + seed)
    for gold in played_beside([growing(chance, seconds=400) for _ in range(100)]):
        check_grown(gold)


def behind_by_a_share(per_s: float, share: float, *, reports: bool, seconds: int = 320) -> Work:
    """A steady deficit that is smaller than what comes between two reports."""
    return Work(
        lambda at: FIRST + int(per_s * at),
        lambda at: FIRST + int(share * per_s * at),
        commit_s=5,
        seconds=seconds,
        stored=lambda offset: (offset - FIRST) / per_s,
        reports=reports,
    )


def by_the_second(chance: np.random.Generator, *, seconds: int) -> Work:
    """A lag that grows over each five seconds, of rates, bursts and waves by the second."""
    per_s = chance.choice([0.3, 1, 5, 40, 700])
    share = chance.choice([0, 0.3, 0.7, 0.9, 0.97])
    at = np.arange(seconds + 1)
    style = {
        "even": np.ones(len(at)),
        "drips": 2 * chance.random(len(at)),
        "waves": np.where(at // 25 % 2, 1.8, 0.2),
    }[str(chance.choice(["even", "drips", "waves"]))]
    ends = np.floor(np.cumsum(per_s * style)).astype(int)
    wanted = np.floor(share * np.cumsum(np.diff(ends, prepend=0) * 2 * chance.random(len(at))))
    behind = np.maximum.accumulate(ends - wanted.astype(int)) + at // 5
    done = np.maximum.accumulate(np.maximum(ends + at // 5 - behind, 0))
    ends = FIRST + np.maximum.accumulate(done + behind)
    done = FIRST + done

    def stored(offset: int) -> float:
        return float(np.searchsorted(ends, offset, side="right")) - 0.5

    return Work(
        lambda at: int(ends[int(at)]),
        lambda at: int(done[int(at)]),
        commit_s=int(chance.choice([1, 5])),
        seconds=seconds,
        stored=stored,
        reports=bool(chance.random() < 0.6),
        held_max=int(chance.choice([1, 32, 1000])),
    )


def check_late(gold: Gold, work: Work) -> bool:
    """From where messages go on to wait for too long, and that is seen: no OK, trouble within two
    windows, and one window of it. Were there so many seconds of it?
    """
    waits = (at - work.stored(work.finished(at)) for at in range(work.seconds))
    well = [at for at, wait in enumerate(waits) if wait <= ALLOWED_S + 0.5]
    since = max(well, default=0) + SEEN_S
    if work.seconds - since < 3 * WINDOW_S:
        return False
    group = sorted(gold["group_state"], key=lambda row: row["observed_at"])
    shown = [(second(row["observed_at"]), row["state"]) for row in group]
    late = [one for one in shown if one[0] > since]
    assert {state for _, state in late} <= {"UNKNOWN", "SLOW", "STALLED"}, late
    assert {state for at, state in late if at > since + 2 * WINDOW_S} <= {"SLOW", "STALLED"}, late
    own = [row for row in gold["stalled_windows"] if second(row["observed_at"]) >= since]
    assert {row["state"] for row in own} <= {"OPEN"}
    assert len({row["window_id"] for row in own}) <= 1
    return True


@pytest.mark.parametrize("every_s", [1, 2, 5])
def test_a_deficit_smaller_than_what_reports_hide_is_seen_as_soon_as_messages_wait_too_long(
    every_s: int,
) -> None:
    works = [
        behind_by_a_share(per_s, share, reports=reports)
        for per_s in (1, 5, 40, 700)
        for share in (0.7, 0.8)
        for reports in (True, False)
    ]
    golds = played_beside(works, every_s=every_s)
    assert all(check_late(*one) for one in zip(golds, works, strict=True))


def test_who_is_late_before_its_first_window_is_full_is_not_well() -> None:
    """Thirty messages came in the five seconds before; nobody has finished one since."""
    work = Work(
        lambda at: FIRST + 30 + max(0, int(at) - 40),
        lambda at: FIRST,
        commit_s=5,
        seconds=140,
        stored=lambda offset: (offset - FIRST) / 6 - 5 if offset < FIRST + 30 else offset - FIRST,
    )
    (gold,) = played_beside([work], every_s=1)
    late = [row for row in gold["group_state"] if (row["time_lag_ms"] or 0) > 30_000]
    assert {row["state"] for row in late} == {"UNKNOWN", "STALLED"}


# Looks of each second cost as much as those of two and of five together.
@pytest.mark.parametrize("every_s", [pytest.param(1, marks=pytest.mark.slow), 2, 5])
def test_no_lag_that_grows_by_the_second_is_ok_however_often_it_is_seen(every_s: int) -> None:
    chance = np.random.default_rng(every_s)
    works = [by_the_second(chance, seconds=300) for _ in range(100)]
    golds = played_beside(works, every_s=every_s)
    checked = [check_late(*one) for one in zip(golds, works, strict=True)]
    assert sum(checked) > 30


def test_a_window_is_over_when_the_queue_catches_up_and_says_so() -> None:
    gold = played(replace(one_in(20, until=180), seconds=270))
    *_, last = sorted(gold["stalled_windows"], key=lambda row: row["observed_at"])
    assert (last["rule"], last["state"]) == ("SLOW", "CLOSED")
    assert 180 < second(last["observed_at"]) <= 200
    assert last["evidence"].startswith("Group ")
    assert " catches up on queue 0 of t" in last["evidence"]
    assert [state for _, state in states(gold)][-2:] == ["CATCHING_UP", "OK"]


def blocked(*, kind: str, until: float, seconds: int) -> Gold:
    """A queue of twenty messages a second that stands from 30 s on, and is drained at sixty; where
    its consumer was dead, ten seconds after it is there again.
    """
    drained_from = until + 10 * (kind == "DEAD_CONSUMER")
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    for at in range(1, seconds, 5):
        broker.at(at)
        end = FIRST + 20 * at
        stands_at = min(at, 30)
        drained = int(80 * max(0.0, at - drained_from))
        reached = min(FIRST + 20 * stands_at - 20 + drained, end - 20)
        is_there = kind != "DEAD_CONSUMER" or not 30 <= at < until
        has_pulled = is_there and (kind != "DEAD_CONSUMER" or at < 30 or at > drained_from)
        broker.watermark(
            committed=reached,
            pulled=end,
            min_offset=0,
            max_offset=end,
            store_time_at_committed=START_US + (reached - FIRST) * SECOND // 20,
            last_store_time=broker.now_us,
            members=int(is_there),
            lock_holder="client-1" if kind == "BLOCKED_ORDERLY" else None,
            last_pull_time=broker.now_us if has_pulled else START_US + 29 * SECOND,
        )
        if is_there and has_pulled:
            broker.sample(
                held_count=end - reached,
                first_held=reached,
                last_held=end - 1,
                client_committed=reached,
                head_message_id=f"M{reached}",
                locked=kind == "BLOCKED_ORDERLY",
            )
        broker.at(at + 4.999)
        broker.ship()
    return run(JUDGES, bronze(rows), Evaluation())


@pytest.mark.parametrize("kind", ["BLOCKED_ORDERLY", "FROZEN_HEAD", "DEAD_CONSUMER"])
def test_a_window_is_remembered_by_the_kind_that_it_was_of_for_longest(kind: str) -> None:
    """What the way back looks like renames no incident."""
    gold = blocked(kind=kind, until=240, seconds=330)
    revisions = sorted(gold["stalled_windows"], key=lambda row: row["revision"])
    assert len({row["window_id"] for row in revisions}) == 1
    assert (revisions[-1]["state"], revisions[-1]["kind"]) == ("CLOSED", kind)
    assert 240 < second(revisions[-1]["observed_at"]) <= 280
    assert (len({row["kind"] for row in revisions}) > 1) == (kind == "DEAD_CONSUMER")
    assert revisions[-1]["evidence"].startswith("Group ")
    assert " catches up on queue 0 of t" in revisions[-1]["evidence"]
    assert "SLOW" not in {row["rule"] for row in revisions}
    assert states(gold)[-1][1] in ("CATCHING_UP", "OK")


def test_a_reset_backwards_that_is_drained_is_not_slow() -> None:
    """The lag jumps by 100,000 and falls by 2,000 a second: it never grew."""
    base = steady(produced=1000, consumed=1100, commit_s=5, seconds=240)
    jump_at, back = 121, 100_000

    def finished(at: float) -> int:
        if at < jump_at:
            return base.finished(at)
        return min(base.finished(jump_at) - back + int(3000 * (at - jump_at)), base.finished(at))

    work = replace(base, finished=finished, stored=lambda offset: (offset - FIRST) / 1000)
    shown = [state for _, state in states(played(work))]
    assert "SLOW" not in shown
    assert "CATCHING_UP" in shown
    assert shown[-1] in ("CATCHING_UP", "OK")


def rests_while_it_grows(busy: float, rest: float, finished: float) -> Work:
    """In turn 25 s in which much comes and most is finished, and 25 s in which little comes and
    nothing is finished: what waits never becomes less.
    """

    def spent(at: float, busy: float, rest: float) -> int:
        whole, part = divmod(at, 50)
        return int(whole * 25 * (busy + rest) + min(part, 25) * busy + max(0, part - 25) * rest)

    def end(at: float) -> int:
        return FIRST + spent(at, busy, rest)

    def stored(offset: int) -> float:
        return next(at for at in range(1000) if end(at) > offset)

    def done(at: float) -> int:
        return FIRST + spent(at, finished, 0)

    return Work(end, done, commit_s=1, seconds=400, stored=stored)


@pytest.mark.parametrize("finished", [1.5, 1.6])
def test_rests_explain_no_lag_that_never_became_less_over_many_of_them(finished: float) -> None:
    gold = played(rests_while_it_grows(1.8, 0.2, finished))
    shown = [
        (second(row["observed_at"]), row["state"], row["time_lag_ms"])
        for row in gold["group_state"]
        if (row["time_lag_ms"] or 0) > 31_000
    ]
    assert "OK" not in {state for at, state, _ in shown if at > 4 * WINDOW_S}, shown
    assert shown[-1][1] in ("SLOW", "STALLED"), shown
