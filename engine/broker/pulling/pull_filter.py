"""Filters messages for pulls, by tag in the consume queue or by SQL92 on their properties.

Place in the walk: `handlers/pull` makes one for each pull; the store asks it, and so do held pulls
when a message arrives. By tags the unit is tested (hash or bits), and the client tests the tags
themselves; by SQL92 the message's properties are.

Invariant: refusals and their order are RocketMQ 5.5's. Absent on purpose: filter classes (such a
subscription takes all) and RocketMQ's bloom filter of the extended consume queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.broker.groups.consumer_filters import ConsumerFilters, selector_of
from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.identity import BrokerNode
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FILTER_COST_MAX
from engine.protocol.bodies import SubscriptionData
from engine.protocol.codes import ResponseCode
from engine.protocol.headers import PullMessageRequestHeader
from engine.protocol.names import RETRY_PREFIX, PullSysFlag
from engine.protocol.properties import PROPERTY_RETRY_TOPIC, decode_properties
from engine.protocol.sql92 import Selector
from engine.protocol.tag_bits import split_tags, tag_test

SUBSCRIBE_ALL = "*"
SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)
TAG_BYTES = 96
"""Of a tag's mask, or of its hash."""
SELECTOR_CHAR_BYTES = 100
"""Of a compiled selector, by the characters of its expression."""
TAGS_PER_COST = 8
"""Masks of tags that are looked at in the time of one test by hash (some 0.2 us)."""
TAG_MADE_COST, SELECTOR_CHAR_MADE_COST = 10, 15
"""To hash a tag and find its mask takes 2 us, to compile a selector 3 us a character."""
SELECTOR_COST, SELECTOR_CHAR_COST = 40, 2
"""A selector has to have the properties taken apart, and takes 0.4 us a character at worst."""


@dataclass(frozen=True, slots=True)
class PullFilter:
    """The tests of one pull."""

    wanted: Callable[[int], bool] | None = None
    """On a unit's tags_code; None takes all."""
    matches: Callable[[bytes], bool] | None = None
    """On a message's property string; None takes all."""
    weight_bytes: int = 0
    """About the memory that the tests take for themselves, while the pull waits."""
    cost: int = 1
    """Of both tests on one message, as a multiple of what one tag's costs."""

    made_cost: int = 0
    """Of making the tests, in the same measure."""

    @property
    def tests(self) -> bool:
        """Is anything left out?"""
        return self.wanted is not None or self.matches is not None

    @property
    def tests_max(self) -> int:
        """Messages that one look at the queue may test."""
        return max(1, FILTER_COST_MAX // self.cost)


EVERYTHING = PullFilter()
"""What most pulls want."""


@dataclass(slots=True, kw_only=True, eq=False)
class PullFilters:
    """Finds which messages a pull wants."""

    filters: ConsumerFilters
    groups: ConsumerGroups
    node: BrokerNode

    def filter_of(self, header: PullMessageRequestHeader) -> PullFilter:
        """The tests for a pull. Raises RequestRefused."""
        own = header.sys_flag & SUBSCRIPTION
        subscription = _own_subscription(header) if own else self._group_subscription(header)
        if subscription.is_by_tags:
            return _by_tags(subscription)
        selector = _own_selector(header) if own else self._group_selector(header)
        if not self.node.config.enable_property_filter:
            raise not_supported(subscription.expression_type)
        if subscription.class_filter_mode:
            return EVERYTHING
        if self.node.config.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            cost = SELECTOR_COST + SELECTOR_CHAR_COST * self.filters.longest(header.consumer_group)
            return PullFilter(matches=self._retried_test(header.consumer_group), cost=cost)
        chars = len(selector.expression)
        return PullFilter(
            matches=_selector_test(selector),
            weight_bytes=SELECTOR_CHAR_BYTES * chars if own else 0,  # Else it is the group's.
            made_cost=SELECTOR_CHAR_MADE_COST * chars if own else 0,
            cost=SELECTOR_COST + SELECTOR_CHAR_COST * chars,
        )

    def _group_subscription(self, header: PullMessageRequestHeader) -> SubscriptionData:
        """What the group subscribes to of the topic, as its heartbeats reported (row B2)."""
        group = self.groups.of(header.consumer_group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumer_group} does not "
                f"subscribe to {header.topic} here; do all its members subscribe to the same?",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {subscription.sub_version} here, "
                f"{header.sub_version} asked for",
            )
        return subscription

    def _group_selector(self, header: PullMessageRequestHeader) -> Selector:
        """What the group's heartbeats reported to select by."""
        known = self.filters.find(header.topic, header.consumer_group)
        if known is None:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        version = known.data.client_version
        if version < header.sub_version:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: {version} here, "
                f"{header.sub_version} asked for",
            )
        return known.selector

    def _retried_test(self, group: str) -> Callable[[bytes], bool]:
        """Failed messages are selected by what the group wants of the topic they came from."""

        def matches(properties: bytes) -> bool:
            decoded = _decoded(properties)
            known = self.filters.find(decoded.get(PROPERTY_RETRY_TOPIC, ""), group)
            return known is None or known.selector.matches(decoded)

        return matches


def not_supported(expression_type: str | None) -> RequestRefused:
    """The refusal of a broker that does not evaluate selectors."""
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )


def _own_subscription(header: PullMessageRequestHeader) -> SubscriptionData:
    """The subscription that the pull itself carries."""
    subscription = SubscriptionData(header.topic, "", expression_type=header.expression_type)
    if subscription.is_by_tags:
        return SubscriptionData.build(header.topic, header.subscription)
    return SubscriptionData.by_selector(
        header.topic, header.subscription, header.expression_type or ""
    )


def _own_selector(header: PullMessageRequestHeader) -> Selector:
    try:
        return selector_of(header.subscription, header.expression_type)
    except RequestRefused as refused:
        raise RequestRefused(
            refused.code, f"parse the consumer's subscription failed: {refused.remark}"
        ) from refused


def _by_tags(subscription: SubscriptionData) -> PullFilter:
    """The broker's test by hashes or bits; the client tests the tags themselves (row D3)."""
    if subscription.sub_string == SUBSCRIBE_ALL or subscription.class_filter_mode:
        return EVERYTHING
    tags = subscription.tags_set or split_tags(subscription.sub_string)
    codes = subscription.code_set
    return PullFilter(
        wanted=tag_test(tags, codes),
        weight_bytes=TAG_BYTES * (len(tags) + len(codes)),
        cost=1 + len(tags) // TAGS_PER_COST,
        made_cost=TAG_MADE_COST * len(tags),
    )


def _selector_test(selector: Selector) -> Callable[[bytes], bool]:
    return lambda properties: selector.matches(_decoded(properties))


def _decoded(properties: bytes) -> dict[str, str]:
    return decode_properties(properties.decode("utf-8", "replace"))
