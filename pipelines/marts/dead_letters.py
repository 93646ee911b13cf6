"""Records messages that reached a dead-letter queue and when each first failed.

Place in the walk: retry_dlq_flow → gold dead_letters. Carried: per group the first SENT_BACK of
each message that failed in the last RETRY_SPAN_US; sixteen tries at the default levels take 4 h
46 min.

Invariant: a message whose first failure is not remembered has none, never a later one. Absent on
purpose: forgetting at the dead letter. A message that is redriven may fail again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import FAILING_MESSAGES_MAX, RETRY_SPAN_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import GROUP_AT, INT, LONG, STAMP, STRING, TIMESTAMP, rows_as_declared
from pipelines.marts.keys import are_among
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.staging.facts import is_one_of

DEAD_LETTERS: Final = GoldTable(
    "dead_letters",
    "message that was dead-lettered",
    (
        *GROUP_AT,
        Column("message_id", STRING, "UNIQ_KEY"),
        Column("origin_topic", STRING, "topic it was first sent to"),
        Column("origin_queue_id", INT, "queue there"),
        Column("origin_offset", LONG, "queue offset there"),
        must("reconsume_times", INT, "failed tries"),
        Column("reason", STRING, "why"),
        Column(
            "first_failed_at",
            TIMESTAMP,
            "first SENT_BACK of the same message seen; null when not seen",
        ),
        *STAMP,
    ),
    ("emitter", "seq"),
)

FAILURES: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("group", KEY_TEXT),
        ("message_id", pa.string()),
        ("failed_us", pa.int64()),
    ]
)
"""First failures; those of a group lie in the order in which they were reported."""
_OF_GROUP: Final = ("emitter", "group")

Failures = dict[str, int]
"""Per message of a group, when it failed first, in the order of reports."""


def dead_letters(given: Given) -> Made:
    """One row per message that was dead-lettered."""
    steps = given.facts["retry_dlq_flow"]
    endings = steps.filter(is_one_of(steps["step"], "SENT_BACK", "DEAD_LETTERED"))
    if not endings.num_rows:
        return Made(MART.none)
    failures = given.state["failures"]
    is_concerned = are_among(failures, endings, _OF_GROUP)
    groups: defaultdict[tuple[str, str], Failures] = defaultdict(dict)
    for known in failures.filter(is_concerned).to_pylist():
        groups[known["emitter"], known["group"]][known["message_id"]] = known["failed_us"]
    letters = []
    for step in endings.to_pylist():
        failed = groups[step["emitter"], step["group"]]
        if step["step"] == "SENT_BACK":
            _remember(failed, step)
        else:
            letters.append(_letter(failed, step))
    remembered = _as_table(groups)
    kept = failures.filter(pc.invert(is_concerned))
    return Made(
        rows_as_declared(letters, DEAD_LETTERS),
        {"failures": pa.concat_tables([kept, remembered])},
    )


def _remember(failed: Failures, step: dict[str, Any]) -> None:
    """Note a failure, unless the message has failed before; forget what is too old or too much."""
    message_id, now_us = step["message_id"], step["event_us"]
    while failed and next(iter(failed.values())) < now_us - RETRY_SPAN_US:
        del failed[next(iter(failed))]
    if message_id is not None:
        failed.setdefault(message_id, now_us)
    if len(failed) > FAILING_MESSAGES_MAX:
        del failed[next(iter(failed))]


def _letter(failed: Failures, step: dict[str, Any]) -> dict[str, Any]:
    failed_us = failed.get(step["message_id"])
    is_recent = failed_us is not None and failed_us >= step["event_us"] - RETRY_SPAN_US
    return {
        **step,
        "observed_us": step["event_us"],
        "first_failed_at": failed_us if is_recent else None,
    }


def _as_table(groups: dict[tuple[str, str], Failures]) -> pa.Table:
    rows = [
        (emitter, group, message_id, failed_us)
        for (emitter, group), failed in groups.items()
        for message_id, failed_us in failed.items()
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(FAILURES)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, FAILURES.types, strict=True)],
        schema=FAILURES,
    )


MART: Final = mart(
    DEAD_LETTERS, dead_letters, reads=("retry_dlq_flow",), carries={"failures": FAILURES}
)
