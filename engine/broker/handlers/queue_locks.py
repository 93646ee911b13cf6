"""Handles requests from orderly consumers to lock and unlock queues.

Place in the walk: before the first pull of an orderly consumer, and again each 20 s. Absent on
purpose: how long a lock is held (groups/queue_locks).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.identity import BrokerNode
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import LOCK_BATCH_QUEUES_MAX
from engine.protocol.bodies import LockBatchRequest, LockBatchResponse
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageQueue
from engine.protocol.names import check_group, check_topic
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock
from engine.store import MessageStore


@dataclass(slots=True, kw_only=True, eq=False)
class QueueLockHandlers(Handlers):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    node: BrokerNode
    clock: Clock
    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    locks: QueueLocks

    @serves(RequestCode.LOCK_BATCH_MQ)
    def lock(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now."""
        self.node.check_master()
        wanted = _lock_batch(request)
        check_group(wanted.consumer_group)
        for queue in wanted.mq_set:
            check_topic(queue.topic)
        lockable = []
        if self.group_configs.known(wanted.consumer_group):
            lockable = [queue for queue in wanted.mq_set if self._is_here(queue)]
        granted = self.locks.lock(
            wanted.consumer_group, wanted.client_id, lockable, now_ms=self.clock.steady_ms()
        )
        return request.respond(
            ResponseCode.SUCCESS, body=LockBatchResponse(lock_ok_mq_set=granted).encode()
        )

    def _is_here(self, queue: MessageQueue) -> bool:
        """Only what there is can be locked, for clients may ask for any name: a queue of this
        broker's topics, or one that a topic had and that may still be read.
        """
        topic = self.topics.find(queue.topic)
        if topic is None or queue.broker_name != self.node.config.broker_name:
            return False
        queue_count = max(topic.read_queue_nums, topic.write_queue_nums)
        return 0 <= queue.queue_id < queue_count or bool(
            self.store.max_offset(queue.topic, queue.queue_id)
        )

    @serves(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ (42)."""
        given = _lock_batch(request)
        self.locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        return request.respond(ResponseCode.SUCCESS)


def _lock_batch(request: RemotingCommand) -> LockBatchRequest:
    batch = LockBatchRequest.decode(request.body)
    if len(batch.mq_set) > LOCK_BATCH_QUEUES_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"{len(batch.mq_set)} queues in one request: {LOCK_BATCH_QUEUES_MAX} at most; ask for "
            "some of them at a time",
        )
    return batch
