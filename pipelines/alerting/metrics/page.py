"""Builds the metrics page for Prometheus from gold and the database.

Invariant: gold is read once a cycle, however often somebody scrapes; the number of series is
bounded. A source that cannot be read shows in a series of its own, and the rest of the page stands.
A row of `rebalances` counts once, by its emitter's own numbers, and from the first look on: the
counters begin at 0, as after each restart. Absent on purpose: sockets.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from engine.foundation.errors import LakeError, StorageError
from pipelines.alerting.metrics.exposition import text_of
from pipelines.alerting.metrics.families import Gold, Process, Receiver, families
from pipelines.alerting.metrics.observed import Observing
from pipelines.alerting.outbox import claims
from pipelines.alerting.store import changes, steps
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.marts.rebalances import MEMBERSHIP
from pipelines.reading.check_results import of_each_check, recent_results
from pipelines.reading.incremental import Followed
from pipelines.reading.known import held_to, lag_known, states_at, states_with
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from pipelines.staging.facts import SHIPPER_SUFFIX

SERIES_MAX: Final = 20_000
"""Of one family in a scrape; the others are counted in `tidemark_metric_series_left_out`."""
FAILED_WITHIN: Final = timedelta(hours=25)
"""A group without failures for longer has no figures of failures."""
SHIPPED_WITHIN: Final = timedelta(minutes=2)
"""An emitter that has shipped nothing for longer has no delay: it is silent."""
GROUP_AT: Final = ("cluster", "broker", "group")
FOLLOWED_FOR: Final = timedelta(minutes=15)
"""Rows are looked for so far back: an emitter that comes later than others is counted, too."""


class Page:
    """The page of one lake, for scrapes one at a time."""

    def __init__(
        self,
        lake: Lake,
        database: Database,
        *,
        process: Callable[[], Process],
        now_us: Callable[[], int],
        queues: bool = False,
        series_max: int = SERIES_MAX,
    ) -> None:
        """process: what the process knows of itself. queues: also show the lag of each queue."""
        self._lake = lake
        self._tables = OpenTables(lake)
        self._followed = Followed()
        self._database = database
        self._process = process
        self._now_us = now_us
        self._queues = queues
        self._series_max = series_max
        self._rebalances = Rebalances()
        self._observing = Observing()
        self._lock = threading.Lock()
        self._gold: Gold | None = None

    def text(self) -> str:
        """What a scrape is answered."""
        with self._lock:
            is_readable = True
            try:
                self._gold = self._read()
            except LakeError:
                self._gold, is_readable = None, False
            process = self._with_database(replace(self._process(), readable={"lake": is_readable}))
            found = families(self._gold, process, now_us=self._now_us())
            return text_of(found, series_max=self._series_max)

    def _read(self) -> Gold | None:
        began_s = time.monotonic()
        moment = last_complete(self._lake)
        self._tables.follow(None if moment is None else moment.run_id)
        if moment is None or moment.present is None:
            return None
        if self._gold is not None and self._gold.moment == moment:
            return replace(self._gold, moment=moment)
        reading = Reading(self._tables, moment)
        states = states_at(self._followed.newest("group_state", reading), moment)
        lag = lag_known(held_to(self._followed.newest("consumer_lag", reading), moment), states)
        present = moment.present
        is_open = pl.col("state") == "OPEN"
        stalls = self._followed.windows("stalled_windows", present, reading)
        risks = self._followed.windows("duplicate_risk_windows", present, reading)
        return Gold(
            moment,
            states_with(lag, states),
            lag if self._queues else lag.clear(),
            stalls.filter(is_open),
            risks.filter(is_open & (pl.col("outcome") == "POSSIBLE")),
            of_each_check(recent_results(reading)),
            _shipped(reading, present - SHIPPED_WITHIN),
            self._rebalances.count(self._followed, reading, states),
            retries=_retries(reading, present - FAILED_WITHIN),
            observed=self._observing.look(reading, lag, states),
            collect_s=time.monotonic() - began_s,
        )

    def _with_database(self, process: Process) -> Process:
        lake = self._lake.root
        try:
            waiting = changes.waiting_count(self._database, lake)
            return replace(
                process,
                alerts=steps.load(self._database, lake).alerts,
                receivers=[
                    Receiver(one.receiver, one.waiting, one.failures)
                    for one in claims.states_of(self._database, lake)
                ],
                changes_waiting=waiting,
                readable={**process.readable, "database": True},
            )
        except StorageError:
            return replace(process, readable={**process.readable, "database": False})


def _retries(reading: Reading, since: datetime) -> pl.DataFrame | None:
    """Totals of failed messages, of groups that had any since; None: there are none."""
    place = ("cluster", "broker", "group")
    names = ("sent_back", "dead_lettered")
    found = reading.summed_up(
        "retry_flow",
        {
            **{name: f"max({name})" for name in names},
            "overdue": "last_value(overdue ORDER BY observed_at)",
        },
        by=("emitter", *place, "origin_topic"),
        since=since,
    )
    if found.is_empty():
        return None
    return found.group_by(place).agg(pl.col(*names, "overdue").sum()).sort(place)


def _shipped(reading: Reading, since: datetime) -> pl.DataFrame:
    facts = reading.facts("shipments", since=since)
    return (
        facts.sort("seq")
        .unique("emitter", keep="last", maintain_order=True)
        .with_columns(pl.col("emitter").str.strip_suffix(SHIPPER_SUFFIX))
        .select("emitter", "event_time_to", "shipped_time")
    )


class Rebalances:
    """Changes of members of each group."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        """Up to which of its numbers an emitter's rows are counted."""
        self._totals: Counter[tuple[str, ...]] = Counter()
        self._has_begun = False

    def count(self, followed: Followed, reading: Reading, groups: pl.DataFrame) -> pl.DataFrame:
        """By cluster, broker and group: changes so far. A group that gold has no state of any more
        is left out.
        """
        present = reading.moment.present
        assert present is not None, "there is gold"
        rows = followed.recent("rebalances", present - FOLLOWED_FOR, reading)
        self._take(rows)
        places = groups.select(GROUP_AT).unique().sort(GROUP_AT)
        totals = [self._totals[place] for place in places.iter_rows()]
        return places.with_columns(pl.Series("changes", totals, pl.Int64))

    def _take(self, rows: pl.DataFrame) -> None:
        changes = rows.filter(pl.col("kind").is_in(MEMBERSHIP))
        if self._has_begun:
            for emitter, seq, *place in changes.select("emitter", "seq", *GROUP_AT).iter_rows():
                if seq > self._counted.get(emitter, -1):
                    self._totals[tuple(place)] += 1
        newest = changes.group_by("emitter").agg(pl.col("seq").max()).iter_rows()
        for emitter, seq in newest:
            self._counted[emitter] = max(seq, self._counted.get(emitter, -1))
        self._has_begun = True
