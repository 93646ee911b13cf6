"""The window against a plain model: whatever the order of events, no offset above an unfinished
message is reported.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.client.consuming.process_queue import ProcessQueue
from tests.unit.client.messages import message_at

NOW = 1


class ConcurrentWindow(RuleBasedStateMachine):
    """Pulls bring rising offsets with holes; listeners finish in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ProcessQueue(NOW)
        self.held: dict[int, int] = {}
        self.finished: set[int] = set()
        self.next_offset = 0
        self.reported: int | None = None

    @rule(steps=st.lists(st.integers(1, 3), min_size=1, max_size=8), size=st.integers(0, 9))
    def pull(self, steps: list[int], size: int) -> None:
        messages = []
        for step in steps:
            self.next_offset += step
            self.held[self.next_offset] = size
            messages.append(message_at(self.next_offset, size))
        self.window.put(messages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        done = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))
        safe = self.window.remove(done, NOW)
        for offset in done:
            del self.held[offset]
            self.finished.add(offset)

        assert safe is not None
        assert not [offset for offset in self.held if offset < safe], (
            "an unfinished message is lost"
        )
        assert all(offset >= safe or offset in self.finished for offset in self.finished)
        expected = min(self.held) if self.held else self.next_offset + 1
        assert safe == expected
        assert self.reported is None or safe >= self.reported
        self.reported = safe

    @rule()
    def finish_a_stranger(self) -> None:
        before = self.window.count
        self.window.remove([self.next_offset + 1000], NOW)
        assert self.window.count == before

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        assert self.window.count == len(self.held)
        assert self.window.held_bytes == sum(self.held.values())
        beyond = self.window.finished_count + len(self.held) - 1 if self.held else 0
        assert self.window.uncommitted_count == beyond, "finished ones above the lowest count"
        assert self.window.held_offsets() == sorted(self.held)

    @invariant()
    def finished_work_that_a_crash_would_repeat_is_counted(self) -> None:
        lowest = min(self.held, default=self.next_offset + 1)
        assert self.window.finished_count == len([o for o in self.finished if o > lowest])

    @invariant()
    def ranges_cover_exactly_what_is_held(self) -> None:
        covered = [o for start, end in self.window.held_ranges() for o in range(start, end)]
        if len(self.window.held_ranges()) < 32:
            assert covered == sorted(self.held)
        else:
            assert set(covered) >= set(self.held)


class OrderlyWindow(RuleBasedStateMachine):
    """Batches are taken from the front, then committed, rolled back or put back."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ProcessQueue(NOW)
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.next_offset = 0
        self.consumed: list[int] = []
        self.given_up: set[int] = set()

    @rule(count=st.integers(1, 6))
    def pull(self, count: int) -> None:
        new = list(range(self.next_offset, self.next_offset + count))
        self.next_offset += count
        self.waiting += new
        self.window.put([message_at(offset) for offset in new])

    @precondition(lambda self: not self.taken)
    @rule(batch=st.integers(1, 5))
    def take(self, batch: int) -> None:
        self.taken, self.waiting = self.waiting[:batch], self.waiting[batch:]
        assert [m.queue_offset for m in self.window.take(batch, NOW)] == self.taken

    @rule()
    def commit(self) -> None:
        safe = self.window.commit_taken()
        assert (safe is None) == (not self.taken)
        if safe is not None:
            assert not [offset for offset in self.waiting if offset < safe]
            below = [offset for offset in range(self.taken[-1], safe) if offset != self.taken[-1]]
            assert set(below) <= self.given_up, "nobody has had them yet"
            assert safe not in self.given_up, "and none of those given up comes again"
        self.consumed += self.taken
        self.taken = []

    @rule()
    def roll_back(self) -> None:
        self.window.roll_back_taken()
        self.waiting, self.taken = self.taken + self.waiting, []

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put_the_rest_back(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.taken)))
        self.window.consume_again([message_at(offset) for offset in self.taken[kept:]])
        self.waiting, self.taken = self.taken[kept:] + self.waiting, self.taken[:kept]

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_some_up_and_put_others_back(self, data: st.DataObject) -> None:
        again = sorted(data.draw(st.sets(st.sampled_from(self.taken), min_size=1)))
        self.window.consume_again([message_at(offset) for offset in again])
        safe = self.window.give_up_taken()
        given_up = set(self.taken) - set(again)
        self.waiting, self.taken = again + self.waiting, []
        self.given_up |= given_up
        assert safe == (self.waiting[0] if given_up else None)
        assert self.window.finished_count == len([o for o in self.given_up if o > self.waiting[0]])

    @invariant()
    def every_message_is_consumed_once_and_in_order(self) -> None:
        everything = self.consumed + self.taken + self.waiting
        assert everything == [o for o in range(self.next_offset) if o not in self.given_up]
        assert self.window.held_bytes == len(self.taken + self.waiting) * len(message_at(0).body)
        assert self.window.count == len(self.taken) + len(self.waiting)
        held = self.taken + self.waiting
        assert self.window.held_offsets() == held
        beyond = len(held) - 1 + self.window.finished_count if held else 0
        assert self.window.uncommitted_count == beyond


TestConcurrentWindow = ConcurrentWindow.TestCase
TestConcurrentWindow.settings = settings(max_examples=60, stateful_step_count=30)
TestOrderlyWindow = OrderlyWindow.TestCase
TestOrderlyWindow.settings = settings(max_examples=100, stateful_step_count=30)
