"""Table of SQL92 selectors, keyed by consumer group and topic (consumerFilter.json).

Place in the walk: each heartbeat that carries subscriptions enters here; a pull without a
subscription of its own finds its selector here (row B2).

A selector stays for FILTER_KEPT_MS after its group has gone, so that members that come back with
the version they had find it.

Invariant: only what compiles is kept; an older version never replaces a newer one, and a newer one
that does not compile removes the old: its pulls are answered FILTER_DATA_NOT_EXIST. Absent on
purpose: RocketMQ's bloom filters, which spare reading messages that no selector matches; selectors
are evaluated on the messages alone. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from engine.foundation.errors import CorruptRecord, RemoteProtocolError, RequestRefused
from engine.foundation.limits import CONSUMER_FILTER_CHARS_MAX, CONSUMER_FILTERS_MAX
from engine.foundation.units import DAY_MS, SECOND_MS
from engine.protocol.bodies import SubscriptionData
from engine.protocol.body_codec import Part
from engine.protocol.codes import ResponseCode
from engine.protocol.header_fields import Int64
from engine.protocol.sql92 import SQL92_EXPRESSION, Selector, compile_selector

FILTER_KEPT_MS = DAY_MS
"""How long the selector of a group without members is kept (RocketMQ:
filterDataCleanTimeSpan)."""

DEAD_BEFORE_BOOT_MS = 30 * SECOND_MS
"""Groups that were there when the broker stopped count as gone since this long before its boot."""


EXPRESSION_SHOWN_CHARS = 100
"""Of a selector in a sentence."""


class FilterData(Part):
    """One entry, under RocketMQ's names in the file."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: Int64 = 0
    dead_time: Int64 = 0
    """When the group was found gone; 0 while it is there."""
    client_version: Int64 = 0

    @property
    def is_dead(self) -> bool:
        """Is nobody there who wants it?"""
        return self.dead_time >= self.born_time


@dataclass(slots=True)
class ConsumerFilter:
    """An entry and its selector."""

    data: FilterData
    selector: Selector


@dataclass(slots=True, eq=False)
class ConsumerFilters:
    """The table of one broker."""

    count_max: int = CONSUMER_FILTERS_MAX
    _: KW_ONLY
    chars_max: int = CONSUMER_FILTER_CHARS_MAX
    _chars: int = field(default=0, init=False)
    """Of all expressions that are kept."""
    _filters: dict[tuple[str, str], ConsumerFilter] = field(default_factory=dict, init=False)
    _topics_of: dict[str, dict[str, None]] = field(default_factory=dict, init=False)
    """group → topics it has selectors for; ten thousand groups must not be gone through at each
    heartbeat.
    """
    counter: int = field(default=0, init=False)
    """Grows with every change."""

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """The group's selector for the topic; None when it reported none that compiles."""
        return self._filters.get((topic, group))

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], *, now_ms: int
    ) -> list[str]:
        """Take a heartbeat's word; return a sentence for each selector that is not in force, or
        that is and selects less than it seems to.
        """
        by_topic = {data.topic: data for data in subscriptions}
        faults = []
        for data in by_topic.values():
            if not data.is_by_tags and data.sub_string:
                said = self._register_one(group, data, now_ms)
                if said:
                    shown = f"{data.sub_string[:EXPRESSION_SHOWN_CHARS]!r}"
                    faults.append(f"group {group}, topic {data.topic}: selector {shown} {said}")
        for topic in self._topics_of.get(group, ()):
            if topic not in by_topic:
                self._bury(self._filters[topic, group], now_ms)
        return faults

    def _register_one(self, group: str, data_new: SubscriptionData, now_ms: int) -> str:
        key = (data_new.topic, group)
        known = self._filters.get(key)
        if known is not None:
            data = known.data
            same = (data.expression, data.expression_type) == (
                data_new.sub_string,
                data_new.expression_type,
            )
            if data_new.sub_version <= data.client_version:
                if data_new.sub_version == data.client_version and data.is_dead:
                    self._revive(known)
                if same:
                    return ""
                return not_in_force(
                    f"its version {data_new.sub_version} is not newer than {data.client_version}, "
                    "whose selector stays"
                )
            if same:
                data.client_version = data_new.sub_version
                self._revive(known)
                return ""
        elif len(self._filters) >= self.count_max:
            return not_in_force(f"this broker keeps {self.count_max} selectors and no more")
        growth = len(data_new.sub_string) - (0 if known is None else len(known.data.expression))
        if growth > 0 and self._chars + growth > self.chars_max:
            self._drop(key)
            return not_in_force(
                f"this broker keeps {self.chars_max} characters of selectors and no more"
            )
        return self._compile(key, data_new, now_ms)

    def _compile(self, key: tuple[str, str], data_new: SubscriptionData, now_ms: int) -> str:
        self.counter += 1
        topic, group = key
        try:
            selector = selector_of(data_new.sub_string, data_new.expression_type)
        except RequestRefused as refused:
            self._drop(key)
            return not_in_force(refused.remark)
        data = FilterData(
            group,
            topic,
            data_new.sub_string,
            SQL92_EXPRESSION,
            born_time=now_ms,
            client_version=data_new.sub_version,
        )
        self._keep(key, ConsumerFilter(data, selector))
        if selector.ignored:
            ignored = selector.ignored[:EXPRESSION_SHOWN_CHARS]
            return f"is in force, understood up to {ignored!r}, which is ignored"
        return f"is in force as it stands: {selector.remark}" if selector.remark else ""

    def _keep(self, key: tuple[str, str], one: ConsumerFilter) -> None:
        self._drop(key)
        topic, group = key
        self._filters[key] = one
        self._topics_of.setdefault(group, {})[topic] = None
        self._chars += len(one.data.expression)

    def _drop(self, key: tuple[str, str]) -> None:
        known = self._filters.pop(key, None)
        if known is None:
            return
        self._chars -= len(known.data.expression)
        self.counter += 1
        topic, group = key
        topics = self._topics_of[group]
        del topics[topic]
        if not topics:
            del self._topics_of[group]

    def _revive(self, known: ConsumerFilter) -> None:
        known.data.dead_time = 0
        self.counter += 1

    def _bury(self, known: ConsumerFilter, now_ms: int) -> None:
        if not known.data.is_dead:
            known.data.dead_time = now_ms
            self.counter += 1

    def longest(self, group: str) -> int:
        """Characters of the longest selector that the group keeps."""
        return max(
            (
                len(self._filters[topic, group].data.expression)
                for topic in self._topics_of.get(group, ())
            ),
            default=0,
        )

    def unregister(self, group: str, *, now_ms: int) -> None:
        """Forget a group that no longer has members."""
        for topic in self._topics_of.get(group, ()):
            self._bury(self._filters[topic, group], now_ms)

    def forget_old(self, now_ms: int) -> int:
        """Drop what nobody has wanted for FILTER_KEPT_MS; how many went?"""
        old = [
            key
            for key, known in self._filters.items()
            if known.data.is_dead and now_ms - known.data.dead_time >= FILTER_KEPT_MS
        ]
        for key in old:
            self._drop(key)
        return len(old)

    def to_document(self) -> dict[str, Any]:
        """The table as consumerFilter.json has it."""
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), known in sorted(self._filters.items(), key=lambda entry: entry[0]):
            entry = topics.setdefault(topic, {"topic": topic, "groupFilterData": {}})
            entry["groupFilterData"][group] = known.data.to_json()
        return {"filterDataByTopic": topics}

    def load(self, document: Mapping[str, Any], *, now_ms: int) -> None:
        """Take over consumerFilter.json as parsed; every group counts as gone until it is heard.

        Raises CorruptRecord. An entry that does not compile is dropped: its group reports it again.
        """
        table = document.get("filterDataByTopic")
        if not isinstance(table, Mapping):
            raise CorruptRecord("consumerFilter.json holds no filterDataByTopic")
        self._filters.clear()
        self._topics_of.clear()
        self._chars = 0
        for topic, entry in table.items():
            groups = entry.get("groupFilterData") if isinstance(entry, Mapping) else None
            if not isinstance(groups, Mapping):
                raise CorruptRecord(f"consumerFilter.json: {topic} holds no groupFilterData")
            for group, filters in groups.items():
                self._take_over(str(topic), str(group), filters, now_ms)

    def _take_over(self, topic: str, group: str, document: object, now_ms: int) -> None:
        try:
            data = FilterData.from_json(document)
        except RemoteProtocolError as error:
            raise CorruptRecord(f"consumerFilter.json: {topic} {group}: {error}") from error
        try:
            selector = selector_of(data.expression, data.expression_type)
        except RequestRefused:
            return
        if not data.is_dead:
            data.dead_time = max(data.born_time, now_ms - DEAD_BEFORE_BOOT_MS)
        self._keep((topic, group), ConsumerFilter(data, selector))


def not_in_force(why: str) -> str:
    """The end of a sentence about a selector that the broker does not evaluate."""
    return f"is not in force: {why}"


def selector_of(expression: str | None, expression_type: str | None) -> Selector:
    """A subscription's selector.

    Raises RequestRefused with SUBSCRIPTION_PARSE_FAILED for a type that is not SQL92 and for an
    expression that is none.
    """
    if expression_type != SQL92_EXPRESSION:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"expression type {expression_type!r} is not known: TAG or {SQL92_EXPRESSION}",
        )
    return compile_selector(expression or "")
