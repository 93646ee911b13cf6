"""A broker and clients of ours, live over sockets, and the gold of what they reported.

The broker runs in this process with quick samples; when the play is over, its spool is shipped to a
lake, and the lake is computed with short windows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.client import ConsumeConcurrentlyStatus, ConsumeContext, Producer, PushConsumer
from engine.client.consuming.listeners import MessageListener
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from pipelines.base.settings import Evaluation
from tests.integration.client.cluster_users import client_config, consumer_config, consuming, text
from tests.pipelines.in_process import driver_of, run_to_the_end

QUICK: Final = Evaluation(window_ms=2_000, slide_ms=1_000)
SAMPLES: Final = {"window_sample_interval_ms": 300, "sample_interval_ms": 500}
"""Settings of a broker that reports quickly."""
AT_ONCE: Final = 50
"""Sends under way at the same time."""


@dataclass
class Working:
    """A listener whose calls take a while; others differ in how long, or in what they answer."""

    takes_s: float = 0.0
    answer: ConsumeConcurrentlyStatus = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    taken: list[MessageExt] = field(default_factory=list)

    async def __call__(
        self, messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        """See `MessageListener`."""
        await asyncio.sleep(self.takes_s_of(messages[0]))
        self.taken += messages
        return self.answer_to(messages[0])

    def takes_s_of(self, _message: MessageExt) -> float:
        """How long a call with this message takes."""
        return self.takes_s

    def answer_to(self, _message: MessageExt) -> ConsumeConcurrentlyStatus:
        """What the call ends with."""
        return self.answer


class Stage:
    """Consumers of group g-NAME that read topic NAME, each a client of its own."""

    def __init__(self, names: str) -> None:
        self.names = names
        self._members = 0

    @asynccontextmanager
    async def member(
        self, name: str, listener: MessageListener, *, expression: str = "*", **settings: Any
    ) -> AsyncIterator[PushConsumer]:
        """One more of them."""
        self._members += 1
        async with consuming(
            *(self.names, f"g-{name}", {name: listener}),
            expression=expression,
            config=consumer_config(**settings),
            client=client_config(self.names, instance_name=f"i{self._members}"),
        ) as consumer:
            yield consumer


async def send_evenly(producer: Producer, topic: str, *, a_second: int, for_s: float) -> int:
    """So many messages a second, in small lots; how many they were."""
    ends_s, sent = time.monotonic() + for_s, 0
    while time.monotonic() < ends_s:
        await send_at_once(producer, topic, max(1, a_second // 10))
        sent += max(1, a_second // 10)
        await asyncio.sleep(0.1)
    return sent


async def send_at_once(producer: Producer, topic: str, count: int) -> None:
    """All of them as fast as they go."""
    for begin in range(0, count, AT_ONCE):
        lot = range(begin, min(begin + AT_ONCE, count))
        await asyncio.gather(*(producer.send(text(topic, str(number))) for number in lot))


def shipped(store: Path, lake: Path, evaluation: Evaluation = QUICK) -> Path:
    """The gold of everything that a broker with this store has reported."""
    Shipper(system_runtime(), str(store / "spool"), str(lake), {}).ship_all()
    run_to_the_end(driver_of(lake, evaluation=evaluation))
    return lake


def causes_of(rows: list[dict[str, Any]], group: str) -> set[str]:
    """All causes that were reported of a group."""
    return {row["cause"] for row in rows if row["group"] == group}
