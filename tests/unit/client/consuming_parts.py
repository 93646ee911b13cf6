"""The consuming parts without a wire: a group's state, the ports filled by plain values, time that
is virtual.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from engine.client.config import ConsumerConfig
from engine.client.consuming.group_state import GroupState, Subscription
from engine.client.consuming.listeners import MessageListener
from engine.client.consuming.offset_store import BrokerOffsetStore, CommitTrigger
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.errors import RequestTimedOut
from engine.protocol.bodies import SubscriptionData
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime
from tests.simulation.world import World, run_world

ME = "10.0.0.1@me"
HOST = "10.0.0.1"
Q0, Q1, Q2, Q3 = (MessageQueue("T", "broker-a", number) for number in range(4))


@dataclass
class Broker:
    """A broker's memory of one group; what it is sent is kept in order."""

    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    calls: list[tuple[str, object]] = field(default_factory=list)
    unreachable: bool = False
    refused_locks: set[MessageQueue] = field(default_factory=set)

    def _answer(self) -> None:
        if self.unreachable:
            raise RequestTimedOut("no answer")

    async def fetch(self, queue: MessageQueue) -> int | None:
        self._answer()
        return self.offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int, trigger: CommitTrigger) -> bool:
        self._answer()
        self.offsets[queue] = offset
        self.calls.append((f"commit {trigger.value}", (queue, offset)))
        return True

    async def lock(self, broker_name: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        self._answer()
        granted = [queue for queue in queues if queue not in self.refused_locks]
        self.calls.append(("lock", tuple(granted)))
        return granted

    async def unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        self._answer()
        self.calls.append(("unlock", tuple(queues)))


def group_state(
    broker: Broker, listener: MessageListener, config: ConsumerConfig | None = None
) -> GroupState:
    """A member that subscribes to topic T."""
    state = GroupState("g", ME, config or ConsumerConfig(), BrokerOffsetStore(broker))
    state.subscriptions["T"] = Subscription(subscription("T", "*"), listener)
    return state


def subscription(topic: str, expression: str) -> SubscriptionData:
    """What a member wants of a topic."""
    return SubscriptionData.build(topic, expression, sub_version=1)


def window_of(
    state: GroupState, queue: MessageQueue, messages: Sequence[MessageExt]
) -> ProcessQueue:
    """A window of `queue` that holds `messages`, taken up by the member."""
    window = ProcessQueue(0)
    window.put(messages)
    state.windows[queue] = window
    return window


def in_virtual_time(story: Callable[[World, Runtime], Awaitable[None]]) -> None:
    """Run `story` on a host of a virtual world: waiting costs nothing."""

    async def scenario(world: World) -> None:
        async def live(runtime: Runtime) -> None:
            await story(world, runtime)

        await world.node(HOST).boot(live)

    run_world(7, scenario)
