"""A program on RocketMQ's C++ library: sends, consumes, and prints what came as JSON.

    python -m tests.interop.native_client NAME_SERVER TOPIC

Place: started by test_native_client_on_our_broker. The library logs below $HOME and has threads
that call back, which is why it does not live in the process of the tests.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.ffi import MessageModel

MESSAGES = 12
WAIT_S = 60


@dataclass
class Consumed:
    """What one consumer got, in the order in which it came."""

    failing: str | None = None
    """The body that fails the first time it comes."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, message: Any) -> None:
        """Note the message; raise for the one that fails."""
        line = {
            "body": message.body.decode(),
            "tags": (message.tags or b"").decode(),
            "keys": (message.keys or b"").decode(),
            "queue": message.queue_id,
            "offset": message.queue_offset,
            "tries": message.reconsume_times,
        }
        with self.lock:
            self.messages.append(line)
        if line["body"] == self.failing and not line["tries"]:
            raise ValueError("the listener fails the first time")


def message(topic: str, number: int) -> Any:
    """One message with everything a message has."""
    built = Message(topic)
    built.set_keys(f"key-{number}")
    built.set_tags("even" if number % 2 == 0 else "odd")
    built.set_body(f"body-{number}")
    return built


def wait(done: Callable[[], bool]) -> None:
    """Until it is done, or for WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)


def consumer(
    group: str, name_server: str, topic: str, into: Consumed, expression: str = "*", **options: Any
) -> Any:
    """A started push consumer."""
    started = PushConsumer(group, **options)
    started.set_namesrv_addr(name_server)
    started.set_instance_name(group)
    started.subscribe(topic, into, expression)
    started.start()
    return started


def play(name_server: str, topic: str) -> dict[str, Any]:
    """Send MESSAGES, and consume them in four groups."""
    producer = Producer("native-producer")
    producer.set_namesrv_addr(name_server)
    producer.start()
    sent = [producer.send_sync(message(topic, 0))]  # Which makes the topic.
    everywhere = Consumed()
    broadcast = consumer(
        *("native-all", name_server, topic, everywhere), message_model=MessageModel.BROADCASTING
    )
    time.sleep(3)  # It begins at the end of its queues.
    sent += [producer.send_sync(message(topic, number)) for number in range(1, MESSAGES - 6)]
    sent += [
        producer.send_orderly(message(topic, number), 1)
        for number in range(MESSAGES - 6, MESSAGES - 3)
    ]
    producer.send_batch([message(topic, number) for number in range(MESSAGES - 3, MESSAGES - 1)])
    producer.send_oneway(message(topic, MESSAGES - 1))
    groups = {
        "native-shared": Consumed(failing="body-3"),
        "native-orderly": Consumed(),
        "native-even": Consumed(),
        "native-all": everywhere,
    }
    expected = dict(zip(groups, (MESSAGES + 1, MESSAGES, MESSAGES // 2, MESSAGES - 1), strict=True))
    consumers = [
        broadcast,
        consumer("native-shared", name_server, topic, groups["native-shared"]),
        consumer("native-orderly", name_server, topic, groups["native-orderly"], orderly=True),
        consumer("native-even", name_server, topic, groups["native-even"], "even"),
    ]
    wait(lambda: all(len(groups[name].messages) >= count for name, count in expected.items()))
    time.sleep(1)  # What comes twice comes now.
    for one in consumers:
        one.shutdown()
    producer.shutdown()
    return {
        "sent": [[int(one.status), one.msg_id, one.offset] for one in sent],
        "groups": {name: consumed.messages for name, consumed in groups.items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(*sys.argv[1:])) + "\n")
