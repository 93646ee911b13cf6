"""Row D3: the selectors of groups as RocketMQ's ConsumerFilterManager keeps them."""

from __future__ import annotations

import pytest

from engine.broker.groups.consumer_filters import (
    DEAD_BEFORE_BOOT_MS,
    FILTER_KEPT_MS,
    ConsumerFilters,
)
from engine.foundation.errors import CorruptRecord
from engine.protocol.bodies import SubscriptionData
from tests.selectors import REFUSED, Row, known_rows

NOW_MS = 1_700_000_000_000
WRITTEN_BY_ROCKETMQ = {
    "filterDataByTopic": {
        "paint": {
            "groupFilterData": {
                "g": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [2, 38, 70]},
                    "bornTime": NOW_MS - 100_000,
                    "clientVersion": 7,
                    "consumerGroup": "g",
                    "dead": False,
                    "deadTime": 0,
                    "expression": "n > 5",
                    "expressionType": "SQL92",
                    "topic": "paint",
                }
            },
            "topic": "paint",
        }
    }
}
"""consumerFilter.json of a real broker."""


def wants(expression: str, version: int = 1, *, topic: str = "paint") -> SubscriptionData:
    return SubscriptionData.by_selector(topic, expression, "SQL92", sub_version=version)


def registered(*subscriptions: SubscriptionData, **options: int) -> ConsumerFilters:
    filters = ConsumerFilters(**options)
    for subscription in subscriptions:
        filters.register("g", [subscription], now_ms=NOW_MS)
    return filters


def in_force(filters: ConsumerFilters, topic: str = "paint") -> tuple[str, int] | None:
    known = filters.find(topic, "g")
    return None if known is None else (known.data.expression, known.data.client_version)


def test_a_newer_version_replaces_the_selector_and_an_older_one_does_not() -> None:
    assert in_force(registered(wants("n > 5", 1), wants("n > 6", 2))) == ("n > 6", 2)
    filters = registered(wants("n > 5", 2))
    (fault,) = filters.register("g", [wants("n > 4", 1)], now_ms=NOW_MS)
    assert "version 1 is not newer than 2" in fault
    assert in_force(filters) == ("n > 5", 2)
    assert in_force(registered(wants("n > 5", 1), wants("n > 5", 3))) == ("n > 5", 3)


def test_a_newer_selector_that_does_not_compile_removes_the_old_one() -> None:
    filters = registered(wants("n > 5", 1))
    (fault,) = filters.register("g", [wants("n >", 2)], now_ms=NOW_MS)
    assert "is missing at its end" in fault
    assert in_force(filters) is None


def test_an_expression_of_an_unknown_type_is_refused_by_name() -> None:
    filters = ConsumerFilters()
    strange = SubscriptionData.by_selector("paint", "n > 5", "XPATH", sub_version=1)
    (fault,) = filters.register("g", [strange], now_ms=NOW_MS)
    assert "'XPATH' is not known" in fault


def test_what_is_ignored_behind_a_selector_is_logged() -> None:
    (fault,) = ConsumerFilters().register("g", [wants("n > 5 n < 9")], now_ms=NOW_MS)
    assert "understood up to 'n < 9'" in fault


def test_a_selector_that_selects_less_than_it_seems_to_is_in_force_with_a_remark() -> None:
    filters = ConsumerFilters()
    (sentence,) = filters.register("g", [wants("TRUE = a")], now_ms=NOW_MS)
    assert sentence == (
        "group g, topic paint: selector 'TRUE = a' is in force as it stands: a condition on the "
        "left of property a is an error for every message that has the property, as in RocketMQ, "
        "and the message does not match; write the property first, as in `a = TRUE`"
    )
    assert in_force(filters) == ("TRUE = a", 1)


@pytest.mark.parametrize(("expression", "selected"), known_rows().items())
def test_a_sentence_says_in_force_where_a_real_broker_accepts_the_selector(
    expression: str, selected: Row
) -> None:
    filters = ConsumerFilters()
    sentences = filters.register("g", [wants(expression)], now_ms=NOW_MS)
    is_refused = selected == REFUSED
    assert (in_force(filters) is None) == is_refused
    assert all((" is not in force: " in one) == is_refused for one in sentences), sentences
    assert all((" is in force" in one) != is_refused for one in sentences), sentences


def test_a_topic_left_out_and_a_group_that_left_keep_their_selectors_for_a_day() -> None:
    filters = registered(wants("n > 5"))
    filters.register("g", [wants("x", topic="other")], now_ms=NOW_MS + 10)
    known = filters.find("paint", "g")
    assert known is not None
    assert known.data.dead_time == NOW_MS + 10
    filters.unregister("g", now_ms=NOW_MS + 20)
    assert filters.forget_old(NOW_MS + 10 + FILTER_KEPT_MS - 1) == 0
    assert filters.forget_old(NOW_MS + 10 + FILTER_KEPT_MS) == 1
    assert in_force(filters) is None
    assert in_force(filters, "other") == ("x", 1)


def test_a_group_that_comes_back_with_its_version_finds_its_selector_alive() -> None:
    filters = registered(wants("n > 5", 4))
    filters.unregister("g", now_ms=NOW_MS + 20)
    filters.register("g", [wants("n > 5", 4)], now_ms=NOW_MS + 30)
    known = filters.find("paint", "g")
    assert known is not None
    assert not known.data.is_dead


def test_a_subscription_by_tags_is_none_of_its_business() -> None:
    filters = ConsumerFilters()
    assert filters.register("g", [SubscriptionData.build("paint", "red")], now_ms=NOW_MS) == []
    assert filters.counter == 0


def test_a_full_table_takes_no_more_groups() -> None:
    filters = registered(wants("n > 5"), count_max=1)
    (fault,) = filters.register("h", [wants("n > 5")], now_ms=NOW_MS)
    assert "keeps 1 selectors" in fault
    assert filters.find("paint", "h") is None


def test_a_file_of_rocketmq_is_taken_over_and_its_groups_count_as_gone_until_heard() -> None:
    filters = ConsumerFilters()
    filters.load(WRITTEN_BY_ROCKETMQ, now_ms=NOW_MS)
    known = filters.find("paint", "g")
    assert known is not None
    assert known.selector.matches({"n": "6"})
    assert known.data.dead_time == NOW_MS - DEAD_BEFORE_BOOT_MS
    again = ConsumerFilters()
    again.load(filters.to_document(), now_ms=NOW_MS)
    assert again.to_document() == filters.to_document()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"filterDataByTopic": {"t": 5}},
        {"filterDataByTopic": {"t": {"groupFilterData": {"g": {"topic": "t"}}}}},
    ],
)
def test_a_file_of_another_form_is_refused_as_damaged(document: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord, match=r"consumerFilter\.json"):
        ConsumerFilters().load(document, now_ms=NOW_MS)


def test_so_many_characters_of_selectors_are_kept_and_given_back_when_dropped() -> None:
    long, longer = "n = 1 OR n = 2", "n = 1 OR n = 2 OR n = 3"
    filters = registered(wants(long), chars_max=len(long) + 5)
    [fault] = filters.register("h", [wants("n > 5678")], now_ms=NOW_MS)
    assert f"{len(long) + 5} characters" in fault
    assert filters.find("paint", "h") is None
    [fault] = filters.register("g", [wants(longer, 2)], now_ms=NOW_MS)
    assert in_force(filters) is None, "what it wants now is not in force, what it wanted is not so"
    assert filters.register("h", [wants("n > 5678")], now_ms=NOW_MS) == []
    again = ConsumerFilters(chars_max=len("n > 5678"))
    again.load(filters.to_document(), now_ms=NOW_MS)
    again.forget_old(NOW_MS + 2 * FILTER_KEPT_MS)
    assert again.register("h", [wants("n > 8765")], now_ms=NOW_MS) == []
