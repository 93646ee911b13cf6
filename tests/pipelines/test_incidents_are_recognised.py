"""Stories with incidents, and what gold must say of them; and stories that must stay silent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.pipelines.cluster_story import moment
from tests.pipelines.gold_lake import gold, present

pytestmark = pytest.mark.timeout(600)


def micros(value: object) -> int:
    """µs of a timestamp read back."""
    return int(value.timestamp() * 1_000_000)  # type: ignore[attr-defined]


def test_a_frozen_head_is_named_with_its_message_and_closes_when_it_moves(
    computed_lake: Path,
) -> None:
    [window] = [
        row
        for row in present(computed_lake, "stalled_windows", group="frozen")
        if row["kind"] == "FROZEN_HEAD"
    ]
    assert (window["queue_id"], window["rule"], window["state"]) == (0, "STALLED", "CLOSED")
    assert window["head_message_id"].startswith("MSG-")
    assert moment(32 + 4) <= micros(window["opened_at"]) <= moment(32 + 10)
    reported_first = gold(
        computed_lake, "stalled_windows", group="frozen", window_id=window["window_id"]
    )[0]
    assert "behind it were finished" in reported_first["evidence"]


def test_the_risk_of_a_frozen_head_is_what_is_pulled_beyond_its_commit(computed_lake: Path) -> None:
    revisions = [
        row
        for row in gold(computed_lake, "duplicate_risk_windows", group="frozen", basis="EXPOSURE")
        if row["state"] == "OPEN"
    ]
    lag = {
        row["observed_at"]: row
        for row in gold(computed_lake, "consumer_lag", group="frozen", queue_id=0)
    }
    assert len(revisions) >= 3
    for row in revisions:
        assert row["cause"] == "CONSUMER_CRASH"
        assert row["at_risk_messages"] == lag[row["observed_at"]]["inflight_messages"]


def test_a_queue_that_nobody_pulls_is_dead_while_its_neighbour_lives(computed_lake: Path) -> None:
    [window] = present(computed_lake, "stalled_windows", group="dead-queue")
    assert (window["queue_id"], window["kind"]) == (1, "DEAD_QUEUE")
    assert window["state"] == "OPEN"


def test_a_paused_consumer_is_reported_as_paused_and_as_nothing_else(computed_lake: Path) -> None:
    [window] = present(computed_lake, "stalled_windows", group="paused")
    assert (window["rule"], window["kind"], window["state"]) == ("PAUSED", "PAUSED", "CLOSED")
    assert window["client_id"] == "paused-1"
    assert {row["state"] for row in gold(computed_lake, "group_state", group="paused")} == {
        "OK",
        "PAUSED",
    }


def test_a_group_without_members_is_a_dead_consumer(computed_lake: Path) -> None:
    windows = present(computed_lake, "stalled_windows", group="gone")
    assert {row["queue_id"] for row in windows} == {0, 1}
    assert {row["kind"] for row in windows} == {"DEAD_CONSUMER"}
    assert {row["rule"] for row in windows} == {"STOPPED"}


def test_a_killed_consumer_s_prediction_is_confirmed_by_exact_ranges(computed_lake: Path) -> None:
    [window] = present(computed_lake, "duplicate_risk_windows", group="killed", basis="DEPARTURE")
    assert (window["cause"], window["outcome"]) == ("CONSUMER_CRASH", "CONFIRMED")
    assert (window["client_id"], window["next_client_id"]) == ("killed-1", "killed-2")
    predicted = (window["from_offset"], window["to_offset"])
    assert (window["redelivered_from"], window["redelivered_to"]) == predicted
    assert window["redelivered_messages"] == window["at_risk_messages"] > 0
    assert window["certain_messages"] is not None
    assert window["certain_messages"] + window["uncertain_messages"] <= window["at_risk_messages"]


def test_a_rebalance_s_duplicates_are_a_hand_over(computed_lake: Path) -> None:
    [window] = present(computed_lake, "duplicate_risk_windows", group="handed", basis="DEPARTURE")
    assert (window["cause"], window["outcome"]) == ("HAND_OVER", "CONFIRMED")
    [joined] = [
        row
        for row in gold(computed_lake, "rebalances", group="handed")
        if row["client_id"] == "handed-3"
    ]
    assert (joined["members_before"], joined["members_after"]) == (2, 3)


def test_a_ghost_s_old_offset_is_a_finding_with_both_names_and_a_rewind(
    computed_lake: Path,
) -> None:
    [violation] = gold(computed_lake, "offset_violations", group="ghost")
    assert (violation["law"], violation["cause"]) == ("MONOTONIC", "TWO_WRITERS")
    assert (violation["client_id"], violation["other_client_id"]) == ("ghost-0", "ghost-1")
    assert not violation["explained"]
    assert violation["delta"] == violation["previous_offset"] - 100
    [window] = present(computed_lake, "duplicate_risk_windows", group="ghost", cause="REWIND")
    assert (window["from_offset"], window["to_offset"]) == (100, violation["previous_offset"])


def test_a_restart_accounts_for_a_fall_only_after_a_stop_that_was_not_clean(
    computed_lake: Path,
) -> None:
    crashed, stopped = gold(computed_lake, "offset_violations", group="restarted")
    assert (crashed["offset"], crashed["previous_offset"]) == (8, 9)
    assert (crashed["cause"], crashed["explained"]) == ("BROKER_RESTART", True)
    assert (stopped["offset"], stopped["previous_offset"]) == (7, 9)
    assert (stopped["cause"], stopped["explained"]) == ("UNEXPLAINED", False)
    [window] = present(computed_lake, "duplicate_risk_windows", group="restarted", cause="REWIND")
    assert (window["from_offset"], window["to_offset"]) == (7, 9)


def test_an_operator_s_reset_is_explained_and_stalls_nothing(computed_lake: Path) -> None:
    [violation] = gold(computed_lake, "offset_violations", group="reset")
    assert (violation["cause"], violation["explained"]) == ("RESET", True)
    assert present(computed_lake, "stalled_windows", group="reset") == []
    [window] = present(computed_lake, "duplicate_risk_windows", group="reset", basis="OFFSET_FALL")
    assert window["cause"] == "RESET"


def test_a_poison_message_is_followed_to_the_dead_letters(computed_lake: Path) -> None:
    [letter] = gold(computed_lake, "dead_letters")
    assert (letter["message_id"], letter["reconsume_times"]) == ("POISON", 2)
    again = present(computed_lake, "duplicate_risk_windows", group="failing", cause="SEND_BACK")
    assert [row["message_id"] for row in again] == ["POISON", "POISON"]
    assert letter["first_failed_at"] + timedelta(seconds=2) == again[0]["opened_at"]


def test_the_messages_of_a_reused_offset_are_both_named(computed_lake: Path) -> None:
    [row] = gold(computed_lake, "replaced_messages")
    assert (row["group"], row["message_id_before"], row["message_id"]) == (
        "calm",
        "LOST-A",
        "NEW-A",
    )
    assert (row["outcome"], row["reused_offsets"]) == ("LOST", 5)
    end = row["queue_end"]
    assert row["evidence"] == (
        f"Group calm had pulled message LOST-A at offset {end + 4} of queue 0 of topic-calm on "
        f"{row['broker']} when the broker lost it. It had been pulled by calm-1; message NEW-A "
        f"has its offset now. All offsets from {end} on are given to other messages. See "
        "whether it was processed."
    )


def test_messages_that_were_deleted_unread_are_a_range(computed_lake: Path) -> None:
    [row] = gold(computed_lake, "lost_unread_messages")
    assert (row["group"], row["messages"], row["error_messages"]) == ("reset", 5, 0)
    assert row["to_offset"] == row["from_offset"] + 5


def test_a_topic_that_was_made_again_is_marked_and_its_group_reads_all_of_it(
    computed_lake: Path,
) -> None:
    [life] = gold(computed_lake, "topic_lives")
    assert (life["topic"], life["provenance"]) == ("topic-deleted", "EXACT")
    assert life["observed_at"] - life["gone_at"] == timedelta(seconds=4)
    [row] = gold(computed_lake, "passed_over_messages")
    assert (row["group"], row["queue_id"], row["outcome"], row["messages"]) == (
        *("deleted", 0),
        *("READ", 0),
    )
    assert row["made_again_at"] == life["observed_at"]


def test_a_message_that_its_producer_sent_again_is_a_certain_duplicate(computed_lake: Path) -> None:
    windows = present(computed_lake, "duplicate_risk_windows", group="twice", cause="SEND_RETRY")
    assert sorted(row["queue_id"] for row in windows) == [0, 1]
    for row in windows:
        assert (row["basis"], row["outcome"], row["state"]) == ("SEND_RETRY", "CONFIRMED", "CLOSED")
        assert (row["message_id"], row["opened_at"]) == ("TWICE", row["closed_at"])
        second = (row["from_offset"], row["to_offset"])
        assert second == (row["redelivered_from"], row["redelivered_to"])
        assert (row["at_risk_messages"], row["redelivered_messages"]) == (1, 1)
        got = f"Group twice got message TWICE of queue {row['queue_id']}"
        assert row["evidence"].startswith(got)
        said = "its producer sent it again, and the second copy, at offset"
        assert f"{said} {row['from_offset']}, was delivered too" in row["evidence"]
    assert present(computed_lake, "stalled_windows", group="twice") == []


def test_a_message_that_a_pop_group_did_not_acknowledge_is_a_certain_duplicate_and_no_failure(
    computed_lake: Path,
) -> None:
    cause = "INVISIBLE_TIME_EXPIRED"
    (row,) = present(computed_lake, "duplicate_risk_windows", group="popping", cause=cause)
    assert (row["basis"], row["outcome"]) == (cause, "CONFIRMED")
    assert (row["message_id"], row["from_offset"]) == ("NOT-ACKNOWLEDGED", 1)
    sheet = [row for row in gold(computed_lake, "retry_flow") if row["group"] == "popping"]
    assert {(row["sent_back"], row["came_back"]) for row in sheet} == {(0, 1)}
    (out,) = [row for row in gold(computed_lake, "pop_progress") if row["group"] == "popping"]
    assert (out["waiting"], out["unacknowledged"], out["expired"]) == (0, 3, 1)


def test_a_broker_s_crash_is_reported_and_readers_that_live_on_repeat_nothing(
    computed_lake: Path,
) -> None:
    windows = present(computed_lake, "duplicate_risk_windows", group="calm", cause="BROKER_CRASH")
    assert {row["queue_id"] for row in windows} == {0, 1}
    for row in windows:
        assert row["basis"] == "RESTART"
        assert row["outcome"] == "PASSED"  # The clients lived on and pulled where they stood.
        assert row["at_risk_messages"] == 0


def test_ownership_ends_with_what_ended_it(computed_lake: Path) -> None:
    killed = present(computed_lake, "ownership", group="killed", client_id="killed-1")
    assert [row["ended_by"] for row in killed] == ["LEFT"]
    handed = present(computed_lake, "ownership", group="handed", queue_id=1)
    assert [(row["client_id"], row["ended_by"]) for row in handed] == [
        ("handed-2", "REVOKED"),
        ("handed-3", "BROKER_STOP"),
    ]


@pytest.mark.parametrize("group", ["calm", "idle", "radio", "killed", "handed"])
def test_what_is_no_stall_stays_silent(computed_lake: Path, group: str) -> None:
    assert present(computed_lake, "stalled_windows", group=group) == []


def test_a_calm_group_has_no_violation_and_is_ok_at_every_tick(computed_lake: Path) -> None:
    assert gold(computed_lake, "offset_violations", group="calm") == []
    states = gold(computed_lake, "group_state", group="calm")
    assert len(states) >= 8
    assert {row["state"] for row in states} == {"OK"}


def test_unknown_lag_is_null_with_its_reason(computed_lake: Path) -> None:
    rows = gold(computed_lake, "consumer_lag", group="radio")
    assert {row["unknown_reason"] for row in rows} == {"BROADCAST"}
    assert {row["lag_messages"] for row in rows} == {None}
    assert {row["provenance"] for row in rows} == {"UNKNOWN"}


def test_telemetry_is_gapless_and_unique(computed_lake: Path) -> None:
    rows = gold(computed_lake, "emitter_health")
    assert rows
    for row in rows:
        assert row["rows_expected"] == row["rows_found"] == row["rows_distinct"]


def test_failed_messages_have_a_balance_sheet_that_does_not_hide_what_is_lacking(
    computed_lake: Path,
) -> None:
    sheet = gold(computed_lake, "retry_flow", group="failing")[-1]
    counts = ("sent_back", "scheduled", "delivered", "delayed", "failed_again", "dead_lettered")
    assert [sheet[name] for name in counts] == [2, 2, 2, 0, 1, 1]
    assert sheet["difference"] == -1, "the story gives up a message without telling a failure"
    assert sheet["difference_reason"].startswith(
        "Messages were given up without a reported failure"
    )


def test_what_the_loss_of_the_master_would_cost_is_shown_while_it_lives(
    computed_lake: Path,
) -> None:
    rows = gold(computed_lake, "replication_health")
    assert len(rows) >= 10
    for row in rows:
        assert (row["mode"], row["replicas"], row["behind_ms"]) == ("SYNC_MASTER", 1, 0)
        assert row["loss_messages"] * 100 == row["loss_bytes"] == row["behind_bytes"] > 0


def test_what_a_power_cut_would_cost_is_reported_while_the_broker_lives(
    computed_lake: Path,
) -> None:
    rows = gold(computed_lake, "flush_health")
    assert len(rows) >= 10
    for row in rows:
        assert row["kill_bytes"] == 0
        assert row["power_cut_bytes"] == row["power_cut_bytes_max"] > 0
        assert row["power_cut_messages"] * 100 == row["power_cut_bytes"]
