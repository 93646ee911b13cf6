"""What hundreds of windows mean together: one finding a broker, and none where there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reading.rollbacks import CAUSES, NO_BOOTS, TOGETHER, rollbacks
from pipelines.sentences.answers import NAMED_MAX
from pipelines.sentences.recent_changes import rollback

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENT = pl.Datetime("us", "UTC")


def window(group: str, at: float = 0, **fields: Any) -> dict[str, Any]:
    """Ten messages of a queue at risk since a crash of broker-a, at a second behind noon."""
    broker = fields.pop("broker", "broker-a")
    cluster = fields.pop("cluster", "c")
    return {
        "cluster": cluster,
        "broker": broker,
        "emitter": f"{cluster}/{broker}/0",
        "group": group,
        "topic": f"t-{group}",
        "queue_id": 0,
        "cause": "BROKER_CRASH",
        "basis": "RESTART",
        "state": "OPEN",
        "opened_at": NOON + timedelta(seconds=at),
        "observed_at": NOON + timedelta(seconds=at + 5),
        "at_risk_messages": 10,
        "redelivered_messages": 0,
        "redelivered_unknown_reason": None,
        "redelivered_from": None,
        "first_from_offset": 25,
        "window_id": f"{cluster} {broker} {group} {fields.get('queue_id', 0)} {at} {fields}",
        **fields,
    }


SCHEMA = {
    "opened_at": MOMENT,
    "observed_at": MOMENT,
    "redelivered_from": pl.Int64,
    "redelivered_messages": pl.Int64,
    "redelivered_unknown_reason": pl.String,
}


def left(group: str, redelivered_from: int | None = 10, **fields: Any) -> dict[str, Any]:
    """Its reader has left when all below 25 was committed; what came again since."""
    again = 0 if redelivered_from is None else 15
    return window(
        group,
        cause="CONSUMER_CRASH",
        basis="DEPARTURE",
        redelivered_from=redelivered_from,
        redelivered_messages=again,
        **fields,
    )


def found(*windows: dict[str, Any], boots: pl.DataFrame = NO_BOOTS) -> list[dict[str, Any]]:
    rows = pl.DataFrame(list(windows) or [window("g")], schema_overrides=SCHEMA)
    return rollbacks(rows if windows else rows.clear(), boots).to_dicts()


def booted(at: float, emitter: str = "c/broker-a/0") -> pl.DataFrame:
    """A broker came back at that second."""
    row = {"emitter": emitter, "event_time": NOON + timedelta(seconds=at)}
    return pl.DataFrame([row], schema_overrides={"event_time": MOMENT})


def test_two_hundred_groups_that_fell_at_once_are_one_finding() -> None:
    """Each on four queues, within ten seconds, as their clients came back."""
    windows = [
        window(f"g{group:03}", group / 20, queue_id=queue, redelivered_messages=7)
        for group in range(200)
        for queue in range(4)
    ]
    [one] = found(*windows)
    assert (one["broker"], one["groups"], one["queues"]) == ("broker-a", 200, 800)
    assert (one["at_risk_messages"], one["redelivered_messages"]) == (8000, 5600)
    assert one["began_at"] == NOON
    assert one["group_names"] == [f"g{group:03}" for group in range(200)]
    assert len(one["window_ids"]) == 800
    assert rollback(one) == (
        "Broker broker-a went back on 800 queues of 200 groups at 12:00:00 UTC (broker crash). "
        "8,000 messages were at risk of a second delivery; it made 5,600 repeated deliveries so "
        "far. The groups are g000, g001, g002, g003, g004 and 195 more. See whether their "
        "listeners take a message twice without harm."
    )


def test_a_queue_that_several_windows_report_counts_once() -> None:
    [one] = found(
        window("a"),
        window("a", 3, cause="REWIND", basis="OFFSET_FALL", redelivered_messages=8),
        window("b", 1, at_risk_messages=4),
    )
    assert (one["queues"], one["at_risk_messages"], one["redelivered_messages"]) == (2, 14, 8)
    assert one["causes"] == ["BROKER_CRASH", "REWIND"]
    assert len(one["window_ids"]) == 3


def test_a_crash_after_which_nothing_came_again_may_have_cost_something() -> None:
    [one] = found(window("a"), window("b"))
    assert rollback(one).startswith("Broker broker-a may have gone back on 2 queues of 2 groups")
    assert "delivery; none was delivered again so far" in rollback(one)


def test_a_crash_that_costs_nobody_anything_is_no_roll_back() -> None:
    """Who reads on there repeats nothing; where that is not known, it is not nothing."""
    nothing = [window(group, at_risk_messages=0) for group in "abc"]
    assert found(*nothing) == []
    assert found(*nothing, window("d")) == []
    [one] = found(*nothing, window("d"), window("e"))
    assert (one["group_names"], one["at_risk_messages"]) == (["d", "e"], 20)
    unknown = {"redelivered_messages": None, "redelivered_unknown_reason": "OBSERVED"}
    [one] = found(*(window(group, at_risk_messages=0, **unknown) for group in "ab"))
    assert one["redelivered_messages"] is None


@pytest.mark.parametrize(
    ("seen", "total", "said"),
    [
        (
            (None, None),
            None,
            "whether any was delivered again is unknown: an observer sees only what",
        ),
        ((None, 3), 3, "delivery; it made at least 3 repeated deliveries so far"),
    ],
)
def test_what_came_again_of_a_broker_that_is_watched_is_the_least_or_unknown(
    seen: tuple[int | None, int | None], total: int | None, said: str
) -> None:
    watched = {"emitter": "c/broker-a/watcher", "redelivered_unknown_reason": "OBSERVED"}
    [one] = found(
        window("a", redelivered_messages=seen[0], **watched),
        window("b", redelivered_messages=seen[1], **watched),
    )
    assert one["redelivered_messages"] == total
    assert said in rollback(one)


def test_one_group_alone_is_no_finding_about_its_broker() -> None:
    assert found(*(window("a", queue_id=queue) for queue in range(16))) == []
    assert found() == []


def test_what_others_did_to_groups_is_no_roll_back() -> None:
    """Resets, failed messages, hand-overs, heads that stand."""
    for cause in ("RESET", "SEND_BACK", "SEND_RETRY", "HAND_OVER", "DOUBLE_OWNER"):
        both = [window(group, cause=cause, redelivered_messages=5) for group in "ab"]
        assert found(*both, boots=booted(2)) == []
    exposed = [left(group, 10) | {"basis": "EXPOSURE"} for group in "ab"]
    assert found(*exposed, boots=booted(2)) == []


def test_what_was_committed_and_came_again_after_a_boot_is_the_tables_doing() -> None:
    """A clean stop, another table, a start: all that clients had committed comes again."""
    [one] = found(left("a"), left("b"), boots=booted(2))
    assert (one["groups"], one["redelivered_messages"]) == (2, 30)
    assert one["began_at"] == NOON + timedelta(seconds=2)


def test_what_had_not_been_committed_comes_again_without_a_roll_back() -> None:
    """Clients left with messages in hand, the broker began anew, and knew all it had reported."""
    assert found(left("a", 25), left("b", 30), boots=booted(2)) == []
    assert found(left("a", None), left("b", None), boots=booted(2)) == []


def test_a_boot_that_came_too_late_or_early_or_elsewhere_took_nothing_back() -> None:
    for boots in (booted(30), booted(-30), booted(2, "c/broker-b/0"), NO_BOOTS):
        assert found(left("a"), left("b"), boots=boots) == []


def test_brokers_and_clusters_are_distinguished_and_so_are_two_crashes() -> None:
    places = [("c", "broker-a"), ("c", "broker-b"), ("d", "broker-a")]
    later_s = 2 * TOGETHER.total_seconds()
    windows = [
        window(group, at, cluster=cluster, broker=broker)
        for cluster, broker in places
        for group in "ab"
        for at in (0, later_s)
    ]
    assert [(one["cluster"], one["broker"], one["groups"]) for one in found(*windows)] == [
        *((*place, 2) for place in places),
        *((*place, 2) for place in places),
    ]


def test_two_boots_soon_after_one_another_are_two_roll_backs() -> None:
    """The first took offsets back that clients had left; before the second a file was lost."""
    boots = pl.concat([booted(2), booted(9)])
    lost = [window(g, 8, cause="OFFSET_STORE_LOST") for g in "ab"]
    first, second = found(left("a"), left("b"), *lost, boots=boots)
    assert [one["causes"] for one in (first, second)] == [["CONSUMER_CRASH"], ["OFFSET_STORE_LOST"]]


WINDOWS = st.lists(
    st.builds(
        lambda group, queue, at, cause, again: window(
            group, at, queue_id=queue, cause=cause, redelivered_messages=again
        ),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(0, 300),
        st.sampled_from([*CAUSES, "RESET", "CONSUMER_CRASH"]),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda one: one["window_id"],
)


@given(WINDOWS, st.integers(0, 300), st.randoms())
def test_no_window_is_counted_twice_and_their_order_does_not_matter(
    windows: list[dict[str, Any]], boot_at: int, chance: Any
) -> None:
    rollbacks = found(*windows, boots=booted(boot_at))
    ids = [one for row in rollbacks for one in row["window_ids"]]
    assert len(ids) == len(set(ids))
    assert all(row["groups"] >= 2 and row["queues"] >= row["groups"] for row in rollbacks)
    assert all(row["redelivered_messages"] <= 9 * row["queues"] for row in rollbacks)
    chance.shuffle(windows)
    assert found(*windows, boots=booted(boot_at)) == rollbacks


def test_a_sentence_names_a_few_groups_and_counts_the_others() -> None:
    names = [f"g{number}" for number in range(NAMED_MAX)]
    [one] = found(*(window(name) for name in names))
    assert rollback(one).count(f"The groups are {', '.join(names)}. ") == 1
