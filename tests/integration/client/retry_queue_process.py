"""A consumer with a retry queue as a process of its own, to be killed: one JSON line a call.

Arguments: name servers, topic, retry topic, group, and how many tries fail. A message succeeds at
the try after those.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

from engine.client import ConsumeConcurrentlyStatus, ConsumeContext, PushConsumer, RetryQueue
from engine.client.retry_queue import COUNT, ID
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import LATER, SUCCESS, client_config, consumer_config

DELAYS_MS = (400, 700, 1000)


async def work(name_server: str, topic: str, retries: str, group: str, *, failing: int) -> None:
    """Until it is killed."""

    async def listen(
        messages: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        (message,) = messages
        count = int(message.properties.get(COUNT, "0"))
        seen = {
            "body": message.body.decode(),
            "count": count,
            "tag": message.tags,
            "id": message.properties.get(ID, message.message_id),
            "key": message.uniq_key,
            "at_ms": time.time_ns() // 1_000_000,
        }
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()
        return LATER if count < failing else SUCCESS

    runtime, config = system_runtime(), client_config(name_server, heartbeat_ms=500)
    queue = RetryQueue(
        runtime, config, retries, delays_ms=DELAYS_MS, consumer=consumer_config(rebalance_ms=300)
    )
    consumer = PushConsumer(runtime, config, group, consumer=consumer_config(rebalance_ms=300))
    consumer.subscribe(topic, "*", queue.listener(group, listen))
    await queue.start()
    await consumer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    name_server, topic, retries, group, failing = sys.argv[1:]
    asyncio.run(work(name_server, topic, retries, group, failing=int(failing)))
