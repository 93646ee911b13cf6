"""Measures our broker's CPU time per message over one connection with 64 sends in flight.

    python -m bench.send_cpu [--seconds S] [--flush async|sync]

The load is a loop over frames made before, so that only the broker is measured: requests as a Java
producer writes them (SEND_MESSAGE_V2, JSON, 1 KiB), 64 of them in flight. CPU time is what repeats
on a shared machine; the rate beside it says what the machine did meanwhile.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Iterator
from statistics import median
from struct import Struct
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import SEND_CPU_ASYNC, SEND_CPU_SYNC, Bar
from bench.brokers import FLUSHES, Side, tidemark_side
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.protocol.headers import SendMessageRequestHeader

TOPIC: Final = "BenchSendCpu"
IN_FLIGHT: Final = 64
KEY_BEGIN: Final = b"7F00000100002A9F0000000"
ROUNDS: Final = 5
LENGTH: Final = Struct(">i")
BARS: Final[dict[str, Bar]] = {"async": SEND_CPU_ASYNC, "sync": SEND_CPU_SYNC}


def frame(number: int) -> bytes:
    """One send of 1 KiB, as the Java client words it."""
    header = SendMessageRequestHeader(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % 4,
        sys_flag=0,
        born_timestamp_ms=1_800_000_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x01{KEY_BEGIN.decode()}{number:09d}\x02WAIT\x01true\x02",
        reconsume_times=0,
        broker_name="broker-a",
    )
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), b"x" * 1024)
    command.opaque, command.language = number, "JAVA"
    return encode_frame(command)


class Load:
    """One connection that keeps IN_FLIGHT sends under way."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._window = bytearray()
        self._numbers_at: list[int] = []
        """Where each frame of the window has its number in its UNIQ_KEY."""
        for number in range(IN_FLIGHT // 2):
            one = frame(number)
            self._numbers_at.append(len(self._window) + one.index(KEY_BEGIN) + len(KEY_BEGIN))
            self._window += one
        self._sent = 0

    def run(self, seconds: float) -> int:
        """Send for `seconds`; how many messages were answered, all of them with success.

        Half a window follows each half that was answered, so that the broker never runs dry.
        """
        answers = self._answers()
        until, sent, answered = time.perf_counter() + seconds, 0, 0
        while time.perf_counter() < until or answered < sent:
            while sent - answered <= IN_FLIGHT // 2 and time.perf_counter() < until:
                self._socket.sendall(self._next_window())
                sent += IN_FLIGHT // 2
            if answered < sent:
                answered += next(answers)
        return answered

    def _next_window(self) -> bytearray:
        """Half a window of messages that were not sent before: a resend costs more."""
        for at in self._numbers_at:
            self._window[at : at + 9] = b"%09d" % self._sent
            self._sent += 1
        return self._window

    def _answers(self) -> Iterator[int]:
        rest = b""
        while True:
            rest += self._socket.recv(1 << 20)
            position, count = 0, 0
            while len(rest) - position >= 4:
                end = position + 4 + LENGTH.unpack_from(rest, position)[0]
                if end > len(rest):
                    break
                position, count = end, count + 1
            self._refuse_failure(rest[:position])
            rest = rest[position:]
            yield count

    @staticmethod
    def _refuse_failure(frames: bytes) -> None:
        """One answer of each read is looked at: the load must cost little itself."""
        if frames:
            end = 4 + LENGTH.unpack_from(frames, 0)[0]
            (answer,) = FrameDecoder().feed(frames[:end])
            if answer.code != ResponseCode.SUCCESS:
                raise SystemExit(f"the broker answered {answer.code}: {answer.remark}")


def broker_address(side: Side) -> str:
    """Where our broker listens."""
    if side.broker is None:
        raise SystemExit("the rival's CPU time is not asked for")
    return side.broker


def measure(flush: str, seconds: float) -> list[str]:
    """Medians over ROUNDS on one broker: CPU µs a message, its least, messages a second."""
    costs: list[float] = []
    rates: list[float] = []
    with tidemark_side(flush) as side:
        load = Load(broker_address(side))
        load.run(1.0)
        for _ in range(ROUNDS):
            before, began = side.cpu_seconds(), time.perf_counter()
            count = load.run(seconds)
            costs.append((side.cpu_seconds() - before) / count * 1e6)
            rates.append(count / (time.perf_counter() - began))
    return [f"{median(costs):.1f}", f"{min(costs):.1f}", f"{median(rates):,.0f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.send_cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each round")
    parser.add_argument("--flush", nargs="+", choices=FLUSHES, default=list(FLUSHES))
    options = parser.parse_args()
    table = Table(title=f"broker's CPU a message, 1 KiB, 1 connection, {IN_FLIGHT} in flight")
    for heading in ("flush", "CPU µs", "bar", "least", "msg/s"):
        table.add_column(heading, justify="left" if heading == "flush" else "right")
    for flush in options.flush:
        cost, *others = measure(flush, options.seconds)
        table.add_row(flush.upper(), cost, str(BARS[flush]), *others)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
