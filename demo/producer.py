"""Demo producer that sends steady traffic to every topic and special messages on demand.

    python -m demo.producer NAMESRV [--credentials FILE] [--admin-credentials FILE]

An order is a JSON line on standard input: {"topic": .., "queue_id": .., "key": ..}. A message that
cannot be sent (the broker is down) is dropped; traffic goes on when there is somebody to send to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from demo.clients import client_config, make_topics
from demo.plan import BROKER_NAME, ORDERS, PAYMENTS, QUEUES_PER_TOPIC
from engine.client.producer import Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageQueue
from engine.runtime import system_runtime

MESSAGES_PER_S = 20
"""Per topic."""
ORDER_TRIES_MAX = 20


async def produce(options: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    admin = client_config(options.namesrv, "admin", options.admin_credentials)
    await make_topics(admin, BROKER_NAME, (ORDERS, PAYMENTS), queues=QUEUES_PER_TOPIC)
    config = client_config(options.namesrv, "producer", options.credentials)
    producer = Producer(system_runtime(), config, "demo-producers")
    await producer.start()
    tasks = [asyncio.create_task(send_steadily(producer, topic)) for topic in (ORDERS, PAYMENTS)]
    tasks.append(asyncio.create_task(carry_out_orders(producer)))
    print("ready", producer.client_id, flush=True)
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await producer.stop()


async def send_steadily(producer: Producer, topic: str) -> None:
    """A message each 1/MESSAGES_PER_S seconds, for ever."""
    number = 0
    while True:
        number += 1
        message = Message(topic, f"{topic} {number}".encode())
        message.keys = f"{topic}-{number}"
        try:
            await producer.send(message)
        except TidemarkError as error:
            print("not sent:", error, flush=True)
        await asyncio.sleep(1 / MESSAGES_PER_S)


async def carry_out_orders(producer: Producer) -> None:
    """Send what the stage orders, until its end of the pipe is closed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        order = json.loads(line)
        message = Message(order["topic"], b"made to harm")
        message.keys = order["key"]
        queue = MessageQueue(order["topic"], BROKER_NAME, order["queue_id"])
        await send_surely(producer, message, queue)


async def send_surely(producer: Producer, message: Message, queue: MessageQueue) -> None:
    """Send to this very queue, again and again when it fails."""
    for _ in range(ORDER_TRIES_MAX):
        try:
            result = await producer.send(message, queue=queue)
        except TidemarkError as error:
            print("not sent yet:", error, flush=True)
            await asyncio.sleep(1)
        else:
            print("sent", message.keys, result.queue, result.queue_offset, flush=True)
            return
    print("gave up:", message.keys, flush=True)


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="python -m demo.producer")
    parser.add_argument("namesrv")
    for option in ("--credentials", "--admin-credentials"):
        parser.add_argument(option)
    asyncio.run(produce(parser.parse_args()))


if __name__ == "__main__":
    main()
