"""Handles client heartbeats, unregistrations and requests for a group's member list.

Place in the walk: a client's heartbeat makes its connection known under its client id and its
groups known to the broker; `groups/membership` does everything that follows from a change. The
length of a body was checked before it was read (body_limits); here its entries are counted, so that
what follows for each of them is bounded.

Invariant: a heartbeat that is refused has changed nothing; what a connection takes is given back
when it leaves a group, and all of it when it ends. Absent on purpose: expiry and lost connections
(broker), the tables (state), what all connections take together (groups/consumer_groups).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.groups.consumer_filters import selector_of
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import ClientChannel, ClientIds
from engine.broker.groups.membership import Membership
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.pulling.pull_filter import not_supported
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import (
    CLIENT_GROUPS_MAX,
    CLIENT_ID_CHARS_MAX,
    CLIENT_SUBSCRIPTION_BYTES_MAX,
    CLIENT_SUBSCRIPTIONS_MAX,
    FILTER_EXPRESSION_CHARS_MAX,
    SUBSCRIPTION_CHARS_MAX,
    SUBSCRIPTION_TAGS_MAX,
)
from engine.protocol.bodies import (
    CheckClientRequest,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    SubscriptionData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import GroupRequestHeader, UnregisterClientRequestHeader
from engine.protocol.names import (
    check_group,
    check_no_own_dead_letters,
    check_producer_group,
    check_topic,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.gate import Gate
from engine.runtime.clock import Clock


def check_heartbeat(data: HeartbeatData) -> None:
    """Raise RequestRefused for a heartbeat that says more than one may."""
    if len(data.client_id) > CLIENT_ID_CHARS_MAX:
        raise _too_much("characters of clientID", len(data.client_id), CLIENT_ID_CHARS_MAX)
    group_count = len(data.consumer_data_set) + len(data.producer_data_set)
    if group_count > CLIENT_GROUPS_MAX:
        raise _too_much("groups in one heartbeat", group_count, CLIENT_GROUPS_MAX)
    subscriptions = [
        one for consumer in data.consumer_data_set for one in consumer.subscription_data_set
    ]
    if len(subscriptions) > CLIENT_SUBSCRIPTIONS_MAX:
        raise _too_much(
            "subscriptions in one heartbeat", len(subscriptions), CLIENT_SUBSCRIPTIONS_MAX
        )
    selector_chars = 0
    for subscription in subscriptions:
        check_subscription(subscription)
        if not subscription.is_by_tags:
            selector_chars += len(subscription.sub_string)
    if selector_chars > FILTER_EXPRESSION_CHARS_MAX:
        raise _too_much(
            "characters of selectors in one heartbeat", selector_chars, FILTER_EXPRESSION_CHARS_MAX
        )


def check_subscription(subscription: SubscriptionData) -> None:
    """Raise RequestRefused with SUBSCRIPTION_PARSE_FAILED for an expression that is too long."""
    for what, count, count_max in (
        ("characters", len(subscription.sub_string), SUBSCRIPTION_CHARS_MAX),
        ("tags", len(subscription.tags_set), SUBSCRIPTION_TAGS_MAX),
        ("hashes of tags", len(subscription.code_set), SUBSCRIPTION_TAGS_MAX),
    ):
        if count > count_max:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription to {subscription.topic[:255]} has {count} {what}: "
                f"{count_max} at most",
            )


def keep(channel: ClientChannel, data: HeartbeatData, *, is_full: bool) -> None:
    """Note what the connection makes the broker keep.

    Raises RequestRefused, and notes nothing, when that is more groups or more memory than one
    connection may have. Without subscriptions (not `is_full`) those known before stay.
    """
    kept = dict(channel.kept_bytes)
    for consumer in data.consumer_data_set:
        if is_full or consumer.group_name not in kept:
            subscriptions = consumer.subscription_data_set if is_full else ()
            kept[consumer.group_name] = sum(one.weight_bytes for one in subscriptions)
    producers = channel.producer_groups.union(one.group_name for one in data.producer_data_set)
    if len(kept) + len(producers) > CLIENT_GROUPS_MAX:
        raise _too_much("groups of one connection", len(kept) + len(producers), CLIENT_GROUPS_MAX)
    kept_bytes = sum(kept.values())
    if kept_bytes > CLIENT_SUBSCRIPTION_BYTES_MAX:
        raise _too_much(
            "bytes of memory for what one connection subscribes to",
            *(kept_bytes, CLIENT_SUBSCRIPTION_BYTES_MAX),
        )
    channel.kept_bytes = kept
    channel.producer_groups = producers


def give_back(channel: ClientChannel, *, consumer_group: str, producer_group: str) -> None:
    """The client says farewell to a group as a consumer, as a producer, or both; "": not so."""
    channel.kept_bytes.pop(consumer_group, None)
    channel.producer_groups = channel.producer_groups - {producer_group}


def _too_much(what: str, count: int, count_max: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.INVALID_PARAMETER,
        f"{count} {what}: {count_max} at most; use more clients, or less of it",
    )


@dataclass(slots=True, kw_only=True, eq=False)
class HeartbeatHandlers(Handlers):
    """What clients say about themselves."""

    client_ids: ClientIds
    clock: Clock
    gate: Gate
    groups: ConsumerGroups
    node: BrokerNode
    producers: ProducerGroups
    membership: Membership

    @serves(RequestCode.HEART_BEAT)
    def heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """HEART_BEAT (34); with a fingerprint the subscriptions may be left out (version 2), and
        the answer says whether the next one must hold them.
        """
        data = HeartbeatData.decode(request.body)
        check_heartbeat(data)
        _check_names(data)
        account = self.gate.account_of(request)
        channel = ClientChannel(data.client_id, peer, request.language, request.version, account)
        known = peer.attachment
        if isinstance(known, ClientChannel) and known.client_id == data.client_id:
            channel = known
        refused = None
        for consumer in data.consumer_data_set:
            refused = _without_own_dead_letters(consumer) or refused
        fingerprint = data.heartbeat_fingerprint
        is_full = not (fingerprint and data.without_sub)
        self.membership.check_room(data, account, keep_subscription=not is_full)
        keep(channel, data, is_full=is_full)
        if isinstance(known, ClientChannel) and known is not channel:
            self.membership.lost(peer, "CLIENT_ID_CHANGED")  # A connection is one client.
        peer.attachment, channel.account = channel, account
        if account is not None:
            self.client_ids.hold(data.client_id, peer, account)
        subscription_changed = not fingerprint
        for consumer in data.consumer_data_set:
            must_notify = self.groups.take_fingerprint(
                consumer.group_name, fingerprint, without_subscription=not is_full
            )
            subscription_changed = subscription_changed or must_notify
            self.membership.heartbeat(channel, consumer, keep_subscription=not is_full)
        now_ms = self.clock.steady_ms()
        for producer in data.producer_data_set:
            self.producers.register(producer.group_name, channel, now_ms=now_ms)
        if refused is not None:  # All else of the heartbeat counts: it may hold other groups.
            raise refused
        return request.respond(
            ResponseCode.SUCCESS,
            fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if subscription_changed else "false",
            },
        )

    @serves(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT (35): a client leaves by the connection by which it came, as in
        RocketMQ; from any other one nothing changes.
        """
        header = UnregisterClientRequestHeader.decode(request.fields)
        client_id = header.client_id
        if header.producer_group:
            producer = self.producers.member(header.producer_group, client_id)
            if producer is not None and producer.channel.peer is peer:
                self.producers.unregister(header.producer_group, client_id)
        if header.consumer_group:
            group = self.groups.of(header.consumer_group)
            consumer = None if group is None else group.members.get(client_id)
            if consumer is not None and consumer.channel.peer is peer:
                self.membership.farewell(header.consumer_group, client_id)
        channel = peer.attachment
        if isinstance(channel, ClientChannel) and channel.client_id == client_id:
            give_back(
                channel,
                consumer_group=header.consumer_group or "",
                producer_group=header.producer_group or "",
            )
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def consumer_list(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP (38)."""
        name = GroupRequestHeader.decode(request.fields).consumer_group
        group = self.groups.of(name)
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = ConsumerList(consumer_id_list=group.member_ids()).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client_config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG (46): clients ask it before they subscribe by SQL92."""
        wanted = CheckClientRequest.decode(request.body).subscription_data
        if wanted is not None:
            check_subscription(wanted)
        if wanted is not None and not wanted.is_by_tags:
            if not self.node.config.enable_property_filter:
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
