"""Checks each emitter's telemetry for gaps, duplicates, losses, clock errors and silence.

A lag computed over lost facts looks like any other lag, therefore these checks stand before all
trust in a number. What they must remember of an emitter is a few numbers (`memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import polars as pl

from expectations.batch import Batch
from expectations.check import ALL_FACTS, Check, Failure, Finding, Severity
from expectations.memory import EmitterMemory, Memory
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import moment_at
from pipelines.staging.facts import SHIPPER_SUFFIX

SILENT_MAX_US: Final = 60 * SECOND_US
"""A living emitter moves its horizon each second; its shipper may need a while."""
GONE_AFTER_US: Final = 24 * 3600 * SECOND_US
"""Nobody waits any more for an emitter that has been silent for longer: its broker is gone."""
AHEAD_MAX_US: Final = 5 * SECOND_US
"""A broker's clock may be so far ahead of its shipper's: more makes every lag wrong."""
BEHIND_MAX_US: Final = 60 * SECOND_US
"""Rows that were all shipped so long after the broker's clock said: it is behind, or they were
late."""
KEEPS_UP_US: Final = 60 * SECOND_US


def _check(name: str, severity: Severity = Severity.CRITICAL, table: str = ALL_FACTS) -> Check:
    return Check(name, table, severity)


GAPLESS: Final = _check("facts_gapless")
UNIQUE: Final = _check("facts_unique")
FOLLOWED: Final = _check("judged_shipments_follow", table="emitter_health")
NOTHING_LOST: Final = _check("no_rows_lost")
SPEAKS: Final = _check("emitters_speak")
CLOCK_AHEAD: Final = _check("clocks_not_ahead")
CLOCK_BEHIND: Final = _check("clocks_not_behind", Severity.WARNING)
KEEPS_UP: Final = _check("gold_keeps_up", Severity.WARNING)

CHECKS: Final = (
    *(GAPLESS, UNIQUE, FOLLOWED, NOTHING_LOST, SPEAKS, CLOCK_AHEAD, CLOCK_BEHIND, KEEPS_UP),
)

Numbers = Mapping[str, Mapping[str, Any]]
"""Per emitter, what executors have counted in the batch."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What executors counted of every emitter in the batch: a few numbers each."""

    facts: Numbers = field(default_factory=dict)
    """found, distinct: rows of all tables but shipments."""
    stale: Numbers = field(default_factory=dict)
    """found: rows that were judged before and have come again."""
    shipments: Numbers = field(default_factory=dict)
    """seq_from, seq_to, skipped (by lives that began), skipped_first (before seq_from), ahead_us,
    behind_us."""
    lifecycle: Numbers = field(default_factory=dict)
    """loss (seq, event_us, detail), snapshot_from, last (kind of start or stop)."""
    health: Numbers = field(default_factory=dict)
    """seq_from, seq_to, expected."""
    horizons_us: Mapping[str, int] = field(default_factory=dict)
    """Up to when each has reported, beyond the batch as well."""


def count_facts(numbers: pl.DataFrame) -> Numbers:
    """(emitter, seq) of facts, counted and distinct."""
    return _by_emitter(
        numbers.group_by("emitter").agg(
            pl.len().alias("found"), pl.col("seq").n_unique().alias("distinct")
        )
    )


def count_shipments(shipments: pl.DataFrame) -> Numbers:
    """The range that was shipped, and how far the two clocks are apart."""
    ahead_us = (pl.col("event_time_to") - pl.col("shipped_time")).dt.total_microseconds()
    carried = pl.col("seq_to") >= pl.col("seq_from")
    skipped = pl.col("skipped").fill_null(0)
    first = pl.col("seq_from").filter(carried).min()
    return _by_emitter(
        _owned(shipments)
        .group_by("emitter")
        .agg(
            first,
            pl.col("seq_to").max(),
            skipped.sum(),
            skipped.filter(pl.col("seq_from") <= first).sum().alias("skipped_first"),
            ahead_us.max().alias("ahead_us"),
            (-ahead_us).min().alias("behind_us"),
        )
    )


def newest_horizons(shipments: pl.DataFrame) -> Numbers:
    """Up to when each emitter has reported, to_us."""
    horizon = pl.col("event_time_to").max().dt.epoch("us").alias("to_us")
    return _by_emitter(_owned(shipments).group_by("emitter").agg(horizon))


def count_lifecycle(lifecycle: pl.DataFrame) -> Numbers:
    """The newest loss, complete snapshot, and start or stop of each emitter."""
    loss = pl.struct("seq", pl.col("event_time").dt.epoch("us").alias("event_us"), "detail")
    kind = pl.col("kind")
    return _by_emitter(
        lifecycle.sort("seq")
        .group_by("emitter")
        .agg(
            loss.filter(kind == "SPOOL_LOSS").last().alias("loss"),
            pl.col("seq_from").filter(kind == "SNAPSHOT").max().alias("snapshot_from"),
            kind.filter(kind.is_in(["BOOT", "SHUTDOWN"])).last().alias("last"),
        )
    )


def count_health(health: pl.DataFrame) -> Numbers:
    """The range that gold has reported, and how many rows its shipments promised."""
    return _by_emitter(
        health.group_by("emitter").agg(
            pl.col("seq_from").min(),
            pl.col("seq_to").max(),
            pl.col("rows_expected").sum().alias("expected"),
        )
    )


def _owned(shipments: pl.DataFrame) -> pl.DataFrame:
    return shipments.with_columns(pl.col("emitter").str.strip_suffix(SHIPPER_SUFFIX))


def _by_emitter(counts: pl.DataFrame) -> Numbers:
    return {row["emitter"]: row for row in counts.iter_rows(named=True)}


def remembered(memory: Memory, batch: Batch, counted: Counted) -> dict[str, EmitterMemory]:
    """What is known of each emitter behind the batch: a pure step."""
    after = dict(memory.emitters)
    for cut in batch.cuts:
        known = memory.emitter(cut.emitter)
        seen = counted.lifecycle.get(cut.emitter, {})
        health = counted.health.get(cut.emitter)
        snapshot_from = max(known.snapshot_from, _or(seen.get("snapshot_from"), -1))
        loss, last = seen.get("loss"), seen.get("last")
        loss_seq = loss["seq"] if loss else known.loss_seq
        is_open = loss_seq is not None and snapshot_from <= loss_seq
        after[cut.emitter] = replace(
            known,
            seq_to=cut.seq_to,
            shipment_to=cut.shipment_to,
            time_to_us=cut.time_to_us,
            health_to=health["seq_to"] if health else known.health_to,
            loss_seq=loss_seq if is_open else None,
            loss_us=loss["event_us"] if loss else known.loss_us,
            loss_detail=(loss["detail"] or "") if loss else known.loss_detail,
            snapshot_from=snapshot_from,
            is_stopped=last == "SHUTDOWN" if last else known.is_stopped,
            unused_to=cut.unused_to,
        )
    return after


def judge(memory: Memory, batch: Batch, counted: Counted, now: datetime) -> list[Finding]:
    """What is wrong with each emitter, from what was counted and what is remembered: pure."""
    after = remembered(memory, batch, counted)
    return [
        *_facts(memory, batch, counted),
        _followed(memory, counted),
        _lost(after, counted),
        *_clocks(counted),
        *_present(after, batch, counted, now),
    ]


def _facts(memory: Memory, batch: Batch, counted: Counted) -> list[Finding]:
    missing: list[Failure] = []
    repeated: list[Failure] = []
    total = 0
    for cut in batch.cuts:
        found = counted.facts.get(cut.emitter, {"found": 0, "distinct": 0})
        total += found["found"]
        begin = _first(cut.emitter, memory, counted)
        lacking = 0 if begin is None else cut.seq_to - begin - found["distinct"]
        lacking -= _skipped(cut.emitter, counted, is_first=cut.emitter not in memory.emitters)
        if lacking > 0:
            detail = f"missing={lacking}, of seq {(begin or 0) + 1} to {cut.seq_to}"
            missing.append(_about(cut.emitter, detail))
        again = found["found"] - found["distinct"]
        again += counted.stale.get(cut.emitter, {"found": 0})["found"]
        if again > 0:
            repeated.append(_about(cut.emitter, f"repeated={again}"))
    stale = sum(one["found"] for one in counted.stale.values())
    expected = max(total + stale, batch.rows)
    return [
        _finding(GAPLESS, expected, missing, f"{total:,} facts, none missing"),
        _finding(UNIQUE, expected, repeated, f"{total:,} facts, none twice"),
    ]


def _first(emitter: str, memory: Memory, counted: Counted) -> int | None:
    """The seq before the first fact that must be there; None when nothing was promised.

    Of an emitter that nobody judged before, its shipments show it: a lake may begin anywhere.
    """
    known = memory.emitters.get(emitter)
    if known is not None:
        return known.seq_to
    begin = counted.shipments.get(emitter, {}).get("seq_from")
    return None if begin is None else begin - 1


def _skipped(emitter: str, counted: Counted, *, is_first: bool) -> int:
    """Seqs in the batch that no row has; of an emitter that nobody judged before, those behind its
    first row."""
    seen = counted.shipments.get(emitter, {"skipped": 0, "skipped_first": 0})
    return int(seen["skipped"]) - (int(seen["skipped_first"]) if is_first else 0)


def _followed(memory: Memory, counted: Counted) -> Finding:
    wrong: list[Failure] = []
    for emitter, seen in counted.health.items():
        before = memory.emitter(emitter).health_to
        begin = seen["seq_from"] - 1 if before is None else before
        between = seen["seq_to"] - begin - seen["expected"]
        between -= _skipped(emitter, counted, is_first=before is None)
        if between:
            wrong.append(_about(emitter, f"seq between judged shipments: {abs(between)}"))
    return _finding(FOLLOWED, len(counted.health), wrong, "shipments follow each other")


def _lost(after: Mapping[str, EmitterMemory], counted: Counted) -> Finding:
    """Rows that the spool lost: of this batch, or until a complete snapshot has come since."""
    lost: list[Failure] = []
    for emitter, known in after.items():
        seen = counted.lifecycle.get(emitter, {}).get("loss")
        if seen:
            detail = f"seq={seen['seq']}, {seen['detail'] or 'rows of the spool were lost'}"
            lost.append(_about(emitter, detail, moment_at(seen["event_us"] - 1)))
        elif known.loss_seq is not None:
            detail = f"seq={known.loss_seq}, {known.loss_detail}, no complete snapshot since"
            lost.append(_about(emitter, detail, moment_at(known.loss_us - 1)))
    return _finding(NOTHING_LOST, len(after), lost, "no emitter has lost rows")


def _clocks(counted: Counted) -> list[Finding]:
    ahead: list[Failure] = []
    behind: list[Failure] = []
    measured = 0
    for emitter, seen in counted.shipments.items():
        if seen["ahead_us"] is None:
            continue  # A shipper of an earlier version does not say when it shipped.
        measured += 1
        if seen["ahead_us"] > AHEAD_MAX_US:
            detail = f"its clock is {seen['ahead_us'] / SECOND_US:.1f} s ahead of its shipper's"
            ahead.append(_about(emitter, detail))
        if seen["behind_us"] > BEHIND_MAX_US:
            detail = (
                f"all its rows were shipped at least {seen['behind_us'] / SECOND_US:.0f} s later: "
                "its clock is behind, or its shipper was late"
            )
            behind.append(_about(emitter, detail))
    return [
        _finding(CLOCK_AHEAD, measured, ahead, "no clock is ahead of its shipper's"),
        _finding(CLOCK_BEHIND, measured, behind, "no clock is behind its shipper's"),
    ]


def _present(
    after: Mapping[str, EmitterMemory], batch: Batch, counted: Counted, now: datetime
) -> list[Finding]:
    """Of the present: judged when the batch is the newest there is."""
    if not batch.is_last:
        return [Finding(SPEAKS, 0), Finding(KEEPS_UP, 0)]
    silent: list[Failure] = []
    late: list[Failure] = []
    now_us = round(now.timestamp() * SECOND_US)
    for emitter, known in after.items():
        horizon_us = max(known.time_to_us, counted.horizons_us.get(emitter, 0))
        quiet_us = now_us - horizon_us
        if SILENT_MAX_US < quiet_us <= GONE_AFTER_US and not known.is_stopped:
            detail = f"silent for {quiet_us // SECOND_US} s, and it did not say that it stops"
            silent.append(_about(emitter, detail, moment_at(horizon_us)))
        behind_us = horizon_us - known.time_to_us
        if behind_us > KEEPS_UP_US:
            detail = f"gold is {behind_us // SECOND_US} s behind what was shipped"
            late.append(_about(emitter, detail))
    return [
        _finding(SPEAKS, len(after), silent, "every emitter speaks, or is gone"),
        _finding(KEEPS_UP, len(after), late, "gold follows what is shipped"),
    ]


def _about(emitter: str, detail: str, since: datetime | None = None) -> Failure:
    return Failure(f"emitter={emitter}", detail, emitter, since=since)


def _finding(check: Check, checked: int, broken: Sequence[Failure], summary: str) -> Finding:
    return Finding(check, checked, len(broken), tuple(broken), summary)


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
