"""Sheets that count are held against a ledger that is kept while the history is made up.

The ledger is a list of what happened, by whom and when; every figure of a sheet is counted anew
from it, with plain loops. Histories are those of two brokers with the same group and topics, whose
failed messages go any way, in any order, and whose clients report any offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.telemetry.tables import BY_NAME
from pipelines.marts.declared import in_order
from pipelines.marts.offset_health import MART as OFFSET_HEALTH
from pipelines.marts.offset_violations import MART as OFFSET_VIOLATIONS
from pipelines.marts.retry_flow import MART as RETRY_FLOW
from pipelines.staging.facts import FACT_TABLES
from tests.amounts import examples
from tests.pipelines import partition
from tests.pipelines.bronze_lake import bronze_table
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.event_stories import Bronze, MemoryWriter

STEPS = in_order([RETRY_FLOW, OFFSET_HEALTH, OFFSET_VIOLATIONS])
SECOND = 1_000_000
FLOW_SLOT_US, HEALTH_SLOT_US = 10 * SECOND, 600 * SECOND
ENDS = ("SENT_BACK", "SCHEDULED", "DELIVERED", "DEAD_LETTERED", "REDRIVEN", "DISCARDED", "EXPIRED")
PASSED_BY = ("LOCAL_RETRY",)
"""A step that no column counts."""
BROKERS = (("west", "broker-a"), ("east", "broker-a"))

What = tuple[int, int, str, str | None, int, int]
"""Broker, microseconds that pass, what, topic of origin, and two numbers to choose with."""


@dataclass
class Ledger:
    """What happened: moment, emitter, and the row."""

    steps: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    reports: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)


PASSES_US = st.sampled_from([1, SECOND, 3 * SECOND, 10 * SECOND, 70 * SECOND, 900 * SECOND])
HISTORIES = st.lists(
    st.tuples(
        st.integers(0, 1),
        PASSES_US,
        st.sampled_from([*ENDS, *PASSED_BY, "REPORT", "REPORT", "SHIP"]),
        st.sampled_from(["orders", "bills", None]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=60,
)


def rows_of(history: list[What]) -> tuple[Bronze, Ledger]:
    """The rows of a history, and what it was; all of it is shipped half an hour later."""
    writers = [MemoryWriter(*names) for names in BROKERS]
    ledger = Ledger()
    offsets: Counter[tuple[int, int]] = Counter()
    for which, passes_us, what, origin, one, other in history:
        writer = writers[which]
        writer.now_us += passes_us
        if what == "SHIP":
            writer.ship()
        elif what == "REPORT":
            before = offsets[which, one]
            offset = max(0, before + (other - 2) * 10)
            values = {
                "group": "g", "topic": "t", "queue_id": one, "offset": offset,
                "previous_offset": before, "path": "COMMIT_RPC", "trigger": "TIMER",
                "client_id": f"c{other % 2}", "accepted": other != 1,
                "min_offset": 0, "max_offset": 30,
            }  # fmt: skip
            if values["accepted"]:
                offsets[which, one] = offset
            writer.report("consume_offsets", **values)
            ledger.reports.append((writer.now_us, writer.emitter, values))
        else:
            values = {
                "message_id": "m", "origin_topic": origin, "group": "g", "step": what,
                "reconsume_times": one, "delay_ms": (None, 0, 9_999, 1_800_000)[one],
            }  # fmt: skip
            writer.report("retry_dlq_flow", **values)
            ledger.steps.append((writer.now_us, writer.emitter, values))
    for writer in writers:
        writer.now_us += 4 * HEALTH_SLOT_US  # Beyond the slot in which the longest delay ends.
        writer.ship()
    rows: dict[str, list[dict[str, Any]]] = {
        name: [row for writer in writers for row in writer.rows[name]] for name in FACT_TABLES
    }
    return {name: bronze_table(name, rows[name]) for name in BY_NAME if name in rows}, ledger


def sheets(ledger: Ledger) -> Iterator[tuple[tuple[str, str | None], int, Counter[str]]]:
    """Per emitter and origin, and slot in which something was counted or came due: the totals."""
    keys = {(emitter, row["origin_topic"]) for _, emitter, row in ledger.steps}
    for emitter, origin in keys:
        own = [
            (at_us, row)
            for at_us, whose, row in ledger.steps
            if (whose, row["origin_topic"]) == (emitter, origin)
        ]
        due = [
            at_us + 1000 * row["delay_ms"]
            for at_us, row in own
            if row["step"] == "SCHEDULED" and row["delay_ms"] is not None
        ]
        for slot_us in {_slot(at_us, FLOW_SLOT_US) for at_us in (*(one for one, _ in own), *due)}:
            so_far = [row for at_us, row in own if at_us <= slot_us]
            totals = Counter(row["step"].lower() for row in so_far)
            totals["failed_again"] = sum(
                row["step"] == "SENT_BACK" and row["reconsume_times"] > 1 for row in so_far
            )
            totals["due"] = sum(at_us <= slot_us for at_us in due)
            yield (emitter, origin), slot_us, totals


def _slot(at_us: int, length_us: int) -> int:
    """The end of the slot of a moment: a moment that ends one belongs to it."""
    whole, rest = divmod(at_us, length_us)
    return (whole + (rest > 0)) * length_us


def _micros(row: dict[str, Any]) -> int:
    moment = row["observed_at"]
    return int(moment.timestamp()) * SECOND + moment.microsecond


@examples(25, in_full=60)
@given(HISTORIES, st.data())
def test_the_balance_sheet_of_failed_messages_is_what_the_ledger_comes_to(
    history: list[What], data: st.DataObject
) -> None:
    bronze, ledger = rows_of(history)
    count = len(partition.horizons_of(bronze))
    ends = data.draw(st.sets(st.integers(0, count - 1)))
    rows = partition.run(STEPS, bronze, SHORT, ends=ends)["retry_flow"]
    found = {((row["emitter"], row["origin_topic"]), _micros(row)): row for row in rows}
    assert len(found) == len(rows), "one row a key and slot"
    expected = {(key, slot_us): totals for key, slot_us, totals in sheets(ledger)}
    assert found.keys() == expected.keys()
    for place, totals in expected.items():
        row = found[place]
        assert {name: row[name] for name in map(str.lower, ENDS)} == {
            name: totals[name] for name in map(str.lower, ENDS)
        }
        assert row["failed_again"] == totals["failed_again"]
        assert row["delayed"] == totals["scheduled"] - totals["delivered"]
        assert row["retried"] == totals["delivered"] + totals["redriven"] - totals["failed_again"]
        difference = totals["sent_back"] - totals["scheduled"] - totals["dead_lettered"]
        assert row["difference"] == difference
        assert (row["difference_reason"] is None) is (difference == 0)
        assert row["overdue"] == max(0, totals["due"] - totals["delivered"])


@examples(25, in_full=60)
@given(HISTORIES, st.data())
def test_the_health_of_offsets_is_what_the_ledger_comes_to(
    history: list[What], data: st.DataObject
) -> None:
    bronze, ledger = rows_of(history)
    count = len(partition.horizons_of(bronze))
    ends = data.draw(st.sets(st.integers(0, count - 1)))
    gold = partition.run(STEPS, bronze, SHORT, ends=ends)
    rows = {(row["emitter"], _micros(row)): row for row in gold["offset_health"]}
    assert len(rows) == len(gold["offset_health"]), "one row a group, broker and slot"
    expected: dict[tuple[str, int], Counter[str]] = {}
    for at_us, emitter, report in ledger.reports:
        counts = expected.setdefault((emitter, _slot(at_us, HEALTH_SLOT_US)), Counter())
        counts["reports"] += 1
        counts["refused"] += not report["accepted"]
        counts["monotonic"] += report["accepted"] and report["offset"] < report["previous_offset"]
        counts["at_most_max"] += report["offset"] > report["max_offset"]
    assert rows.keys() == expected.keys()
    for place, counts in expected.items():
        row = rows[place]
        assert {name: row[name] for name in counts} == counts
        assert row["violations"] == row["monotonic"] + row["at_most_max"] + row["at_least_min"]
        causes = ("reset", "broker_restart", "replay", "hand_over", "two_writers", "unexplained")
        assert row["violations"] == sum(row[name] for name in causes)
        assert row["unaccounted"] == row["two_writers"] + row["unexplained"]
