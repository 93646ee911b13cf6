"""Records when a queue's messages were at risk of double consumption, and the outcome.

Place in the walk: facts, offset_violations and exposed queues → gold duplicate_risk_windows.
`basis` distinguishes what an event put at risk (DEPARTURE, RESTART, OFFSET_FALL, an unexpected
REDELIVERY), what is at risk as long as a head is frozen (EXPOSURE, judged on ticks), and messages
delivered once more from another place: they failed (SEND_BACK), were not acknowledged in time
(INVISIBLE_TIME_EXPIRED), or were sent again and stored twice (SEND_RETRY).

Invariant: predicted and observed stand side by side in one row; an observed re-delivery comes from
the broker's own redeliveries, never from a prediction. Absent on purpose: the sources (`risks/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.marts.columns import LONG, QUEUE_INTERVAL, STAMP, STRING, rows_as_declared, window_id
from pipelines.marts.keys import QUEUE_KEY
from pipelines.marts.lifecycle_events import SPOOL_LOSS
from pipelines.marts.mart import Given, GoldTable, Made, Positions, mart
from pipelines.marts.risks.holdings import Range
from pipelines.marts.risks.marks import MARKS, Marks
from pipelines.marts.risks.readers import LOSERS, absences, answered, departures
from pipelines.marts.risks.restarts import CUTS, restarts
from pipelines.marts.risks.samples import SAMPLES, newest_samples, samples_of
from pipelines.marts.risks.sightings import delivered_once_more, falls, redelivered
from pipelines.marts.risks.windows import WINDOWS, Revision, folded
from pipelines.sentences.duplicates import OBSERVED, OF_ONE_MESSAGE, counts_redeliveries, evidence
from pipelines.staging.facts import is_one_of

DUPLICATE_RISK_WINDOWS: Final = GoldTable(
    "duplicate_risk_windows",
    "revision of an interval in which messages of a queue were at risk of being consumed twice, "
    "by cause",
    (
        *QUEUE_INTERVAL,
        must(
            "cause",
            STRING,
            "CONSUMER_CRASH, BROKER_CRASH, HAND_OVER, REWIND, RESET, OFFSET_STORE_LOST, SEND_BACK, "
            "SEND_RETRY (a message stored twice under one UNIQ_KEY), INVISIBLE_TIME_EXPIRED (a POP "
            "group did not acknowledge it in time), DOUBLE_OWNER "
            "(two pull in turn for longer than a rebalance takes) or REPLAY_AFTER_TRUNCATION",
        ),
        must(
            "basis",
            STRING,
            "what showed it: DEPARTURE, RESTART, OFFSET_FALL, OFFSET_ANSWER (a reader was sent to "
            "begin below what was pulled), EXPOSURE (at risk while commits stand still), "
            "SEND_BACK, SEND_RETRY, INVISIBLE_TIME_EXPIRED, or REDELIVERY (seen without a "
            "prediction)",
        ),
        must(
            "outcome",
            STRING,
            "POSSIBLE (for ever, of an observed broker: what comes again is not reported), "
            "CONFIRMED or PASSED",
        ),
        Column("client_id", STRING, "client whose work may be repeated"),
        Column("next_client_id", STRING, "client that pulled the range again, or pulls now"),
        must("from_offset", LONG, "first offset at risk"),
        must("to_offset", LONG, "one past the last offset at risk"),
        must(
            "at_risk_messages",
            LONG,
            "predicted duplicates at most: to_offset - from_offset, or delivered messages",
        ),
        Column(
            "certain_messages",
            LONG,
            "of these, known to be finished (will be processed again); null when not reported",
        ),
        Column(
            "uncertain_messages", LONG, "of these, not known to be finished; null when not reported"
        ),
        Column("redelivered_from", LONG, "first offset delivered again; null unless CONFIRMED"),
        Column("redelivered_to", LONG, "one past the last; null unless CONFIRMED"),
        Column(
            "redelivered_messages",
            LONG,
            "observed re-deliveries so far, inside or outside the predicted range; null: unknown",
        ),
        Column("message_id", STRING, "message concerned, where a window is about one"),
        must("evidence", STRING, "one sentence with the figures"),
        *STAMP,
        Column(
            "certain_ranges",
            ColumnType.RANGES,
            "which offsets the certain messages are; null when only their number is known, or not "
            "even that",
        ),
        Column(
            "all_from_offset",
            LONG,
            "two members read the queue, or may: what either pulls from here on comes again as "
            "well, however much; null when one reads it",
        ),
        Column(
            "first_from_offset",
            LONG,
            "from_offset when the window opened: of a DEPARTURE what was committed then, so what "
            "comes again from below it does so since the committed offset fell; null when unknown",
        ),
        Column(
            "redelivered_unknown_reason",
            STRING,
            "why redelivered_messages is null, or only the least: OBSERVED; null when it is exact",
        ),
    ),
    ("window_id", "revision"),
    revised=True,
    on_ticks="basis = 'EXPOSURE'",
)


def duplicate_risk_windows(given: Given) -> Made:
    """One row per revision of an interval in which a queue's messages might be doubled."""
    facts, state = given.facts, given.state
    watermarks, new_samples = facts["group_watermarks"], facts["client_windows"]
    marks = Marks(state["marks"], state["earlier"], watermarks)
    new_samples = samples_of(new_samples)
    samples = pa.concat_tables([state["samples"], new_samples])
    fallen = list(falls(facts["offset_violations"]))
    restarted = restarts(facts["lifecycle"], state["cuts"], marks, samples, fallen=fallen)
    marks.take_all()
    ends = [gone.event for gone in restarted.gone if gone.still_there is None]
    ends += facts["lifecycle"].filter(is_one_of(facts["lifecycle"]["kind"], SPOOL_LOSS)).to_pylist()
    departed = departures(
        facts["rebalance_events"], samples, state["losers"], ends=ends, falls=fallen
    )
    events = [
        *departed.openings,
        *restarted.openings,
        *fallen,
        *redelivered(facts["redeliveries"]),
    ]
    events += answered(facts["offset_answers"], state["windows"], events)
    away = absences(facts["rebalance_events"], new_samples, state["windows"], events)
    windows, revisions = folded(
        state["windows"], events, watermarks, restarted.gone, absent=list(away)
    )
    revisions += delivered_once_more(facts["retry_dlq_flow"])
    revisions += facts["exposures"].to_pylist()
    carried = {"windows": windows, "cuts": restarted.cuts, "losers": departed.losers}
    touched: dict[str, Positions] = {}
    if new_samples.num_rows or ends or fallen:
        carried["samples"] = newest_samples(state["samples"], new_samples, ends, fallen)
    if watermarks.num_rows or state["earlier"].num_rows or restarted.gone:
        carried["marks"], moved, carried["earlier"] = marks.carried()
        if moved is not None:
            touched["marks"] = moved
    changed = {name: rows for name, rows in carried.items() if rows is not state[name]}
    rows = [_row(revision) for revision in revisions]
    return Made(rows_as_declared(rows, DUPLICATE_RISK_WINDOWS), changed, touched)


def _row(revision: Revision) -> dict[str, Any]:
    """A revision under the table's names."""
    is_closed = revision["state"] == "CLOSED"
    is_exact = counts_redeliveries(revision)
    return {
        **revision,
        "window_id": _window_id(revision),
        "opened_at": revision["opened_us"],
        "closed_at": revision["observed_us"] if is_closed else None,
        "outcome": _outcome(revision),
        "at_risk_messages": revision["to_offset"] - revision["from_offset"],
        "certain_messages": revision["certain"],
        "uncertain_messages": revision["uncertain"],
        "redelivered_messages": revision["redelivered"] or (0 if is_exact else None),
        "redelivered_unknown_reason": None if is_exact else OBSERVED,
        "certain_ranges": _as_ranges(revision.get("certain_ranges")),
        "all_from_offset": revision.get("all_from_offset"),
        "first_from_offset": revision.get("first_from_offset"),
        "evidence": evidence(revision),
    }


def _as_ranges(ranges: Sequence[Range] | None) -> list[dict[str, int]] | None:
    if ranges is None:
        return None
    return [{"from_offset": begin, "to_offset": end} for begin, end in ranges]


def _window_id(revision: Revision) -> str:
    """Windows of single messages may open at the same instant on the same queue: their offset
    distinguishes them.
    """
    named = ("basis", "cause", *QUEUE_KEY, "opened_us")
    parts = [revision[name] for name in named]
    if revision["basis"] in OF_ONE_MESSAGE:
        parts.append(revision["from_offset"])
    return window_id(DUPLICATE_RISK_WINDOWS.name, *parts)


def _outcome(revision: Revision) -> str:
    if revision["redelivered"] > 0:
        return "CONFIRMED"
    is_over = revision["state"] == "CLOSED" and revision["told_by"] != "TAKEN_OVER"
    return "PASSED" if is_over and counts_redeliveries(revision) else "POSSIBLE"


MART: Final = mart(
    DUPLICATE_RISK_WINDOWS,
    duplicate_risk_windows,
    reads=(
        "group_watermarks",
        "client_windows",
        "rebalance_events",
        "redeliveries",
        "retry_dlq_flow",
        "lifecycle",
        "offset_answers",
        "offset_violations",
        "exposures",
    ),
    carries={
        "marks": MARKS,
        "earlier": MARKS,
        "cuts": CUTS,
        "samples": SAMPLES,
        "losers": LOSERS,
        "windows": WINDOWS,
    },
)
