"""Whatever was cut where: the judges make the same rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.amounts import examples
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze
from tests.pipelines.partition import horizons_of, run

QUEUES = st.integers(0, 2)
STATE = st.tuples(st.just("state"), QUEUES, st.sampled_from([3, 3, 3, 20, 35]), st.integers(0, 60))
PASS = st.tuples(st.just("pass"), st.integers(1, 5))
SHIP = st.tuples(st.just("ship"))
MOVES = st.one_of(
    *(PASS, PASS, PASS, PASS, STATE, STATE, STATE, SHIP, SHIP),
    st.tuples(st.just("odd"), QUEUES, st.sampled_from(["NONE", "PURGED", "AT_END", "RADIO"])),
    st.tuples(st.just("sample"), QUEUES, st.sampled_from([None, "M1", "M2", "dropped"])),
    st.tuples(st.just("client"), QUEUES, st.sampled_from(["attends", "neglects", "is mute"])),
    st.tuples(st.just("unpulled"), QUEUES, st.integers(20, 60)),
    st.tuples(st.just("stack"), QUEUES, st.sampled_from([None, "here", "there"])),
    st.tuples(st.just("step"), st.sampled_from([-15, -3, 4, 40])),
    st.tuples(st.just("finished"), QUEUES, st.integers(0, 40), st.sampled_from(["client-1", "x"])),
    st.tuples(st.just("pulled"), QUEUES, st.integers(0, 60), st.integers(0, 2)),
    st.tuples(st.just("drift"), QUEUES, st.integers(-3, 9), st.integers(100, 240)),
    st.tuples(st.just("fall"), QUEUES, st.booleans()),
    st.tuples(st.just("boot"), st.integers(0, 50)),
    st.tuples(st.just("silence"), st.integers(30, 80)),
    st.tuples(st.just("set back"), st.integers(1, 20)),
    st.tuples(st.just("event"), st.sampled_from(["SNAPSHOT", "SPOOL_LOSS", "GROUP_GONE"])),
)
"""What happens on a broker; a clock may be set back."""
STORIES = st.lists(st.tuples(st.booleans(), MOVES), min_size=20, max_size=120)


class Broker:
    """Tells moves as the broker that they happen on would."""

    def __init__(self, rows: Rows, name: str) -> None:
        self.emitter = Emitter(rows, broker=name)
        self.second = 0
        self.committed = dict.fromkeys(range(3), 0)
        self.emitter.at(0)
        self.emitter.boot()

    def go(self, seconds: int) -> None:
        """Time passes."""
        self.second += seconds
        self.emitter.at(self.second)

    def report(self, move: tuple[Any, ...]) -> None:
        """One move of the story."""
        emitter = self.emitter
        match move:
            case ("pass" | "silence", seconds):
                self.go(seconds)
            case ("state", queue, committed, behind):
                self.committed[queue] = committed
                state = "EXACT" if behind else "AT_END"
                end = committed + behind
                emitter.watermark(
                    queue, committed=committed, max_offset=end, pulled=end, committed_state=state
                )
            case ("odd", queue, "NONE"):
                emitter.watermark(queue, committed=None, committed_state="NONE")
            case ("odd", queue, "RADIO"):
                emitter.watermark(queue, message_model="BROADCASTING")
            case ("odd", queue, "PURGED"):
                emitter.watermark(queue, committed=3, min_offset=9, committed_state="PURGED")
            case ("odd", queue, state):
                emitter.watermark(queue, committed=100, committed_state=state)
            case ("sample", queue, head):
                held = 0 if head in (None, "dropped") else 4
                dropped = head == "dropped"
                emitter.sample(queue, held_count=held, head_message_id=head, dropped=dropped)
            case ("client" | "unpulled" | "stack" | "step" | "finished" | "pulled", *reported):
                self._report_more(move[0], *reported)
            case ("drift", queue, change, seconds):
                self._drift(queue, change, seconds)
            case ("event", kind):
                emitter.report("lifecycle", kind=kind)
            case ("fall", queue, is_reset):
                self._fall(queue, is_reset=is_reset)
            case ("boot", seconds):
                emitter.ship()
                self.go(seconds)
                emitter.boot()
            case ("set back", seconds):
                self.go(-seconds)
            case _:
                emitter.ship()

    def _report_more(self, what: str, *fields: Any) -> None:
        """What a client says, or fails to say, and what becomes of the clock."""
        emitter = self.emitter
        match what, *fields:
            case "client", queue, how:
                emitter.sample(queue, attended=how == "attends", answered=how != "is mute")
            case "unpulled", queue, behind:
                committed = self.committed[queue]
                mark = {"committed": committed, "max_offset": committed + behind, "pulled": 0}
                emitter.watermark(queue, **mark, last_pull_time=emitter.epoch_us)
            case "finished", queue, first, client:
                emitter.sample(queue, held_count=4, first_held=first, client_id=client)
            case "pulled", queue, pulled, members:
                emitter.watermark(
                    queue, pulled=pulled, committed=self.committed[queue], members=members
                )
            case "stack", queue, stack:
                held = {"held_count": 4, "first_held": 3, "head_message_id": "M1"}
                emitter.sample(queue, **held, stack=stack)
            case _, seconds:
                self.go(max(0, seconds))
                emitter.report("lifecycle", kind="CLOCK_STEPPED", step_ms=seconds * 1000)

    def _drift(self, queue: int, change: int, seconds: int) -> None:
        """The lag changes steadily, over some complete minutes."""
        for step in range(seconds // 20):
            self.go(20)
            committed = 100 + step
            self.emitter.watermark(
                queue, committed=committed, pulled=committed, max_offset=200 + step * (1 + change)
            )
            if not step % 3:
                self.emitter.ship()
        self.committed[queue] = 100

    def _fall(self, queue: int, *, is_reset: bool) -> None:
        before = self.committed[queue]
        self.committed[queue] = before // 2
        self.emitter.report(
            "consume_offsets",
            group="g",
            topic="t",
            queue_id=queue,
            offset=before // 2,
            previous_offset=before,
            path="RESET" if is_reset else "COMMIT_RPC",
            trigger="TIMER",
            accepted=True,
        )


@examples(5, in_full=50)
@given(STORIES, st.sets(st.integers(0, 40)))
def test_any_cut_gives_the_same_rows(
    story: list[tuple[bool, tuple[Any, ...]]], ends: set[int]
) -> None:
    rows: Rows = {}
    brokers = (Broker(rows, "broker-a"), Broker(rows, "broker-b"))
    for is_second, move in story:
        brokers[is_second].report(move)
    for broker in brokers:
        broker.go(3)
        broker.emitter.ship()
    reported = bronze(rows)
    shipments = len(horizons_of(reported))
    whole = run(JUDGES, reported, SHORT)
    assert run(JUDGES, reported, SHORT, ends=range(shipments)) == whole
    assert run(JUDGES, reported, SHORT, ends=(end for end in ends if end < shipments)) == whole
