"""Checks each row for ordered watermarks, correct sums and explained nulls.

An unknown number says why it is unknown.

Severity: CRITICAL where a breach means that a number is wrong; WARNING where what happened may
account for it, and somebody should look.
"""

from __future__ import annotations

from typing import Final

from expectations.check import Check, RowLaw, Severity

PERSIST_LATE_S: Final = 15
"""The broker's file follows its memory each 5 s; three of these without a report, and a file that
is ahead was not left behind by an offset that was set back."""
NO_STEP_MS: Final = 1_000
"""A clock that is set by less is being kept right."""

_BY_BROKER: Final = "regexp_like(emitter, '/[0-9]+$')"
"""A broker reported it of itself. A foreign one that an observer watches may well keep an offset
beyond the end of a queue: a topic that was made again is enough.
"""


def _critical(table: str, name: str, broken: str, *shows: str) -> RowLaw:
    return RowLaw(Check(name, table, Severity.CRITICAL), broken, shows)


def _warning(table: str, name: str, broken: str, *shows: str) -> RowLaw:
    return RowLaw(Check(name, table, Severity.WARNING), broken, shows)


FACTS: Final = (
    _critical(
        "consume_offsets",
        "reported_offsets_at_most_max",
        "accepted AND offset > max_offset",
        *("offset", "max_offset"),
    ),
    _critical(
        "group_watermarks",
        "committed_at_most_max",
        f"committed > max_offset AND {_BY_BROKER}",
        *("committed", "max_offset"),
    ),
    _critical("group_watermarks", "min_at_most_max", "min_offset > max_offset", "min_offset"),
    _warning(
        "group_watermarks",
        "persisted_at_most_committed",
        "persisted > committed AND last_commit_time < event_time - INTERVAL "
        f"'{PERSIST_LATE_S} seconds'",
        *("persisted", "committed", "last_commit_time"),
    ),
    _warning(
        "group_watermarks",
        "committed_at_most_pulled",
        "committed > pulled AND last_commit_time IS NOT NULL",
        *("committed", "pulled"),
    ),
    _warning(
        "group_watermarks",
        "pulled_at_most_max",
        "pulled > max_offset",
        *("pulled", "max_offset"),
    ),
    _critical(
        "queue_watermarks",
        "queue_ends_in_order",
        "min_offset > max_offset OR flushed_offset > max_offset OR replicated_offset > max_offset",
        *("min_offset", "flushed_offset", "replicated_offset", "max_offset"),
    ),
    _critical(
        "client_windows",
        "held_windows_possible",
        "held_count < 0 OR held_bytes < 0 OR finished_count < 0 OR first_held > last_held",
        *("held_count", "held_bytes", "finished_count", "first_held", "last_held"),
    ),
    _critical(
        "redeliveries", "redelivered_ranges_possible", "from_offset >= to_offset", "to_offset"
    ),
    _critical(
        "flush_checkpoints",
        "flushed_at_most_written",
        "flushed > written OR duration_us_max > duration_us_sum",
        *("written", "flushed", "duration_us_sum", "duration_us_max"),
    ),
    _critical(
        "reused_offsets",
        "reused_offsets_behind_the_end",
        '"offset" < queue_end',
        *("offset", "queue_end"),
    ),
    _critical(
        "unread_deletions",
        "unread_deletions_possible",
        "from_offset >= to_offset OR unread < 0 OR unread > to_offset - from_offset",
        *("from_offset", "to_offset", "unread"),
    ),
    _critical(
        "pop_watermarks",
        "handed_out_at_most_what_is_there",
        "popped > max_offset OR unacknowledged > popped OR unacknowledged < 0 "
        "OR (unacknowledged IS NULL AND unknown_reason IS NULL)",
        *("popped", "max_offset", "unacknowledged", "unknown_reason"),
    ),
    _critical("retry_dlq_flow", "retries_counted", "reconsume_times < 0", "reconsume_times"),
    _critical(
        "shipments",
        "shipments_go_forward",
        "seq_to < seq_from - 1",
        *("seq_from", "seq_to"),
    ),
    _warning(
        "lifecycle",
        "clock_not_set",
        f"kind = 'CLOCK_STEPPED' AND abs(step_ms) >= {NO_STEP_MS}",
        *("step_ms", "detail"),
    ),
    _warning("lifecycle", "timers_delivered_when_due", "kind = 'TIMERS_LATE'", "detail"),
)

ANSWERS: Final = (
    _critical(
        "consumer_lag",
        "lag_committed_at_most_max",
        f"committed > max_offset AND {_BY_BROKER}",
        *("committed", "max_offset"),
    ),
    _critical(
        "consumer_lag",
        "unknown_lag_says_why",
        "(lag_messages IS NULL OR time_lag_ms IS NULL) AND unknown_reason IS NULL",
        *("lag_messages", "time_lag_ms"),
    ),
    _critical(
        "consumer_lag",
        "lag_is_the_difference",
        "lag_messages <> max_offset - committed",
        *("lag_messages", "committed", "max_offset"),
    ),
    _critical(
        "consumer_lag",
        "time_lag_possible",
        "time_lag_ms < 0 OR time_lag_error_ms < 0",
        *("time_lag_ms", "time_lag_error_ms"),
    ),
    _critical(
        "group_state",
        "states_add_up",
        "queues_known > queues OR queues_not_ok > queues OR (state = 'OK' AND queues_not_ok > 0)",
        *("state", "queues", "queues_known", "queues_not_ok"),
    ),
    _critical(
        "group_state",
        "a_sum_of_some_queues_is_no_lag",
        # Rows of earlier versions have no lower bound.
        "lag_at_least_messages IS NOT NULL AND ("
        "(queues_known < queues AND (lag_messages IS NOT NULL OR unknown_reason IS NULL)) "
        "OR lag_messages <> lag_at_least_messages OR time_lag_ms <> time_lag_at_least_ms)",
        *("lag_messages", "lag_at_least_messages", "queues", "queues_known", "unknown_reason"),
    ),
    _critical(
        "offset_violations",
        "offsets_never_fall_unexplained",
        "law = 'MONOTONIC' AND NOT explained AND (path IS NULL OR path <> 'OBSERVED')",
        *("offset", "previous_offset", "cause"),
    ),
    _critical(
        "offset_health",
        "violations_add_up",
        "refused > reports OR unaccounted > violations "
        "OR monotonic + at_most_max + at_least_min <> violations",
        *("reports", "refused", "violations", "unaccounted"),
    ),
    _critical(
        "retry_flow",
        "retry_sheet_closes",
        "difference <> 0 AND difference_reason IS NULL",
        *("sent_back", "scheduled", "dead_lettered", "difference"),
    ),
    _critical(
        "retry_flow",
        "retry_sheet_adds_up",
        "sent_back - scheduled - dead_lettered <> difference OR scheduled - delivered <> delayed "
        "OR delivered + redriven + coalesce(came_back, 0) - failed_again "
        "- coalesce(came_back_again, 0) <> retried OR came_back_again > came_back",
        *("sent_back", "scheduled", "delivered", "delayed", "retried", "difference", "came_back"),
    ),
    _critical(
        "pop_progress",
        "acknowledged_at_most_popped",
        "acknowledged_max < 0 OR acknowledged_max > popped OR popped > max_offset "
        "OR popped - unacknowledged <> acknowledged_max OR max_offset - popped <> waiting",
        *("acknowledged_max", "popped", "max_offset", "unacknowledged", "waiting"),
    ),
    _critical(
        "retry_flow",
        "no_group_is_named_after_its_retry_topic",
        "\"group\" LIKE '%+%'",
        *("sent_back", "came_back"),
    ),
    _critical(
        "delayed_retries",
        "delays_add_up",
        "scheduled - released <> waiting OR overdue > waiting AND waiting >= 0",
        *("scheduled", "released", "waiting", "overdue"),
    ),
    _critical(
        "flush_health",
        "lost_bytes_possible",
        "kill_bytes < 0 OR power_cut_bytes < 0 OR power_cut_messages < 0 OR "
        "power_cut_queues > power_cut_messages",
        *("kill_bytes", "power_cut_bytes", "power_cut_messages", "power_cut_queues"),
    ),
    _critical(
        "replication_health",
        "a_slave_is_never_beyond_its_master",
        "loss_bytes < 0 OR loss_messages < 0 OR behind_bytes < loss_bytes OR behind_ms < 0 OR "
        "(loss_bytes IS NULL AND unknown_reason IS NULL)",
        *("written", "loss_bytes", "loss_messages", "behind_bytes", "unknown_reason"),
    ),
    _critical(
        "emitter_health",
        "judged_facts_gapless",
        "rows_distinct < rows_expected",
        *("seq_from", "seq_to", "rows_expected", "rows_distinct"),
    ),
    _critical(
        "emitter_health",
        "judged_facts_unique",
        "rows_found > rows_distinct",
        *("seq_from", "seq_to", "rows_found", "rows_distinct"),
    ),
    _critical(
        "duplicate_risk_windows",
        "risks_possible",
        "to_offset < from_offset OR certain_messages < 0 OR uncertain_messages < 0 "
        "OR (outcome = 'CONFIRMED' AND coalesce(redelivered_messages, 0) < 1) "
        "OR (redelivered_messages IS NULL AND redelivered_unknown_reason IS NULL)",
        *("from_offset", "to_offset", "outcome", "redelivered_messages"),
    ),
    _warning(
        "dead_letters", "dead_letters_know_their_origin", "origin_topic IS NULL", "message_id"
    ),
)

ROW_LAWS: Final = (*FACTS, *ANSWERS)
