"""Each law is broken once in a sound lake: the right checks fail, no others, and name the key.

Every defect is planted in a cycle of its own of the same lake: what an earlier cycle held has been
judged, and is not found again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.checked_lake import CheckedLake, broken, failing

GENERIC = ("_schema", "_filled", "_keys_unique", "_fresh")


@pytest.fixture(scope="module")
def lake(checked_story: CheckedLake, tmp_path_factory: pytest.TempPathFactory) -> CheckedLake:
    """A copy for all of them."""
    return checked_story.copied_to(tmp_path_factory.mktemp("planted") / "lake")


Plant = Callable[[CheckedLake], None]


def _reports(lake: CheckedLake, **values: Any) -> dict[str, Any]:
    report = lake.like("consume_offsets", group="billing", queue_id=1)
    report |= {"previous_offset": report["offset"], "path": "COMMIT_RPC", **values}
    return {name: value for name, value in report.items() if name not in ("seq", "event_time")}


def fall_without_reason(lake: CheckedLake) -> None:
    held = _reports(lake)["offset"]
    lake.fact("consume_offsets", **_reports(lake, offset=held - 40))


def fall_that_gold_says_is_unexplained(lake: CheckedLake) -> None:
    held = _reports(lake)["offset"]
    lake.fact("consume_offsets", **_reports(lake, offset=held - 40))
    queue = {"group": "billing", "topic": "orders", "queue_id": 1}
    lake.answer("offset_violations", **queue, law="MONOTONIC", explained=False)


def reset_that_gold_overlooked(lake: CheckedLake) -> None:
    held = _reports(lake)["offset"]
    lake.fact("consume_offsets", **_reports(lake, offset=held - 40, path="RESET"))


def report_beyond_max(lake: CheckedLake) -> None:
    end = _reports(lake)["max_offset"]
    lake.fact("consume_offsets", **_reports(lake, offset=end + 7))


def commit_beyond_max(lake: CheckedLake) -> None:
    lake.watermark(committed=200_007, pulled=200_007, processed=200_007, max_offset=200_000)


def pull_beyond_max(lake: CheckedLake) -> None:
    lake.watermark(pulled=200_003, max_offset=200_000)


def file_ahead_of_memory(lake: CheckedLake) -> None:
    known = lake.like("group_watermarks", group="billing", queue_id=1)
    old = lake.next - timedelta(seconds=60)
    lake.watermark(persisted=known["committed"] + 5, last_commit_time=old)


def commit_of_what_nobody_pulled(lake: CheckedLake) -> None:
    known = lake.like("group_watermarks", group="billing", queue_id=1)
    lake.watermark(pulled=known["committed"] - 3)


def commit_of_what_nobody_processed(lake: CheckedLake) -> None:
    known = lake.like("group_watermarks", group="billing", queue_id=1)
    behind = known["committed"] - 3
    for ago_s in (25, 0):
        lake.watermark(processed=behind)
        lake._facts["group_watermarks"][-1]["event_time"] -= timedelta(seconds=ago_s)


def queue_that_begins_behind_its_end(lake: CheckedLake) -> None:
    lake.watermark(min_offset=200_001, max_offset=200_000, committed=200_000, pulled=200_000)


def lag_of_another_offset(lake: CheckedLake) -> None:
    lake.watermark()
    lake._answers["consumer_lag"][-1]["committed"] -= 1
    lake._answers["consumer_lag"][-1]["lag_messages"] += 1


def lag_that_is_no_difference(lake: CheckedLake) -> None:
    lake.watermark()
    lake._answers["consumer_lag"][-1]["lag_messages"] += 5


def lag_unknown_for_no_reason(lake: CheckedLake) -> None:
    lake.watermark()
    lake._answers["consumer_lag"][-1]["time_lag_ms"] = None


def lag_before_its_message(lake: CheckedLake) -> None:
    lake.watermark()
    lake._answers["consumer_lag"][-1]["time_lag_ms"] = -1


def watermark_without_lag(lake: CheckedLake) -> None:
    lake.watermark()
    lake._answers.pop("consumer_lag")


def fact_twice(lake: CheckedLake) -> None:
    lake.watermark()
    row = lake._facts["group_watermarks"][-1]
    lake._facts["lifecycle"] = [
        {**lake.like("lifecycle"), "kind": "NOTE", "seq": row["seq"], "event_time": lake.next}
    ]


def fact_that_comes_again(lake: CheckedLake) -> None:
    lake.fact("lifecycle", kind="NOTE", seq=17)
    lake.seq -= 1


def fact_lost(lake: CheckedLake) -> None:
    lake.seq += 1


def shipment_nobody_judged(lake: CheckedLake) -> None:
    lake.watermark()
    lake.answer("emitter_health", seq_from=10**9, seq_to=10**9)


def end_that_falls(lake: CheckedLake) -> None:
    for end in (900, 899):
        lake.fact("queue_watermarks", topic="shrunk", max_offset=end)


def answer(table: str, **values: Any) -> Plant:
    """One impossible row of a gold table."""
    return lambda lake: lake.answer(table, **values)


def fact(table: str, **values: Any) -> Plant:
    """One impossible row of a bronze table."""

    def plant(lake: CheckedLake) -> None:
        lake.fact(table, **values)

    return plant


def health_of(**counts: int) -> Plant:
    """Gold's judgement of the shipment that this cycle carries, with other counts."""

    def plant(lake: CheckedLake) -> None:
        lake.watermark()
        seq = lake.seq
        values = {"rows_expected": 1, "rows_found": 1, "rows_distinct": 1, **counts}
        lake.answer("emitter_health", seq_from=seq, seq_to=seq, **values)

    return plant


def interval(**changes: Any) -> Plant:
    """The next revision of a stall, with something wrong in it."""

    def plant(lake: CheckedLake) -> None:
        last = lake.like("stalled_windows", state="OPEN")
        at = {"observed_at": lake.next, "valid_from": lake.next, "revision": last["revision"] + 1}
        lake.answer("stalled_windows", **{**last, **at, **changes, "seq": lake.seq})

    return plant


def risk_of_less_than_nothing(lake: CheckedLake) -> None:
    known = lake.like("duplicate_risk_windows", state="OPEN")
    begun = {"observed_at": lake.next, "valid_from": lake.next, "opened_at": lake.next}
    range_ = {"window_id": "r", "revision": 1, "from_offset": 9, "to_offset": 3}
    lake.answer("duplicate_risk_windows", **{**known, **range_, **begun})


def owned_by_two(lake: CheckedLake) -> None:
    own = lake.like("ownership", group="ledger", queue_id=2, state="OPEN")
    since = lake.moment - timedelta(seconds=120)
    new = {"window_id": "another", "client_id": "ledger-9", "observed_at": since}
    lake.answer("ownership", **{**own, **new, "valid_from": since, "opened_at": since})


PLANTED: dict[str, tuple[Plant, set[str], str]] = {
    "a fall without a reason": (
        fall_without_reason,
        {"reported_offsets_never_fall_unexplained", "every_fall_is_in_gold"},
        "group=billing, topic=orders, queue_id=1",
    ),
    "a fall of which gold has no explanation": (
        fall_that_gold_says_is_unexplained,
        {"reported_offsets_never_fall_unexplained", "offsets_never_fall_unexplained"},
        "group=billing, topic=orders, queue_id=1",
    ),
    "a reset that gold overlooked": (
        reset_that_gold_overlooked,
        {"every_fall_is_in_gold"},
        "path=RESET",
    ),
    "a report beyond the queue": (report_beyond_max, {"reported_offsets_at_most_max"}, "offset="),
    "a commit beyond the queue": (
        commit_beyond_max,
        {"committed_at_most_max", "lag_committed_at_most_max", "pulled_at_most_max"},
        "committed=200007, max_offset=200000",
    ),
    "a pull of what nobody has sent": (
        pull_beyond_max,
        {"pulled_at_most_max"},
        "pulled=200003, max_offset=200000",
    ),
    "a file ahead of its memory": (file_ahead_of_memory, {"persisted_at_most_committed"}, ""),
    "a commit of what nobody pulled": (
        commit_of_what_nobody_pulled,
        {"committed_at_most_pulled"},
        "queue_id=1",
    ),
    "a commit of what nobody processed": (
        commit_of_what_nobody_processed,
        {"committed_at_most_processed"},
        "queue_id=1",
    ),
    "a queue that begins behind its end": (
        queue_that_begins_behind_its_end,
        {"min_at_most_max"},
        "min_offset=200001",
    ),
    "a lag of another offset": (
        lag_of_another_offset,
        {"lag_is_that_of_its_watermarks"},
        "reported_",
    ),
    "a lag that is no difference": (lag_that_is_no_difference, {"lag_is_the_difference"}, ""),
    "a lag unknown for no reason": (
        lag_unknown_for_no_reason,
        {"unknown_lag_says_why"},
        "time_lag_ms=None",
    ),
    "a lag before its message": (lag_before_its_message, {"time_lag_possible"}, "time_lag_ms=-1"),
    "a watermark without lag": (watermark_without_lag, {"every_watermark_has_its_lag"}, ""),
    "a fact twice": (fact_twice, {"facts_unique"}, "repeated=1"),
    "a fact that comes again": (fact_that_comes_again, {"facts_unique"}, "repeated=1"),
    "a fact lost": (fact_lost, {"facts_gapless"}, "missing=1"),
    "a shipment that gold missed": (
        health_of(rows_expected=2, rows_distinct=1),
        {"judged_facts_gapless", "judged_shipments_follow", "emitter_health_keys_unique"},
        "rows_expected=2",
    ),
    "a shipment that gold met twice": (
        health_of(rows_found=2),
        {"judged_facts_unique", "judged_shipments_follow", "emitter_health_keys_unique"},
        "rows_found=2",
    ),
    "a queue flushed beyond its end": (
        fact("queue_watermarks", flushed_offset=5, max_offset=4),
        {"queue_ends_in_order"},
        "flushed_offset=5",
    ),
    "a queue that ends before where it ended": (
        end_that_falls,
        {"queue_ends_never_fall_in_a_life"},
        "max_before=900, max_offset=899",
    ),
    "a client that holds less than nothing": (
        fact("client_windows", held_count=-1),
        {"held_windows_possible", "client_windows_sound"},
        "held_count=-1",
    ),
    "a client that holds half a range": (
        fact("client_windows", held_ranges=[{"from_offset": None, "to_offset": 9}]),
        {"client_windows_sound"},
        "odd=held_ranges is a list with an entry",
    ),
    "a redelivery of nothing": (
        fact("redeliveries", from_offset=9, to_offset=9),
        {"redelivered_ranges_possible"},
        "to_offset=9",
    ),
    "more messages deleted unread than were deleted": (
        fact("unread_deletions", from_offset=4, to_offset=9, unread=6),
        {"unread_deletions_possible"},
        "unread=6",
    ),
    "an offset given again before its queue ended": (
        fact("reused_offsets", offset=8, queue_end=9),
        {"reused_offsets_behind_the_end"},
        "queue_end=9",
    ),
    "bytes flushed that nobody wrote": (
        fact("flush_checkpoints", written=5, flushed=6),
        {"flushed_at_most_written"},
        "flushed=6",
    ),
    "a message that failed less than never": (
        fact("retry_dlq_flow", reconsume_times=-1),
        {"retries_counted", "retry_dlq_flow_sound"},
        "reconsume_times=-1",
    ),
    "a clock that was set": (
        fact("lifecycle", kind="CLOCK_STEPPED", step_ms=-4_000),
        {"clock_not_set"},
        "step_ms=-4000",
    ),
    "timers that were due and not delivered": (
        fact("lifecycle", kind="TIMERS_LATE", detail="due 12000 ms ago"),
        {"timers_delivered_when_due"},
        "due 12000 ms ago",
    ),
    "states that do not add up": (
        answer("group_state", state="OK", queues=2, queues_known=3),
        {"states_add_up"},
        "queues_known=3",
    ),
    "a sum of some queues that is shown as the lag of a group": (
        answer(
            "group_state",
            state="OK",
            queues=4,
            queues_known=3,
            lag_messages=5,
            lag_at_least_messages=5,
            unknown_reason="NO_OFFSET",
        ),
        {"a_sum_of_some_queues_is_no_lag"},
        "lag_messages=5",
    ),
    "violations that do not add up": (
        answer("offset_health", reports=1, violations=2, monotonic=1),
        {"violations_add_up"},
        "violations=2",
    ),
    "retries that do not balance": (
        answer("retry_flow", sent_back=3, scheduled=1, delivered=1, retried=1, difference=2),
        {"retry_sheet_closes"},
        "difference=2",
    ),
    "a sheet of retries that was added up wrongly": (
        answer("retry_flow", sent_back=3, scheduled=3, delivered=1, delayed=1, retried=1),
        {"retry_sheet_adds_up"},
        "delayed=1",
    ),
    "a group that is named after its retry topic": (
        answer("retry_flow", group="billing+orders"),
        {"no_group_is_named_after_its_retry_topic"},
        "group=billing+orders",
    ),
    "a message that comes back again before it came back": (
        answer("retry_flow", came_back=1, came_back_again=2, retried=-1),
        {"retry_sheet_adds_up"},
        "came_back=1",
    ),
    "more that is handed out than ever was": (
        fact("pop_watermarks", popped=5, max_offset=9, unacknowledged=6),
        {"handed_out_at_most_what_is_there"},
        "unacknowledged=6",
    ),
    "nothing known of what is handed out, for no reason": (
        fact("pop_watermarks", popped=5, max_offset=9, unacknowledged=None, unknown_reason=None),
        {"handed_out_at_most_what_is_there"},
        "popped=5",
    ),
    "more acknowledged than handed out": (
        answer(
            "pop_progress", popped=5, max_offset=9, waiting=4, unacknowledged=1, acknowledged_max=6
        ),
        {"acknowledged_at_most_popped"},
        "acknowledged_max=6",
    ),
    "delays that do not add up": (
        answer("delayed_retries", scheduled=3, released=1, waiting=1),
        {"delays_add_up"},
        "waiting=1",
    ),
    "less than nothing to lose": (
        answer("flush_health", kill_bytes=-1),
        {"lost_bytes_possible"},
        "kill_bytes=-1",
    ),
    "a slave that has more than its master": (
        answer("replication_health", loss_bytes=-1, behind_bytes=-1),
        {"a_slave_is_never_beyond_its_master"},
        "loss_bytes=-1",
    ),
    "a range at risk that ends before it begins": (
        risk_of_less_than_nothing,
        {"risks_possible"},
        "from_offset=9, to_offset=3",
    ),
    "a dead letter from nowhere": (
        answer("dead_letters", message_id="m", origin_topic=None),
        {"dead_letters_know_their_origin"},
        "message_id=m",
    ),
    "an interval that lost a revision": (
        interval(revision=9),
        {"stalled_windows_well_formed"},
        "revision=9",
    ),
    "a queue with two owners": (owned_by_two, {"one_owner_a_queue"}, "ledger-1@10.0.0.21 and"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(lake: CheckedLake, name: str) -> None:
    plant, expected, named = PLANTED[name]
    plant(lake)
    lake.complete()

    found = broken(lake.look())

    assert set(found) == expected
    assert any(named in text for text in found.values())


def test_a_fall_that_an_observer_saw_withholds_nothing(lake: CheckedLake) -> None:
    """By whose hand it fell is not reported, so nobody knows that it was nobody's."""
    held = _reports(lake)["offset"]
    lake.fact("consume_offsets", **_reports(lake, offset=held - 40, path="OBSERVED"))
    queue = {"group": "billing", "topic": "orders", "queue_id": 1}
    violation = {"law": "MONOTONIC", "explained": False, "path": "OBSERVED"}
    lake.answer("offset_violations", **queue, **violation)
    lake.complete()

    assert broken(lake.look()) == {}


def test_great_expectations_judges_as_was_counted(
    checked_story: CheckedLake, tmp_path: Path
) -> None:
    lake = checked_story.copied_to(tmp_path / "lake")
    for plant in (fall_without_reason, owned_by_two, lag_that_is_no_difference, fact_lost):
        plant(lake)
    lake.complete()
    seen = lake.copied_to(tmp_path / "seen").look()

    run = lake.check()

    assert len(broken(seen)) >= 4
    assert failing(run) == broken(seen)
    held = {one.check.name for one in seen.findings if one.checked_rows} - set(broken(seen))
    assert {one.check.name for one in run.outcomes if one.success} == held
    assert run.memory.emitters == seen.memory.emitters
