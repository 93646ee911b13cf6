"""Incremental queries that read only what is new since the previous cycle.

Place in the walk: beside `reading`, for pages and alerts, whose newest states change little from
cycle to cycle. Invariant: what is followed equals what would be read anew at that moment. A moment
of another run, or one before the moment that is held, is read anew.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from pipelines.lake.lake import sql_text
from pipelines.marts.ended_queues import ENDED_QUEUES
from pipelines.reading.moment import Moment, sql_time
from pipelines.reading.reading import LOOK_BACK, STATE_KEYS, Reading, closed_with_brokers, order_of

LAG_CELLS: Final = (
    *("observed_at", "seq", "emitter", "cluster", "broker", "group", "topic", "queue_id"),
    *("lag_messages", "time_lag_ms"),
)
"""What lines and cells of lag are made of."""
LAG_HELD_MAX: Final = 8
"""Sets of groups whose lag is held: one a page that somebody looks at."""
ROOM: Final = timedelta(minutes=5)
"""Rows are held for this much longer than they are needed, so that they are not cut each time."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Lag of some groups from `begin` on, up to a moment."""

    moment: Moment
    begin: datetime
    groups: frozenset[str]
    rows: pl.DataFrame


class Followed:
    """Rows of one lake that are followed. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[Moment, pl.DataFrame]] = {}
        self._lag: list[_Held] = []
        self._recent: dict[str, tuple[Moment, datetime, pl.DataFrame]] = {}
        self._windows: dict[str, tuple[Moment, datetime, pl.DataFrame]] = {}

    def newest(self, name: str, reading: Reading) -> pl.DataFrame:
        """The newest state of every key that is still there."""
        ended = self._last(ENDED_QUEUES.name, reading) if name == "consumer_lag" else None
        return reading.present(name, self._last(name, reading), ended)

    def _last(self, name: str, reading: Reading) -> pl.DataFrame:
        """The last row of every key."""
        with self._lock:
            before = self._newest.get(name)
        moment = reading.moment
        if before is None or not follows(before[0], moment):
            frame = reading.last_reported(name)
        else:
            frame = _advanced(name, before, reading)
        with self._lock:
            self._newest[name] = (moment, frame)
        return frame

    def recent(self, name: str, begin: datetime, reading: Reading) -> pl.DataFrame:
        """Rows of a table of events from `begin` on, in the order of time. Files that hold nothing
        new are not opened again."""
        with self._lock:
            held = self._recent.get(name)
        if held is None or held[1] > begin or not follows(held[0], reading.moment):
            rows = reading.rows(name, since=begin)
        else:
            earlier, _, rows = held
            if earlier != reading.moment:
                new = reading.rows(name, _beyond(earlier, reading.moment), since=begin)
                rows = pl.concat([rows, new]).sort(order_of(name), maintain_order=True)
            rows = rows.filter(pl.col("observed_at") >= begin)
        with self._lock:
            self._recent[name] = (reading.moment, begin, rows)
        return rows

    def windows(self, name: str, begin: datetime, reading: Reading) -> pl.DataFrame:
        """The newest revision of every interval that is open, or was closed at `begin` or later,
        oldest first: `reading.windows(name, since=begin, until=present)`. Read anew, that looks
        through all intervals there ever were.
        """
        moment = reading.moment
        with self._lock:
            held = self._windows.get(name)
        if held is None or held[1] > begin or not follows(held[0], moment):
            rows = reading.windows(name, since=begin)
        else:
            earlier, _, rows = held
            if earlier != moment:
                new = reading.rows(
                    name, _beyond(earlier, moment), since=_new_since(earlier, moment)
                )
                newest = pl.concat([rows, new]).sort("revision", maintain_order=True)
                rows = newest.unique("window_id", keep="last").sort("opened_at", "window_id")
            rows = rows.filter(pl.col("closed_at").is_null() | (pl.col("closed_at") >= begin))
        with self._lock:
            self._windows[name] = (moment, begin, rows)
        known = closed_with_brokers(rows.filter(pl.col("opened_at") <= moment.present), moment)
        return known.filter(pl.col("closed_at").is_null() | (pl.col("closed_at") >= begin))

    def lag_of(self, groups: Sequence[str], begin: datetime, reading: Reading) -> pl.DataFrame:
        """Lag of some groups from `begin` on, in the order of time."""
        wanted = frozenset(groups)
        with self._lock:
            usable = [
                held
                for held in self._lag
                if held.begin <= begin and follows(held.moment, reading.moment)
            ]
        best = max(usable, key=lambda held: len(held.groups & wanted), default=None)
        known = best.groups & wanted if best is not None else frozenset()
        parts = []
        if best is not None and known:
            parts.append(best.rows.filter(pl.col("group").is_in(list(known))))
            if best.moment != reading.moment:
                new = (_beyond(best.moment, reading.moment), _named(known))
                parts.append(_lag(reading, *new, since=best.begin))
        strangers = wanted - known
        held_from = best.begin if best is not None and known else begin
        if strangers or not parts:
            parts.append(_lag(reading, _named(strangers), since=held_from))
        rows = pl.concat(parts).sort("observed_at", "seq", maintain_order=True)
        if held_from < begin - ROOM:
            held_from = begin
        kept = rows.filter(pl.col("observed_at") >= held_from)
        with self._lock:
            self._lag = [held for held in self._lag if held is not best and held.groups != wanted]
            self._lag = [*self._lag, _Held(reading.moment, held_from, wanted, kept)]
            self._lag = self._lag[-LAG_HELD_MAX:]
        return kept.filter(pl.col("observed_at") >= begin)


def follows(before: Moment, after: Moment) -> bool:
    """May what is known at `after` be made from what was known at `before` and what is new?"""
    if before.run_id != after.run_id or before.cycle > after.cycle:
        return False
    ends = {one.emitter: one for one in after.reached}
    return all(
        one.emitter in ends
        and one.judged_to <= ends[one.emitter].judged_to
        and one.seq_to <= ends[one.emitter].seq_to
        for one in before.reached
    )


def _advanced(name: str, before: tuple[Moment, pl.DataFrame], reading: Reading) -> pl.DataFrame:
    earlier, known = before
    newest = reading.moment.present
    if earlier == reading.moment or newest is None:
        return known
    new = reading.last_reported(name, _beyond(earlier, reading.moment), since=newest - LOOK_BACK)
    both = reading.held_from(pl.concat([known, new]))
    key = list(STATE_KEYS[name])
    return both.sort("observed_at", "seq").unique(key, keep="last").sort(key)


def _lag(reading: Reading, *conditions: str, since: datetime) -> pl.DataFrame:
    return reading.rows("consumer_lag", *conditions, since=since, columns=LAG_CELLS)


def _named(groups: frozenset[str]) -> str:
    names = ", ".join(sql_text(group) for group in sorted(groups))
    return f'"group" IN ({names or "NULL"})'


def _new_since(earlier: Moment, now: Moment) -> datetime | None:
    """Before this, nothing is new: older files are not looked at. None: nobody knows, as of the
    rows of an emitter that is new. One that has reported nothing more since has nothing new.
    """
    before = {one.emitter: one for one in earlier.reached}
    moved = [one.emitter for one in now.reached if before.get(one.emitter) != one]
    if not all(emitter in before for emitter in moved):
        return None
    ends = [before[emitter].judged_to for emitter in moved]
    return min(ends) - LOOK_BACK if ends else now.present


def _beyond(earlier: Moment, now: Moment) -> str:
    """SQL: rows that were not seen at an earlier moment. Emitters that are new are named: of "all
    but these" no file could be passed over by its statistics.
    """
    known = {one.emitter for one in earlier.reached}
    each = [
        f"(emitter = {sql_text(one.emitter)} AND (seq > {one.seq_to}"
        f" OR observed_at > {sql_time(one.judged_to)}))"
        for one in earlier.reached
    ]
    each += [
        f"emitter = {sql_text(one.emitter)}" for one in now.reached if one.emitter not in known
    ]
    return f"({' OR '.join(each) or 'true'})"
