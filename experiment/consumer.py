"""Experiment consumer host that runs one member of every group, each with its own listener.

    python -m experiment.consumer NAMESRV HOST LEDGERS LISTENER...

Invariant: a listener notes a message before it works on it. Absent on purpose: harm; the stage
kills the process.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from demo.clients import REBALANCE_MS, client_config
from engine.client.config import ConsumerConfig
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
    ConsumeStatus,
    MessageListener,
)
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from experiment.ledger import LedgerWriter
from experiment.plan import Listener

WORK_S: Final = {
    Listener.FAST: 0.005,
    Listener.SLOW: 0.05,
    Listener.BATCH: 0.1,
    Listener.ORDERLY: 0.02,
}
"""What a call of the listener takes."""
LONG_WORK_S: Final = 4.0
LONG_EACH: Final = 12
"""Of SLOW: of so many messages of a queue one takes that long, while others behind it end."""

CONSUMER: Final = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, rebalance_ms=REBALANCE_MS
)
SETTINGS: Final = {
    Listener.FAST: CONSUMER,
    Listener.SLOW: CONSUMER,
    Listener.BATCH: replace(CONSUMER, consume_batch_max=8),
    Listener.ORDERLY: replace(CONSUMER, orderly=True),
}


async def consume(options: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    consumers = []
    for name in options.listeners:
        kind = Listener(name)
        config = client_config(options.namesrv, f"{options.host}-{kind.value}")
        consumer = PushConsumer(system_runtime(), config, kind.group, consumer=SETTINGS[kind])
        ledger = LedgerWriter(
            Path(options.ledgers) / f"{options.host}-{kind.value}.jsonl",
            kind.group,
            consumer.client_id,
        )
        consumer.subscribe(kind.topic, "*", listener_of(kind, ledger))
        consumers.append(consumer)
    for consumer in consumers:
        await consumer.start()
    print("ready", options.host, flush=True)
    await stop.wait()
    await asyncio.gather(*(consumer.stop() for consumer in consumers))


def listener_of(kind: Listener, ledger: LedgerWriter) -> MessageListener:
    """A listener that works as its kind does."""
    done: ConsumeStatus = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    if kind is Listener.ORDERLY:
        done = ConsumeOrderlyStatus.SUCCESS

    async def listen(messages: Sequence[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        del context
        ledger.note(list(messages))
        is_long = kind is Listener.SLOW and messages[0].queue_offset % LONG_EACH == 0
        await asyncio.sleep(LONG_WORK_S if is_long else WORK_S[kind])
        return done

    return listen


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="python -m experiment.consumer")
    for name in ("namesrv", "host", "ledgers"):
        parser.add_argument(name)
    parser.add_argument("listeners", nargs="+", choices=[kind.value for kind in Listener])
    asyncio.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
