"""Runs rule tests, which compare the alerts raised by given gold rows with those expected.

Place in the walk: documents (TOML that somebody has read) → cases → the same evaluation and life
cycle as live → what differs. docs/alerting.md shows a file.

Invariant: a case says nothing of clocks: its moments count from its begin, and both clocks go on
alike. All alerts that would be sent (firing, or about the rule) must be expected; pending ones only
when they are named. Absent on purpose: files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from engine.telemetry.tables import Column, ColumnType
from pipelines.alerting.alerts import ALERT_NAME, Alert, State
from pipelines.alerting.conditions import span_us, unknown_name
from pipelines.alerting.evaluating import Looked, evaluate
from pipelines.alerting.life_cycle import Now, step, with_texts
from pipelines.alerting.matchers import labels_of
from pipelines.alerting.rule_tables import Shape, rows_at, watched
from pipelines.alerting.rules import Fault, Given, Rule
from pipelines.alerting.wait_clock import GAP_US, Steady
from pipelines.base.settings import DAY_US, SECOND_US
from pipelines.base.time_units import micros

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When every case begins."""
LOOKS_MAX: Final = 20_000
"""Looks of one case: a day of 5 s."""
ROWS_MAX: Final = 10_000
"""Rows of one series."""
_WORD: Final = "state"
_TEXT: Final = "summary"


@dataclass(frozen=True, slots=True)
class Expected:
    """What there is to be at a moment."""

    at_us: int
    alerts: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    name: str
    every_us: int
    """From one look to the next."""
    rows: Mapping[str, pl.DataFrame]
    expected: tuple[Expected, ...]
    silent: tuple[tuple[str, int, int], ...] = ()
    """Emitters, and from when until when they report nothing."""
    gone: tuple[tuple[int, Mapping[str, str]], ...] = ()
    """The moment from which something is gone."""


@dataclass(frozen=True, slots=True)
class CheckedCases:
    """What came of a document."""

    cases: tuple[Case, ...] = ()
    faults: tuple[Fault, ...] = field(default=())


def run(case: Case, rules: Sequence[Rule]) -> list[str]:
    """What differs from what the case expects; nothing when it passes."""
    unread = sorted(set(case.rows) - {name for rule in rules for name in rule.tables})
    if unread:
        return [f"no rule reads {', '.join(unread)}: whatever its rows say, nothing comes of them"]
    # A condition over a table without rows holds nowhere; a query may count to nothing.
    rules = [rule for rule in rules if rule.sql or set(rule.tables) & set(case.rows)]
    by_name = {rule.name: rule for rule in rules}
    longest_us = max((rule.within_us for rule in rules), default=0)
    needed = dict.fromkeys(name for rule in rules for name in rule.tables)
    frames = {name: case.rows.get(name, watched()[name].none()) for name in needed}
    alerts: dict[str, tuple[Alert, ...]] = {rule.name: () for rule in rules}
    steady, wrong = Steady(), []
    left = sorted(case.expected, key=lambda one: one.at_us)
    begin_us = micros(BEGIN)
    at_us = 0
    while left:
        now_us = begin_us + at_us
        looked = Looked(
            now_us,
            {name: rows_at(name, rows, now_us, within_us=longest_us)
             for name, rows in frames.items()},
            silent={who: f"{who} is silent" for who, since, until in case.silent
                    if since <= at_us < until},
            gone=tuple(what for since, what in case.gone if since <= at_us),
        )  # fmt: skip
        steady = steady.advanced(now_us, now_us)
        outcomes = evaluate(rules, looked, alerts)
        for rule in rules:
            now = Now(now_us, steady.total_us)
            stepped = step(rule, alerts[rule.name], outcomes[rule.name], now, gone=looked.gone)
            alerts[rule.name] = stepped.alerts
        while left and left[0].at_us <= at_us:
            there = [
                with_texts(by_name[name], alert)
                for name, of_rule in alerts.items()
                for alert in of_rule
            ]
            wrong += [f"at {_span(at_us)}: {what}" for what in _differences(left.pop(0), there)]
        at_us += case.every_us
    return wrong


def _differences(expected: Expected, there: Sequence[Alert]) -> list[str]:
    open_ones = [alert for alert in there if alert.state is not State.RESOLVED]
    wrong = []
    for wanted in expected.alerts:
        found = next((alert for alert in open_ones if _is_meant(wanted, alert)), None)
        if found is None:
            near = [_shown(alert) for alert in there if alert.rule == wanted.get(ALERT_NAME)]
            beside = f"; there is {', '.join(near)}" if near else ""
            wrong.append(f"there is no alert {_words(wanted)}{beside}")
        else:
            open_ones.remove(found)
    wrong += [
        f"nobody expects {_shown(alert)}" for alert in open_ones if alert.state is not State.PENDING
    ]
    return wrong


def _is_meant(wanted: Mapping[str, str], alert: Alert) -> bool:
    labels = labels_of(alert)
    said = {_WORD: alert.state.value, _TEXT: alert.annotations.get("summary", "")}
    usual = {_WORD: State.FIRING.value}
    return all(
        (said[name] if name in said else labels.get(name)) == value
        for name, value in {**usual, **wanted}.items()
    )


def _shown(alert: Alert) -> str:
    said = {
        ALERT_NAME: alert.rule,
        **{name: value for name, value in labels_of(alert).items() if value},
        _WORD: alert.state.value,
        _TEXT: alert.annotations.get("summary", ""),
    }
    return _words(said)


def _words(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={value!r}" for name, value in labels.items()) + "}"


def _span(span: int) -> str:
    minutes, seconds = divmod(span // SECOND_US, 60)
    return (
        f"{minutes}m{seconds}s"
        if minutes and seconds
        else f"{minutes}m"
        if minutes
        else f"{seconds}s"
    )


def cases_of(file: str, document: Mapping[str, Any]) -> CheckedCases:
    """The cases of a document, and all that is wrong with it."""
    given = _Given(file)
    given.only(document, ("rules", "every", "test"), "")
    rules = document.get("rules")
    if not rules or not isinstance(rules, list) or not all(isinstance(one, str) for one in rules):
        given.fault(document, "rules", "", "must be a list of files of rules, like ['rules.toml']")
    every_us = given.span(document, "every", "", usual=10 * SECOND_US)
    if not 0 < every_us <= GAP_US:
        given.fault(document, "every", "", f"must be 1s to {GAP_US // SECOND_US}s")
    listed = given.tables(document, "test", "")
    if not listed:
        given.fault(document, "test", "", "is missing: write a [[test]]")
    cases = [given.case(entry, number, every_us) for number, entry in enumerate(listed, 1)]
    if given.faults:
        return CheckedCases(faults=tuple(given.faults))
    return CheckedCases(tuple(cases))


class _Given(Given):
    """A document of tests."""

    def span(self, entry: Mapping[str, Any], key: str, place: str, *, usual: int = 0) -> int:
        """A span of time."""
        if key not in entry:
            return usual
        text = entry[key]
        found = span_us("0s" if text == "0" else text) if isinstance(text, str) else None
        if found is None or found > 7 * DAY_US:
            self.fault(entry, key, place, "must be a span of time like 30s, 5m or 1h30m")
            return usual
        return found

    def case(self, entry: Mapping[str, Any], number: int, every_us: int) -> Case:
        """One case; not to be used when there are faults."""
        place = f"test {entry.get('name', number)}"
        self.only(entry, ("name", "rows", "expect", "silent", "gone"), place)
        rows: dict[str, list[dict[str, Any]]] = {}
        for series in self.tables(entry, "rows", place):
            name, made = self._series(series, place)
            if name:
                rows.setdefault(name, []).extend(made)
        expected = [self._expected(one, place) for one in self.tables(entry, "expect", place)]
        if not expected:
            self.fault(entry, "expect", place, "is missing: say which alerts there are, and when")
        last_us = max((one.at_us for one in expected), default=0)
        for moment in expected:
            if every_us and moment.at_us % every_us:
                what = f"at {_span(moment.at_us)} nobody looks: looks come each {_span(every_us)}"
                self.fault(entry, "expect", place, what)
        if every_us and last_us // every_us > LOOKS_MAX:
            self.fault(entry, "expect", place, f"needs more than {LOOKS_MAX} looks")
        silent = []
        for one in self.tables(entry, "silent", place):
            self.only(one, ("emitter", "from", "until"), place)
            until_us = self.span(one, "until", place, usual=7 * DAY_US)
            silent.append((str(one.get("emitter")), self.span(one, "from", place), until_us))
        gone = [
            (self.span(one, "at", place), self._labels(one.get("labels"), one, "labels", place))
            for one in self.tables(entry, "gone", place)
        ]
        frames = {name: _frame(name, made) for name, made in rows.items()}
        return Case(place[5:], every_us, frames, tuple(expected), tuple(silent), tuple(gone))

    def _expected(self, entry: Mapping[str, Any], place: str) -> Expected:
        self.only(entry, ("at", "alerts"), place)
        listed = self.tables(entry, "alerts", place)
        alerts = [self._labels(one, entry, "alerts", place) for one in listed]
        for one in alerts:
            if ALERT_NAME not in one:
                self.fault(entry, "alerts", place, f"each must have an {ALERT_NAME}")
        return Expected(self.span(entry, "at", place), tuple(alerts))

    def _labels(
        self, given: object, entry: Mapping[str, Any], key: str, place: str
    ) -> dict[str, str]:
        if not isinstance(given, Mapping) or not given:
            self.fault(entry, key, place, "must be texts by name")
            return {}
        return {name: str(value) for name, value in given.items()}

    def _series(self, entry: Mapping[str, Any], place: str) -> tuple[str, list[dict[str, Any]]]:
        self.only(entry, ("table", "at", "until", "every", "values"), place)
        name = entry.get("table")
        if not isinstance(name, str) or name not in watched():
            self.fault(entry, "table", place, unknown_name(str(name), watched(), "table"))
            return "", []
        values = entry.get("values", {})
        columns = {column.name: column for column in watched()[name].table.columns}
        if not isinstance(values, Mapping):
            self.fault(entry, "values", place, "must be values by column")
            return "", []
        for column in values:
            if column not in columns:
                self.fault(entry, "values", place, unknown_name(column, columns, "column"))
        at_us = self.span(entry, "at", place)
        until_us = self.span(entry, "until", place, usual=at_us)
        every_us = self.span(entry, "every", place, usual=30 * SECOND_US)
        if every_us <= 0 or (until_us - at_us) // every_us > ROWS_MAX:
            self.fault(entry, "every", place, f"makes more than {ROWS_MAX} rows")
            return "", []
        made = []
        for number, moment_us in enumerate(range(at_us, until_us + 1, every_us)):
            row: dict[str, Any] = {"observed_at": BEGIN + timedelta(microseconds=moment_us)}
            for column, value in values.items():
                if column in columns:
                    row[column] = self._value(columns[column], value, number, (entry, place))
            made.append(row)
        return name, made

    def _value(
        self, column: Column, value: Any, number: int, where: tuple[Mapping[str, Any], str]
    ) -> Any:
        """A value as its column has it: `100+5x` grows by 5 from row to row, a moment is a span
        after the begin of the case, or before it."""
        try:
            match column.type:
                case ColumnType.INT | ColumnType.LONG if isinstance(value, str):
                    start, sign, step_each = _progress(value)
                    return start + sign * step_each * number
                case ColumnType.TIMESTAMP if isinstance(value, str):
                    span = span_us(value.lstrip("-")) if value != "0" else 0
                    if span is None:
                        raise ValueError
                    return BEGIN + timedelta(microseconds=-span if value[0] == "-" else span)
            kinds: dict[ColumnType, type] = {
                ColumnType.STRING: str, ColumnType.INT: int, ColumnType.LONG: int,
                ColumnType.BOOLEAN: bool,
            }  # fmt: skip
            if not isinstance(value, kinds.get(column.type, str)):
                raise TypeError
        except (TypeError, ValueError):
            entry, place = where
            what = f"{column.name} = {value!r} is no {column.type.value}"
            self.fault(
                entry, "values", place, f"{what} (a count may grow: 100+5x; a moment is -2m)"
            )
            return None
        return value


def _progress(text: str) -> tuple[int, int, int]:
    for sign, factor in (("+", 1), ("-", -1)):
        start, found, each = text[1:].partition(sign)
        if found and each.endswith("x"):
            return int(text[0] + start), factor, int(each[:-1])
    return int(text), 1, 0


_USUAL: Final[Mapping[ColumnType, Any]] = {
    ColumnType.STRING: "",
    ColumnType.INT: 0,
    ColumnType.LONG: 0,
    ColumnType.BOOLEAN: False,
    ColumnType.DATE: BEGIN.date(),
}


def _frame(name: str, given: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows with what a case leaves out: null, or where nothing may be null what is usual."""
    table = watched()[name]
    place = {"cluster": "c", "broker": "b", "group": "g"}
    rows = []
    for number, one in enumerate(sorted(given, key=lambda row: row["observed_at"])):
        row = {
            column.name: one.get(
                column.name,
                None if column.nullable else _USUAL.get(column.type, one["observed_at"]),
            )
            for column in table.table.columns
        }
        row |= {key: one.get(key, usual) for key, usual in place.items() if key in row}
        if "emitter" in row:
            usual = f"{row.get('cluster', 'c')}/{row.get('broker', 'b')}/0"
            row["emitter"] = one.get("emitter", usual)
        if "seq" in row:
            row["seq"] = number
        if table.shape is Shape.INTERVALS:
            names = ("cluster", "broker", "group", "topic", "queue_id")
            row["window_id"] = one.get("window_id", "/".join(str(row[key]) for key in names))
            row |= {"revision": number + 1, "state": one.get("state", "OPEN")}
        rows.append(row)
    return pl.DataFrame(rows, schema=table.none().schema)
