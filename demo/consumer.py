"""Demo consumer that works briefly on each message and records the work in a ledger.

Its options name the messages that harm it. With them the stage plays incidents on honest processes:
a listener that never returns, a listener that always fails, a process that dies by SIGKILL after it
has done the work and before its offset is reported.

    python -m demo.consumer NAMESRV GROUP TOPIC MEMBER LEDGER [--freezes-on KEY] [--fails-on KEY]
                            [--dies-on KEY] [--credentials FILE]

Invariant: a ledger line is written when the work on a message is done, before anything else
happens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from demo.clients import REBALANCE_MS, client_config
from engine.client.config import ConsumerConfig
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    MessageListener,
)
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime

WORK_S = 0.02
REBALANCE_PACE_MS = 100
"""Members of a group are started at once: each gives up what is the other's before it reads it."""


CONSUMER = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    max_reconsume_times=1,
    rebalance_ms=REBALANCE_MS,
    rebalance_retry_ms=REBALANCE_PACE_MS,
)


async def consume(options: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = client_config(options.namesrv, options.member, options.credentials)
    consumer = PushConsumer(system_runtime(), config, options.group, consumer=CONSUMER)
    consumer.subscribe(options.topic, "*", make_listener(options))
    await consumer.start()
    print("ready", consumer.client_id, flush=True)
    await stop.wait()
    await consumer.stop()


def make_listener(options: argparse.Namespace) -> MessageListener:
    """The listener, with the harm that the options ask for."""
    ledger = Path(options.ledger)
    ledger.parent.mkdir(parents=True, exist_ok=True)

    async def listen(
        messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        message = messages[0]
        if message.keys is not None and message.keys == options.freezes_on:
            await asyncio.Event().wait()
        await asyncio.sleep(WORK_S)
        if message.keys is not None and message.keys == options.fails_on:
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        _note(ledger, message, context)
        if message.keys is not None and message.keys == options.dies_on:
            os.kill(os.getpid(), signal.SIGKILL)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return listen


def _note(ledger: Path, message: MessageExt, context: ConsumeContext) -> None:
    """One line for work done; the consumers' own record of what was processed twice."""
    entry = {
        "message_id": message.message_id,
        "topic": message.topic,
        "pulled_from": context.queue.topic,
        "queue_id": context.queue.queue_id,
        "queue_offset": message.queue_offset,
    }
    with ledger.open("a") as lines:
        lines.write(json.dumps(entry) + "\n")


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="python -m demo.consumer")
    for name in ("namesrv", "group", "topic", "member", "ledger"):
        parser.add_argument(name)
    for option in ("--freezes-on", "--fails-on", "--dies-on", "--credentials"):
        parser.add_argument(option)
    asyncio.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
