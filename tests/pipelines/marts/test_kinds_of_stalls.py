"""Why a queue stands, and who holds it: each kind from rows to rows, with message, client, since
when and the listener's stack. A paused consumer is reported as paused.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.literal_facts import only
from tests.pipelines.marts.reported_story import Emitter, second
from tests.pipelines.marts.test_judges_row_by_row import Story

Row = dict[str, Any]


def reported_each_2_s(
    story: Story,
    *,
    begin: int = 2,
    until: int,
    mark: dict[str, Any] | None = None,
    sample: dict[str, Any] | None = None,
    pulls: bool = True,
) -> Emitter:
    """A queue that stands at 80 while messages come; the client is asked as often."""
    pulled_us = story.broker.now_us
    for at in range(begin, until, 2):
        broker = story.at(at)
        if pulls:
            pulled_us = broker.now_us
        fields = {"max_offset": 100 + at, "pulled": 90, "last_pull_time": pulled_us}
        broker.watermark(**{**fields, **(mark or {})})
        if sample is not None:
            broker.sample(**sample)
    return story.at(until)


def windows(story: Story) -> list[Row]:
    """Revisions of stalled windows, in order."""
    return story.gold().get("stalled_windows", [])


def snapshot_at_boot() -> Story:
    """A broker that reports snapshots: silence means unchanged."""
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    return story


HEAD = {"held_count": 10, "first_held": 80, "head_message_id": "M80", "head_since": START_US}
ASKS_ON = {"attended": True, "answered": True}


def test_a_frozen_head_names_message_client_since_when_and_at_last_its_stack() -> None:
    """The window opens before the client is asked for its stacks; what it reports then is shown."""
    story = snapshot_at_boot()
    reported_each_2_s(story, until=30, sample=HEAD)
    reported_each_2_s(story, begin=30, until=40, sample={**HEAD, "stack": "pay at shop.py:12"})
    opened, named = windows(story)
    assert (opened["rule"], opened["kind"], opened["stack"]) == ("STALLED", "FROZEN_HEAD", None)
    assert (opened["topic"], opened["queue_id"], opened["head_offset"]) == ("t", 0, 80)
    assert (opened["head_message_id"], opened["client_id"]) == ("M80", "client-1")
    assert second(opened["stands_since"]) == 0
    assert (named["revision"], named["stack"]) == (2, "pay at shop.py:12")
    assert second(named["observed_at"]) == 30


def test_a_head_that_a_client_reports_by_its_offset_alone_is_named_by_it() -> None:
    story = snapshot_at_boot()
    reported_each_2_s(story, until=30, sample={"held_count": 10, "first_held": 83})
    [window] = windows(story)
    assert (window["kind"], window["head_message_id"]) == ("FROZEN_HEAD", None)
    assert window["head_offset"] == 83
    assert window["headline"] == (
        "Group g is stuck on queue 0 of t on broker-a: client-1 does not finish the message at "
        "offset 83."
    )


def test_a_head_stands_since_the_earliest_moment_that_was_reported_of_it_also_over_a_restart() -> (
    None
):
    """A broker that was started again asks its clients anew, and knows no earlier moment."""
    story = snapshot_at_boot()
    reported_each_2_s(story, until=40, sample=HEAD)
    anew = {**HEAD, "head_since": START_US + 41 * SECOND, "stack": "pay at shop.py:12"}
    reported_each_2_s(story, begin=42, until=60, sample=anew)
    assert [second(row["stands_since"]) for row in windows(story)] == [0, 0]
    assert "since 12:00:00 UTC" in windows(story)[-1]["headline"]
    moved = {**anew, "client_id": "client-2"}
    reported_each_2_s(story, begin=60, until=90, sample=moved)
    assert second(windows(story)[-1]["stands_since"]) == 41, "another client has it since then"


def test_another_head_takes_the_former_one_s_stack_away() -> None:
    story = snapshot_at_boot()
    reported_each_2_s(story, until=30, sample={**HEAD, "stack": "old"})
    other = {**HEAD, "head_message_id": "M81", "first_held": 81}
    reported_each_2_s(story, begin=30, until=90, sample=other)
    seen = only(windows(story), "head_message_id", "stack", "state")
    assert seen == [("M80", "old", "OPEN"), ("M80", "old", "CLOSED"), ("M81", None, "OPEN")]


@pytest.mark.parametrize(("hours", "is_shown"), [(-8, False), (8, False), (0, True)])
def test_a_moment_of_a_client_s_clock_that_cannot_be_is_not_shown(
    hours: int, is_shown: bool
) -> None:
    story = snapshot_at_boot()
    since = START_US + hours * 3_600 * SECOND
    sample = {"held_count": 10, "first_held": 80, "head_message_id": "M80", "head_since": since}
    reported_each_2_s(story, until=30, sample=sample)
    [window] = windows(story)
    assert window["kind"] == "FROZEN_HEAD"
    assert (window["head_since"] is not None) == is_shown
    assert ("in a listener of client-1 since" in window["headline"]) == is_shown


def test_a_queue_that_nobody_pulls_names_who_pulled_last_and_when() -> None:
    story = snapshot_at_boot()
    story.broker.at(1)
    reported_each_2_s(story, until=60, pulls=False)
    window = windows(story)[-1]
    assert (window["kind"], window["client_id"]) == ("DEAD_QUEUE", "client-1")
    assert (second(window["stands_since"]), window["head_offset"]) == (1, 80)
    assert window["headline"] == (
        "Nobody pulls queue 0 of t on broker-a for group g, which has members; the last pull was "
        "by client-1 at 12:00:01 UTC."
    )


def test_a_dead_consumer_names_who_was_there_last_and_when() -> None:
    story = snapshot_at_boot()
    story.broker.at(1)
    reported_each_2_s(story, until=30, mark={"members": 0}, pulls=False)
    [window] = windows(story)
    assert (window["kind"], window["client_id"]) == ("DEAD_CONSUMER", "client-1")
    assert second(window["stands_since"]) == 1
    assert window["headline"] == (
        "Nobody consumes queue 0 of t on broker-a for group g: it has no member; the last pull was "
        "by client-1 at 12:00:01 UTC."
    )


def test_a_blocked_orderly_queue_names_its_reader_and_the_message_it_holds() -> None:
    story = snapshot_at_boot()
    held = {**HEAD, "locked": True, "client_id": "client-2", "stack": "wait at orders.py:3"}
    reported_each_2_s(story, until=30, mark={"lock_holder": "client-2"}, sample=held)
    [window] = windows(story)
    assert (window["kind"], window["client_id"]) == ("BLOCKED_ORDERLY", "client-2")
    assert (window["head_message_id"], window["stack"]) == ("M80", "wait at orders.py:3")
    assert window["headline"] == (
        "Group g is blocked on queue 0 of t on broker-a: message M80 has been in a listener of "
        "client-2 since 12:00:00 UTC, and holds the queue's order lock."
    )


def test_what_moves_again_is_not_said_to_stand_and_stands_again_when_it_does() -> None:
    """Its head is another one then: the window is of the same kind, with words of its own."""
    story = snapshot_at_boot()
    reported_each_2_s(story, until=40, sample=HEAD)
    on = {"held_count": 10, "first_held": 95, "client_committed": 95, "head_message_id": "M95"}
    on["head_since"] = START_US + 40 * SECOND
    mark = {"committed": 95, "pulled": 105, "store_time_at_committed": START_US}
    reported_each_2_s(story, begin=40, until=70, mark=mark, sample=on)
    opened, moves, stands = windows(story)
    assert [one["kind"] for one in (opened, moves, stands)] == ["FROZEN_HEAD"] * 3
    assert moves["headline"] == (
        "Group g moves again on queue 0 of t on broker-a, where it was stalled."
    )
    assert "has not moved" not in moves["evidence"]
    assert moves["evidence"].endswith("its offset is 95. See whether it goes on.")
    assert second(stands["observed_at"]) - second(moves["observed_at"]) >= 8
    assert stands["headline"] == (
        "Group g is stuck on queue 0 of t on broker-a: message M95 has been in a listener of "
        "client-1 since 12:00:40 UTC."
    )


def test_a_paused_consumer_is_reported_as_paused_by_whom_and_since_when() -> None:
    """Neither silent nor stalled; and it is over when it pulls again."""
    story = snapshot_at_boot()
    story.broker.at(1)
    last = reported_each_2_s(story, until=60, sample=ASKS_ON, pulls=False)
    last.watermark(committed=160, pulled=160, max_offset=160, committed_state="AT_END")
    story.at(70)
    gold = story.gold()
    paused, over = gold["stalled_windows"]
    assert (paused["rule"], paused["kind"], paused["state"]) == ("PAUSED", "PAUSED", "OPEN")
    assert (paused["client_id"], second(paused["stands_since"])) == ("client-1", 1)
    assert paused["headline"] == (
        "Group g is paused on queue 0 of t on broker-a: client-1 has asked for nothing since "
        "12:00:01 UTC."
    )
    assert (over["rule"], over["state"]) == ("PAUSED", "CLOSED")
    states = [row["state"] for row in gold["group_state"]]
    assert set(states) == {"OK", "PAUSED"}
    assert states[-1] == "OK"


@pytest.mark.parametrize(
    "sample",
    [
        {"attended": False, "answered": True},
        {"attended": True, "answered": False},
        {"attended": None, "answered": None, "last_pull_time": START_US - 300 * SECOND},
    ],
    ids=["turns to it no more", "answers no more", "pulled long ago"],
)
def test_a_client_that_cares_no_more_for_its_queue_is_not_paused(sample: Row) -> None:
    story = snapshot_at_boot()
    story.broker.at(1)
    reported_each_2_s(story, until=60, sample=sample, pulls=False)
    assert {row["kind"] for row in windows(story)} == {"DEAD_QUEUE"}


def test_what_a_client_said_once_holds_for_minutes_until_it_is_taken_back() -> None:
    """No row means unchanged: ten minutes may lie between two of them."""
    story = snapshot_at_boot()
    broker = story.at(2)
    broker.watermark(max_offset=150, pulled=80, last_pull_time=broker.now_us)
    broker.sample(**ASKS_ON)
    story.at(300)
    [paused] = windows(story)
    assert (paused["rule"], second(paused["observed_at"])) == ("PAUSED", 14)
    broker.sample(dropped=True)
    story.at(330)
    assert [row["kind"] for row in windows(story)] == ["PAUSED", "DEAD_QUEUE"]


@pytest.mark.parametrize("kind", ["BOOT", "SPOOL_LOSS"])
def test_what_a_client_said_in_an_earlier_life_or_before_a_loss_counts_nothing(kind: str) -> None:
    story = snapshot_at_boot()
    broker = story.at(2)
    mark = {"max_offset": 150, "pulled": 80, "last_pull_time": broker.now_us}
    broker.watermark(**mark)
    broker.sample(**ASKS_ON)
    story.at(100)
    story.event(kind)
    broker.watermark(**mark)
    story.event("SNAPSHOT", seq_from=broker.seq)
    story.at(140)
    found = windows(story)
    assert found[0]["rule"] == "PAUSED"
    assert found[-1]["kind"] == "DEAD_QUEUE"
