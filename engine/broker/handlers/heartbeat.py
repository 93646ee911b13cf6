"""Clients: heartbeats, farewells, member lists, order locks.

Place in the walk: a client's heartbeat makes its connection known under its client id and its
groups known to the broker; everything that follows from a change is `membership`'s.

Absent on purpose: expiry and lost connections (broker), the tables (state).
"""

from __future__ import annotations

from engine.broker.heartbeat_limits import check_heartbeat, check_subscription, give_back, keep
from engine.broker.membership import Membership
from engine.broker.parts import BrokerParts
from engine.broker.pull_filter import not_supported
from engine.broker.state.consumer_filters import selector_of
from engine.broker.state.members import ClientChannel
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import LOCK_BATCH_QUEUES_MAX
from engine.protocol.bodies import (
    CheckClientRequest,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import GroupRequestHeader, UnregisterClientRequestHeader
from engine.protocol.message import MessageQueue
from engine.protocol.names import (
    check_group,
    check_no_own_dead_letters,
    check_producer_group,
    check_topic,
)
from engine.remoting import Handler, Peer


class HeartbeatHandlers:
    """What clients say about themselves."""

    def __init__(self, parts: BrokerParts, membership: Membership) -> None:
        self._parts = parts
        self._membership = membership

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """HEART_BEAT (34); with a fingerprint the subscriptions may be left out (version 2), and
        the answer says whether the next one must hold them.
        """
        data = HeartbeatData.decode(request.body)
        check_heartbeat(data)
        _check_names(data)
        account = self._parts.gate.account_of(request)
        channel = ClientChannel(data.client_id, peer, request.language, request.version, account)
        known = peer.attachment
        if isinstance(known, ClientChannel) and known.client_id == data.client_id:
            channel = known
        refused = None
        for consumer in data.consumer_data_set:
            refused = _without_own_dead_letters(consumer) or refused
        fingerprint = data.heartbeat_fingerprint
        is_full = not (fingerprint and data.without_sub)
        self._membership.check_room(data, account, keep_subscription=not is_full)
        keep(channel, data, is_full=is_full)
        if isinstance(known, ClientChannel) and known is not channel:
            self._membership.lost(peer, "CLIENT_ID_CHANGED")  # A connection is one client.
        peer.attachment, channel.account = channel, account
        if account is not None:
            self._parts.client_ids.hold(data.client_id, peer, account)
        subscription_changed = not fingerprint
        for consumer in data.consumer_data_set:
            must_tell = self._parts.groups.take_fingerprint(
                consumer.group_name, fingerprint, without_subscription=not is_full
            )
            subscription_changed = subscription_changed or must_tell
            self._membership.heartbeat(channel, consumer, keep_subscription=not is_full)
        now_ms = self._parts.steady_ms()
        for producer in data.producer_data_set:
            self._parts.producers.register(producer.group_name, channel, now_ms=now_ms)
        if refused is not None:  # All else of the heartbeat counts: it may hold other groups.
            raise refused
        return request.respond(
            ResponseCode.SUCCESS,
            fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if subscription_changed else "false",
            },
        )

    def unregister(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT (35): a client leaves by the connection by which it came, as in
        RocketMQ; from any other one nothing changes.
        """
        header = UnregisterClientRequestHeader.decode(request.fields)
        client_id = header.client_id
        if header.producer_group:
            producer = self._parts.producers.member(header.producer_group, client_id)
            if producer is not None and producer.channel.peer is peer:
                self._parts.producers.unregister(header.producer_group, client_id)
        if header.consumer_group:
            group = self._parts.groups.of(header.consumer_group)
            consumer = None if group is None else group.members.get(client_id)
            if consumer is not None and consumer.channel.peer is peer:
                self._membership.farewell(header.consumer_group, client_id)
        channel = peer.attachment
        if isinstance(channel, ClientChannel) and channel.client_id == client_id:
            give_back(
                channel,
                consumer_group=header.consumer_group or "",
                producer_group=header.producer_group or "",
            )
        return request.respond(ResponseCode.SUCCESS)

    def consumer_list(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP (38)."""
        name = GroupRequestHeader.decode(request.fields).consumer_group
        group = self._parts.groups.of(name)
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = ConsumerList(consumer_id_list=group.member_ids()).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    def lock(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now."""
        wanted = _lock_batch(request)
        check_group(wanted.consumer_group)
        for queue in wanted.mq_set:
            check_topic(queue.topic)
        parts = self._parts
        lockable = []
        if parts.group_configs.known(wanted.consumer_group):
            lockable = [queue for queue in wanted.mq_set if self._is_here(queue)]
        granted = parts.locks.lock(
            wanted.consumer_group, wanted.client_id, lockable, now_ms=parts.steady_ms()
        )
        return request.respond(
            ResponseCode.SUCCESS, body=LockBatchResponse(lock_ok_mq_set=granted).encode()
        )

    def _is_here(self, queue: MessageQueue) -> bool:
        """Only what there is can be locked, for clients may ask for any name: a queue of this
        broker's topics, or one that a topic had and that may still be read.
        """
        parts = self._parts
        topic = parts.topics.find(queue.topic)
        if topic is None or queue.broker_name != parts.config.broker_name:
            return False
        queue_count = max(topic.read_queue_nums, topic.write_queue_nums)
        return 0 <= queue.queue_id < queue_count or bool(
            parts.store.max_offset(queue.topic, queue.queue_id)
        )

    def unlock(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ (42)."""
        given = _lock_batch(request)
        self._parts.locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        return request.respond(ResponseCode.SUCCESS)

    def check_client_config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG (46): clients ask it before they subscribe by SQL92."""
        wanted = CheckClientRequest.decode(request.body).subscription_data
        if wanted is not None:
            check_subscription(wanted)
        if wanted is not None and not wanted.is_by_tags:
            if not self._parts.config.enable_property_filter:
                raise not_supported(wanted.expression_type)
            selector_of(wanted.sub_string, wanted.expression_type)
        return request.respond(ResponseCode.SUCCESS)


def _without_own_dead_letters(consumer: ConsumerData) -> RequestRefused | None:
    """Take a group's dead letters out of its own subscription; why, if they were in it."""
    refused, kept = None, []
    for subscription in consumer.subscription_data_set:
        try:
            check_no_own_dead_letters(consumer.group_name, subscription.topic)
        except RequestRefused as error:
            refused = error
        else:
            kept.append(subscription)
    consumer.subscription_data_set = kept
    return refused


def _lock_batch(request: RemotingCommand) -> LockBatchRequest:
    batch = LockBatchRequest.decode(request.body)
    if len(batch.mq_set) > LOCK_BATCH_QUEUES_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"{len(batch.mq_set)} queues in one request: {LOCK_BATCH_QUEUES_MAX} at most; ask for "
            "some of them at a time",
        )
    return batch


def _check_names(data: HeartbeatData) -> None:
    """Raise RequestRefused for an illegal name, before anything of the heartbeat counts."""
    if not data.client_id or data.client_id.isspace():
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the clientID of the heartbeat is blank")
    for producer in data.producer_data_set:
        check_producer_group(producer.group_name)
    for consumer in data.consumer_data_set:
        check_group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            check_topic(subscription.topic)
