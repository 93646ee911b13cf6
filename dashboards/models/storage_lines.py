"""Prepares what is known of brokers, replicas, files and timers for display.

Invariant: nothing here reads a lake or a clock. What is not known is a value with its reason: of a
broker that fell silent nothing is known, whatever it reported before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from dashboards.formatting import count, duration, plural, size
from dashboards.reads.storage_data import newest_of_each
from dashboards.theme import StateSign

Row = dict[str, Any]

BEHIND_MS: Final = 60_000
"""A slave that has lacked something for longer is behind: the alert ReplicaBehind says the same."""

REPLICATED: Final = StateSign("replicated", "✓", "ok", 4)
BEHIND: Final = StateSign("behind", "▲", "slow", 1)
ALONE: Final = StateSign("no replica", "●", "stalled", 0)
SINGLE: Final = StateSign("single", "○", "unknown", 3)
UNKNOWN: Final = StateSign("unknown", "?", "unknown", 2)

NEVER_REPORTED: Final = "no slave was reported: it has none, or does not say"
NOTHING_WRITTEN: Final = "no flush was reported: nothing was written"
OBSERVED: Final = "an observer sees bytes, not messages"
NOT_COUNTED: Final = "counted for the slave that has most"
NO_EPOCH: Final = "it never had a slave"
REASONS: Final = {
    "NO_REPLICA": "no slave is connected",
    "NOTHING_REPORTED": "its slave has connected and reported nothing yet",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What would be lost: bytes and messages, each None with its reason when unknown."""

    size_bytes: int | None
    messages: int | None
    unknown: str = ""

    @property
    def is_nothing(self) -> bool:
        """Is it known that nothing would be lost?"""
        return self.size_bytes == 0 and not self.messages


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """A broker, and what its loss, or that of its machine's power, would cost now."""

    cluster: str
    broker: str
    emitter: str
    sign: StateSign
    reason: str
    mode: str | None
    epoch: int | None
    replicas: int | None
    master_lost: Cost
    power_cut: Cost
    killed_bytes: int | None
    slowest_ms: int | None
    reported_at: datetime | None


@dataclass(frozen=True, slots=True)
class SlaveLine:
    """A slave, and what it lacks of its master's log."""

    cluster: str
    broker: str
    replica: str
    sign: StateSign
    replicated: int | None
    behind_bytes: int | None
    behind_messages: int | None
    behind_ms: int | None
    unknown: str
    reported_at: datetime


@dataclass(frozen=True, slots=True)
class FileLine:
    """A file of a broker, and when it was last made durable."""

    cluster: str
    broker: str
    component: str
    action: str
    at: datetime
    behind: str | None
    """What of it is not durable, in words; None: it is written as a whole."""
    newest_message: datetime | None
    longest_us: int
    cause: str


@dataclass(frozen=True, slots=True)
class TimerLine:
    """What waits for its moment on a broker."""

    cluster: str
    broker: str
    hour: datetime
    """In which it was counted, and in which the first of `due` is due."""
    due: tuple[int, ...]
    waiting: int

    @property
    def later(self) -> int:
        """Due beyond the hours that are counted."""
        return max(0, self.waiting - sum(self.due))


def broker_lines(
    replication: pl.DataFrame,
    flushes: pl.DataFrame,
    silent: Mapping[str, str],
) -> list[BrokerLine]:
    """The brokers, those that would lose most or are not known first; `silent`: emitters of which
    nothing is known, and why.
    """
    of_slaves = {row["emitter"]: row for row in newest_of_each(replication).iter_rows(named=True)}
    of_flush = {row["emitter"]: row for row in newest_of_each(flushes).iter_rows(named=True)}
    lines = [
        _broker(emitter, of_slaves.get(emitter), of_flush.get(emitter), silent.get(emitter))
        for emitter in {**of_slaves, **of_flush}
    ]
    return sorted(
        lines,
        key=lambda line: (line.sign.rank, -(line.master_lost.size_bytes or 0), line.emitter),
    )


def _broker(emitter: str, slaves: Row | None, flush: Row | None, why: str | None) -> BrokerLine:
    reported = slaves or flush
    assert reported is not None
    sign, reason = _state(slaves, why)
    moments = [row["observed_at"] for row in (slaves, flush) if row is not None]
    known = slaves if slaves is not None and why is None else dict[str, Any]()
    return BrokerLine(
        cluster=reported["cluster"],
        broker=reported["broker"],
        emitter=emitter,
        sign=sign,
        reason=reason,
        mode=slaves["mode"] if slaves is not None else None,
        epoch=slaves["epoch"] if slaves is not None else None,
        replicas=known.get("replicas"),
        master_lost=_master_lost(slaves, why),
        power_cut=_power_cut(flush, why),
        killed_bytes=None if flush is None or why is not None else flush["kill_bytes"],
        slowest_ms=known.get("behind_ms"),
        reported_at=max(moments),
    )


def _state(slaves: Row | None, why: str | None) -> tuple[StateSign, str]:
    if why is not None:
        return UNKNOWN, why
    if slaves is None:
        return SINGLE, NEVER_REPORTED
    if not slaves["replicas"]:
        return ALONE, "it waits for a slave, and none is connected: its log is on one disk"
    if slaves["unknown_reason"] is not None:
        return UNKNOWN, REASONS[slaves["unknown_reason"]]
    if slaves["behind_ms"] is None:
        return UNKNOWN, "one of its slaves has reported nothing yet"
    if slaves["behind_ms"] > BEHIND_MS:
        lacks = size(slaves["behind_bytes"])
        since = duration(slaves["behind_ms"])
        return BEHIND, f"{slaves['slowest_replica']} lacks {lacks}, the first for {since}"
    return REPLICATED, f"{plural(slaves['replicas'], 'slave')} within {BEHIND_MS // 1000} s"


def _master_lost(slaves: Row | None, why: str | None) -> Cost:
    if why is not None:
        return Cost(None, None, why)
    if slaves is None:
        return Cost(None, None, NEVER_REPORTED)
    reason = REASONS.get(slaves["unknown_reason"] or "", "")
    if slaves["provenance"] is not None and not reason:
        reason = OBSERVED
    return Cost(slaves["loss_bytes"], slaves["loss_messages"], reason)


def _power_cut(flush: Row | None, why: str | None) -> Cost:
    if why is not None:
        return Cost(None, None, why)
    if flush is None:
        return Cost(None, None, NOTHING_WRITTEN)
    if flush["provenance"] is not None:
        return Cost(flush["power_cut_bytes"], None, OBSERVED)
    return Cost(flush["power_cut_bytes"], flush["power_cut_messages"])


def slave_lines(replication: pl.DataFrame, silent: Mapping[str, str]) -> list[SlaveLine]:
    """The slaves that are connected, the slowest first."""
    lines = [
        _slave(row, slave, silent.get(row["emitter"]))
        for row in newest_of_each(replication).iter_rows(named=True)
        for slave in row["slaves"] or ()
    ]
    return sorted(lines, key=lambda line: (line.sign.rank, -(line.behind_bytes or 0), line.replica))


def _slave(row: Row, slave: Row, why: str | None) -> SlaveLine:
    replicated, lacks_ms = slave["replicated"], slave["behind_ms"]
    if why is None and replicated is None:
        why = REASONS["NOTHING_REPORTED"]
    sign = UNKNOWN if why else BEHIND if lacks_ms > BEHIND_MS else REPLICATED
    has_most = slave["replica"] == row["furthest_replica"] or slave["behind_bytes"] == 0
    messages = 0 if slave["behind_bytes"] == 0 else row["loss_messages"] if has_most else None
    return SlaveLine(
        cluster=row["cluster"],
        broker=row["broker"],
        replica=slave["replica"],
        sign=sign,
        replicated=None if why else replicated,
        behind_bytes=None if why else slave["behind_bytes"],
        behind_messages=None if why else messages,
        behind_ms=None if why else lacks_ms,
        unknown=why or (OBSERVED if row["provenance"] is not None else NOT_COUNTED),
        reported_at=row["observed_at"],
    )


def file_lines(checkpoints: pl.DataFrame) -> list[FileLine]:
    """What each broker made durable last, file by file."""
    rows = checkpoints.rows(named=True)
    stored = {
        row["emitter"]: row["store_time"]
        for row in rows
        if (row["component"], row["action"]) == ("COMMIT_LOG", "FLUSH")
    }
    return [
        FileLine(
            cluster=row["cluster"],
            broker=row["broker"],
            component=row["component"],
            action=row["action"],
            at=row["event_time"],
            behind=_not_durable(row, stored.get(row["emitter"])),
            newest_message=row["store_time"],
            longest_us=row["duration_us_max"],
            cause=row["cause"],
        )
        for row in rows
    ]


def _not_durable(row: Row, log_stored: datetime | None) -> str | None:
    """Of the log its bytes; of what is made from the log, how far it is behind that."""
    end = row["committed"] if row["action"] == "COMMIT" else row["flushed"]
    if row["written"] is not None and end is not None:
        return size(max(0, row["written"] - end))
    if row["store_time"] is None or log_stored is None:
        return None
    behind: timedelta = max(log_stored - row["store_time"], timedelta(0))
    return duration(behind / timedelta(milliseconds=1))


def timer_lines(timers: pl.DataFrame, silent: Mapping[str, str]) -> list[TimerLine]:
    """What waits on each broker that is not silent."""
    return [
        TimerLine(
            cluster=row["cluster"],
            broker=row["broker"],
            hour=row["event_time"].replace(minute=0, second=0, microsecond=0),
            due=tuple(row["due_by_hour"] or ()),
            waiting=row["written"],
        )
        for row in timers.iter_rows(named=True)
        if row["emitter"] not in silent
    ]


def timers_text(lines: list[TimerLine]) -> str:
    """How many wait, and how many of them are due soon."""
    waiting = sum(line.waiting for line in lines)
    soon = sum(line.due[0] for line in lines if line.due)
    later = sum(line.later for line in lines)
    beyond = f"; {count(later)} are due later than this shows" if later else ""
    return f"{plural(waiting, 'message')} wait, {count(soon)} are due in this hour{beyond}"


def in_words(
    events: pl.DataFrame, *, names_clusters: bool
) -> Iterator[tuple[datetime, str, str, str]]:
    """(when, broker, kind, what), the newest first."""
    same = ("cluster", "broker", "event_time", "kind", "detail")
    shown = events.sort("event_time", "seq", descending=True).unique(same, maintain_order=True)
    for row in shown.iter_rows(named=True):
        broker = f"{row['cluster']} / {row['broker']}" if names_clusters else row["broker"]
        yield row["event_time"], broker, row["kind"], row["detail"] or ""
