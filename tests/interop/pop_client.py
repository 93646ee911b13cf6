"""A gRPC client of RocketMQ 5.x: sends, takes as a SimpleConsumer does, and acknowledges.

It is a program in an environment of its own, and acknowledges all but each tenth message, or none.

    python pop_client.py ENDPOINT TOPIC GROUP COUNT INVISIBLE_S SECONDS [none]

Prints a line of JSON for whatever it was handed: {"i", "id", "attempt", "acked"}.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

SENT_WITHIN_S = 60


def main(arguments: list[str]) -> None:
    """Send, then take until the time is over."""
    endpoint, topic, group, *numbers = arguments[:6]
    count, invisible_s, seconds = (int(number) for number in numbers)
    config = ClientConfiguration(endpoint, Credentials())
    producer = Producer(config, (topic,))
    producer.startup()
    for number in range(count):
        message = Message()
        message.topic, message.body = topic, b"%d" % number
        send(producer, message)
    producer.shutdown()
    consumer = SimpleConsumer(config, group, {topic: FilterExpression()})
    consumer.startup()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            taken = consumer.receive(16, invisible_s)
        except Exception:  # noqa: BLE001 - the SDK has no class for 50001: not up yet.
            time.sleep(0.5)
            continue
        for one in taken or ():
            number = int(one.body)
            is_acked = "none" not in arguments and number % 10 != 9
            if is_acked:
                consumer.ack(one)
            line = {"i": number, "id": one.message_id, "attempt": one.delivery_attempt}
            sys.stdout.write(json.dumps(line | {"acked": is_acked}) + "\n")
            sys.stdout.flush()
    consumer.shutdown()


def send(producer: Any, message: Any) -> None:
    """Send, again and again while the proxy knows no route to the topic yet."""
    until = time.monotonic() + SENT_WITHIN_S
    while True:
        try:
            producer.send(message)
        except Exception:  # The SDK has no class for "no route": raised when it stays so.
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
