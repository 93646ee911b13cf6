"""How much one heartbeat may say, one connection keep, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import ClientChannel
from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.handlers.heartbeat import check_heartbeat, give_back, keep
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import (
    ACCOUNT_GROUPS_MAX,
    CLIENT_GROUPS_MAX,
    CLIENT_ID_CHARS_MAX,
    CLIENT_SUBSCRIPTION_BYTES_MAX,
    CLIENT_SUBSCRIPTIONS_MAX,
    FILTER_EXPRESSION_CHARS_MAX,
    SUBSCRIPTION_CHARS_MAX,
    SUBSCRIPTION_TAGS_MAX,
)
from engine.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from tests.connection_end import End


def channel(client_id: str = "c", account: str | None = None) -> ClientChannel:
    return ClientChannel(client_id, End(), "JAVA", 513, account)  # type: ignore[arg-type]


def consumer(group: str = "g", *subscriptions: SubscriptionData) -> ConsumerData:
    return ConsumerData(group, subscription_data_set=list(subscriptions))


def beat(
    consumers: Iterable[ConsumerData] = (), producers: Iterable[str] = (), client_id: str = "c"
) -> HeartbeatData:
    return HeartbeatData(client_id, [ProducerData(name) for name in producers], list(consumers))


def topics(count: int, **more: object) -> list[SubscriptionData]:
    return [SubscriptionData(f"t{number}", "*", **more) for number in range(count)]  # type: ignore[arg-type]


def tagged(chars: int = 1, tags: int = 0, codes: int = 0) -> SubscriptionData:
    return SubscriptionData("t", "x" * chars, ["a"] * tags, [1] * codes)


def selectors(chars: int) -> list[SubscriptionData]:
    half = SubscriptionData.by_selector("t", "x" * (chars // 2), "SQL92")
    return [half, SubscriptionData.by_selector("u", "x" * (chars - chars // 2), "SQL92")]


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        [beat(client_id="c" * n) for n in (CLIENT_ID_CHARS_MAX, CLIENT_ID_CHARS_MAX + 1)],
        [
            beat([consumer(f"g{one}") for one in range(n)], ["p", "q"])
            for n in (CLIENT_GROUPS_MAX - 2, CLIENT_GROUPS_MAX - 1)
        ],
        [
            beat([consumer("g", *topics(n)), consumer("h", *topics(1))])
            for n in (CLIENT_SUBSCRIPTIONS_MAX - 1, CLIENT_SUBSCRIPTIONS_MAX)
        ],
        [
            beat([consumer("g", tagged(chars=n))])
            for n in (SUBSCRIPTION_CHARS_MAX, SUBSCRIPTION_CHARS_MAX + 1)
        ],
        [
            beat([consumer("g", tagged(tags=n))])
            for n in (SUBSCRIPTION_TAGS_MAX, SUBSCRIPTION_TAGS_MAX + 1)
        ],
        [
            beat([consumer("g", tagged(codes=n))])
            for n in (SUBSCRIPTION_TAGS_MAX, SUBSCRIPTION_TAGS_MAX + 1)
        ],
        [
            beat([consumer("g", *selectors(n))])
            for n in (FILTER_EXPRESSION_CHARS_MAX, FILTER_EXPRESSION_CHARS_MAX + 1)
        ],
    ],
    ids=["client id", "groups", "subscriptions", "expression", "tags", "hashes", "selectors"],
)
def test_a_heartbeat_says_so_much_and_no_more(
    largest: HeartbeatData, too_large: HeartbeatData
) -> None:
    check_heartbeat(largest)
    with pytest.raises(RequestRefused, match="at most"):
        check_heartbeat(too_large)


def test_a_connection_keeps_no_more_groups_however_many_heartbeats_name_them() -> None:
    client = channel()
    for number in range(0, CLIENT_GROUPS_MAX, 2):
        keep(client, beat([consumer(f"g{number}")], [f"p{number}"]), is_full=True)
    for one_more in (beat([consumer("x")]), beat((), ["x"])):
        with pytest.raises(RequestRefused, match=f"{CLIENT_GROUPS_MAX} at most"):
            keep(client, one_more, is_full=True)
    keep(client, beat([consumer("g0")], ["p0"]), is_full=True)
    give_back(client, consumer_group="g0", producer_group="")
    keep(client, beat([consumer("x")]), is_full=True)
    give_back(client, consumer_group="", producer_group="p2")
    keep(client, beat((), ["x"]), is_full=True)


def test_a_connection_keeps_so_much_of_what_it_subscribes_to() -> None:
    client, sent = channel(), tagged(codes=SUBSCRIPTION_TAGS_MAX)
    fits = CLIENT_SUBSCRIPTION_BYTES_MAX // sent.weight_bytes
    for number in range(fits):
        keep(client, beat([consumer(f"g{number}", sent)]), is_full=True)
    before = dict(client.kept_bytes)
    with pytest.raises(RequestRefused, match="bytes of memory"):
        keep(client, beat([consumer("x", sent)]), is_full=True)
    assert client.kept_bytes == before, "what is refused is not kept"
    keep(client, beat([consumer("g0")]), is_full=False)
    assert client.kept_bytes == before, "subscriptions that are left out stay"
    keep(client, beat([consumer("g0")]), is_full=True)
    keep(client, beat([consumer("x", sent)]), is_full=True)


def enter(
    groups: ConsumerGroups, heard: ConsumerData, end: ClientChannel, *, now_ms: int = 0
) -> None:
    """As a heartbeat does: judged first, then taken."""
    groups.check_room([heard], end.client_id, end.account)
    groups.register(heard, end, now_ms=now_ms)


def test_all_groups_together_keep_so_much() -> None:
    sent = tagged(codes=100)
    groups = ConsumerGroups(subscription_bytes_max=3 * sent.weight_bytes)
    ends = [channel(f"c{number}") for number in range(4)]
    for number in range(2):
        enter(groups, consumer(f"g{number}", sent), ends[number])
    with pytest.raises(RequestRefused, match="all groups"):
        enter(groups, consumer("g2", sent, tagged()), ends[2])
    assert groups.of("g2") is None, "a group that is refused is not there"
    enter(groups, consumer("g0", sent), ends[3], now_ms=1)
    groups.unregister("g1", "c1")
    enter(groups, consumer("g2", sent), ends[2], now_ms=1)


def test_what_each_member_of_one_group_reported_counts_as_well() -> None:
    sent = topics(100)
    groups = ConsumerGroups(subscription_bytes_max=180_000)
    taken = 20
    for number in range(taken):
        enter(groups, consumer("g", *sent), channel(f"c{number}"))
    with pytest.raises(RequestRefused, match="all groups"):
        enter(groups, consumer("g", *sent), channel("one more"))
    assert groups.member_count == taken
    assert groups.subscription_bytes <= 180_000
    enter(groups, consumer("g", *sent), channel("c0"), now_ms=1)


def test_so_many_members_are_known() -> None:
    groups, producers = ConsumerGroups(members_max=2), ProducerGroups(members_max=2)
    ends = [channel(f"c{number}") for number in range(3)]
    for end in ends[:2]:
        for _ in range(2):
            enter(groups, consumer(), end)
            producers.check_room(["p"], end.client_id, None)
            producers.register("p", end, now_ms=0)
    with pytest.raises(RequestRefused, match="member too many"):
        enter(groups, consumer("h"), ends[2])
    with pytest.raises(RequestRefused, match="member too many"):
        producers.check_room(["q"], "c2", None)
    groups.unregister("g", "c0")
    producers.unregister("p", "c0")
    enter(groups, consumer("h"), ends[2])
    producers.check_room(["q"], "c2", None)


def test_no_account_takes_what_others_need() -> None:
    sent = tagged(codes=100)
    groups = ConsumerGroups(
        account_members_max=3, account_subscription_bytes_max=3 * sent.weight_bytes
    )
    producers = ProducerGroups(account_members_max=3)
    for number in range(3):
        groups.register(consumer("g"), channel(f"c{number}", "greedy"), now_ms=0)
        producers.register("p", channel(f"c{number}", "greedy"), now_ms=0)
    for refused in (
        lambda: enter(groups, consumer("g"), channel("c3", "greedy")),
        lambda: producers.check_room(["p"], "c3", "greedy"),
        lambda: groups.check_room([consumer("g", *[sent] * 4)], "c0", "greedy"),
    ):
        with pytest.raises(RequestRefused, match="greedy has"):
            refused()
    enter(groups, consumer("g", sent), channel("c4", "other"))
    producers.check_room(["p"], "c4", "other")
    groups.check_room([consumer("g", *[sent] * 4)], "c5", None)


def test_groups_named_by_one_account_leave_names_for_others() -> None:
    groups = ConsumerGroups()
    groups._names.add("greedy", ACCOUNT_GROUPS_MAX)
    with pytest.raises(RequestRefused, match="one too many"):
        groups.check_room([consumer("new")], "c", "greedy")
    groups.check_room([consumer("new")], "c", "other")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["full", "short", "leave", "lost", "expire", "signed by another"]),
        st.integers(0, 3),
        st.sampled_from(["g", "h"]),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=3),
    ),
    max_size=30,
)


@given(STEPS)
@example([("full", 0, "g", []), ("signed by another", 0, "g", []), ("full", 0, "g", [])])
def test_what_is_counted_is_what_is_kept(
    steps: list[tuple[str, int, str, list[tuple[str, int]]]],
) -> None:
    groups, producers = ConsumerGroups(), ProducerGroups()
    ends = [channel(f"c{number}", "ab"[number % 2]) for number in range(4)]
    for now_ms, (what, number, name, sent) in enumerate(steps):
        end = ends[number]
        if what in ("full", "short"):
            data = consumer(
                name,
                *(
                    SubscriptionData(topic, "x" * size, sub_version=now_ms, code_set=[1] * size)
                    for topic, size in sent
                ),
            )
            groups.register(data, end, keep_subscription=what == "short", now_ms=now_ms)
            producers.register(name, end, now_ms=now_ms)
        elif what == "leave":
            groups.unregister(name, end.client_id)
            producers.unregister(name, end.client_id)
        elif what == "lost":
            groups.lost(end.peer)
            producers.lost(end.peer)
        elif what == "signed by another":
            end.account = "b" if end.account == "a" else "a"
        else:
            for member in groups.silent(now_ms, 5):
                if member is not None:
                    groups.unregister_silent(*member, now_ms=now_ms, expiry_ms=5)
            list(producers.expire(now_ms, 5))
        members = [one for group in groups.all() for one in group.members.values()]
        kept = sum(
            one.weight_bytes for group in groups.all() for one in group.subscriptions.values()
        )
        words = [one.subscription or () for one in members]
        assert groups.member_count == len(members)
        assert groups.subscription_bytes == kept + sum(
            64 + len(spelled) for one in words for spelled in one
        )
        assert producers.member_count == sum(
            len(producers.members(group)) for group in producers.names()
        )
        for shares in (
            groups._names,
            groups._memberships,
            groups._bytes,
            producers._memberships,
        ):
            assert shares.of("a") + shares.of("b") == shares.total
            assert min(shares.of("a"), shares.of("b")) >= 0
        assert groups._memberships.of("a") == sum(one.account == "a" for one in members)
