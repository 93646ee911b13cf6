"""Limits on one heartbeat, and on what one connection may make the broker keep.

Place in the walk: in the handler of HEART_BEAT, before anything of it counts. How long it is was
checked before it was read (body_limits); here its entries are counted, which costs next to nothing,
so that what follows for each of them is bounded.

Invariant: a heartbeat that is refused has changed nothing; what a connection keeps is given back
when it leaves a group, and all of it when it ends. Absent on purpose: what all connections keep
together (groups/consumer_groups).
"""

from __future__ import annotations

from engine.broker.groups.members import ClientChannel
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
from engine.protocol.bodies import HeartbeatData, SubscriptionData
from engine.protocol.codes import ResponseCode


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
