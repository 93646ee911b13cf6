"""Sends a consumer's requests to brokers: offsets, locks, pulls, send-backs and members.

Place in the walk: the wire side of consuming; values in, values out.

It implements the small ports of all consuming parts. Each answer other than SUCCESS is a
RequestRefused, unless it has a meaning of its own.

Invariant: nothing is remembered here but which instance of a broker a queue's next pull should ask.
Absent on purpose: retries and decisions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from engine.client.config import ConsumerConfig
from engine.client.connection.connection import ClusterConnection, is_from_no_master
from engine.client.connection.queue_offsets import QueueOffsets, commit_request
from engine.client.consuming.failed_messages import SendBackRequest
from engine.client.consuming.offset_store import CommitTrigger
from engine.client.consuming.pulling import OnPulled, PullQuestion, PullResult, PullStatus
from engine.foundation.errors import ConnectFailed, RequestRefused, TidemarkError, Unreachable
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import (
    CheckClientRequest,
    ConsumerList,
    LockBatchRequest,
    LockBatchResponse,
    SubscriptionData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import inflate_bodies
from engine.protocol.headers import (
    ConsumerSendMessageBackRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from engine.protocol.message import MessageQueue
from engine.protocol.message_record import decode_records
from engine.protocol.names import MASTER_ID, PullSysFlag

COMMIT_TIMEOUT_MS = 5 * SECOND_MS
SEND_BACK_TIMEOUT_MS = 5 * SECOND_MS

_log = logging.getLogger(__name__)

_STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class BrokerSide:
    """Requests of one member of a group."""

    def __init__(self, connection: ClusterConnection, group: str, config: ConsumerConfig) -> None:
        self.queue_offsets = QueueOffsets(connection)
        self._connection = connection
        self._group = group
        self._config = config
        self._acknowledged = config.commit_acknowledged
        self._instance_of: dict[MessageQueue, int] = {}

    # Offsets (BrokerOffsets).

    async def fetch(self, queue: MessageQueue) -> int | None:
        """See `BrokerOffsets.fetch`."""
        address = await self._address(queue)
        return await self.queue_offsets.consume_offset(address, self._group, queue)

    async def commit(self, queue: MessageQueue, offset: int, trigger: CommitTrigger) -> bool:
        """See `BrokerOffsets.commit`; the trigger travels as a field that other brokers do not look
        at. Raises RequestRefused with the broker's words when it passes the offset over: a success
        with a remark, for a reset waits, or the order lock is another's.
        """
        request = commit_request(self._group, queue, offset, trigger=trigger.value)
        address = await self._address(queue)
        if not self._acknowledged:
            await self._connection.invoke_oneway(address, request)
            return False
        answer = await self._connection.ask(address, request, timeout_ms=COMMIT_TIMEOUT_MS)
        if answer.remark:
            raise RequestRefused(answer.code, answer.remark)
        return True

    # Locks (BrokerLocks).

    async def lock(self, broker_name: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """See `BrokerLocks.lock`."""
        answer = await self._ask_master(broker_name, RequestCode.LOCK_BATCH_MQ, queues)
        return LockBatchResponse.decode(answer.body).lock_ok_mq_set

    async def unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        """See `BrokerLocks.unlock`."""
        await self._ask_master(broker_name, RequestCode.UNLOCK_BATCH_MQ, queues)

    # Pulls (BrokerPulls).

    async def pull(self, question: PullQuestion) -> PullResult:
        """Ask once and wait; may be held. Raises TidemarkError when there is no usable answer."""
        queue = question.queue
        address = await self._address(queue, self._instance_of.get(queue, MASTER_ID))
        answer = await self._connection.invoke(
            address, self._pull_request(question), timeout_ms=self._config.pull_timeout_ms
        )
        return self._pull_result(question, address, answer)

    def begin_pull(self, question: PullQuestion, on_pulled: OnPulled) -> None:
        """See `BrokerPulls.begin_pull`; a broker no route leads to is looked for once."""
        queue = question.queue
        routes = self._connection.routes
        instance = self._instance_of.get(queue, MASTER_ID)
        address = routes.address_for_reading(queue.broker_name, instance)
        if address is not None:
            self._begin_pull_at(address, question, on_pulled)
            return

        def go_on(refreshed: asyncio.Future[bool]) -> None:
            found = routes.address_for_reading(queue.broker_name, instance)
            if found is not None:
                self._begin_pull_at(found, question, on_pulled)
            else:
                on_pulled(_why_unreachable(queue, refreshed))

        routes.begin_refresh(queue.topic).add_done_callback(go_on)

    def _begin_pull_at(self, address: str, question: PullQuestion, on_pulled: OnPulled) -> None:
        answered = self._connection.rpc.begin(
            address, self._pull_request(question), timeout_ms=self._config.pull_timeout_ms
        )
        answered.add_done_callback(partial(self._pulled, question, address, on_pulled))

    def _pulled(
        self,
        question: PullQuestion,
        address: str,
        on_pulled: OnPulled,
        answered: asyncio.Future[RemotingCommand],
    ) -> None:
        outcome: PullResult | TidemarkError
        try:
            outcome = self._pull_result(question, address, answered.result())
        except TidemarkError as error:
            if isinstance(error, Unreachable) or (
                isinstance(error, RequestRefused)
                and is_from_no_master(RequestCode.PULL_MESSAGE, error.code)
            ):
                self._connection.routes.doubt(address)
            outcome = error
        on_pulled(outcome)

    def _pull_result(
        self, question: PullQuestion, address: str, answer: RemotingCommand
    ) -> PullResult:
        status = _STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        found = PullMessageResponseHeader.decode(answer.fields)
        queue, instance = question.queue, found.suggest_which_broker_id
        self._instance_of[queue] = instance
        stays = found.next_begin_offset == question.queue_offset
        if stays and status is PullStatus.NO_MATCHED_MESSAGE:  # A slave sends us to its master.
            routes = self._connection.routes
            if routes.address_for_reading(queue.broker_name, instance) == address:
                routes.doubt(address)
                raise RequestRefused(answer.code, f"{address} is no master, as the route has it")
        messages = decode_records(answer.body) if status is PullStatus.FOUND else []
        inflate_bodies(messages)
        return PullResult(status, found.next_begin_offset, messages)

    def _pull_request(self, question: PullQuestion) -> RemotingCommand:
        config, data = self._config, question.subscription.data
        sys_flag = PullSysFlag(0) if question.is_look else PullSysFlag.SUSPEND
        if question.commit_offset is not None:
            sys_flag |= PullSysFlag.COMMIT_OFFSET
        if question.is_lite:
            sys_flag |= PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL
        queue = question.queue
        fields = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=question.queue_offset,
            max_msg_nums=0 if question.is_look else config.pull_batch_max,
            sys_flag=int(sys_flag),
            commit_offset=question.commit_offset or 0,
            suspend_timeout_ms=config.pull_suspend_ms,
            sub_version=question.subscription.pull_version,
            expression_type=data.expression_type,
            subscription=data.sub_string if question.is_lite else None,
            max_msg_bytes=config.pull_bytes_max,
            broker_name=queue.broker_name,
        ).encode()
        code = RequestCode.LITE_PULL_MESSAGE if question.is_lite else RequestCode.PULL_MESSAGE
        return RemotingCommand.request(code, fields)

    # Send-backs (BrokerSendBacks).

    async def send_back(self, request: SendBackRequest) -> None:
        """See `BrokerSendBacks.send_back`."""
        message = request.message
        fields = ConsumerSendMessageBackRequestHeader(
            offset=message.physical_offset,
            group=request.group,
            delay_level=request.delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=request.max_reconsume_times,
            broker_name=request.broker_name,
        ).encode()
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        address = self._master(request.broker_name)
        await self._connection.ask(address, command, timeout_ms=SEND_BACK_TIMEOUT_MS)

    # The group (GroupView).

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """See `GroupView.queues`."""
        return await self._connection.routes.readable_queues(topic)

    async def members(self, topic: str) -> Sequence[str] | None:
        """See `GroupView.members`; one broker is asked, for heartbeats go to all of them."""
        address = await self._connection.routes.any_broker_of(topic)
        if address is None:
            return None
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
        )
        answer = await self._connection.ask(address, request)
        return ConsumerList.decode(answer.body).consumer_id_list

    async def check_subscription(self, data: SubscriptionData) -> None:
        """Ask a broker of the topic whether it can filter so; nobody knows the topic: pass.

        Raises TidemarkError, as RequestRefused when it cannot.
        """
        address = await self._connection.routes.any_broker_of(data.topic)
        if address is None:
            return
        body = CheckClientRequest(self._connection.client_id, self._group, data).encode()
        request = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, {}, body)
        await self._connection.ask(address, request)

    async def _ask_master(
        self, broker_name: str, code: int, queues: Sequence[MessageQueue]
    ) -> RemotingCommand:
        body = LockBatchRequest(
            consumer_group=self._group,
            client_id=self._connection.client_id,
            mq_set=list(queues),
        ).encode()
        return await self._connection.ask(
            self._master(broker_name), RemotingCommand.request(code, {}, body)
        )

    def _master(self, broker_name: str) -> str:
        address = self._connection.routes.master_address(broker_name)
        if address is None:
            raise ConnectFailed(f"broker {broker_name} has no master in any known route")
        return address

    async def _address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        routes = self._connection.routes
        address = routes.address_for_reading(queue.broker_name, broker_id)
        if address is None:
            await routes.refresh(queue.topic)
            address = routes.address_for_reading(queue.broker_name, broker_id)
        if address is None:
            raise _no_route(queue)
        return address


def _no_route(queue: MessageQueue) -> ConnectFailed:
    return ConnectFailed(f"no route leads to broker {queue.broker_name} of {queue}")


def _why_unreachable(queue: MessageQueue, refreshed: asyncio.Future[bool]) -> TidemarkError:
    """No name server answered, or the one that did knows no such broker."""
    error = None if refreshed.cancelled() else refreshed.exception()
    return error if isinstance(error, TidemarkError) else _no_route(queue)
