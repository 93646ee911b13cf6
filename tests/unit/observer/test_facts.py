"""From looks at a broker to facts: what moved, who came and went, what is not known."""

from __future__ import annotations

from typing import Any

from engine.admin.api.groups import QueueProgress
from engine.foundation.observing import (
    ClientWindow,
    GroupWatermark,
    LifecycleEvent,
    OffsetReport,
    QueueWatermark,
    RebalanceEvent,
    Redelivery,
    UnreadDeletion,
)
from engine.observer.facts import (
    SNAPSHOT_EACH_MS,
    STACKS_A_LOOK,
    STACKS_EACH_MS,
    STANDS_AFTER_MS,
    Facts,
)
from engine.observer.offsets_seen import PERSISTED_AFTER_MS
from engine.observer.poll_result import Look
from engine.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionData,
    TopicConfig,
    TopicOffset,
)
from engine.protocol.bodies_admin import ClientConnection
from engine.protocol.left_topics import TOPIC_LEFT, TOPIC_NAMED, TOPIC_UNNAMED
from engine.protocol.message import MessageQueue

PLACE = ("orders", 0)
STORED_MS = 500


def progress(committed: int, end: int, pulled: int = 0) -> QueueProgress:
    """How far the group is, as a broker reports it."""
    return QueueProgress(end, committed, pulled, 0)


def look(at_ms: int, committed: int = 10, end: int = 20, **more: Any) -> Look:
    """A look at a broker with one topic of one queue, and one group on it."""
    given: dict[str, Any] = {
        "progress": {"g": {PLACE: progress(committed, end)}},
        "ends": {PLACE: TopicOffset(0, end, STORED_MS)},
        **more,
    }
    return Look(at_ms=at_ms, boot_ms=1, skew_ms=0, **given)


def connected(*clients: str) -> dict[str, ConsumerConnection]:
    """The group's members."""
    connections = [ClientConnection(one, "127.0.0.1:1", "JAVA", 1) for one in clients]
    return {"g": ConsumerConnection(connections, message_model="CLUSTERING")}


def holding(client: str, **given: int) -> dict[tuple[str, str], ConsumerRunningInfo]:
    """What a member says of the queue."""
    table = {MessageQueue("orders", "broker-a", 0): ProcessQueueInfo(**given)}
    return {("g", client): ConsumerRunningInfo(mq_table=table)}


def played(*looks: Look, snapshot_from_ms: int | None = None) -> list[list[Any]]:
    """The facts of each look."""
    facts = Facts("observer", 10_000, "broker-a")
    return [list(facts.of(one, snapshot_from_ms=snapshot_from_ms)) for one in looks]


def of(kind: type | tuple[type, ...], facts: list[Any]) -> list[Any]:
    """The facts of a kind."""
    return [one for one in facts if isinstance(one, kind)]


def only_mark(facts: list[Any]) -> GroupWatermark:
    """The one mark of the group."""
    (mark,) = of(GroupWatermark, facts)
    assert isinstance(mark, GroupWatermark)
    return mark


def test_a_mark_is_reported_when_it_moves_and_never_twice() -> None:
    reported = played(*(look(at_ms) for at_ms in (0, 10_000, 20_000)), look(30_000, committed=12))
    assert [[one.committed for one in of(GroupWatermark, facts)] for facts in reported] == [
        [10],
        [10],  # That the disk knows it is news.
        [],
        [12],
    ]
    assert [len(of(QueueWatermark, facts)) for facts in reported] == [1, 0, 0, 0]


def test_every_mark_is_reported_once_in_each_snapshot() -> None:
    facts = Facts("observer", 10_000, "broker-a")
    reported = [
        len(of(QueueWatermark, list(facts.of(look(at_ms), snapshot_from_ms=began_ms))))
        for at_ms, began_ms in ((0, 0), (10_000, 0), (20_000, 20_000), (30_000, None))
    ]
    assert reported == [1, 0, 1, 0]


def test_a_commit_s_moment_is_that_of_the_look_that_saw_it_and_unknown_before() -> None:
    first, moved = played(look(0), look(10_000, committed=12))
    assert only_mark(first).last_commit_time_ms is None
    assert (only_mark(moved).last_commit_time_ms, only_mark(moved).reports) == (10_000, 1)


def test_the_disk_knows_what_was_committed_six_seconds_ago() -> None:
    reported = played(
        look(0),
        look(2_000, committed=12),
        look(PERSISTED_AFTER_MS, committed=14),
        look(2_000 + PERSISTED_AFTER_MS, committed=16),
    )
    assert [only_mark(facts).persisted for facts in reported] == [None, None, 10, 12]


def test_an_offset_of_0_is_one_as_long_as_the_first_message_is_there() -> None:
    (kept,) = played(look(0, committed=0))
    assert (only_mark(kept).committed, only_mark(kept).committed_state) == (0, "EXACT")
    (gone,) = played(look(0, committed=0, ends={PLACE: TopicOffset(5, 20, STORED_MS)}))
    assert (only_mark(gone).committed, only_mark(gone).committed_state) == (None, "NONE")


def test_of_a_queue_without_an_offset_its_member_says_where_the_group_is() -> None:
    gone = {"ends": {PLACE: TopicOffset(5, 20, STORED_MS)}, "connections": connected("a")}
    held = {"cached_msg_count": 3, "cached_msg_min_offset": 10, "cached_msg_max_offset": 12}
    for said, began in (
        ({"commit_offset": 8}, 8),
        ({"commit_offset": -1, **held}, 10),
        ({"commit_offset": -1}, None),
    ):
        (facts,) = played(look(0, committed=0, running=holding("a", **said), **gone))
        assert (only_mark(facts).committed, only_mark(facts).began) == (None, began)
    (known,) = played(look(0, **gone, running=holding("a", commit_offset=8)))
    assert (only_mark(known).committed, only_mark(known).began) == (10, None)


def test_the_store_time_is_that_of_the_message_at_the_offset_or_unknown() -> None:
    known = look(0, stored_ms={("orders", 0, 10): 321})
    unknown = look(0, stored_ms={("orders", 0, 9): 321})
    (first,), (second,) = played(known), played(unknown)
    assert only_mark(first).store_time_at_committed_ms == 321
    assert only_mark(second).store_time_at_committed_ms is None


def test_a_queue_whose_ends_nobody_asked_yet_is_not_reported() -> None:
    (facts,) = played(look(0, ends={}))
    assert of(GroupWatermark, facts) == []


def test_what_a_member_pulled_after_the_broker_was_asked_lies_not_beyond_the_end() -> None:
    held = holding("a", cached_msg_count=1, cached_msg_min_offset=10, cached_msg_max_offset=24)
    (reported,) = played(look(0, connections=connected("a"), running=held))
    mark = only_mark(reported)
    assert (mark.pulled, mark.max_offset) == (20, 20)


def test_members_come_and_go_and_leave_what_they_held() -> None:
    came, went = played(
        look(
            0,
            connections=connected("a"),
            running=holding(
                "a", cached_msg_count=5, cached_msg_min_offset=10, cached_msg_max_offset=14
            ),
        ),
        look(10_000, connections={"g": None}),
    )
    assert [(one.kind, one.client_id) for one in of(RebalanceEvent, came)] == [
        ("JOINED", "a"),
        ("ASSIGNED", "a"),
    ]
    mark = only_mark(came)
    assert (mark.members, mark.message_model, mark.last_puller) == (1, "CLUSTERING", "a")
    assert mark.pulled == 15
    (left,) = of(RebalanceEvent, went)
    assert (left.kind, left.reason) == ("LEFT", "NOT_CONNECTED")
    assert [(one.topic, one.queue_id, one.committed, one.pulled) for one in left.queues] == [
        ("orders", 0, 10, 15)
    ]
    (window,) = of(ClientWindow, went)
    assert window.dropped
    assert (only_mark(went).members, only_mark(went).last_puller) == (0, None)


def test_a_queue_that_another_member_reads_now_was_revoked_and_assigned() -> None:
    both = connected("a", "b")
    _, changed = played(
        look(0, connections=both, running=holding("a", commit_offset=10)),
        look(10_000, running=holding("b", commit_offset=10)),
    )
    assert [(one.kind, one.client_id) for one in of(RebalanceEvent, changed)] == [
        ("REVOKED", "a"),
        ("ASSIGNED", "b"),
    ]


def test_what_is_listed_no_more_is_gone_and_begins_anew() -> None:
    listed: dict[str, Any] = {"topics": {"orders": TopicConfig("orders")}, "groups": frozenset("g")}
    nothing: dict[str, Any] = {"progress": {}, "ends": {}, "topics": {}, "groups": frozenset()}
    _, gone, back = played(look(0, **listed), look(10_000, **nothing), look(20_000, **listed))
    assert [(one.kind, one.topic, one.group) for one in of(LifecycleEvent, gone)] == [
        ("TOPIC_GONE", "orders", None),
        ("GROUP_GONE", None, "g"),
    ]
    assert only_mark(back).last_commit_time_ms is None


def test_an_offset_that_is_gone_and_comes_back_lower_has_not_fallen() -> None:
    _, _, back = played(look(0), look(10_000, progress={"g": {}}), look(20_000, committed=5))
    assert of(OffsetReport, back) == []
    assert only_mark(back).last_commit_time_ms is None


def test_a_topic_that_comes_back_is_reported_anew_of_groups_without_offsets() -> None:
    broadcast = ConsumerConnection(
        [ClientConnection("a", "127.0.0.1:1", "JAVA", 1)],
        {"orders": SubscriptionData("orders", "*")},
        message_model="BROADCASTING",
    )
    listed: dict[str, Any] = {"topics": {"orders": TopicConfig("orders")}, "progress": {}}
    gone: dict[str, Any] = {"topics": {}, "ends": {}, "progress": {}}
    first, none, back = played(
        look(0, connections={"b": broadcast}, **listed),
        look(10_000, **gone),
        look(20_000, **listed),
    )
    assert only_mark(first).committed_state == "NONE"
    assert of(GroupWatermark, none) == []
    assert only_mark(back).group == "b"


def test_who_observes_and_how_often_is_reported_once_and_again_when_the_clocks_part() -> None:
    parted = look(20_000)
    parted.skew_ms = 5_000
    first, same, moved = played(look(0), look(10_000), parted)
    (said,) = of(LifecycleEvent, first)
    assert (said.kind, said.observed_by, said.report_each_ms, said.skew_ms) == (
        *("OBSERVED", "observer", 10_000),
        0,
    )
    assert of(LifecycleEvent, same) == []
    assert [one.skew_ms for one in of(LifecycleEvent, moved)] == [5_000]


def test_an_offset_that_falls_is_a_report_that_lowered_it() -> None:
    _, fell, rose = played(look(0), look(10_000, committed=4), look(20_000, committed=9))
    (report,) = of(OffsetReport, fell)
    assert (report.offset, report.previous_offset, report.path) == (4, 10, "OBSERVED")
    assert (report.accepted, report.trigger, report.client_id) == (True, "UNKNOWN", None)
    assert of(OffsetReport, rose) == []


def test_of_a_queue_that_ends_before_the_offset_of_old_nobody_knows_what_fell() -> None:
    _, anew = played(look(0), look(10_000, committed=1, end=5))
    assert of(OffsetReport, anew) == []


Held = tuple[str, int, int]
"""(client id, first, last)"""


def came_again(*held: Held | None, ends: tuple[int, ...] = (100,)) -> list[list[Any]]:
    """Ranges reported as pulled once more, look by look, and who had them first."""
    looks = [
        look(
            10_000 * number,
            end=ends[min(number, len(ends) - 1)],
            connections=connected("a", "b"),
            running={}
            if one is None
            else holding(
                one[0],
                cached_msg_count=one[2] - one[1] + 1,
                cached_msg_min_offset=one[1],
                cached_msg_max_offset=one[2],
            ),
        )
        for number, one in enumerate(held)
    ]
    return [
        [
            (one.from_offset, one.to_offset, one.previous_client_id)
            for one in of(Redelivery, reported)
        ]
        for reported in played(*looks)
    ]


def test_what_another_member_held_before_was_delivered_again() -> None:
    again = came_again(("a", 10, 40), ("b", 20, 30), ("b", 28, 60), ("b", 50, 90))
    assert again == [[], [(20, 31, "a")], [(31, 41, "a")], []]


def test_a_member_that_holds_what_it_had_left_behind_has_it_again() -> None:
    assert came_again(("a", 10, 40), ("a", 30, 50), ("a", 5, 20), ("a", 5, 60)) == [
        *([], [], [(5, 21, "a")], [(21, 51, "a")])
    ]


def test_two_members_asked_in_turn_while_a_queue_changes_hands_are_no_second_delivery() -> None:
    again = came_again(("a", 10, 40), ("b", 41, 50), ("a", 12, 40), ("b", 43, 60))
    assert again == [[], [], [], []]


def test_of_another_queue_of_that_name_nothing_was_delivered_before() -> None:
    assert came_again(("a", 60, 90), ("b", 10, 30), ends=(100, 50)) == [[], []]


def after_a_boot(*looks: Look) -> list[list[Any]]:
    """What is reported in the broker's next life; the last look of the life before saw 10."""
    before = Facts("observer", 10_000, "broker-a")
    list(before.of(look(0), snapshot_from_ms=None))
    facts = Facts("observer", 10_000, "broker-a", earlier=before.offsets())
    return [list(facts.of(one, snapshot_from_ms=None)) for one in looks]


def test_a_broker_that_begins_with_a_lower_offset_than_it_had_restored_it() -> None:
    fell, later = after_a_boot(look(10_000, committed=4), look(20_000, committed=3))
    (report,) = of(OffsetReport, fell)
    assert (report.offset, report.previous_offset, report.path) == (4, 10, "RESTORE")
    (report,) = of(OffsetReport, later)
    assert (report.offset, report.previous_offset, report.path) == (3, 4, "OBSERVED")


def test_an_offset_that_a_broker_lost_and_a_client_sets_anew_is_held_against_the_one_of_old() -> (
    None
):
    nothing: dict[str, Any] = {"g": {}}
    lost, anew = after_a_boot(look(10_000, progress=nothing), look(20_000, committed=0))
    assert of(OffsetReport, lost) == []
    (report,) = of(OffsetReport, anew)
    assert (report.offset, report.previous_offset, report.path) == (0, 10, "RESTORE")


def test_a_boot_after_which_nothing_is_lower_or_the_topic_is_another_is_no_fall() -> None:
    same, other = look(10_000), look(20_000, committed=1, end=5)
    assert [of(OffsetReport, reported) for reported in after_a_boot(same, other)] == [[], []]
    gone = look(10_000, progress={}, ends={}, topics={})
    assert [
        of(OffsetReport, reported) for reported in after_a_boot(gone, look(20_000, committed=4))
    ] == [
        [],
        [],
    ]


STANDS = {"cached_msg_count": 5, "cached_msg_min_offset": 10, "cached_msg_max_offset": 14}
THREAD = "ConsumeMessageThread_g_1  TID: 1 STATE: WAITING\nConsumeMessageThread_g_1  shop.Wait"


def test_a_member_whose_head_stands_is_asked_for_its_stacks_rarely_and_they_are_reported() -> None:
    facts = Facts("observer", 10_000, "broker-a")
    asked_ms, stacks = list[int](), list[str | None]()
    for at_ms in range(0, STACKS_EACH_MS + STANDS_AFTER_MS + 30_000, 10_000):
        wanted = facts.wanted_stacks(at_ms)
        held = holding("a", **STANDS)
        if wanted:
            asked_ms.append(at_ms)
            held["g", "a"].jstack = "no thread of a listener" if len(asked_ms) == 1 else THREAD
        reported = list(
            facts.of(look(at_ms, connections=connected("a"), running=held), snapshot_from_ms=None)
        )
        stacks += [one.stack for one in of(ClientWindow, reported) if one.stack]
    assert asked_ms == [STANDS_AFTER_MS, STANDS_AFTER_MS + STACKS_EACH_MS]
    assert stacks == [THREAD]


def test_a_push_consumer_of_all_takes_every_message_of_its_queue() -> None:
    """What it has finished and not reported is certain to come again, without holes."""
    held = holding("a", **STANDS)
    held["g", "a"].properties = {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}
    held["g", "a"].subscription_set = [SubscriptionData.build("orders", "*")]
    silent = holding("a", **STANDS)
    for running, takes_all in ((held, True), (silent, None)):
        (reported,) = played(look(0, connections=connected("a"), running=running))
        assert [one.takes_all for one in of(ClientWindow, reported)] == [takes_all]


def test_moments_of_a_member_whose_clock_is_off_are_by_the_observer_s() -> None:
    """It pulls each second, and its clock is an hour behind: so it shows from look to look."""
    hour_ms = 3_600_000

    def pulled(at_ms: int) -> dict[str, Any]:
        said_ms = at_ms - 1_000
        return {"running": holding("c", cached_msg_count=1, last_pull_timestamp_ms=said_ms)}

    reported = played(
        look(2 * hour_ms, connections=connected("c"), **pulled(hour_ms)),
        look(2 * hour_ms + 10_000, end=21, **pulled(hour_ms + 10_000)),
    )
    second_ms = only_mark(reported[1]).last_pull_time_ms
    assert second_ms is not None
    assert abs(second_ms - (2 * hour_ms + 9_000)) <= 12_000


def test_what_members_hold_is_reported_again_when_reported_rows_were_lost() -> None:
    facts, reported = Facts("observer", 10_000, "broker-a"), list[int]()
    for at_ms, losses in ((0, 0), (10_000, 0), (20_000, -1), (30_000, 1), (40_000, 1)):
        held = look(at_ms, connections=connected("a"), running=holding("a", **STANDS))
        rows = list(facts.of(held, snapshot_from_ms=None, losses=losses))
        reported.append(len(of(ClientWindow, rows)))
    assert reported == [1, 0, 1, 1, 0]


def test_no_more_than_a_few_members_are_asked_for_stacks_in_one_look() -> None:
    facts, names = Facts("observer", 10_000, "broker-a"), [f"c{number}" for number in range(20)]
    for at_ms in (0, STANDS_AFTER_MS):
        held = {key: one for name in names for key, one in holding(name, **STANDS).items()}
        list(
            facts.of(
                look(at_ms, connections=connected(*names), running=held), snapshot_from_ms=None
            )
        )
    assert [len(facts.wanted_stacks(STANDS_AFTER_MS)) for _ in range(5)] == [
        *[STACKS_A_LOOK] * 4,
        0,
    ]


def test_a_broadcast_group_is_one_and_never_behind_also_when_its_members_have_left() -> None:
    subscribed = ConsumerConnection(
        [ClientConnection("a", "127.0.0.1:1", "JAVA", 1)],
        {topic: SubscriptionData(topic, "*") for topic in ("orders", "%RETRY%b")},
        message_model="BROADCASTING",
    )
    reported = played(
        look(0, connections={"b": subscribed}),
        look(10_000),
        look(20_000, end=25),
        look(30_000, connections={"b": None}, end=26),
    )
    marks = [
        [(one.topic, one.max_offset) for one in of(GroupWatermark, facts) if one.group == "b"]
        for facts in reported
    ]
    assert marks == [[("orders", 20)], [], [("orders", 25)], [("orders", 26)]]
    (mark,) = [one for one in of(GroupWatermark, reported[0]) if one.group == "b"]
    assert (mark.committed, mark.committed_state, mark.message_model, mark.members) == (
        *(None, "NONE", "BROADCASTING"),
        1,
    )


def test_a_group_that_was_never_listed_is_gone_when_the_next_list_lacks_it() -> None:
    nothing: dict[str, Any] = {"progress": {}, "groups": frozenset()}
    held = holding("a", commit_offset=10)
    facts = played(
        look(0, groups=frozenset()),
        look(10_000, connections=connected("a"), running=held),
        look(20_000, **nothing),
    )[-1]
    assert [(one.kind, one.group) for one in of(LifecycleEvent, facts)] == [("GROUP_GONE", "g")]
    assert [one.kind for one in of(RebalanceEvent, facts)] == ["LEFT"]


def looks_that_delete(committed: int, kept_from: int) -> list[Any]:
    """What is reported when a group at offset 10 of a queue that keeps all is at `committed` at the
    next look, and the queue keeps what is from `kept_from` on.
    """
    ends = {PLACE: TopicOffset(kept_from, 90, STORED_MS)}
    _, second, third = played(
        look(0, end=90),
        look(10_000, committed=committed, end=90, ends=ends),
        look(20_000, committed=committed, end=90, ends=ends),
    )
    assert of(UnreadDeletion, third) == [], "once"
    return of(UnreadDeletion, second)


def test_messages_that_were_deleted_before_the_group_read_them_are_a_range() -> None:
    assert looks_that_delete(committed=10, kept_from=30) == [
        UnreadDeletion("g", *PLACE, from_offset=10, to_offset=30, unread=20)
    ]
    assert looks_that_delete(committed=12, kept_from=30) == [
        UnreadDeletion("g", *PLACE, from_offset=10, to_offset=30, unread=18)
    ]


def test_of_a_group_that_was_moved_behind_the_deleted_ones_it_may_have_read_some() -> None:
    assert looks_that_delete(committed=30, kept_from=30) == [
        UnreadDeletion("g", *PLACE, from_offset=10, to_offset=30, unread=0)
    ]
    assert looks_that_delete(committed=30, kept_from=10) == []


def test_what_a_member_holds_is_emitted_again_behind_the_first_mark_of_its_queue() -> None:
    """The group has no offset when its member first answers: nobody can place that window yet."""
    members = {"connections": connected("c"), "running": holding("c", cached_msg_count=1)}
    reported = played(
        look(0, progress={}, **members),
        look(10_000, progress={}),
        look(20_000, **members),
        look(30_000, committed=12, **members),
    )
    assert [of((GroupWatermark, ClientWindow), facts) for facts in reported[:2]] == [
        of(ClientWindow, reported[0]),
        [],
    ]
    kinds = [type(one) for one in of((GroupWatermark, ClientWindow), reported[2])]
    assert kinds == [GroupWatermark, ClientWindow]
    assert of(ClientWindow, reported[2]) == of(ClientWindow, reported[0])
    assert of(ClientWindow, reported[3]) == []


def test_a_window_that_a_member_gave_up_before_the_first_mark_does_not_come_back() -> None:
    held = {"connections": connected("c"), "running": holding("c", cached_msg_count=1)}
    nothing = {**held, "running": {("g", "c"): ConsumerRunningInfo(mq_table={})}}
    reported = played(
        look(0, progress={}, **held), look(10_000, progress={}, **nothing), look(20_000)
    )
    assert [one.dropped for one in of(ClientWindow, reported[1])] == [True]
    assert of(ClientWindow, reported[2]) == []


def test_members_that_answer_with_nothing_are_reported_once_per_kind_and_period() -> None:
    silent = {("g", client): ConsumerRunningInfo(says_nothing=True) for client in ("a", "b")}
    reported = played(
        look(0, connections=connected("a", "b"), running=silent),
        look(10_000, running=silent),
        look(SNAPSHOT_EACH_MS, running=silent),
    )
    said = [
        [(one.kind, one.group, one.detail) for one in of(LifecycleEvent, facts) if one.group]
        for facts in reported
    ]
    words = ("SAYS_NOTHING", "g", "a client in JAVA 1 says nothing of what it holds")
    assert said == [[words], [], [words]]
    assert of(ClientWindow, reported[0]) == []


def test_a_broadcasting_group_stays_one_in_snapshots_when_its_members_have_left() -> None:
    group = connected("a")
    group["g"].message_model = "BROADCASTING"
    group["g"].subscription_table = {"orders": SubscriptionData("orders", "*")}
    facts = Facts("observer", 10_000, "broker-a")
    looks = (
        look(0, progress={}, connections=group),
        look(10_000, progress={}, connections={"g": None}),
        look(20_000, progress={}),
    )
    reported = [list(facts.of(one, snapshot_from_ms=one.at_ms)) for one in looks]
    marks = [(only_mark(one).message_model, only_mark(one).members) for one in reported]
    assert marks == [("BROADCASTING", 1), ("BROADCASTING", 0), ("BROADCASTING", 0)]


def saying(**topics: tuple[str, ...]) -> dict[tuple[str, str], ConsumerRunningInfo]:
    """What each member subscribes to."""
    return {
        ("g", client): ConsumerRunningInfo(
            subscription_set=[SubscriptionData(topic, "*") for topic in named]
        )
        for client, named in topics.items()
    }


def left(facts: list[Any]) -> list[tuple[str | None, str | None]]:
    return [(one.topic, one.detail) for one in of(LifecycleEvent, facts) if one.kind == TOPIC_LEFT]


def named_or_not(facts: list[Any]) -> list[tuple[str, str | None]]:
    events = of(LifecycleEvent, facts)
    return [(one.kind, one.topic) for one in events if one.kind in (TOPIC_UNNAMED, TOPIC_NAMED)]


def test_at_the_first_look_at_which_no_member_names_a_topic_that_is_reported_once() -> None:
    both, other = saying(a=("orders", "other")), saying(a=("other",))
    reported = played(
        look(0, connections=connected("a"), running=both),
        *(look(at_ms, running=other) for at_ms in (10_000, 20_000)),
        *(look(at_ms, running=both) for at_ms in (30_000, 40_000)),
        *(look(at_ms, running=other) for at_ms in (50_000, 110_000, 120_000)),
    )
    unnamed, named = [("TOPIC_UNNAMED", "orders")], [("TOPIC_NAMED", "orders")]
    assert [named_or_not(facts) for facts in reported] == [
        *([], unnamed, [], named, []),
        *(unnamed, [], []),
    ]
    assert [bool(left(facts)) for facts in reported] == [*[False] * 6, True, False]


def test_a_topic_that_no_member_names_any_more_is_left_after_a_minute_and_no_lag() -> None:
    both, other = ("orders", "other"), ("other",)
    members = connected("a")
    reported = played(
        look(0, connections=members, running=saying(a=both)),
        *(look(at_ms, running=saying(a=other)) for at_ms in (10_000, 40_000, 70_000)),
        look(80_000, end=30, running=saying(a=other)),
        look(90_000, end=31, running=saying(a=both)),
    )
    assert [left(facts) for facts in reported] == [
        *[[]] * 3,
        [("orders", "10 messages unread")],
        [],
        [],
    ]
    marks = [[one.max_offset for one in of(GroupWatermark, facts)] for facts in reported[4:]]
    assert marks == [[], [31]]


def test_who_reads_a_topic_again_that_its_group_had_left_is_a_new_owner_of_its_queues() -> None:
    both, other = saying(a=("orders", "other")), saying(a=("other",))
    both["g", "a"].mq_table = holding(
        "a", cached_msg_min_offset=20, cached_msg_max_offset=24, cached_msg_count=5
    )["g", "a"].mq_table
    reported = played(
        look(0, connections=connected("a"), running=both),
        *(look(at_ms, running=other) for at_ms in (10_000, 40_000, 70_000)),
        look(80_000, running=both),
        look(90_000, running=both),
    )
    assigned = [
        [one.client_id for one in of(RebalanceEvent, facts) if one.kind == "ASSIGNED"]
        for facts in reported
    ]
    assert assigned == [["a"], [], [], [], ["a"], []]


def test_a_topic_is_not_left_while_one_member_names_it_or_does_not_say() -> None:
    members = connected("a", "b")
    one_names = saying(a=("other",), b=("orders",))
    one_is_silent = saying(a=("other",))
    for running in (one_names, one_is_silent):
        reported = played(
            look(0, connections=members, running=running),
            *(look(at_ms, running=running) for at_ms in (10_000, 80_000, 150_000)),
        )
        assert [left(facts) for facts in reported] == [[]] * 4


def test_a_topic_is_not_left_while_members_may_be_connected_where_nobody_can_ask() -> None:
    running, why = saying(a=("other",)), {"g": "a proxy at 10.0.0.9 serves this cluster"}
    reported = played(
        look(0, connections=connected("a"), running=running),
        *(look(at_ms, running=running, members_unknown=why) for at_ms in (10_000, 80_000, 150_000)),
    )
    assert [left(facts) for facts in reported] == [[]] * 4
