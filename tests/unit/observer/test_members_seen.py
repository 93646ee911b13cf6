"""What members of a group say they subscribe to, and where they connect from."""

from __future__ import annotations

from typing import Any

from engine.foundation.observing import RebalanceEvent
from engine.observer.facts import Facts
from engine.observer.members_seen import TOGETHER_MS
from engine.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, SubscriptionData
from engine.protocol.bodies_admin import ClientConnection
from tests.unit.observer.test_facts import connected, look, of

A, B = "10.0.0.1:5000", "10.0.0.2:6000"


def says(**text: str) -> dict[tuple[str, str], ConsumerRunningInfo]:
    """Each member with its topic and expression, `topic:expression`."""
    return {
        ("g", client_id): ConsumerRunningInfo(
            subscription_set=[SubscriptionData(*one.split(":")) for one in spelled.split()]
        )
        for client_id, spelled in text.items()
    }


def events_of(*looks: Any) -> list[list[RebalanceEvent]]:
    """What is reported of subscriptions and ids, look by look, ten seconds apart."""
    facts = Facts("observer", 10_000, "broker-a")
    kinds = ("SUBSCRIPTION_CHANGED", "SUBSCRIPTION_CONFLICT", "CLIENT_ID_SHARED")
    return [
        [
            one
            for one in of(
                RebalanceEvent,
                list(facts.of(look(10_000 * number, **given), snapshot_from_ms=None)),
            )
            if one.kind in kinds
        ]
        for number, given in enumerate(looks)
    ]


def test_members_that_subscribe_differently_are_reported_once_and_when_they_agree_again() -> None:
    both: dict[str, Any] = {"connections": connected("a", "b")}
    first, same, again = events_of(
        {**both, "running": says(a="orders:*", b="orders:paid")},
        {**both, "running": says(a="orders:*", b="orders:paid")},
        {**both, "running": says(a="orders:*", b="orders:*")},
    )
    (conflict,) = first
    assert conflict.kind == "SUBSCRIPTION_CONFLICT"
    assert conflict.after == ("a reads orders:*", "b reads orders:paid")
    assert "newest expression filters for all" in str(conflict.reason)
    assert same == []
    changed, agreed = again
    assert (changed.kind, changed.client_id) == ("SUBSCRIPTION_CHANGED", "b")
    assert (changed.before, changed.after) == (["orders:paid"], ["orders:*"])
    assert (agreed.kind, agreed.after) == ("SUBSCRIPTION_CONFLICT", ())


def test_a_member_that_was_not_asked_since_another_one_changed_is_not_at_odds_with_it() -> None:
    both: dict[str, Any] = {"connections": connected("a", "b")}
    _, changed, asked = events_of(
        {**both, "running": says(a="orders:*", b="orders:*")},
        {**both, "running": says(b="orders:* paid:*")},
        {**both, "running": says(a="orders:* paid:*")},
    )
    assert [one.kind for one in changed] == ["SUBSCRIPTION_CHANGED"]
    assert [one.kind for one in asked] == ["SUBSCRIPTION_CHANGED"]


def test_a_member_that_goes_takes_its_subscription_with_it_and_silence_is_none() -> None:
    first, gone = events_of(
        {"connections": connected("a", "b"), "running": says(a="orders:*", b="paid:*")},
        {"connections": connected("a", "c"), "running": says(a="orders:*", c="")},
    )
    assert [one.kind for one in first] == ["SUBSCRIPTION_CONFLICT"]
    assert [(one.kind, one.after) for one in gone] == [("SUBSCRIPTION_CONFLICT", ())]


def test_the_same_tags_in_another_order_are_no_news_and_no_conflict() -> None:
    both: dict[str, Any] = {"connections": connected("a", "b")}
    (reported,) = events_of(
        {
            **both,
            "running": {
                ("g", one): ConsumerRunningInfo(subscription_set=[SubscriptionData("orders", tags)])
                for one, tags in (("a", "x || paid"), ("b", "paid||x"))
            },
        }
    )
    assert reported == []


def test_a_group_that_comes_back_whole_with_another_subscription_has_changed_it() -> None:
    both: dict[str, Any] = {"connections": connected("a")}
    reported = events_of(
        {**both, "running": says(a="orders:*")},
        {"connections": {"g": None}},
        {"connections": connected("b"), "running": says(b="paid:*")},
    )
    assert [[(one.kind, one.before, one.after) for one in each] for each in reported] == [
        *([], []),
        [("SUBSCRIPTION_CHANGED", ["orders:*"], ["paid:*"])],
    ]


def connected_from(*addresses: str) -> dict[str, ConsumerConnection]:
    """One member by all these connections."""
    connections = [ClientConnection("a", one, "JAVA", 1) for one in addresses]
    return {"g": ConsumerConnection(connections, message_model="CLUSTERING")}


def shared_by(*looks: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Both addresses, for each look at which it is reported that they share an id."""
    reported = events_of(*({"connections": connected_from(*one)} for one in looks))
    return [(*(one.before or ()), *(one.after or ())) for each in reported for one in each]


def test_one_id_by_two_connections_that_stay_is_shared_and_reported_once() -> None:
    stay = TOGETHER_MS // 10_000
    assert shared_by(*[(A, B)] * stay) == []
    assert shared_by(*[(A, B)] * (stay + 5)) == [(A, B)]


def test_one_id_that_is_heard_from_two_places_in_turn_is_shared() -> None:
    assert shared_by((A,), (B,), (A,), (B,)) == [(B, A)]


def test_a_client_that_connects_anew_shares_its_id_with_nobody() -> None:
    assert shared_by((A,), (B,), (B,), ("10.0.0.1:7000",)) == []
    left_behind = [(A, B)] * (TOGETHER_MS // 10_000 - 1)
    assert shared_by((A,), *left_behind, *[(B,)] * 20) == []
