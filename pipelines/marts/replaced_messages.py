"""Records pulled messages that a broker lost and the messages that took their offsets.

Place in the walk: reused_offsets → gold replaced_messages. A window REPLAY_AFTER_TRUNCATION says
what may come again; this says what is gone, by name: whoever counts by offsets takes the two for
one.

Invariant: one row a fact. Absent on purpose: messages that lay between; of each queue the broker
knows the newest one that had been pulled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.telemetry.tables import Column, must
from pipelines.marts.columns import LONG, QUEUE_AT, STAMP, STRING, rows_as_declared
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.sentences.losses import replaced

REPLACED_MESSAGES: Final = GoldTable(
    "replaced_messages",
    "queue of a group whose pulled messages were lost, and whose offsets were given again: the "
    "newest of them that is known, written when another message had its offset",
    (
        *QUEUE_AT,
        must("offset", LONG, "queue offset of both messages"),
        must("queue_end", LONG, "where the queue ended after the loss: given again from there on"),
        must("reused_offsets", LONG, "offsets given again at least: offset + 1 - queue_end"),
        Column("message_id_before", STRING, "UNIQ_KEY of the one that was lost; null: it had none"),
        Column("message_id", STRING, "UNIQ_KEY of the one that is there now; null: it has none"),
        must(
            "outcome",
            STRING,
            "LOST (another message is there), SENT_AGAIN (the same one, by its producer) or "
            "UNKNOWN (one of them has no id)",
        ),
        Column("client_id", STRING, "client that had pulled; null when it had no name"),
        must("evidence", STRING, "one sentence with the figures"),
        *STAMP,
    ),
    ("emitter", "seq"),
)


def replaced_messages(given: Given) -> Made:
    """One row per queue of a group of which a pulled message was lost and replaced."""
    rows = [_row(fact) for fact in given.facts["reused_offsets"].to_pylist()]
    return Made(rows_as_declared(rows, REPLACED_MESSAGES))


def _row(fact: Mapping[str, Any]) -> dict[str, Any]:
    row = {
        **fact,
        "observed_us": fact["event_us"],
        "reused_offsets": fact["offset"] + 1 - fact["queue_end"],
        "outcome": _outcome(fact["message_id_before"], fact["message_id"]),
    }
    return {**row, "evidence": replaced(row)}


def _outcome(before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return "UNKNOWN"
    return "SENT_AGAIN" if before == now else "LOST"


MART: Final = mart(REPLACED_MESSAGES, replaced_messages, reads=("reused_offsets",))
