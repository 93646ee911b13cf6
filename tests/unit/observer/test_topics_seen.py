"""A topic that was deleted and made again, as looks see it: gone, there again, and nothing of the
life before compared with this one.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.foundation.observing import (
    ClientWindow,
    GroupWatermark,
    LifecycleEvent,
    OffsetReport,
    QueueWatermark,
    RebalanceEvent,
    Redelivery,
)
from engine.observer.facts import Facts
from engine.observer.poll_result import Look
from engine.observer.store_time_estimates import Estimates, PolledEnds
from engine.observer.topics_seen import TopicsSeen
from engine.protocol.bodies import TopicConfig, TopicOffset
from engine.protocol.bodies_admin import QueueTimeSpan
from engine.protocol.body_codec import WireQueue
from engine.protocol.message import MessageQueue
from tests.unit.observer.test_facts import (
    PLACE,
    connected,
    holding,
    look,
    of,
    only_mark,
    played,
    progress,
)

LISTED: dict[str, Any] = {"topics": {"orders": TopicConfig("orders")}}
AWAY: dict[str, Any] = {"topics": {}, "progress": {}, "ends": {}}


def lives(facts: list[Any]) -> list[tuple[str, int | None]]:
    """What was said of topics: kind, and the look before."""
    return [(one.kind, one.time_from_ms) for one in of(LifecycleEvent, facts) if one.topic]


def ends(low: int, high: int) -> dict[str, Any]:
    """The queue's ends, as its topic was asked."""
    return {"ends": {PLACE: TopicOffset(low, high, 500)}}


def test_a_topic_that_was_missed_and_is_there_again_names_the_looks_between() -> None:
    reported = played(
        look(0, **LISTED), look(10_000, **AWAY), look(20_000, **AWAY), look(30_000, **LISTED)
    )
    assert [lives(facts) for facts in reported] == [
        [],
        [("TOPIC_GONE", 0)],
        [],
        [("TOPIC_MADE_AGAIN", 10_000)],
    ]


@pytest.mark.parametrize(
    ("before", "now", "is_another"),
    [
        ((0, 20), (0, 6), True),
        ((15, 20), (0, 60), True),
        ((0, 20), (0, 20), False),
        ((0, 20), (5, 60), False),
        ((15, 20), (12, 20), False),
    ],
    ids=["ends lower", "begins at 0 again", "the same", "goes on", "a start that is corrected"],
)
def test_one_that_was_never_missed_is_another_when_a_queue_goes_back(
    before: tuple[int, int], now: tuple[int, int], is_another: bool
) -> None:
    _, reported = played(
        look(0, end=before[1], **ends(*before)), look(10_000, end=now[1], **ends(*now))
    )
    both = [("TOPIC_GONE", 0), ("TOPIC_MADE_AGAIN", 0)]
    assert lives(reported) == (both if is_another else [])


@pytest.mark.parametrize(
    ("now", "first_ms", "is_another"),
    [
        ((0, 34), 501, True),
        ((0, 20), 501, True),
        ((0, 34), 500, False),
        ((0, 34), 3, False),
    ],
    ids=["it grew beyond", "it is as long", "at the same time as its last", "long before"],
)
def test_one_whose_first_message_is_younger_than_the_last_one_of_before_is_another(
    now: tuple[int, int], first_ms: int, is_another: bool
) -> None:
    anew = look(10_000, end=now[1], **ends(*now), first_stored_ms={PLACE: first_ms})
    _, reported = played(look(0, end=20, **ends(0, 20)), anew)
    both = [("TOPIC_GONE", 0), ("TOPIC_MADE_AGAIN", 0)]
    assert lives(reported) == (both if is_another else [])
    assert (of(GroupWatermark, reported) == []) is is_another  # It was asked before that is known.


@pytest.mark.parametrize(
    ("first_ms", "is_another"), [(700, False), (701, True), (90, True)], ids=str
)
def test_a_first_message_that_was_asked_before_is_compared_with_itself(
    first_ms: int, is_another: bool
) -> None:
    """The broker's clock was set back, so that its last message seems older than its first."""
    reported = played(
        look(0, ends={PLACE: TopicOffset(0, 20, 800)}),
        look(10_000, ends={PLACE: TopicOffset(0, 20, 500)}, first_stored_ms={PLACE: 700}),
        look(20_000, ends={PLACE: TopicOffset(0, 34, 900)}, first_stored_ms={PLACE: first_ms}),
    )
    assert lives(reported[1]) == []
    assert (lives(reported[2]) != []) is is_another


def test_of_too_many_first_messages_the_one_asked_longest_ago_is_forgotten() -> None:
    seen, other = TopicsSeen(firsts_max=1), ("other", 0)
    before = {PLACE: TopicOffset(0, 20, 800), other: TopicOffset(0, 20, 800)}
    first = look(0, ends=before, first_stored_ms={PLACE: 700, other: 700})
    assert list(seen.changes(first, before)) == []
    then = look(10_000, ends=before, first_stored_ms={PLACE: 600, other: 600})
    assert {one.topic for one in seen.changes(then, before)} == {"other"}


def test_a_member_goes_on_in_a_new_life_that_grew_beyond_the_end_of_the_earlier_one() -> None:
    members = {"connections": connected("a")}
    held, further = BUILT | {"commit_offset": 10}, BUILT | {"commit_offset": 14}
    first = {"first_stored_ms": {PLACE: 501}}
    _, anew, later = played(
        look(0, 10, 10, running=holding("a", **held), **members),
        look(10_000, 14, 14, running=holding("a", **further), **members, **first),
        look(20_000, 14, 14, running=holding("a", **further), **members),
    )
    assert [(one.offset, one.max_offset) for one in of(OffsetReport, anew)] == [(10, 14)]
    assert only_mark(later).committed == 14


def test_how_far_groups_are_shows_it_before_the_topic_was_asked() -> None:
    _, reported, later = played(
        look(0),
        look(10_000, end=6, ends={}),
        look(20_000, end=6),
    )
    assert lives(reported) == [("TOPIC_GONE", 0), ("TOPIC_MADE_AGAIN", 0)]
    assert of(GroupWatermark, reported) == []
    assert lives(later) == []
    assert only_mark(later).max_offset == 6


def test_nothing_of_the_earlier_life_is_compared_with_the_new_one() -> None:
    """A member that lives through it: its offset of old lies beyond the end, then it is sent to
    that end, while more comes.
    """
    held = {"cached_msg_count": 10, "cached_msg_min_offset": 10, "cached_msg_max_offset": 19}
    first, anew, beyond, sent, later = played(
        look(0, committed=10, end=20, connections=connected("a"), running=holding("a", **held)),
        look(10_000, committed=0, end=0, connections=connected("a")),
        look(20_000, committed=20, end=6, connections=connected("a")),
        look(30_000, committed=6, end=30, connections=connected("a")),
        look(40_000, committed=8, end=30, connections=connected("a")),
    )
    assert of(ClientWindow, first) != []
    assert lives(anew) == [("TOPIC_GONE", 0), ("TOPIC_MADE_AGAIN", 0)]
    assert (only_mark(beyond).committed, only_mark(beyond).pulled) == (20, None)
    for facts in (anew, beyond, sent, later):
        assert of(OffsetReport, facts) == []
        assert of(Redelivery, facts) == []
    assert only_mark(sent).last_commit_time_ms == 30_000


def test_what_a_member_holds_and_who_reads_is_reported_anew() -> None:
    held = {"cached_msg_count": 1, "cached_msg_min_offset": 2, "cached_msg_max_offset": 2}
    members: dict[str, Any] = {
        "connections": connected("a"),
        "running": holding("a", **held),
    }
    _, same, anew = played(
        look(0, **members), look(10_000, **members), look(20_000, 2, 6, **members)
    )
    assert of(ClientWindow, same) == []
    assert [one.first_held for one in of(ClientWindow, anew)] == [2]
    assert [one.kind for one in of(RebalanceEvent, anew)] == ["ASSIGNED"]


BUILT: dict[str, Any] = {"last_lock_timestamp_ms": 77, "commit_offset": 20}


@pytest.mark.parametrize(
    ("now", "ends_at", "expected"),
    [
        (BUILT, 6, [(20, 6, False)]),
        (BUILT, 34, [(20, 34, False)]),
        (BUILT | {"commit_offset": 34}, 34, [(20, 34, False)]),
        (BUILT | {"commit_offset": 22}, 6, [(22, 6, False)]),
        (BUILT | {"last_lock_timestamp_ms": 99, "commit_offset": 0}, 6, []),
        (BUILT | {"dropped": True}, 6, []),
    ],
    ids=["beyond", "within", "further by now", "of messages nobody saw", "built anew", "dropped"],
)
def test_a_member_whose_process_queue_is_the_same_goes_on_where_it_was(
    now: dict[str, Any], ends_at: int, expected: list[tuple[int, int, bool]]
) -> None:
    members = {"connections": connected("a")}
    nobody: dict[str, Any] = {"progress": {}, "topics": {}, "ends": {}}
    _, _, anew, later = played(
        look(0, 20, 20, running=holding("a", **BUILT), **members),
        look(10_000, running=holding("a", **BUILT), **members, **nobody),
        look(20_000, 0, ends_at, progress={}, running=holding("a", **now), **members),
        look(30_000, 0, ends_at, progress={}, running=holding("a", **now), **members),
    )
    reports = [(one.offset, one.max_offset, one.accepted) for one in of(OffsetReport, anew)]
    assert reports == expected
    assert of(OffsetReport, later) == []


def test_a_client_that_does_not_say_when_it_built_its_queue_is_not_reset() -> None:
    members = {"connections": connected("a"), "running": holding("a", commit_offset=20)}
    _, anew = played(look(0, 20, 20, **members), look(10_000, 20, 6, **members))
    assert lives(anew) != []
    assert of(OffsetReport, anew) == []


def test_figures_that_were_asked_before_it_was_made_again_are_of_the_life_before() -> None:
    _, reported = played(look(0), look(10_000, committed=20, end=20, **ends(0, 6)))
    assert lives(reported) == [("TOPIC_GONE", 0), ("TOPIC_MADE_AGAIN", 0)]
    assert of(GroupWatermark, reported) == []
    assert [one.max_offset for one in of(QueueWatermark, reported)] == [6]


def after_a_boot(before: Look, *looks: Look) -> list[list[Any]]:
    """What is reported in the broker's next life."""
    facts = Facts("observer", 10_000, "broker-a")
    list(facts.of(before, snapshot_from_ms=None))
    after = Facts("observer", 10_000, "broker-a", earlier=facts.offsets(), lives=facts.lives())
    return [list(after.of(one, snapshot_from_ms=None)) for one in looks]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (look(10_000, committed=0, end=0, **LISTED), ["TOPIC_GONE", "TOPIC_MADE_AGAIN"]),
        (look(10_000, committed=3, end=6, **LISTED), ["TOPIC_GONE", "TOPIC_MADE_AGAIN"]),
        (look(10_000, committed=10, end=18, **ends(8, 18), **LISTED), []),
        (look(10_000, **AWAY), ["TOPIC_GONE"]),
        (
            look(10_000, end=30, **ends(0, 30), first_stored_ms={PLACE: 501}, **LISTED),
            ["TOPIC_GONE", "TOPIC_MADE_AGAIN"],
        ),
    ],
    ids=[
        *("an empty queue", "it ends before it had begun", "a log that was cut", "no topic"),
        "a first message that is younger",
    ],
)
def test_a_store_that_was_emptied_is_another_life_and_a_log_that_was_cut_is_not(
    now: Look, expected: list[str]
) -> None:
    (reported,) = after_a_boot(look(0, **ends(8, 20), **LISTED), now)
    assert [kind for kind, _ in lives(reported)] == expected


def test_one_that_an_emptied_store_lacks_is_made_again_when_it_comes() -> None:
    reported = after_a_boot(look(0, **LISTED), look(10_000, **AWAY), look(20_000, 2, 6, **LISTED))
    assert [lives(facts) for facts in reported] == [
        [("TOPIC_GONE", 0)],
        [("TOPIC_MADE_AGAIN", 10_000)],
    ]


def test_of_too_many_that_are_gone_the_oldest_is_forgotten() -> None:
    ends = {(name, 0): TopicOffset(0, 5, 0) for name in ("a", "b")}
    there = Look(0, 1, 0, {}, {name: TopicConfig(name) for name, _ in ends}, ends=ends)
    seen = TopicsSeen(gone_max=1)
    assert list(seen.changes(there, {})) == []
    gone = seen.changes(Look(10_000, 1, 0, {}, {}), ends)
    assert [one.topic for one in gone] == ["a", "b"]
    assert [(one.kind, one.topic) for one in seen.changes(there, {})] == [("TOPIC_MADE_AGAIN", "b")]


def test_store_times_of_the_earlier_life_are_forgotten() -> None:
    ends_seen = PolledEnds()
    for at_ms, end in ((0, 10), (10_000, 20), (20_000, 6)):
        rows = {"g": {PLACE: progress(2, end)}}
        ends_seen.seen(rows, asked_ms=at_ms, answered_ms=at_ms)
    assert ends_seen.estimate(PLACE, 5) is None
    estimates, span = Estimates(), QueueTimeSpan(WireQueue.of(MessageQueue("orders", "b", 0)))
    span.delay_time_ms = 500
    estimates.take("g", {PLACE: progress(2, 10)}, [span], asked_ms=0, answered_ms=0)
    assert estimates.known != {}
    estimates.forget_topics({"orders"})
    assert estimates.known == {}
