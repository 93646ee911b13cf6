"""Row A7: in whatever order listeners finish, a crash brings at most `queue_span_max` messages and
one pull again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from functools import partial
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.client.config import ConsumerConfig
from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pulling import (
    OnPulled,
    Puller,
    PullHooks,
    PullQuestion,
    PullResult,
    PullStatus,
)
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime
from tests.amounts import examples
from tests.simulation.world import World
from tests.unit.client.consuming_parts import Q0, Broker, group_state, in_virtual_time
from tests.unit.client.messages import message_at

MESSAGES = 150
STEPS_MAX = 1_500


class Listeners:
    """A puller whose broker has every message at once, and listeners that finish as it is drawn."""

    def __init__(self, runtime: Runtime, config: ConsumerConfig, draw: Random) -> None:
        self.config, self.draw = config, draw
        self.state = group_state(Broker(), lambda _m, _c: None, config)
        self.window = self.state.windows[Q0] = ProcessQueue(0)
        hooks = PullHooks(self._on_messages, lambda _queue: None, None)
        self.puller = Puller(self.state, runtime.clock, self, hooks)
        self.handed_out: list[int] = []
        self.again_max = 0
        """The most messages that a crash would have brought again."""
        self.pulled_to = 0
        self.stuck: set[int] = set()
        """Offsets whose listener does not return yet."""

    def begin_pull(self, question: PullQuestion, on_pulled: OnPulled) -> None:
        """Up to a batch from there on, with holes where the broker's filter passed some over."""
        first = question.queue_offset
        end = min(first + self.config.pull_batch_max, MESSAGES)
        found = [message_at(offset) for offset in range(first, end) if self.draw.random() < 0.9]
        self.pulled_to = end
        status = PullStatus.FOUND if found else PullStatus.NO_NEW_MESSAGE
        answer = partial(on_pulled, PullResult(status, end, found))
        asyncio.get_running_loop().call_later(0.001, answer)

    def _on_messages(
        self, messages: list[MessageExt], queue: MessageQueue, window: ProcessQueue
    ) -> None:
        window.put(messages)
        self.handed_out += [message.queue_offset for message in messages]
        committed = self.state.offsets.in_memory(queue) or 0
        again = len(self.handed_out) - bisect_left(self.handed_out, committed)
        self.again_max = max(self.again_max, again)

    @property
    def is_done(self) -> bool:
        """Is every message pulled and finished?"""
        return self.pulled_to == MESSAGES and not self.window.count

    def finish_some(self, hangs: float) -> None:
        """Some listeners of all that is held return, in any order; others stay for long."""
        free = [offset for offset in self.window.held_offsets() if offset not in self.stuck]
        done = self.draw.sample(free, self.draw.randint(0, len(free)))
        hung = {offset for offset in done if self.draw.random() < hangs}
        self.stuck |= hung
        if self.stuck and self.draw.random() < 0.2:
            self.stuck.pop()
        done = [offset for offset in done if offset not in hung]
        safe = self.window.remove(done, 0) if done else None
        if safe is not None:
            self.state.offsets.update(Q0, safe, increase_only=True)


@settings(examples(25, in_full=400), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    seed=st.integers(0, 1 << 32),
    span=st.integers(1, 60),
    batch=st.integers(1, 20),
    hangs=st.floats(0.0, 0.3),
)
def test_no_more_than_the_span_and_a_pull_lie_beyond_the_committed_offset(
    seed: int, span: int, batch: int, hangs: float
) -> None:
    async def lived(_world: World, runtime: Runtime) -> None:
        config = ConsumerConfig(queue_span_max=span, pull_batch_max=batch)
        listeners = Listeners(runtime, config, Random(seed))
        listeners.puller.take_up(Q0, listeners.window, 0)
        task = asyncio.get_running_loop().create_task(listeners.puller.run())
        for _ in range(STEPS_MAX):
            await asyncio.sleep(0.06)
            if listeners.window.uncommitted_count > span:
                assert listeners.window.resting is FlowControl.SPAN
            listeners.finish_some(hangs)
            if listeners.is_done:
                break
        task.cancel()
        assert listeners.again_max <= span + 1 + batch
        assert listeners.is_done, "none is held back for good"

    in_virtual_time(lived)
