"""Connections that are only held, by a process of their own, and a reader that never reads."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import encode_frame
from engine.runtime.network import allow_descriptors

MODULE = "tests.integration.broker.held_connections"
CONNECT_TIMEOUT_S = 30


def hold(address: str, count: int) -> None:
    """Open `count` connections, print when the server has answered on each, hold them until the
    parent ends us.
    """
    allow_descriptors(count + 100)
    host, port = address.split(":")
    held: list[socket.socket] = []
    hello = encode_frame(RemotingCommand(RequestCode.GET_TOPIC_NAME_LIST, opaque=1))
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        connection.sendall(hello)
        held.append(connection)
    for connection in held:
        assert connection.recv(1), "the server has closed a connection"
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.read()


@contextmanager
def holding(address: str, count: int) -> Iterator[None]:
    """`count` connections to `address`, held by a process of their own."""
    with subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),  # A killed test run leaves it not behind.
            *(sys.executable, "-m", MODULE, address, str(count)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ready = select.select([process.stdout], [], [], CONNECT_TIMEOUT_S)[0]
            said = process.stdout.readline().strip() if ready else "nothing"
            assert said == "held", f"{count} connections are not held: {said}"
            yield
        finally:
            process.kill()


@contextmanager
def slow_reader(address: str, topic: str, pulls: int = 200) -> Iterator[None]:
    """A consumer that asks for large answers and reads none."""
    host, port = address.split(":")
    header = {
        "consumerGroup": "slow",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "256",
        "sysFlag": "4",
        "commitOffset": "0",
        "subscription": "*",
        "suspendTimeoutMillis": "0",
        "subVersion": "1",
    }
    with socket.create_connection((host, int(port))) as deaf:
        pull = RemotingCommand(RequestCode.PULL_MESSAGE, header, opaque=1)
        deaf.sendall(encode_frame(pull) * pulls)
        yield


if __name__ == "__main__":
    hold(sys.argv[1], int(sys.argv[2]))
