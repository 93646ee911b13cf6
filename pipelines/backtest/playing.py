"""Runs alert rules over past data, using the live evaluation and grouping code.

Place in the walk: gold's rows, in the order of their time (`run`), → looks → `alerting.step` → what
was sent, for `scoring`. A look comes at each tick at which gold had new rows, and a minute after
the last one at the latest. Invariant: a look sees no row that is later than its tick. Rules about
the present moment (is a broker silent, is gold late) are left out, and listed (`left_out`). Absent
on purpose: silences, checks, and the way from a fact to gold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.conditions import NOW
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.life_cycle import ChangeKind
from pipelines.alerting.present_rows import gone
from pipelines.alerting.routing import Routing
from pipelines.alerting.rule_tables import OF_THE_PRESENT, rows_at, watched
from pipelines.alerting.rules import Rule
from pipelines.alerting.sql import answered
from pipelines.alerting.step import Decided, Known, judge, notify
from pipelines.alerting.wait_clock import GAP_US
from pipelines.backtest.scoring import Heard, Told

PRESENT: Final = tuple(table.name for table in OF_THE_PRESENT)
"""Tables of the present moment, which nobody records."""
STATES, ENDED, LIVING = "group_state", "ended_queues", "consumer_lag"
"""The states, the ended and the living queues: what is gone is known by them."""


@dataclass(frozen=True)
class AlertRules:
    """Rules of alerts, and who is notified."""

    rules: tuple[Rule, ...]
    routing: Routing

    @property
    def played(self) -> tuple[Rule, ...]:
        """Those that can be played."""
        return tuple(rule for rule in self.rules if not set(rule.tables) & set(PRESENT))

    @property
    def left_out(self) -> tuple[Rule, ...]:
        """Those that are about the present moment."""
        return tuple(rule for rule in self.rules if set(rule.tables) & set(PRESENT))

    @property
    def spans_us(self) -> dict[str, int]:
        """The tables that are read, and how far back rules look."""
        spans = dict.fromkeys((STATES, ENDED), 0)
        for rule in self.played:
            for name in rule.tables:
                spans[name] = max(spans.get(name, 0), rule.within_us)
        return spans


class Player:
    """Plays one set of rules, look after look."""

    def __init__(self, rules: AlertRules, spans_us: Mapping[str, int]) -> None:
        """spans_us: the tables that rows are read of, and how far back they count."""
        self._rules = rules.played
        self._routing = rules.routing
        self._spans_us = spans_us
        self._rows = {name: watched()[name].none() for name in self._spans_us}
        self._waiting: dict[str, list[pl.DataFrame]] = {name: [] for name in self._rows}
        self._may_hold = {rule.name for rule in self._rules}
        self._known = Known()
        self._open: dict[str, tuple[Alert, int]] = {}
        self._heard = Heard()

    def expect(self, coming: Mapping[str, pl.DataFrame]) -> None:
        """These rows come next: until then only rules are judged that may hold for one of them, or
        for what is there. A rule that holds for no row begins no alert."""
        self._take_waiting(0)
        self._may_hold = {rule.name for rule in self._rules if self._holds_somewhere(rule, coming)}

    def look(self, at_us: int, new: Mapping[str, pl.DataFrame]) -> None:
        """Look at a tick, with the rows that gold has got since the look before."""
        for name, rows in new.items():
            self._waiting[name].append(rows)
        known = self._known
        lasting = {alert.rule for alert in known.alerts}
        judged = [
            rule for rule in self._rules if rule.name in self._may_hold or rule.name in lasting
        ]
        if not judged and not known.groups:
            return
        self._take_waiting(at_us)
        looked = Looked(at_us, self._rows, gone=self._gone())
        decided = judge(known, judged, looked, now_us=at_us)
        decided = notify(decided, self._rules, self._routing, silences=(), now_us=at_us)
        self._known = decided.known
        self._hear(decided, at_us)

    def heard(self) -> Heard:
        """What was reported by now; what still fires counts as reported to the end."""
        lasting = [_finding_of(alert, since_us, None) for alert, since_us in self._open.values()]
        return Heard([*self._heard.reported, *lasting], self._heard.notices)

    def _take_waiting(self, at_us: int) -> None:
        """Rows that have come, as they count at a moment; 0: at that of the newest of them."""
        for name, waiting in self._waiting.items():
            if not waiting:
                continue
            rows = pl.concat([self._rows[name], *waiting])
            moment_us = at_us or int(rows["observed_at"].cast(pl.Int64).to_numpy().max())
            self._rows[name] = rows_at(name, rows, moment_us, within_us=self._spans_us[name])
            waiting.clear()

    def _holds_somewhere(self, rule: Rule, coming: Mapping[str, pl.DataFrame]) -> bool:
        if rule.when is None:
            some = any(self._rows[name].height or coming[name].height for name in rule.tables)
            return some or _is_of_nothing(rule)
        rows = pl.concat([self._rows[rule.tables[0]], coming[rule.tables[0]]])
        if NOW in rule.when.expression.meta.root_names():
            return rows.height > 0
        try:
            return rows.filter(rule.when.expression).height > 0
        except pl.exceptions.PolarsError:
            return True  # What is wrong with it is reported when it is judged.

    def _gone(self) -> tuple[Mapping[str, str], ...]:
        if not self._known.alerts:
            return ()
        states, ended = self._rows[STATES], self._rows[ENDED]
        living = self._rows.get(LIVING, ended.clear())
        return gone(states, ended, living)

    def _hear(self, decided: Decided, at_us: int) -> None:
        for notice in decided.notices:
            firing = [one for one in notice.alerts if one.state is not State.RESOLVED]
            for alert in firing:
                self._open.setdefault(alert.fingerprint, (alert, at_us))
            if firing:
                self._heard.notices.append([_finding_of(one, at_us, None) for one in firing])
        for change in decided.changes:
            if change.kind is ChangeKind.RESOLVED and change.alert.fingerprint in self._open:
                alert, since_us = self._open.pop(change.alert.fingerprint)
                self._heard.reported.append(_finding_of(alert, since_us, at_us))


def ticks_of(moments_us: Iterable[int], begin_us: int, end_us: int, every_us: int) -> list[int]:
    """The ticks of a grid, after `begin_us` up to `end_us`, at which somebody looks: the first one
    at or behind each moment, and so many between that no two lie further apart than GAP_US."""
    wanted = sorted({-(-one // every_us) * every_us for one in moments_us if begin_us < one})
    step_us = max(every_us, GAP_US // every_us * every_us)
    ticks: list[int] = []
    last_us = begin_us // every_us * every_us
    for tick_us in (*wanted, end_us // every_us * every_us):
        while tick_us - last_us > step_us:
            last_us += step_us
            ticks.append(last_us)
        if last_us < tick_us <= end_us:
            ticks.append(tick_us)
            last_us = tick_us
    return ticks


def _is_of_nothing(rule: Rule) -> bool:
    """Does its query answer tables without rows with some?"""
    none = {name: watched()[name].none() for name in rule.tables}
    return bool(rule.sql) and answered(rule.sql, none).height > 0


def _finding_of(alert: Alert, begin_us: int, end_us: int | None) -> Told:
    labels = alert.labels
    queue_id = labels.get("queue_id", "")
    return Told(
        begin_us,
        end_us,
        labels.get("cluster", ""),
        labels.get("group", ""),
        labels.get("topic"),
        labels.get("broker"),
        int(queue_id) if queue_id.isdigit() else None,
        is_alert=True,
    )


def left_out_in_words(rules: Sequence[Rule]) -> str:
    """What a reader of the figures has to know of rules that were not played."""
    names = ", ".join(rule.name for rule in rules)
    return f"not played, for they are about the present moment alone: {names}"
