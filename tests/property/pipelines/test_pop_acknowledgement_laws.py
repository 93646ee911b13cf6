"""Which POP groups acknowledge none, over random series of what they were handed: rows in, its
state out, beside what the series itself says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import bronze, second
from tests.pipelines.marts.test_pop_groups_that_acknowledge_none import (
    INVISIBLE_S,
    LOOK_S,
    WINDOW_S,
    Looks,
    looked_at,
)
from tests.pipelines.partition import run

SECONDS = 400
LATE_S = WINDOW_S + LOOK_S + 5
"""A window, and the look and the tick that see its end."""


@dataclass(frozen=True)
class Handed:
    """A message that was handed out, in seconds of the story."""

    at: float
    acknowledged_at: float | None

    @property
    def over_at(self) -> float:
        """When nobody waits for its acknowledgement any more."""
        return self.acknowledged_at or self.at + INVISIBLE_S


def looks_at(handed: Sequence[Handed]) -> Looks:
    """What an observer's looks find of them."""
    looks: Looks = {}
    before: dict[str, float | None] = {}
    for at in range(11, SECONDS, LOOK_S):
        out = [one.at for one in handed if one.at <= at < one.over_at]
        ended = [one for one in handed if at - LOOK_S < one.over_at <= at]
        state = {"unacknowledged": len(out), "handed_out": min(out, default=None)}
        acknowledged = sum(one.acknowledged_at is not None for one in ended)
        if ended or state != before:
            expired = len(ended) - acknowledged
            looks[at] = {**state, "acknowledged": acknowledged, "expired": expired}
        before = state
    return looks


def again(at: float, until: float) -> list[Handed]:
    """A message that is handed out, and again a second after each invisible time."""
    step = INVISIBLE_S + 1
    return [Handed(at + step * n, None) for n in range(int((until - at) / step) + 1)]


def stalled(handed: Sequence[Handed]) -> list[tuple[float, float]]:
    """The ticks at which the group is said to stall, and since when."""
    gold = run(JUDGES, bronze(looked_at(looks_at(handed), seconds=SECONDS)), Evaluation())
    rows = sorted(gold["group_state"], key=lambda row: row["observed_at"])
    ends = [*(second(row["observed_at"]) for row in rows[1:]), float(SECONDS)]
    found: list[tuple[float, float]] = []
    for row, end in zip(rows, ends, strict=True):
        if row["unacknowledged_since"] is not None:
            begin, since = int(second(row["observed_at"])), second(row["unacknowledged_since"])
            found += [(float(tick), since) for tick in range(begin, int(end), 5)]
    return found


def tenths(least: int, most: int) -> st.SearchStrategy[float]:
    """Moments and spans, in seconds."""
    return st.integers(least * 10, most * 10).map(lambda tenth: tenth / 10)


WORK = st.lists(st.tuples(tenths(11, 150), tenths(1, 12)), max_size=30)
"""What is handed out and acknowledged: when, and after how long."""


@settings(max_examples=25, deadline=None)
@given(WORK, tenths(30, 160), st.integers(1, 4))
def test_who_stops_to_acknowledge_is_found_an_invisible_time_and_a_window_later(
    work: list[tuple[float, float]], stops_at: float, count: int
) -> None:
    """Whatever it did before: what it acknowledged was before it was handed what comes back."""
    done = [Handed(at, at + took) for at, took in work if at + took < stops_at]
    found = stalled([*done, *again(stops_at, 390) * count])
    assert found
    first, since = found[0]
    assert 0 <= first - stops_at - INVISIBLE_S - WINDOW_S <= LATE_S - WINDOW_S
    assert abs(since - stops_at) < 0.001


@settings(max_examples=25, deadline=None)
@given(tenths(20, 60), st.lists(tenths(1, 60), min_size=12, max_size=30), st.integers(0, 3))
def test_who_acknowledges_others_stalls_before_its_first_acknowledgement_at_most(
    begins_at: float, gaps: list[float], count: int
) -> None:
    """Messages come back for ever; beside them others are acknowledged, at whatever distance."""
    moments = [begins_at]
    for gap in gaps:
        moments.append(moments[-1] + gap)
    done = [Handed(at - 0.5, at) for at in moments[1:] if at < SECONDS]
    came_back = again(begins_at, 390) * count
    first_acknowledged = moments[1] + LOOK_S + 5
    quiet_from = moments[-1]
    for tick, since in stalled([*done, *came_back]):
        assert tick <= first_acknowledged or tick > quiet_from + WINDOW_S
        seen = [one.over_at for one in done if one.over_at <= tick - LOOK_S - 5]
        assert not seen or max(seen) - LOOK_S <= since + 0.001
