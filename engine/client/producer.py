"""The producer: a message sender with its own life cycle and asynchronous sends.

`send` is the way to send; `sender` says what each way promises. `send_async` and `begin_send` are
the same for callers that do not wait, with retries on the same broker, as RocketMQ's clients do.
How many of those may be under way is bounded by count and by bytes (`SendWindow`): beyond it
`send_async` refuses, and `begin_send` waits for room, in order of arrival.

Invariant: a callback is called once, unless the producer stops first; `start` and `stop` may each
be called again without effect; a producer that was stopped stays stopped. Absent on purpose:
transactions (`transaction_producer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.client.config import ClientConfig, ProducerConfig
from engine.client.connection.connection import ClusterConnection
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.sending.queue_choice import MessageQueueSelector
from engine.client.sending.send_result import SendResult
from engine.client.sending.sender import Sender
from engine.client.sending.trace import Tracer
from engine.foundation.errors import ClusterError, TidemarkError
from engine.protocol.bodies import HeartbeatData, ProducerData
from engine.protocol.message import Message, MessageQueue
from engine.protocol.names import check_group
from engine.remoting import Handler
from engine.runtime import Runtime


class SendWindow:
    """Room of one producer."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.count = 0
        """Sends under way."""
        self.held_bytes = 0
        """Body bytes of sends under way."""

    def try_enter(self, size_bytes: int) -> bool:
        """Take room for one send, unless there is none or others wait for it."""
        if self._waiting or not self._has_room(size_bytes):
            return False
        self._take(size_bytes)
        return True

    async def enter(self, size_bytes: int) -> None:
        """Take room for one send as soon as there is some; cancelling the wait takes none."""
        if self.try_enter(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size_bytes)  # It was our turn, and nobody takes it.
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        """Give room back; whoever waited longest takes it."""
        self.count -= 1
        self.held_bytes -= size_bytes
        assert self.count >= 0, "more sends ended than began"
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self._take(size_bytes)
                turn.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        if self.count == 0:
            return True
        return self.count < self._count_max and self.held_bytes + size_bytes <= self._bytes_max

    def _take(self, size_bytes: int) -> None:
        self.count += 1
        self.held_bytes += size_bytes


SendCallback = Callable[[SendResult | TidemarkError], None]
"""Hears how an asynchronous send ended."""


class _Place(NamedTuple):
    """The destination of a message: a queue, or a function that picks one."""

    queue: MessageQueue | None
    selector: MessageQueueSelector | None
    argument: object


class Producer:
    """Sends the messages of one producer group."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        *,
        producer: ProducerConfig | None = None,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        """`handlers` serve what brokers ask of this producer."""
        check_group(group)
        self.group = group
        self._connection = ClusterConnection(
            runtime, config, describe=self._describe, handlers=handlers
        )
        sending = producer or ProducerConfig()
        self._tracer = Tracer(self._connection, group, "PRODUCE") if config.enable_trace else None
        self._sender = Sender(self._connection, group, sending, tracer=self._tracer)
        self._window = SendWindow(sending.async_sends_max, sending.async_bytes_max)
        self._send_timeout_ms = sending.send_timeout_ms
        self._tasks = OwnedTasks(f"producer {group}")
        self._started = self._stopped = False

    @property
    def client_id(self) -> str:
        """The id under which brokers know this client."""
        return self._connection.client_id

    async def start(self) -> None:
        """Begin heartbeats; sending connects by itself."""
        if not self._started and not self._stopped:
            self._started = True
            await self._connection.start()
            if self._tracer is not None:
                self._tasks.start(self._tracer.run(), "traces")

    async def stop(self) -> None:
        """End sends under way, write the last traces, take leave of brokers, close connections."""
        if not self._started or self._stopped:
            return
        self._stopped = True
        await self._tasks.close()
        if self._tracer is not None:
            await self._tracer.write_rest(self._connection.config.stop_timeout_ms)
        await self._connection.take_leave(producer_group=self.group)
        await self._connection.stop()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send and wait: stored at least once when this returns.

        RequestRefused, ConnectFailed: not stored by this send. RequestTimedOut, ConnectionLost:
        unknown, it may be stored. See `Sender.send`.
        """
        self._check_running()
        return await self._sender.send(
            message, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic and wait: all in one queue, or none. Errors as for `send`."""
        self._check_running()
        return await self._sender.send_batch(messages, queue=queue, timeout_ms=timeout_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
    ) -> None:
        """Send and forget: stored at most once, and nothing reports when it is not."""
        self._check_running()
        await self._sender.send_oneway(message, queue=queue, selector=selector, argument=argument)

    def send_async(
        self,
        message: Message,
        on_done: SendCallback,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send in the background; `on_done` hears the result or the error, with the meanings that
        `send` gives them.

        Raises ClusterError when too much is under way: nothing was sent, `on_done` is not called.
        """
        self._check_running()
        if not self._window.try_enter(len(message.body)):
            raise ClusterError(
                f"{self._window.count} sends with {self._window.held_bytes} bytes are under way "
                "(limits: async_sends_max, async_bytes_max); wait for callbacks, or use begin_send"
            )
        place = _Place(queue, selector, argument)
        self._start_send(message, on_done, place, timeout_ms)

    async def begin_send(
        self,
        message: Message,
        on_done: SendCallback,
        *,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """As `send_async`, once there is room for it: who sends faster than brokers answer is
        slowed down here.

        Raises ClusterError when there is no room within the time-out.
        """
        self._check_running()
        allowed_ms = timeout_ms or self._send_timeout_ms
        try:
            async with asyncio.timeout(allowed_ms / 1000):
                await self._window.enter(len(message.body))
        except TimeoutError as error:
            raise ClusterError(
                f"no room for one more send within {allowed_ms} ms: {self._window.count} sends "
                f"with {self._window.held_bytes} bytes are under way; nothing was sent"
            ) from error
        place = _Place(queue, selector, argument)
        self._start_send(message, on_done, place, timeout_ms)

    def _start_send(
        self, message: Message, on_done: SendCallback, place: _Place, timeout_ms: int | None
    ) -> None:
        size_bytes = len(message.body)
        task = self._tasks.start(self._send_and_report(message, on_done, place, timeout_ms), "send")
        if task is None:
            self._window.leave(size_bytes)  # Stopped while we waited for room.
        else:
            task.add_done_callback(lambda _task: self._window.leave(size_bytes))

    async def _send_and_report(
        self, message: Message, on_done: SendCallback, place: _Place, timeout_ms: int | None
    ) -> None:
        try:
            result = await self._sender.send(
                message,
                queue=place.queue,
                selector=place.selector,
                argument=place.argument,
                timeout_ms=timeout_ms,
                same_broker=True,
            )
        except TidemarkError as error:
            on_done(error)
        else:
            on_done(result)

    def _check_running(self) -> None:
        if not self._started or self._stopped:
            raise ClusterError(f"producer {self.group} is not running; call start() first")

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self._connection.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )
