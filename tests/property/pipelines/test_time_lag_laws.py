"""Laws of our time lag: whatever a producer did between the polls, the bar holds the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pipelines.rules.time_lag import Polled, PolledEnds, Provenance, TimeLag


@dataclass
class Queue:
    """A queue that remembers when each of its messages was stored."""

    now_ms: int = 0
    stored_ms: list[int] = field(default_factory=list)
    ends: PolledEnds = field(default_factory=PolledEnds)
    lowest: int = 0
    """Lowest end since the newest poll."""

    def produce(self, count: int) -> None:
        self.stored_ms += [self.now_ms] * count

    def lose(self, count: int) -> None:
        """The newest messages, as a broker does in a power cut; all of them: made again."""
        del self.stored_ms[max(0, len(self.stored_ms) - count) :]
        self.lowest = min(self.lowest, len(self.stored_ms))

    def poll(self) -> None:
        if self.ends.add(len(self.stored_ms), self.now_ms) is not Polled.OUT_OF_ORDER:
            self.lowest = len(self.stored_ms)

    def truth_ms(self, committed: int) -> int:
        if committed >= len(self.stored_ms):
            return 0
        return self.now_ms - self.stored_ms[committed]


single_steps = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 40)),
        st.tuples(st.just("wait"), st.integers(1, 5_000)),
        st.tuples(st.just("poll"), st.just(0)),
        st.tuples(st.just("lose"), st.integers(1, 200)),
    ),
    min_size=3,
    max_size=60,
)


def _thrice(count: int) -> int:
    return 3 * count


counts = st.integers(0, 20)
rounds = st.lists(
    st.tuples(
        counts,
        st.integers(1, 5_000),
        st.just(0) | st.integers(20, 80),
        st.just(0) | counts.map(_thrice),
    ),
    min_size=3,
    max_size=15,
).map(
    lambda told: [
        step
        for produced, waited_ms, lost, made_again in told
        for step in [
            ("produce", produced),
            ("wait", waited_ms),
            ("lose", lost),
            ("produce", made_again),
            ("wait", waited_ms),
            ("poll", 0),
        ]
    ]
)
"""A poll each round, in many of them after a fall of several rounds, which is made up again."""
steps = single_steps | rounds
sizes = st.integers(3, 12)


def played(story: list[tuple[str, int]], points_max: int) -> Queue:
    """The queue after the story. A fall is seen: the next poll comes before the end is as high as
    it was at the last poll, for what nobody sees nobody can know.
    """
    queue = Queue(ends=PolledEnds(points_max=points_max))
    for what, size in story:
        polled = queue.ends.points[-1][0] if len(queue.ends) else 0
        match what:
            case "produce":
                has_fallen = queue.lowest < polled
                room = polled - 1 - len(queue.stored_ms)
                queue.produce(min(size, room) if has_fallen else size)
            case "wait":
                queue.now_ms += size
            case "poll":
                queue.poll()
            case "lose":
                queue.lose(size)
    return queue


def asked(queue: Queue) -> list[tuple[int, TimeLag]]:
    """The lag at every offset up to a bit beyond the end."""
    return [
        (committed, queue.ends.time_lag(committed, now_ms=queue.now_ms))
        for committed in range(len(queue.stored_ms) + 4)
    ]


@given(steps, sizes)
def test_the_bar_holds_the_truth(story: list[tuple[str, int]], points_max: int) -> None:
    queue = played(story, points_max)
    fallen = bool(queue.ends.points) and queue.lowest < queue.ends.points[-1][0]
    for committed, found in asked(queue):
        if fallen and committed >= queue.lowest:
            continue  # It fell, and nobody has looked since.
        truth = queue.truth_ms(committed)
        if found.lag_ms is not None:
            assert found.error_ms is not None
            assert abs(truth - found.lag_ms) <= found.error_ms
        if found.least_ms is not None:
            assert found.least_ms <= truth
        if found.most_ms is not None:
            assert truth <= found.most_ms


@given(steps, sizes)
def test_no_lag_is_negative_and_every_unknown_one_has_a_reason(
    story: list[tuple[str, int]], points_max: int
) -> None:
    for _, found in asked(played(story, points_max)):
        assert (found.lag_ms is None) == (found.reason is not None)
        assert (found.lag_ms is None) == (found.error_ms is None)
        assert (found.lag_ms is None) == (
            found.provenance in (Provenance.UNKNOWN, Provenance.PURGED)
        )
        if found.lag_ms is not None:
            assert found.most_ms is not None
            assert found.least_ms is not None
            assert 0 <= found.least_ms <= found.lag_ms <= found.most_ms
            assert found.error_ms == max(
                found.lag_ms - found.least_ms, found.most_ms - found.lag_ms
            )


@given(steps, sizes)
def test_a_later_offset_has_no_larger_lag(story: list[tuple[str, int]], points_max: int) -> None:
    known = [found for _, found in asked(played(story, points_max)) if found.lag_ms is not None]
    lags = [found.lag_ms or 0 for found in known]
    assert lags == sorted(lags, reverse=True)
    assert [found.least_ms or 0 for found in known] == sorted(
        (found.least_ms or 0 for found in known), reverse=True
    )


@given(steps, sizes)
def test_only_what_came_before_the_first_poll_is_unknown(
    story: list[tuple[str, int]], points_max: int
) -> None:
    """Below the newest end: what lies at or above the lowest point is known."""
    queue = played(story, points_max)
    if not queue.ends.points:
        return
    first, newest = queue.ends.points[0][0], queue.ends.points[-1][0]
    for committed in range(newest):
        found = queue.ends.time_lag(committed, now_ms=queue.now_ms)
        assert (found.lag_ms is not None) == (committed >= first)


@given(steps, sizes)
def test_the_points_rise_in_both_and_are_never_more_than_asked_for(
    story: list[tuple[str, int]], points_max: int
) -> None:
    points = played(story, points_max).ends.points
    assert len(points) <= points_max
    assert points == sorted(points)
    times = [time_ms for _, time_ms in points]
    assert len(set(times)) == len(times)
