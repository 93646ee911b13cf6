"""Membership and the group's one subscription."""

from __future__ import annotations

import pytest

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import ClientChannel
from engine.broker.groups.producer_groups import ProducerGroups
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import DISAGREEING_MEMBERS_TOLD_MAX
from engine.protocol.bodies import ConsumerData, SubscriptionData
from tests.connection_end import End


def channel(client_id: str, end: End | None = None) -> ClientChannel:
    return ClientChannel(client_id, end or End(), "JAVA", 513)  # type: ignore[arg-type]


def consumer(*topics: str, version: int = 1, expression: str = "*") -> ConsumerData:
    return ConsumerData(
        group_name="g",
        subscription_data_set=[
            SubscriptionData.build(topic, expression, sub_version=version) for topic in topics
        ],
    )


def subscribed(groups: ConsumerGroups) -> list[str]:
    group = groups.of("g")
    return [] if group is None else group.spelled_subscription()


def test_a_first_heartbeat_joins_and_the_next_does_not() -> None:
    groups, one = ConsumerGroups(), channel("c1")
    first = groups.register(consumer("A"), one, now_ms=0)
    second = groups.register(consumer("A"), one, now_ms=1)
    assert (first.joined, first.members_before, first.members_after) == (True, [], ["c1"])
    assert (second.joined, second.topics_changed, second.generation) == (False, False, 1)


def test_members_that_report_another_subscription_are_counted_until_they_agree_or_leave() -> None:
    groups = ConsumerGroups()
    one, two = channel("c1"), channel("c2")
    groups.register(consumer("A"), one, now_ms=0)
    groups.register(consumer("B"), two, now_ms=0)
    group = groups.of("g")
    assert group is not None
    assert group.disagreement() == ("c1 reads A:*", "c2 reads B:*")
    groups.register(consumer(), two, keep_subscription=True, now_ms=1)
    assert group.disagreement() != (), "what is left out has not changed"
    groups.register(consumer("A"), two, now_ms=2)
    assert (group.disagreement(), group.reported) == ((), {("A:*",): ["c1", "c2"]})
    groups.register(consumer("B"), one, now_ms=3)
    groups.unregister("g", "c1")
    assert (group.disagreement(), group.reported) == ((), {("A:*",): ["c2"]})


def test_of_very_many_members_those_that_differ_are_named() -> None:
    groups = ConsumerGroups()
    for number in range(DISAGREEING_MEMBERS_TOLD_MAX + 8):
        groups.register(consumer("A"), channel(f"c{number:02}"), now_ms=0)
    groups.register(consumer(), channel("last"), now_ms=0)
    group = groups.of("g")
    assert group is not None
    named = group.disagreement()
    assert len(named) == DISAGREEING_MEMBERS_TOLD_MAX
    assert (named[0], named[-1]) == ("c00 reads A:*", "last reads nothing")


def test_a_client_on_a_new_connection_is_the_same_member() -> None:
    groups, old, new = ConsumerGroups(), End(), End()
    groups.register(consumer("A"), channel("c1", old), now_ms=0)
    again = groups.register(consumer("A"), channel("c1", new), now_ms=1)
    assert (again.joined, again.reconnected) == (False, True)
    assert groups.lost(old) == [], "the end of the old connection is not its end"  # type: ignore[arg-type]
    assert [gone.client_id for gone in groups.lost(new)] == ["c1"]  # type: ignore[arg-type]


def beats(*ends: End) -> list[str | None]:
    """With whom the member c1 is reported to share its id, at each of its heartbeats."""
    groups = ConsumerGroups()
    return [
        groups.register(consumer("A"), channel("c1", end), now_ms=at).shared_with
        for at, end in enumerate(ends)
    ]


def test_heartbeats_by_two_open_connections_in_turn_are_two_processes_and_reported_once() -> None:
    here, there = End(), End()
    there.address = "10.0.0.2:2"
    assert beats(here, there, here, there, here) == [None, None, "10.0.0.2:2", None, None]
    assert beats(here, here, there, there, here) == [None, None, None, None, "10.0.0.2:2"]


def test_a_client_that_connects_anew_shares_its_id_with_nobody() -> None:
    old, new, newest = End(), End(), End()
    assert beats(old, old, new, new, newest, newest) == [None] * 6


def test_two_processes_that_became_one_and_two_again_are_reported_again() -> None:
    one, two = End(), End()
    groups = ConsumerGroups()

    def beat(end: End) -> str | None:
        return groups.register(consumer("A"), channel("c1", end), now_ms=0).shared_with

    assert [beat(one), beat(two), beat(one)] == [None, None, "10.0.0.1:1"]
    two.closed = True
    assert [beat(one), beat(one)] == [None, None]
    third = End()
    assert [beat(third), beat(one)] == [None, "10.0.0.1:1"]


def test_an_emptied_group_is_gone_and_its_generation_goes_on() -> None:
    groups = ConsumerGroups()
    groups.register(consumer("A"), channel("c1"), now_ms=0)
    gone = groups.unregister("g", "c1")
    assert gone is not None
    assert (gone.members_before, gone.members_after, gone.generation) == (["c1"], [], 2)
    assert groups.of("g") is None
    assert groups.unregister("g", "c1") is None
    groups.register(consumer("A"), channel("c1"), now_ms=0)
    assert groups.generation("g") == 3


def test_silent_members_expire_one_millisecond_after_their_time() -> None:
    groups = ConsumerGroups()
    groups.register(consumer("A"), channel("c1"), now_ms=0)
    groups.register(consumer("A"), channel("c2"), now_ms=500)
    assert list(groups.silent(1000, expiry_ms=1000)) == []
    assert list(groups.silent(1001, expiry_ms=1000)) == [("g", "c1")]
    gone = groups.unregister_silent("g", "c1", now_ms=1001, expiry_ms=1000)
    assert gone is not None
    assert gone.client_id == "c1"


def test_a_silent_member_that_is_heard_before_its_turn_stays() -> None:
    groups, one = ConsumerGroups(), channel("c1")
    groups.register(consumer("A"), one, now_ms=0)
    assert list(groups.silent(1001, expiry_ms=1000)) == [("g", "c1")]
    groups.register(consumer("A"), one, now_ms=1001)
    assert groups.unregister_silent("g", "c1", now_ms=1001, expiry_ms=1000) is None
    assert groups.unregister_silent("g", "nobody", now_ms=1001, expiry_ms=1000) is None


def test_a_heartbeat_removes_every_topic_it_does_not_contain() -> None:
    groups = ConsumerGroups()
    groups.register(consumer("A", "B"), channel("c1"), now_ms=0)
    change = groups.register(consumer("B", "C"), channel("c2"), now_ms=0)
    assert change.topics_changed
    assert change.subscription_before == ["A:*", "B:*"]
    assert subscribed(groups) == ["B:*", "C:*"]


def test_an_expression_is_replaced_by_a_newer_version_only() -> None:
    groups = ConsumerGroups()
    groups.register(consumer("A", version=5, expression="TagA"), channel("c1"), now_ms=0)
    older = groups.register(consumer("A", version=4, expression="TagB"), channel("c2"), now_ms=0)
    assert subscribed(groups) == ["A:TagA"]
    newer = groups.register(consumer("A", version=6, expression="TagB"), channel("c2"), now_ms=0)
    assert subscribed(groups) == ["A:TagB"]
    assert not older.topics_changed
    assert not newer.topics_changed
    assert newer.subscription_before != newer.subscription_after


def test_a_heartbeat_without_subscriptions_leaves_them_as_they_are() -> None:
    groups = ConsumerGroups()
    groups.register(consumer("A"), channel("c1"), now_ms=0)
    change = groups.register(consumer(), channel("c1"), keep_subscription=True, now_ms=1)
    assert not change.topics_changed
    assert subscribed(groups) == ["A:*"]


def test_too_many_groups_are_refused() -> None:
    groups = ConsumerGroups(count_max=1)
    groups.register(consumer("A"), channel("c1"), now_ms=0)
    groups.check_room([consumer("B")], "c2", None)
    with pytest.raises(RequestRefused, match="one too many"):
        groups.check_room([ConsumerData(group_name="other")], "c1", None)


def test_producers_are_listed_until_they_leave_are_lost_or_fall_silent() -> None:
    producers, lost = ProducerGroups(), End()
    producers.register("p", channel("c1"), now_ms=0)
    producers.register("p", channel("c2", lost), now_ms=900)
    producers.register("p", channel("c3"), now_ms=900)
    assert [member.client_id for member in producers.members("p")] == ["c1", "c2", "c3"]
    list(producers.expire(1001, expiry_ms=1000))
    producers.lost(lost)  # type: ignore[arg-type]
    assert [member.client_id for member in producers.members("p")] == ["c3"]
    producers.unregister("p", "c3")
    assert producers.names() == []
