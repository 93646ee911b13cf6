"""Collects a period's incidents: stalls, duplicates, dead letters and retention risks.

Place in the walk: intervals and counts of `gathering` → parts of the numbers.

An interval counts with the part of it that lies in the period. A risk of duplicates counts in the
period in which it began, with all that became of it up to the cut: what was predicted then is held
against what was observed. Invariant: pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import polars as pl

from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros
from pipelines.reports.gathering import Gathered
from pipelines.reports.numbers import DeadLetters, DuplicateCause, RetentionRisk, StallCause
from pipelines.reports.windows import Window
from pipelines.sentences.duplicates import CameAgain, came_again, messages_again

RISKS_MAX: Final = 200
"""Groups at risk of retention that are named."""
Row = dict[str, Any]
Key = tuple[str, str]


def stall_causes(gathered: Gathered, *, before_is_known: bool) -> tuple[StallCause, ...]:
    """Queues that were not OK, by kind, the one that cost most first."""
    before = Counter(_kind(row) for row, _ in _stood(gathered, gathered.window.before))
    by_kind: dict[str, list[tuple[Row, int]]] = {}
    for row, stood_s in _stood(gathered, gathered.window):
        by_kind.setdefault(_kind(row), []).append((row, stood_s))
    found = []
    for kind, windows in by_kind.items():
        longest, longest_s = max(windows, key=lambda one: (one[1], one[0]["window_id"]))
        found.append(
            StallCause(
                kind=kind,
                windows=len(windows),
                groups=len({_key(row) for row, _ in windows}),
                stood_s=sum(stood_s for _, stood_s in windows),
                open_at_end=sum(_is_open(row, gathered.window.end) for row, _ in windows),
                unknown=sum(row["unknown_reason"] is not None for row, _ in windows),
                windows_before=before[kind] if before_is_known else None,
                longest_s=longest_s,
                longest_of=f"{longest['group']}: {longest['topic']} queue {longest['queue_id']}",
                longest_evidence=longest["evidence"],
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.stood_s, one.kind)))


def stalls_by_group(gathered: Gathered) -> dict[Key, tuple[int, int]]:
    """Stalls of each group, and for how long its queues stood, seconds."""
    found: dict[Key, tuple[int, int]] = {}
    for row, stood_s in _stood(gathered, gathered.window):
        count, seconds = found.get(_key(row), (0, 0))
        found[_key(row)] = (count + 1, seconds + stood_s)
    return found


def _stood(gathered: Gathered, period: Window) -> Iterable[tuple[Row, int]]:
    """Stalls that have a part in the period, with its length; one that is open lasts to the moment
    up to which its emitter was judged."""
    reached = gathered.judged_to
    for row in gathered.stalls.iter_rows(named=True):
        end = row["closed_at"] or reached.get(row["emitter"], row["observed_at"])
        seconds = _overlap_s(row["opened_at"], end, period)
        if seconds > 0:
            yield row, seconds


def _overlap_s(opened: datetime, closed: datetime, period: Window) -> int:
    low, high = max(opened, period.begin), min(closed, period.end)
    return (micros(high) - micros(low)) // SECOND_US


def _kind(row: Mapping[str, Any]) -> str:
    """What stood: the kind, or the rule where no kind is determined."""
    return str(row["rule"] if row["kind"] == "UNDETERMINED" else row["kind"])


def _is_open(row: Mapping[str, Any], end: datetime) -> bool:
    return row["closed_at"] is None or row["closed_at"] > end


def _key(row: Mapping[str, Any]) -> Key:
    return row["cluster"], row["group"]


def duplicate_causes(gathered: Gathered, *, before_is_known: bool) -> tuple[DuplicateCause, ...]:
    """Risks that began in the period, by cause, the one with most re-deliveries first."""
    before: Counter[str] = Counter()
    for row in _begun(gathered, gathered.window.before):
        before[row["cause"]] += row["redelivered_messages"] or 0
    by_cause: dict[str, list[Row]] = {}
    for row in _begun(gathered, gathered.window):
        by_cause.setdefault(row["cause"], []).append(row)
    found = []
    for cause, rows in by_cause.items():
        out, again = Counter(row["outcome"] for row in rows), came_again(rows)
        settled = [row for row in rows if row["outcome"] != "POSSIBLE"]
        certain = [row["certain_messages"] for row in settled]
        found.append(
            DuplicateCause(
                cause=cause,
                windows=len(rows),
                groups=len({_key(row) for row in rows}),
                predicted=sum(row["at_risk_messages"] for row in settled),
                certain=None if None in certain or not certain else sum(certain),
                redelivered=again.deliveries or 0,
                again_is_least=again.reason is not None,
                confirmed=out["CONFIRMED"],
                passed=out["PASSED"],
                possible=out["POSSIBLE"],
                open_at_most=sum(row["at_risk_messages"] for row in rows)
                - sum(row["at_risk_messages"] for row in settled),
                exceeded=sum(messages_again(row) > row["at_risk_messages"] for row in settled),
                redelivered_before=before[cause] if before_is_known else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.redelivered, -one.windows, one.cause)))


def redelivered_by_group(gathered: Gathered) -> dict[Key, tuple[CameAgain, int]]:
    """What came again of each group, and messages that were at risk."""
    found: dict[Key, list[Row]] = {}
    for row in _begun(gathered, gathered.window):
        found.setdefault(_key(row), []).append(row)
    return {
        key: (came_again(rows), sum(row["at_risk_messages"] for row in rows))
        for key, rows in found.items()
    }


def _begun(gathered: Gathered, period: Window) -> Iterable[Row]:
    began = (pl.col("opened_at") >= period.begin) & (pl.col("opened_at") < period.end)
    return gathered.risks.filter(began).iter_rows(named=True)


def dead_letters(gathered: Gathered, *, before_is_known: bool) -> tuple[DeadLetters, ...]:
    """Groups that gave up messages, or whose dead letters wait or were dealt with; most first."""
    now: dict[Key, list[Row]] = {}
    before: Counter[Key] = Counter()
    for row in gathered.dead.iter_rows(named=True):
        if row["is_now"]:
            now.setdefault(_key(row), []).append(row)
        else:
            before[_key(row)] += row["letters"]
    fates = _fates(gathered.fates)
    found = []
    for key in sorted({*now, *fates}):
        rows, fate = now.get(key, []), fates.get(key, _NOT_TOLD)
        letters = sum(row["letters"] for row in rows)
        if not letters and not any(fate):
            continue
        reasons: Counter[str] = Counter()
        for row in rows:
            reasons[row["reason"] or "not reported"] += row["letters"]
        common = min(reasons, key=lambda one: (-reasons[one], one)) if reasons else ""
        redriven, discarded, expired, waiting = fate
        found.append(
            DeadLetters(
                *key,
                letters=letters,
                topics=len({row["topic"] for row in rows}),
                reason=common,
                redriven=redriven,
                discarded=discarded,
                expired=expired,
                waiting=waiting,
                letters_before=before[key] if before_is_known else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.letters, -(one.waiting or 0), one.group)))


_NOT_TOLD: Final = (None, None, None, None)
_DEALT: Final = ("redriven", "discarded", "expired")


def _fates(edges: pl.DataFrame) -> dict[Key, tuple[int | None, ...]]:
    """Of each group: dead letters redriven, discarded and expired in the period, and those that
    wait at its end."""
    at: dict[tuple[str, Key], dict[int, Row]] = {}
    for row in edges.iter_rows(named=True):
        at.setdefault((row["emitter"], _key(row)), {})[row["edge"]] = row
    found: dict[Key, tuple[int | None, ...]] = {}
    for (_, key), by_edge in at.items():
        end = by_edge.get(2)
        if end is None:
            continue
        begin = by_edge.get(1, dict.fromkeys((*_DEALT, "dead_lettered"), 0))
        moved = [_grown(begin[name], end[name]) for name in _DEALT]
        waiting = end["dead_lettered"] - sum(end[name] for name in _DEALT)
        one = (*moved, None if waiting < 0 else waiting)
        found[key] = tuple(map(_sum, found[key], one)) if key in found else one
    return found


def _grown(before: int, after: int) -> int | None:
    """None: the totals began anew between."""
    return None if after < before else int(after - before)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def retention_risks(gathered: Gathered) -> tuple[RetentionRisk, ...]:
    """Groups that lost unread messages in the period, then those that will, the soonest first."""
    found: dict[Key, RetentionRisk] = {}
    for row, _ in _stood(gathered, gathered.window):
        if row["rule"] == "DATA_LOST":
            found.setdefault(_key(row), RetentionRisk(*_key(row), None, row["evidence"]))
    key = ["emitter", "cluster", "group"]
    last = gathered.states.sort("observed_at").unique(key, keep="last", maintain_order=True)
    at_risk = last.filter(pl.col("retained_until").is_not_null()).sort("retained_until", *key)
    for row in at_risk.iter_rows(named=True):
        if _key(row) not in found:
            until_us = micros(row["retained_until"])
            found[_key(row)] = RetentionRisk(*_key(row), until_us, "falls behind at its rate")
    return tuple(list(found.values())[:RISKS_MAX])
