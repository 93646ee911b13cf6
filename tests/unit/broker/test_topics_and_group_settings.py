"""Topics made after a template, and what a broker allows its groups; both as RocketMQ's files."""

from __future__ import annotations

import pytest

from engine.broker.groups.group_configs import (
    GroupConfigs,
    SubscriptionGroupConfig,
    group_from_document,
    group_to_document,
)
from engine.broker.topics.topics import Topics
from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.protocol.bodies import DataVersion, TopicConfig
from engine.protocol.codes import ResponseCode
from engine.protocol.fastjson import loads


def with_system_topics(template_queue_nums: int | None = 8) -> Topics:
    topics = Topics()
    topics.add_system_topics(
        cluster_name="c1",
        broker_name="broker-a",
        delay_levels_count=18,
        template_queue_nums=template_queue_nums,
    )
    return topics


def test_every_broker_has_a_queue_per_delay_level_and_a_template() -> None:
    topics = with_system_topics()
    schedule, template = topics.find("SCHEDULE_TOPIC_XXXX"), topics.find("TBW102")
    assert schedule is not None
    assert template is not None
    assert schedule.write_queue_nums == 18
    assert (template.write_queue_nums, template.perm) == (8, 7)


@pytest.mark.parametrize(("wished", "made"), [(4, 4), (64, 8), (0, 1), (-3, 1)])
def test_a_topic_on_demand_gets_the_queues_wished_up_to_the_templates(
    wished: int, made: int
) -> None:
    config = with_system_topics().create_like_template("orders", "TBW102", wished)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)


def test_without_a_template_or_its_permission_nothing_is_made_on_demand() -> None:
    assert with_system_topics(None).create_like_template("orders", "TBW102", 4) is None
    topics = with_system_topics()
    topics.put(TopicConfig("plain", 4, 4, 6))
    assert topics.create_like_template("orders", "plain", 4) is None


def test_a_missing_topic_is_refused_by_its_code() -> None:
    with pytest.raises(RequestRefused) as refused:
        with_system_topics().require("orders")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("queue_nums", [0, -1, 4097])
def test_queue_counts_out_of_range_are_refused(queue_nums: int) -> None:
    with pytest.raises(RequestRefused, match=f"writeQueueNums={queue_nums} is not in 1 to 4096"):
        Topics().put(TopicConfig("orders", 4, queue_nums, 6))


def test_topics_stop_at_their_limit() -> None:
    topics = Topics(count_max=1)
    topics.ensure("first", 1)
    with pytest.raises(RequestRefused, match="one too many"):
        topics.ensure("second", 1)


def test_each_change_of_a_topic_advances_the_version_and_no_change_does_not() -> None:
    topics = Topics()
    _, made = topics.ensure("orders", 1)
    _, made_again = topics.ensure("orders", 1)
    assert (made, made_again, topics.counter) == (True, False, 1)
    assert topics.delete("orders")
    assert not topics.delete("orders")
    assert topics.counter == 2


def test_what_name_servers_have_to_hear_of_is_all_at_first_and_then_what_changed() -> None:
    topics = with_system_topics()
    assert topics.take_untold() is None
    orders, payments = (topics.ensure(name, 1)[0] for name in ("orders", "payments"))
    topics.put(orders)
    topics.ensure("short-lived", 1)
    topics.delete("short-lived")
    assert topics.take_untold() == [orders, payments]
    assert topics.take_untold() == []
    topics.touch()
    assert topics.take_untold() is None


def test_topics_json_has_rocketmqs_form_and_reads_back() -> None:
    topics, again = Topics(), Topics()
    topics.put(TopicConfig("orders", 4, 8, 6))
    pieces: list[bytes] = []
    for _ in topics.encoded(pieces, DataVersion(0, 1, 1)):
        pass
    document = loads(b"".join(pieces))
    assert document["topicConfigTable"]["orders"] == {
        "topicName": "orders",
        "readQueueNums": 4,
        "writeQueueNums": 8,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
    again.load(document)
    assert again.all() == topics.all()
    assert again.counter == 1
    with pytest.raises(CorruptRecord):
        again.load({"topicConfigTable": []})


def test_a_group_is_made_on_demand_with_rocketmqs_defaults() -> None:
    config = GroupConfigs(auto_create=True).find("g")
    assert config == SubscriptionGroupConfig("g")
    assert config is not None
    assert (config.retry_max_times, config.retry_queue_nums) == (16, 1)


def test_without_auto_creation_only_known_and_system_groups_are_found() -> None:
    configs = GroupConfigs(auto_create=False)
    configs.put(SubscriptionGroupConfig("known"))
    assert configs.find("known") is not None
    assert configs.find("TOOLS_CONSUMER") is not None
    assert configs.find("unknown") is None


def test_an_illegal_group_name_makes_no_group() -> None:
    configs = GroupConfigs(auto_create=True)
    with pytest.raises(RequestRefused):
        configs.find("a/b")
    assert not configs.known("a/b")


def test_subscription_group_json_has_rocketmqs_form_and_reads_back() -> None:
    config = SubscriptionGroupConfig("g", retry_max_times=3, consume_enable=False)
    document = group_to_document(config)
    assert document["groupName"] == "g"
    assert document["retryMaxTimes"] == 3
    assert document["consumeEnable"] is False
    assert group_from_document(document) == config
    again = GroupConfigs(auto_create=True)
    again.load({"subscriptionGroupTable": {"g": document}, "dataVersion": {"counter": 7}})
    assert (again.all(), again.counter) == ([config], 7)


@pytest.mark.parametrize(
    "document", [{}, {"groupName": "g", "retryMaxTimes": "3"}, {"groupName": "g", "attributes": 1}]
)
def test_a_group_of_another_form_is_called_damaged(document: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord):
        group_from_document(document)


def test_groups_stop_at_their_limit_however_they_are_made() -> None:
    groups = GroupConfigs(auto_create=True, count_max=1)
    assert groups.find("first") is not None
    with pytest.raises(RequestRefused, match="group second is one too many"):
        groups.find("second")
    with pytest.raises(RequestRefused, match="group second is one too many"):
        groups.put(SubscriptionGroupConfig("second"))
    groups.put(SubscriptionGroupConfig("first", retry_max_times=3))
    assert [config.retry_max_times for config in groups.all()] == [3]
