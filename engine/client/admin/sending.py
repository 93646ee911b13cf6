"""Single messages that an operator sends, and has a consumer take: to see whether it works.

Absent on purpose: a producer's heartbeats and its choice of a queue; who orders names the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.client.admin.topics import TopicAdmin
from engine.client.config import ProducerConfig
from engine.client.send_result import SendResult
from engine.client.sender import Sender
from engine.client.wire_fields import wire_fields
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import ConsumeMessageDirectlyResult
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.names import Perm

TOOLS_PRODUCER = "TIDEMARK_ADMIN"
"""Producer group of what an operator sends."""


@dataclass(frozen=True, slots=True)
class TimedSend:
    """A stored message, and how long its answer took."""

    result: SendResult
    cost_ms: int


class SendingAdmin(TopicAdmin):
    """Orders that send a message, or have one consumed."""

    async def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer may write, sorted. RequestRefused for no topic."""
        route = await self.topic_route(topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no route leads to topic {topic}; create it first (tidemark admin topic create)",
            )
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & Perm.WRITE
            for queue_id in range(data.write_queue_nums)
        )

    async def send_message(self, message: Message, queue: MessageQueue) -> TimedSend:
        """Send to one queue and wait, without another try. Errors as `Sender.send` has them."""
        clock = self._connection.runtime.clock
        sender = Sender(self._connection, TOOLS_PRODUCER, ProducerConfig(retry_times=0))
        await self._master_of(queue)
        began_ms = clock.steady_ms()
        result = await sender.send(message, queue=queue)
        return TimedSend(result, clock.steady_ms() - began_ms)

    async def consume_directly(
        self, group: str, client_id: str, message: MessageExt
    ) -> ConsumeMessageDirectlyResult:
        """Have a member consume a stored message now, whatever its offsets; what it said. Asked
        through the broker that stores the message.
        """
        fields = wire_fields(
            consumerGroup=group,
            clientId=client_id,
            msgId=message.offset_message_id,
            topic=message.topic,
        )
        answer = await self._ask(message.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        return ConsumeMessageDirectlyResult.decode(answer.body)
