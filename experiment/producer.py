"""Experiment producer that sends steady traffic to every queue of every topic.

    python -m experiment.producer NAMESRV LISTENER...

A message that cannot be sent (the broker is down) is dropped, and traffic goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Final

from demo.clients import client_config, make_topics
from engine.client.producer import Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageQueue
from engine.runtime import system_runtime
from experiment.plan import BROKER_NAME, QUEUES_PER_TOPIC, Listener

ROUND_S: Final = 0.12
"""Every queue gets a message each."""


async def produce(options: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    topics = [Listener(name).topic for name in options.listeners]
    admin = client_config(options.namesrv, "admin")
    await make_topics(admin, BROKER_NAME, topics, queues=QUEUES_PER_TOPIC)
    producer = Producer(
        system_runtime(), client_config(options.namesrv, "producer"), "kills-producers"
    )
    await producer.start()
    sending = asyncio.create_task(send_steadily(producer, topics))
    print("ready", producer.client_id, flush=True)
    await stop.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await producer.stop()


async def send_steadily(producer: Producer, topics: list[str]) -> None:
    """A message to each queue in each round, for ever."""
    number = 0
    while True:
        number += 1
        for topic in topics:
            for queue_id in range(QUEUES_PER_TOPIC):
                queue = MessageQueue(topic, BROKER_NAME, queue_id)
                try:
                    await producer.send(Message(topic, b"work %d" % number), queue=queue)
                except TidemarkError as error:
                    print("not sent:", error, flush=True)
                    break  # The next round will show whether it is back.
        await asyncio.sleep(ROUND_S)


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(prog="python -m experiment.producer")
    parser.add_argument("namesrv")
    parser.add_argument("listeners", nargs="+", choices=[kind.value for kind in Listener])
    asyncio.run(produce(parser.parse_args()))


if __name__ == "__main__":
    main()
