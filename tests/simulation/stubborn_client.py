"""A simulated consumer with the habits of RocketMQ's Java client, over raw remoting.

Unlike ours it keeps the route of a topic that no name server knows any more, keeps its pull
position over errors, reports its offset table one-way each 5 s and with each pull, heartbeats only
each 30 s (after a reconnect its pulls and reports come first), and, when its offset was reset,
waits 10 s before it goes there (4.x), or freezes the offset and goes at once (5.x). Names in quotes
are the Java client's.

Absent on purpose: flow control, tags, broadcasting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from engine.client.consuming.allocation import Averagely
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.protocol.bodies import (
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    SubscriptionData,
    TopicRouteData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    ConsumerSendMessageBackRequestHeader,
    GroupRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_record import decode_records
from engine.protocol.names import RETRY_PREFIX, Perm, PullSysFlag, retry_topic
from engine.remoting import Peer, RpcClient
from engine.runtime import Runtime

HEARTBEAT_S, ROUTES_S, PERSIST_FIRST_S, PERSIST_S, REBALANCE_S, LOCK_S = 30, 30, 10, 5, 20, 20
PULL_ERROR_S, LOCK_WAIT_S, FIRST_PULL_S = 3.0, 3.0, 0.5
MOVED_WAIT_S = 10.0
LOCK_LIVES_S = 30.0
PULL_EXPIRES_S = 120.0
SUSPEND_MS, PULL_TIMEOUT_MS, TIMEOUT_MS = 15_000, 30_000, 3_000

OnPulled = Callable[[MessageQueue, list[MessageExt], float], None]
"""Hears what a pull brought: the queue, the messages, and when (loop seconds) it was asked."""
Process = Callable[[MessageExt], Awaitable[bool]]
"""The listener: True is success, False asks for the message again."""


@dataclass(eq=False)
class Window:
    """A held queue: "ProcessQueue" and "PullRequest" in one."""

    queue: MessageQueue
    next_offset: int
    last_pull_s: float
    dropped: bool = False
    locked: bool = False
    locked_s: float = 0.0
    previously_locked: bool = False
    messages: dict[int, MessageExt] = field(default_factory=dict)
    offset_max: int = -1
    has_work: asyncio.Event = field(default_factory=asyncio.Event)
    at_work: bool = False


@dataclass(frozen=True)
class Habits:
    """What differs between such clients."""

    group: str
    topic: str
    from_first: bool = False
    """CONSUME_FROM_FIRST_OFFSET, else CONSUME_FROM_LAST_OFFSET."""
    orderly: bool = False
    is_4x: bool = True
    """Of RocketMQ 4.9, which waits when its offset has moved and takes every refusal of a question
    for "no offset"; 5.x freezes the offset, goes at once, and rebalances soon if that failed.
    """


class StubbornConsumer:
    """One member of a group. `start`, then `stop`, or its host dies."""

    def __init__(
        self,
        runtime: Runtime,
        client_id: str,
        habits: Habits,
        *,
        namesrv: str,
        broker: str,
        process: Process,
        on_pulled: OnPulled,
    ) -> None:
        self.client_id = client_id
        self.habits = habits
        self.windows: dict[MessageQueue, Window] = {}
        self.offsets: dict[MessageQueue, int] = {}
        """"offsetTable"."""
        self._frozen: set[MessageQueue] = set()
        self._routes: dict[str, list[MessageQueue]] = {}
        self._namesrv, self._broker = namesrv, broker
        self._process, self._on_pulled = process, on_pulled
        self._rpc = RpcClient(
            runtime, {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed}
        )
        self._loop = asyncio.get_running_loop()
        self._sub_version = runtime.clock.now_ms()
        self._now_ms = runtime.clock.now_ms
        self._wanted = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def topics(self) -> tuple[str, str]:
        """What it subscribes to: its topic, and the retry topic of its group."""
        return self.habits.topic, retry_topic(self.habits.group)

    async def start(self) -> None:
        """As "DefaultMQPushConsumerImpl.start": routes, heartbeat, then rebalance."""
        await self._update_routes()
        await self._heartbeat()
        self._go(self._each(HEARTBEAT_S, self._heartbeat, HEARTBEAT_S))
        self._go(self._each(ROUTES_S, self._update_routes, ROUTES_S))
        self._go(self._each(PERSIST_FIRST_S, self._persist_all, PERSIST_S))
        if self.habits.orderly:
            self._go(self._each(1.0, self._lock_all, LOCK_S))
        self._go(self._rebalance_regularly())
        self._wanted.set()

    async def stop(self) -> None:
        """Report all offsets and say farewell."""
        for task in list(self._tasks):
            task.cancel()
        await self._persist_all()
        for window in self.windows.values():
            window.dropped = True
            if self.habits.orderly:
                await self._unlock(window.queue)
        fields = UnregisterClientRequestHeader(
            client_id=self.client_id, consumer_group=self.habits.group
        ).encode()
        with suppress(TidemarkError):
            await self._ask(RequestCode.UNREGISTER_CLIENT, fields)
        await self._rpc.close()

    # What is regular.

    def _go(self, work: Awaitable[None]) -> None:
        task = self._loop.create_task(_as_coroutine(work))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _each(self, first_s: float, work: Callable[[], Awaitable[None]], s: float) -> None:
        await asyncio.sleep(first_s)
        while True:
            await work()
            await asyncio.sleep(s)

    async def _update_routes(self) -> None:
        """A topic that is unknown, or a name server that is silent, leaves the route as it was."""
        for topic in self.topics:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            try:
                answer = await self._rpc.invoke(self._namesrv, request, timeout_ms=TIMEOUT_MS)
            except TidemarkError:
                continue
            if answer.code != ResponseCode.SUCCESS:
                continue
            self._routes[topic] = [
                MessageQueue(topic, data.broker_name, queue_id)
                for data in TopicRouteData.decode(answer.body).queue_datas
                if data.perm & Perm.READ
                for queue_id in range(data.read_queue_nums)
            ]

    async def _heartbeat(self) -> None:
        where = "FIRST" if self.habits.from_first else "LAST"
        subscriptions = [
            SubscriptionData.build(topic, "*", sub_version=self._sub_version)
            for topic in self.topics
        ]
        consumer = ConsumerData(
            self.habits.group,
            consume_from_where=f"CONSUME_FROM_{where}_OFFSET",
            subscription_data_set=subscriptions,
        )
        body = HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer]).encode()
        with suppress(TidemarkError):
            await self._ask(RequestCode.HEART_BEAT, {}, body)

    async def _persist_all(self) -> None:
        """ "RemoteBrokerOffsetStore.persistAll": of held queues, dropped windows among them."""
        for queue in list(self.offsets):
            if queue in self.windows:
                await self._persist(queue)
            else:
                self._forget(queue)

    async def _persist(self, queue: MessageQueue) -> None:
        offset = self.offsets.get(queue)
        if offset is None:
            return
        fields = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.habits.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        ).encode()
        await self._say(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def _update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """ "updateOffset"; one that is frozen stays."""
        if queue not in self._frozen:
            before = self.offsets.get(queue, -1)
            self.offsets[queue] = max(before, offset) if increase_only else offset

    def _forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
        self._frozen.discard(queue)

    # Rebalance.

    def _members_changed(self, peer: Peer, request: RemotingCommand) -> None:
        self._wanted.set()

    async def _rebalance_regularly(self) -> None:
        wait_s = float(REBALANCE_S)
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            balanced = all([await self._rebalance(topic) for topic in self.topics])
            wait_s = REBALANCE_S if balanced or self.habits.is_4x else 1.0

    async def _rebalance(self, topic: str) -> bool:
        """ "rebalanceByTopic": without a route or the members everything stays."""
        queues = self._routes.get(topic)
        if queues is None:
            return True
        fields = GroupRequestHeader(consumer_group=self.habits.group).encode()
        try:
            answer = await self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        except TidemarkError:
            return False
        members = ConsumerList.decode(answer.body).consumer_id_list
        if not members or not queues:
            return False
        mine = Averagely().allocate(self.client_id, sorted(queues), sorted(members))
        changed = False
        for queue, window in list(self.windows.items()):
            if queue.topic != topic:
                continue
            expired = self._loop.time() - window.last_pull_s > PULL_EXPIRES_S
            if queue not in mine or expired:
                changed = await self._give_up(window) or changed
        for queue in mine:
            if queue not in self.windows:
                changed = await self._take_up(queue) or changed
        if changed:  # "messageQueueChanged": the subscription has a new version, sent at once.
            self._sub_version = self._now_ms()
            await self._heartbeat()
        return all(queue in self.windows for queue in mine)

    async def _give_up(self, window: Window) -> bool:
        """ "removeUnnecessaryMessageQueue"; an orderly queue whose listener is at work stays."""
        window.dropped = True
        window.has_work.set()
        queue = window.queue
        await self._persist(queue)
        if self.habits.orderly:
            if window.at_work:
                return False
            await self._unlock(queue)
        self._forget(queue)
        if self.windows.get(queue) is window:
            del self.windows[queue]
        return True

    async def _take_up(self, queue: MessageQueue) -> bool:
        if self.habits.orderly and queue not in await self._lock([queue]):
            return False
        self._forget(queue)
        try:
            offset = await self._first_offset(queue)
        except TidemarkError:
            return False
        window = Window(queue, offset, self._loop.time())
        if self.habits.orderly:
            window.locked, window.locked_s = True, self._loop.time()
            self._go(self._work_in_order(window))
        self.windows[queue] = window
        self._go(self._pull(window))
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        """ "computePullFromWhereWithException": the broker's word, then the start policy."""
        fields = QueryConsumerOffsetRequestHeader(
            consumer_group=self.habits.group, topic=queue.topic, queue_id=queue.queue_id
        ).encode()
        try:
            answer = await self._ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        except RequestRefused as refused:
            if refused.code != ResponseCode.QUERY_NOT_FOUND and not self.habits.is_4x:
                raise
        else:
            offset = OffsetResponseHeader.decode(answer.fields).offset
            self._update(queue, offset, increase_only=False)
            return offset
        if self.habits.from_first or queue.topic.startswith(RETRY_PREFIX):
            return 0
        fields = QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id).encode()
        answer = await self._ask(RequestCode.GET_MAX_OFFSET, fields)
        return OffsetResponseHeader.decode(answer.fields).offset

    # Pulling.

    async def _pull(self, window: Window) -> None:
        await asyncio.sleep(FIRST_PULL_S)
        while not window.dropped:
            window.last_pull_s = self._loop.time()
            if self.habits.orderly and not await self._may_pull_in_order(window):
                await asyncio.sleep(LOCK_WAIT_S)
                continue
            try:
                answer = await self._pulled(window)
            except TidemarkError:
                await asyncio.sleep(PULL_ERROR_S)
                continue
            if window.dropped:
                return
            header = PullMessageResponseHeader.decode(answer.fields)
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                await self._moved(window, header.next_begin_offset)
                return
            window.next_offset = header.next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                self._take_in(window, decode_records(answer.body))
            elif not window.messages:  # "correctTagsOffset"
                self._update(window.queue, window.next_offset, increase_only=True)

    async def _pulled(self, window: Window) -> RemotingCommand:
        """One pull; any answer but the four of "processPullResponse" is an error."""
        queue = window.queue
        commit = self.offsets.get(queue, 0)
        flags = PullSysFlag.SUSPEND | (PullSysFlag.COMMIT_OFFSET if commit > 0 else 0)
        fields = PullMessageRequestHeader(
            consumer_group=self.habits.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=window.next_offset,
            max_msg_nums=32,
            sys_flag=int(flags),
            commit_offset=commit,
            suspend_timeout_ms=SUSPEND_MS,
            sub_version=self._sub_version,
        ).encode()
        asked_s = self._loop.time()
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, fields)
        answer = await self._rpc.invoke(self._broker, request, timeout_ms=PULL_TIMEOUT_MS)
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise RequestRefused(answer.code, answer.remark or "no remark")
        if answer.code == ResponseCode.SUCCESS:
            self._on_pulled(queue, decode_records(answer.body), asked_s)
        return answer

    async def _moved(self, window: Window, offset: int) -> None:
        """OFFSET_ILLEGAL: the window is dropped; until it is given up its offset is reported."""
        window.dropped = True
        window.has_work.set()
        if self.habits.is_4x:
            await asyncio.sleep(MOVED_WAIT_S)
        self._update(window.queue, offset, increase_only=False)
        if not self.habits.is_4x:
            self._frozen.add(window.queue)
        await self._persist(window.queue)
        if self.windows.get(window.queue) is window:
            await self._give_up(window)
        if not self.habits.is_4x:
            self._wanted.set()

    async def _may_pull_in_order(self, window: Window) -> bool:
        """Only under its lock, and first from where the group is by then."""
        if not window.locked:
            return False
        if not window.previously_locked:
            try:
                window.next_offset = await self._first_offset(window.queue)
            except TidemarkError:
                return False
            window.previously_locked = True
        return True

    # Consuming.

    def _take_in(self, window: Window, messages: list[MessageExt]) -> None:
        for message in messages:
            window.messages[message.queue_offset] = message
            window.offset_max = max(window.offset_max, message.queue_offset)
            if not self.habits.orderly:
                self._go(self._consume(window, message))
        window.has_work.set()

    async def _consume(self, window: Window, message: MessageExt) -> None:
        """ "ConsumeMessageConcurrentlyService": each by itself; what fails is sent back."""
        if window.dropped:
            return
        while not await self._process(message):
            if window.dropped:
                return
            if await self._send_back(message):
                break
            await asyncio.sleep(5.0)
        if window.dropped:
            return
        window.messages.pop(message.queue_offset, None)
        done_to = min(window.messages, default=window.offset_max + 1)
        self._update(window.queue, done_to, increase_only=True)

    async def _work_in_order(self, window: Window) -> None:
        """ "ConsumeMessageOrderlyService": one after the other, under a lock that is not old."""
        while not window.dropped:
            if not window.messages:
                window.has_work.clear()
                await window.has_work.wait()
                continue
            if not window.locked or self._loop.time() - window.locked_s > LOCK_LIVES_S:
                if window.queue in await self._lock([window.queue]):
                    window.locked, window.locked_s = True, self._loop.time()
                else:
                    await asyncio.sleep(LOCK_WAIT_S)
                continue
            offset = min(window.messages)
            window.at_work = True
            done = await self._process(window.messages[offset])
            window.at_work = False
            if window.dropped:
                return
            if done:
                del window.messages[offset]
                self._update(window.queue, offset + 1, increase_only=False)
            else:
                await asyncio.sleep(1.0)

    async def _send_back(self, message: MessageExt) -> bool:
        fields = ConsumerSendMessageBackRequestHeader(
            offset=message.physical_offset,
            group=self.habits.group,
            delay_level=0,
            origin_msg_id=message.uniq_key,
            origin_topic=message.topic,
            max_reconsume_times=16,
        ).encode()
        try:
            await self._ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        except TidemarkError:
            return False
        return True

    # Locks.

    async def _lock_all(self) -> None:
        for queue, window in list(self.windows.items()):
            is_mine = queue in await self._lock([queue])
            window.locked = is_mine
            if is_mine:
                window.locked_s = self._loop.time()

    async def _lock(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        body = self._lock_batch(queues)
        try:
            answer = await self._ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        except TidemarkError:
            return []
        return LockBatchResponse.decode(answer.body).lock_ok_mq_set

    async def _unlock(self, queue: MessageQueue) -> None:
        await self._say(RequestCode.UNLOCK_BATCH_MQ, {}, self._lock_batch([queue]))

    def _lock_batch(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequest(
            consumer_group=self.habits.group, client_id=self.client_id, mq_set=queues
        ).encode()

    # The wire.

    async def _ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, fields, body)
        answer = await self._rpc.invoke(self._broker, request, timeout_ms=TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return answer

    async def _say(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> None:
        """One-way; nobody hears whether it arrived."""
        request = RemotingCommand.request(code, fields, body)
        request.mark_oneway()
        with suppress(TidemarkError):
            await self._rpc.invoke_oneway(self._broker, request)


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work
