"""Describes each emitter's progress, clock accuracy and reporting period.

Place in the walk: emitter_health, lifecycle and a `Moment` → a row an emitter, for `tm.emitters()`
and the pages' header; beside the live run, a warning about observers that report too seldom for the
window of judging, of which verdicts would come and go with each poll.

Invariant: a verdict on an emitter is that of all that it reported; what is unknown says why. No
warning about a period that a window holds twice. Absent on purpose: the wall clock of the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import polars as pl

from engine.foundation.errors import LakeError
from engine.telemetry.tables import LIFECYCLE
from pipelines.base.settings import MS_US, Evaluation
from pipelines.lake.lake import Lake
from pipelines.marts.judging.ticks import is_made_good, is_set_by
from pipelines.reading.moment import Moment, Reached, is_observer
from pipelines.reading.reading import LOOK_BACK, Reading
from pipelines.sentences.emitters import (
    SAYS_NOTHING,
    clock_set_back,
    follows_since,
    polled,
    rows_lost,
    taken_out,
)

EMITTERS: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "emitter": pl.String,
    "state": pl.String,
    "reason": pl.String,
    "judged_to": pl.Datetime("us", "UTC"),
    "clock_skew_ms": pl.Int64,
    "clock_skew_reason": pl.String,
    "notes": pl.String,
}
"""state: OK, UNKNOWN or ENDED (its broker was taken out for good, or another node of it leads).
reason: why all of it is unknown, or since when it has ended; null when it is known. notes: which
clients say nothing of what they hold; null: none is known to."""
_EVENTS: Final = "kind IN ('BOOT', 'SNAPSHOT', 'SPOOL_LOSS', 'CLOCK_STEPPED')"
_SKEW: Final = ("observed_at", "emitter", "seq_to", "clock_skew_ms", "clock_skew_reason")
Row = dict[str, Any]
GROUPS_NAMED_MAX: Final = 5
"""Groups in a note; further ones are counted."""
ASKED_EACH: Final = 60
"""Cycles from one look at the observers to the next."""
_COLUMNS: Final = tuple(
    column for column in LIFECYCLE.columns if column.name in ("emitter", "seq", "report_each_ms")
)


def emitters_at(reading: Reading) -> pl.DataFrame:
    """A row an emitter, the one judged least far first."""
    newest = reading.moment.present
    if newest is None:
        return pl.DataFrame(schema=EMITTERS)
    since = newest - LOOK_BACK
    skew_rows = reading.rows("emitter_health", since=since, columns=_SKEW).sort(
        "observed_at", "seq_to"
    )
    skews = {row["emitter"]: row for row in skew_rows.to_dicts()}
    unknown = {**_unknown_by_events(reading, since), **reading.moment.unknown}
    ended = {one.emitter: _gone_since(one) for one in reading.moment.ended}
    notes = _notes(reading)
    rows = []
    for one in reading.moment.reached:
        skew = skews.get(one.emitter, {})
        known = skew.get("clock_skew_ms") is not None
        rows.append(
            {
                "emitter": one.emitter,
                "state": _state(one.emitter, unknown, ended),
                "reason": ended.get(one.emitter) or unknown.get(one.emitter),
                "judged_to": one.judged_to,
                "clock_skew_ms": skew.get("clock_skew_ms"),
                "clock_skew_reason": None if known else skew.get("clock_skew_reason", "NOT_TOLD"),
                "notes": notes.get(one.emitter),
            }
        )
    return pl.DataFrame(rows, schema=EMITTERS).sort("judged_to", "emitter")


def silent_clients(reading: Reading, *conditions: str) -> pl.DataFrame:
    """Which clients said of late that they say nothing: emitter, group and words, in order."""
    newest = reading.moment.present
    since = None if newest is None else newest - LOOK_BACK
    found = reading.facts("lifecycle", "kind = 'SAYS_NOTHING'", *conditions, since=since)
    words = pl.col("detail").fill_null(SAYS_NOTHING)
    return found.select("emitter", "group", words.alias("words")).unique().sort(pl.all())


def _notes(reading: Reading) -> dict[str, str]:
    """Per emitter which kinds of clients say nothing, and of which groups."""
    said = silent_clients(reading).group_by("emitter", "words", maintain_order=True).agg("group")
    notes: dict[str, list[str]] = {}
    for emitter, words, groups in said.iter_rows():
        more = len(groups) - GROUPS_NAMED_MAX
        named = ", ".join(groups[:GROUPS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        notes.setdefault(emitter, []).append(f"{words} (group {named})")
    return {emitter: "; ".join(words) for emitter, words in notes.items()}


def _state(emitter: str, unknown: Mapping[str, str], ended: Mapping[str, Any]) -> str:
    if emitter in ended:
        return "ENDED"
    return "UNKNOWN" if emitter in unknown else "OK"


def _gone_since(one: Reached) -> str:
    """Of one that has ended, why."""
    assert one.ended_at is not None
    return follows_since(one.ended_at) if one.follows else taken_out(one.ended_at)


def _unknown_by_events(reading: Reading, since: Any) -> dict[str, str]:
    """Emitters that lost rows and had no snapshot since, or whose clock is not the time."""
    lost: dict[str, Row] = {}
    set_back: dict[str, Row] = {}
    for row in reading.facts("lifecycle", _EVENTS, since=since).sort("emitter", "seq").to_dicts():
        emitter, kind = row["emitter"], row["kind"]
        if kind == "SPOOL_LOSS":
            lost[emitter] = row
        elif kind == "SNAPSHOT" and emitter in lost:
            if is_made_good(lost[emitter]["seq"], row["seq_from"]):
                del lost[emitter]
        elif kind == "BOOT":
            set_back.pop(emitter, None)
        elif kind == "CLOCK_STEPPED":
            step_ms = row["step_ms"] or 0
            if step_ms < 0 and is_set_by(step_ms * MS_US):
                set_back[emitter] = row
    reasons = {emitter: rows_lost(row["event_time"]) for emitter, row in lost.items()}
    for one in reading.moment.reached:
        step = set_back.get(one.emitter)
        if step is None:
            continue
        back = timedelta(milliseconds=-step["step_ms"])
        if one.judged_to < step["event_time"] + back:
            reasons[one.emitter] = clock_set_back(-step["step_ms"], step["event_time"])
    return reasons


def watched_text(moment: Moment, emitters: Iterable[str] | None = None) -> str | None:
    """How far what is shown may be off, since brokers are watched from outside: all of them, or of
    these emitters; None: none is.
    """
    wanted = None if emitters is None else set(emitters)
    seen = [
        one
        for one in moment.reached
        if is_observer(one.emitter) and (wanted is None or one.emitter in wanted)
    ]
    return polled([one.report_each_ms for one in seen]) if seen else None


def too_seldom(lake: Lake, evaluation: Evaluation) -> dict[str, str]:
    """By emitter, what is wrong with the period that it reported last, and what to do."""
    address = lake.bronze(LIFECYCLE.name)
    if not lake.exists(address):
        return {}
    observed = lake.rows(address, "kind = 'OBSERVED'", _COLUMNS).sort_by("seq").to_pylist()
    periods = {row["emitter"]: row["report_each_ms"] or 0 for row in observed}
    window_ms = evaluation.window_ms
    return {
        emitter: (
            f"{emitter} is looked at each {period_ms / 1000:g} s, more than half of the window of "
            f"{window_ms / 1000:g} s in which queues are judged: verdicts on it may flicker; start "
            f"`tidemark observe` with --period {window_ms / 2000:g} or less, or judge by a longer "
            f"window (--window-ms {2 * period_ms}, into another lake)"
        )
        for emitter, period_ms in sorted(periods.items())
        if 2 * period_ms > window_ms
    }


class Periods:
    """Reports on each emitter once; again when its period is another one."""

    def __init__(self, lake: Lake, evaluation: Evaluation, say: Callable[[str], None]) -> None:
        self._lake = lake
        self._evaluation = evaluation
        self._say = say
        self._said: dict[str, str] = {}
        self._cycles = 0

    def cycle(self) -> None:
        """A cycle is complete. That the lake does not answer is reported by the next cycle."""
        self._cycles += 1
        if self._cycles % ASKED_EACH != 1:
            return
        try:
            found = too_seldom(self._lake, self._evaluation)
        except LakeError:
            return
        for emitter, sentence in found.items():
            if self._said.get(emitter) != sentence:
                self._say(sentence)
        self._said = found
