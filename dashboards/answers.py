"""What the pages say, computed from the few rows `data` brings: pure functions.

Invariant: nothing here reads a lake or a clock. A sum over unknowns counts what is known and says
how much is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from dashboards.theme import state_sign
from dashboards.view import LATE_AFTER, STALE_AFTER, Span, topic_path
from dashboards.words import UNKNOWN, clock, count, duration, plural, unknown, visible

Row = dict[str, Any]
CHANGES_MAX: Final = 60
"""Entries of the feed; older ones are counted."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group as the overview lists it."""

    group: str
    state: str
    reason: str
    lag_messages: int | None
    time_lag_ms: int | None
    trend: str | None
    members: int | None
    queues: int
    queues_known: int
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the feed: when, what kind, about whom, in words."""

    at: datetime
    kind: str
    """stall, risk, rebalance, dead or check."""
    group: str | None
    text: str
    topic: str | None = None
    """The topic whose name the text begins with, when it does."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The newest run of checks in one word, and what it rests on."""

    level: str
    """healthy, warning, degraded or unknown."""
    failing: int
    sentence: str


def group_lines(states: pl.DataFrame) -> list[GroupLine]:
    """Newest state of each group, worst first; brokers of one group are taken together."""
    if states.is_empty():
        return []
    newest = states.sort("observed_at").unique(["broker", "group"], keep="last")
    lines = [_line(part) for part in newest.partition_by("group", maintain_order=True)]
    return sorted(lines, key=_worst_first)


def _line(parts: pl.DataFrame) -> GroupLine:
    rows = parts.rows(named=True)
    worst = min(rows, key=lambda row: state_sign(row["state"]).rank)
    return GroupLine(
        group=worst["group"],
        state=worst["state"],
        reason=worst["reason"],
        lag_messages=_known(sum, parts["lag_messages"]),
        time_lag_ms=_known(max, parts["time_lag_ms"]),
        trend=worst["trend"],
        members=_known(max, parts["members"]),
        queues=int(parts["queues"].sum()),
        queues_known=int(parts["queues_known"].sum()),
        observed_at=max(row["observed_at"] for row in rows),
    )


def _known(combine: Any, values: pl.Series) -> int | None:
    known = values.drop_nulls().to_list()
    return combine(known) if known else None


def _worst_first(line: GroupLine) -> tuple[int, int, int, str]:
    return (
        state_sign(line.state).rank,
        -(line.time_lag_ms or 0),
        -(line.lag_messages or 0),
        line.group,
    )


def overlapping(windows: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Intervals that have a moment in common with the range."""
    ended = pl.col("closed_at").is_not_null() & (pl.col("closed_at") < span.start)
    return windows.filter((pl.col("opened_at") <= span.end) & ~ended)


def open_at_end(windows: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Intervals that had begun and not ended when the range ends."""
    running = pl.col("closed_at").is_null() | (pl.col("closed_at") > span.end)
    return windows.filter((pl.col("opened_at") <= span.end) & running)


def of_group(rows: pl.DataFrame, group: str) -> pl.DataFrame:
    """Rows of one group."""
    return rows.filter(pl.col("group") == group)


def quality(results: pl.DataFrame, tables: Sequence[str] = ()) -> Quality:
    """The newest run's verdict over the tables that govern a number; all of them when none is
    named."""
    if results.is_empty():
        return Quality("unknown", 0, "no check has run: tidemark check")
    newest = newest_run(results)
    if tables:
        newest = newest.filter(pl.col("table").is_in(list(tables)))
    judged = newest.filter(pl.col("checked_rows") > 0)
    failing = judged.filter(~pl.col("success") & (pl.col("severity") != "INFO"))
    when = clock(cast("datetime | None", newest["started_at"].max())) if newest.height else ""
    if judged.is_empty():
        return Quality("unknown", 0, "the newest run had nothing to check here")
    if failing.is_empty():
        return Quality("healthy", 0, f"{plural(judged.height, 'check')} hold, run at {when}")
    names = ", ".join(failing["expectation"].to_list()[:3])
    critical = (failing["severity"] == "CRITICAL").any()
    sentence = f"{failing.height} of {plural(judged.height, 'check')} failing: {names}"
    return Quality("degraded" if critical else "warning", failing.height, sentence)


def newest_run(results: pl.DataFrame) -> pl.DataFrame:
    """Results of the run that started last."""
    if results.is_empty():
        return results
    last = results.sort("started_at", "run_id")["run_id"][-1]
    return results.filter(pl.col("run_id") == last)


def freshness(data_end: datetime | None, now: datetime) -> tuple[str, str]:
    """(fresh, late, stale or unknown; the sentence of the chip)."""
    if data_end is None:
        return "unknown", "no data yet"
    age = now - data_end
    day = age.days >= 1
    text = f"data to {clock(data_end, day=day)} ({duration(age.total_seconds() * 1000)} ago)"
    if age >= STALE_AFTER:
        return "stale", text
    return ("late" if age >= LATE_AFTER else "fresh"), text


def changes(
    *,
    stalls: pl.DataFrame,
    risks: pl.DataFrame,
    rebalances: pl.DataFrame,
    dead_letters: pl.DataFrame,
    span: Span,
) -> list[Change]:
    """What changed in the range, newest first."""
    found = [
        *_interval_changes(stalls, "stall"),
        *_interval_changes(risks, "risk"),
        *(
            Change(row["observed_at"], "rebalance", row["group"], rebalance_text(row))
            for row in rebalances.iter_rows(named=True)
        ),
        *(
            Change(row["observed_at"], "dead", row["group"], _dead_text(row), row["origin_topic"])
            for row in dead_letters.iter_rows(named=True)
        ),
    ]
    inside = [change for change in found if span.start <= change.at <= span.end]
    return sorted(inside, key=lambda change: (change.at, change.kind), reverse=True)


def _interval_changes(windows: pl.DataFrame, kind: str) -> list[Change]:
    """Beginnings and ends; queues of one group that share moment and cause are one entry."""
    texts = stall_text if kind == "stall" else risk_text
    begun: dict[tuple[Any, ...], list[Row]] = {}
    ended: dict[tuple[Any, ...], list[Row]] = {}
    for row in windows.iter_rows(named=True):
        what = (row["group"], row["topic"], row["rule"] if kind == "stall" else cause_words(row))
        begun.setdefault((row["opened_at"], *what), []).append(row)
        if row["closed_at"] is not None:
            result = "" if kind == "stall" else row["outcome"]
            ended.setdefault((row["closed_at"], *what, result), []).append(row)
    return [
        *(Change(key[0], kind, key[1], texts(rows), key[2]) for key, rows in begun.items()),
        *(
            Change(key[0], f"{kind} over", key[1], _over(rows, kind), key[2])
            for key, rows in ended.items()
        ),
    ]


def _over(rows: Sequence[Row], kind: str) -> str:
    first = rows[0]
    lasted = duration((first["closed_at"] - first["opened_at"]).total_seconds() * 1000)
    if kind == "stall":
        return f"{_queues(rows)} no longer {state_sign(first['rule']).word}, after {lasted}"
    again = sum(row["redelivered_messages"] for row in rows)
    delivered = f", {plural(again, 'message')} delivered again" if again else ""
    return f"{_queues(rows)}: risk ({cause_words(first)}) {first['outcome'].lower()}{delivered}"


def _queues(rows: Sequence[Row]) -> str:
    numbers = ", ".join(str(number) for number in sorted(row["queue_id"] for row in rows))
    return f"{rows[0]['topic']} queue{'s' if len(rows) > 1 else ''} {numbers}"


def stall_text(rows: Sequence[Row]) -> str:
    """Stalled windows that began together, in words."""
    first = rows[0]
    kind = first["kind"].replace("_", " ").lower()
    shown = "" if first["kind"] == "UNDETERMINED" else f" ({kind})"
    return f"{_queues(rows)} {state_sign(first['rule']).word}{shown}"


def risk_text(rows: Sequence[Row]) -> str:
    """Windows of duplicate risk that began together, in words."""
    at_risk = sum(row["at_risk_messages"] for row in rows)
    cause = cause_words(rows[0])
    return f"{_queues(rows)}: {plural(at_risk, 'message')} at risk of a second delivery, {cause}"


def cause_words(row: Row) -> str:
    """CONSUMER_CRASH as `consumer crash`; one that only could happen says so."""
    cause = str(row["cause"]).replace("_", " ").lower()
    return f"if a {cause} came now" if row["basis"] == "EXPOSURE" else cause


def rebalance_text(row: Row) -> str:
    """A membership change in words."""
    who = row["client_id"] or "a client"
    said = f"{who} {row['kind'].replace('_', ' ').lower()}"
    if row["members_after"] is None:
        return said
    return f"{said}, {count(row['members_before'])} → {count(row['members_after'])} members"


def _dead_text(row: Row) -> str:
    return (
        f"{row['origin_topic'] or 'unknown topic'}: "
        f"message {row['message_id'] or 'without id'} dead-lettered after "
        f"{plural(row['reconsume_times'], 'failed try').replace('trys', 'tries')}"
    )


def queue_rows(lag: pl.DataFrame, stalls: pl.DataFrame) -> list[Row]:
    """Rows of the queue table: offsets as exact strings, unknowns with their reason."""
    rules = {
        (row["broker"], row["topic"], row["queue_id"]): row["rule"]
        for row in stalls.iter_rows(named=True)
    }
    rows = []
    for row in lag.iter_rows(named=True):
        known = row["lag_messages"] is not None
        rule = rules.get((row["broker"], row["topic"], row["queue_id"]))
        sign = state_sign(rule or ("OK" if known else row["unknown_reason"]))
        rows.append(
            {
                "state": f"{sign.sign} {sign.word}",
                "topic": visible(row["topic"]),
                "topic_path": topic_path(row["topic"]),
                "queue": f"{row['broker']} / {row['queue_id']}",
                "committed": _exact(row["committed"]),
                "max_offset": str(row["max_offset"]),
                "pulled": _exact(row["pulled"]),
                "lag": row["lag_messages"],
                "lag_text": count(row["lag_messages"]),
                "time_lag": row["time_lag_ms"],
                "time_lag_text": _time_lag(row),
                "provenance": _provenance(row),
                "owner": visible(row["last_puller"] or "nobody has pulled"),
                "last_commit": clock(row["last_commit_time"])
                if row["last_commit_time"]
                else "never",
                "rank": sign.rank,
            }
        )
    return sorted(rows, key=lambda row: (row["rank"], -(row["time_lag"] or 0)))


def _exact(offset: int | None) -> str:
    """Every digit: a browser's numbers end at 2**53."""
    return str(offset) if offset is not None else UNKNOWN


def _provenance(row: Row) -> str:
    """How the numbers were come by, or why there are none."""
    if row["lag_messages"] is None or row["time_lag_ms"] is None:
        return unknown(row["unknown_reason"])
    return str(row["provenance"]).lower()


def _time_lag(row: Row) -> str:
    text = duration(row["time_lag_ms"])
    error = row["time_lag_error_ms"]
    return f"{text} ± {duration(error)}" if error else text
