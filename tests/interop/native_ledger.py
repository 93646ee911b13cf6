"""A group member on RocketMQ's C++ library that writes each message as one JSON line.

It checks nothing.

    python -m tests.interop.native_ledger NAME_SERVER GROUP TOPIC concurrently|orderly LEDGER

It has the library's own defaults, and with them its start policy, CONSUME_FROM_LAST_OFFSET. SIGTERM
makes it leave its group. Place: started by `ledger_consumers`; the library logs below $HOME. Absent
on purpose: a listener that fails. The wheel raises a listener's error through ctypes, and the
library then takes a random value for its answer: half of such messages count as consumed.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from rocketmq.client import PushConsumer


def consume(name_server: str, group: str, topic: str, mode: str, ledger: str) -> None:
    """Consume until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # Its threads inherit this.
    alone = threading.Lock()
    with Path(ledger).open("a") as lines:

        def note(message: Any) -> None:
            row = {
                "topic": message.topic,
                "queue": message.queue_id,
                "offset": message.queue_offset,
                "id": message.id,
                "body": message.body.decode(),
            }
            with alone:
                lines.write(json.dumps(row) + "\n")
                lines.flush()

        member = PushConsumer(group, orderly=mode == "orderly")
        member.set_namesrv_addr(name_server)
        member.set_instance_name(group)
        member.subscribe(topic, note)
        member.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM})
        member.shutdown()


if __name__ == "__main__":
    consume(*sys.argv[1:])
