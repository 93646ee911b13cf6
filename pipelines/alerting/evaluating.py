"""Evaluates rules over one view of gold and finds where conditions hold or are unknown.

Place in the walk: rules and `Looked` → an outcome a rule → `life_cycle`. Columnar: rules over the
same rows share them, equal conditions are worked out once, and rows become values of Python only
where a condition holds, within the bounds of rule and look.

Invariant: that a condition does not hold for a known alert follows from rows that were seen: of
what is silent, withheld or unknown nobody knows. What is over the bound is counted; known alerts
come before new ones, so that no bound ends one. Absent on purpose: time that passes, and reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from pipelines.alerting.alerts import Alert, Signal, fingerprint_of
from pipelines.alerting.conditions import NOW, read_condition
from pipelines.alerting.rule_tables import Shape, watched
from pipelines.alerting.rules import Rule, Severity
from pipelines.alerting.sql import Answering, answered
from pipelines.base.time_units import moment_at
from pipelines.marts.group_state import GROUP_STATE
from pipelines.reading.known import BEGINNINGS, by_bounds, with_bounds
from pipelines.reading.moment import Reached
from pipelines.reading.trust import Trust

SIGNALS_OF_A_LOOK_MAX: Final = 20_000
"""Signals of all rules together: more are counted, and nobody could read them."""
BATCH_RULES: Final = 250
"""Conditions that are worked out at a time: 2.5 MB of truth values over 10,000 rows."""
FIGURE_MAX: Final = 1_000
"""Characters of a figure."""

_UNKNOWN: Final = "gold says that nothing is known of it now"


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look at gold found."""

    data_us: int | None
    """The moment it speaks of, µs of data time; None: there is no complete cycle."""
    rows: Mapping[str, pl.DataFrame]
    """Per table the rows that count, as `rule_tables.rows_at` says, of the longest `within`. A
    table that is not here could not be read."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Emitters of which nothing is known now, and why."""
    trust: Trust = field(default_factory=Trust)
    gone: tuple[Mapping[str, str], ...] = ()
    """What is not there any more, by the labels that name it: a group of a broker, a queue."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why tables could not be read."""
    reached: tuple[Reached, ...] = ()
    """The emitters and, of those that poll from outside, how often they do."""


@dataclass(frozen=True, slots=True)
class Signals:
    """The rule was judged."""

    holds: tuple[Signal, ...]
    """Where its condition holds, the worst first."""
    matched: int
    """How many there were; `holds` may be fewer."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of known alerts for which nobody knows whether it holds, and why."""
    withheld: tuple[tuple[Mapping[str, str], str], ...] = ()
    """Labels whose verdicts are withheld, and why."""


@dataclass(frozen=True, slots=True)
class NoData:
    """Nothing was reported by which the rule could be judged."""

    reason: str


@dataclass(frozen=True, slots=True)
class EvalError:
    """The rule could not be evaluated."""

    reason: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """The verdicts that the rule rests on are withheld."""

    reason: str


Outcome = Signals | NoData | EvalError | Withheld


def evaluate(
    rules: Sequence[Rule],
    looked: Looked,
    known: Mapping[str, Sequence[Alert]],
    *,
    answering: Answering = answered,
) -> dict[str, Outcome]:
    """The outcome of each rule, by its name.

    known: per rule the alerts that it has: of these it is said which hold, and which are unknown.
    answering: what works out queries.
    """
    outcomes: dict[str, Outcome] = {}
    looks: dict[_Look, _Rows] = {}
    judged: dict[_Look, list[Rule]] = {}
    for rule in rules:
        hindered = _hindered(rule, looked)
        if hindered is not None:
            outcomes[rule.name] = hindered
        elif rule.when is not None:
            judged.setdefault(_look_of(rule), []).append(rule)
    truths: dict[str, _Truth] = {}
    for look, of_look in judged.items():
        rows = looks[look] = _rows_of(of_look[0], looked)
        for rule, truth in rows.judge(of_look):
            truths[rule.name] = truth
    left = SIGNALS_OF_A_LOOK_MAX
    for rule in sorted(rules, key=lambda one: _SEVERITIES.index(one.severity)):
        if rule.name in outcomes:
            continue
        alerts = known.get(rule.name, ())
        try:
            if rule.when is None:
                outcome = _of_query(rule, looked, alerts, left, answering=answering)
            else:
                rows = looks[_look_of(rule)]
                outcome = rows.signals(rule, truths[rule.name], alerts, left)
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            outcomes[rule.name] = EvalError(_short(error))
            continue
        left -= len(outcome.holds)
        outcomes[rule.name] = _with_doubts(rule, outcome, looked, alerts)
    return outcomes


_SEVERITIES: Final = list(Severity)
_Look = tuple[str, int, str]


def _look_of(rule: Rule) -> _Look:
    """Rules with the same one judge the same rows."""
    return rule.tables[0], rule.within_us, "" if rule.unknown is None else rule.unknown.text


def _hindered(rule: Rule, looked: Looked) -> Outcome | None:
    """Why a rule cannot be judged at all; None when it can."""
    for name in rule.tables:
        if name not in looked.rows:
            return NoData(looked.unreadable.get(name, f"there is no table {name}"))
    if rule.is_of_lake:
        return None
    if looked.data_us is None:
        return NoData("there is no complete cycle of gold")
    for name in rule.tables:
        for one in looked.trust.standing(name, moment_at(looked.data_us)):
            if one.emitter is None and one.group is None:
                return Withheld(str(one))
    return None


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:FIGURE_MAX]


Indices = np.ndarray[tuple[int], np.dtype[np.int64]]


_Begins = Sequence[np.ndarray[Any, Any]]
"""By each column that says since when, the earliest moment of each label set; first `since`."""


def _least(
    moments: np.ndarray[Any, Any] | None, at: Indices, inverse: Indices, count: int
) -> np.ndarray[Any, Any]:
    """The earliest of the moments of each label set; infinite where none is known."""
    least = np.full(count, np.inf)
    if moments is not None:
        np.minimum.at(least, inverse, moments[at])
    return least


def _moment_us(value: float) -> int | None:
    return int(value) if np.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class _Truth:
    """Rows for which a condition holds, and for which it is unknown; or why nobody can say."""

    holds: Indices
    unknown: Indices
    error: str = ""


class _Rows:
    """Rows of a table that some rules judge, and what they share."""

    def __init__(self, frame: pl.DataFrame, vague: pl.DataFrame) -> None:
        self._frame = frame
        self._vague = vague
        """Rows by which gold says that nothing is known."""
        self._keys: dict[tuple[str, ...], _Keys] = {}
        self._numbers: dict[str, np.ndarray[Any, Any]] = {}

    def judge(self, rules: Sequence[Rule]) -> Iterable[tuple[Rule, _Truth]]:
        """Where the conditions of rules hold. Equal ones are worked out once."""
        conditions = {rule.when.text: rule.when for rule in rules if rule.when is not None}
        texts = list(conditions)
        truths: dict[str, _Truth] = {}
        for begin in range(0, len(texts), BATCH_RULES):
            batch = texts[begin : begin + BATCH_RULES]
            named = [conditions[text].expression.alias(str(n)) for n, text in enumerate(batch)]
            try:
                columns = self._frame.select(named).get_columns()
            except (pl.exceptions.PolarsError, ValueError, TypeError):
                truths |= {text: self._judged_alone(conditions[text].expression) for text in batch}
                continue
            truths |= {text: _truth_of(column) for text, column in zip(batch, columns, strict=True)}
        return [(rule, truths[rule.when.text]) for rule in rules if rule.when is not None]

    def _judged_alone(self, expression: pl.Expr) -> _Truth:
        try:
            return _truth_of(self._frame.select(expression.alias("0")).to_series())
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            return _Truth(_NONE, _NONE, _short(error))

    def signals(self, rule: Rule, truth: _Truth, alerts: Sequence[Alert], left: int) -> Signals:
        """The rows for which a rule's condition holds, and its alerts that are unknown."""
        if truth.error:
            raise ValueError(truth.error)
        if not len(truth.holds) and not alerts:
            return _NOTHING
        keys = self._keys_of(rule.label_columns)
        known = keys.ids_of(alerts, rule.label_columns) if len(truth.holds) > 1 else []
        limit = min(rule.signals_max, max(left, 0))
        chosen, counts, begins, matched = self._chosen(
            rule, truth.holds, keys.ids, known=known, limit=limit
        )
        holds = tuple(self._signals_of(rule, chosen, counts, begins))
        if not alerts:
            return Signals(holds, matched)
        shown = {fingerprint_of(rule.name, one.labels) for one in holds}
        doubtful = keys.labels_of(truth.unknown) | self._vague_keys(rule.label_columns)
        unknown = {
            alert.fingerprint: _UNKNOWN
            for alert in alerts
            if alert.fingerprint not in shown
            and tuple(alert.labels.get(name) for name in rule.label_columns) in doubtful
        }
        return Signals(holds, matched, unknown)

    def _chosen(
        self, rule: Rule, at: Indices, ids: Indices, *, known: Sequence[int], limit: int
    ) -> tuple[Indices, Indices, _Begins, int]:
        """One row of each label set, the worst first; how many rows each has, when they began, and
        how many label sets there are."""
        worst = self._number(rule.worst)
        if worst is not None and len(at) > 1:
            at = at[np.argsort(-worst[at], kind="stable")]
        _, firsts, inverse, counts = np.unique(
            ids[at], return_index=True, return_inverse=True, return_counts=True
        )
        begins = [
            _least(self._number(name), at, inverse, len(firsts))
            for name in (rule.since, *self._proven_by(rule))
        ]
        order = np.argsort(firsts, kind="stable")
        matched = len(order)
        if matched > limit:
            is_known = np.isin(ids[at[firsts[order]]], known)
            order = np.concatenate([order[is_known], order[~is_known]])
            order = order[: max(limit, int(is_known.sum()))]
        return at[firsts[order]], counts[order], [begin[order] for begin in begins], matched

    def _proven_by(self, rule: Rule) -> Sequence[str]:
        """Columns beside `since` by which a beginning is proven, perhaps an earlier one."""
        if rule.since != BEGINNINGS[0]:
            return ()
        return [name for name in BEGINNINGS[1:] if name in self._frame.columns]

    def _signals_of(
        self, rule: Rule, chosen: Indices, counts: Indices, begins: _Begins
    ) -> Iterable[Signal]:
        if not len(chosen):
            return
        names = self._shown.columns
        rows = self._shown[chosen].rows()
        places = _label_sets(self._frame[chosen], rule.label_columns)
        for number, (row, place) in enumerate(zip(rows, places, strict=True)):
            figures = dict(zip(names, row, strict=True))
            columns = zip(rule.label_columns, place, strict=True)
            labels = {name: value for name, value in columns if value is not None}
            evidence = figures.get(rule.evidence) if rule.evidence else None
            since, *proven = (_moment_us(begin[number]) for begin in begins)
            known = [begin for begin in (since, *proven) if begin is not None]
            figures.setdefault("matched", int(counts[number]))
            yield Signal(
                labels | dict(rule.fixed_labels),
                since,
                "" if evidence is None else str(evidence),
                figures,
                min(known, default=None),
            )

    def _keys_of(self, names: tuple[str, ...]) -> _Keys:
        if names not in self._keys:
            self._keys[names] = _Keys(self._frame, names)
        return self._keys[names]

    def _vague_keys(self, names: tuple[str, ...]) -> set[tuple[str | None, ...]]:
        return set(_label_sets(self._vague, names))

    def _number(self, name: str | None) -> np.ndarray[Any, Any] | None:
        """A column as numbers; what is not known is below, and after, all others."""
        if name is None:
            return None
        if name not in self._numbers:
            column = self._frame[name]
            if column.dtype.is_temporal():
                column = column.cast(pl.Int64, strict=False)
                filled = column.cast(pl.Float64).fill_null(np.inf)
            else:
                filled = column.cast(pl.Float64, strict=False).fill_null(-np.inf)
            self._numbers[name] = filled.to_numpy()
        return self._numbers[name]

    @cached_property
    def _shown(self) -> pl.DataFrame:
        """The rows as figures."""
        made = []
        for name, kind in self._frame.schema.items():
            column = pl.col(name)
            if kind.is_nested() or name == NOW:
                continue
            if kind.is_temporal() or kind == pl.String:
                column = _text_of(name, kind)
            made.append(column.alias(name))
        return self._frame.select(made)


class _Keys:
    """The label sets of rows, numbered."""

    def __init__(self, frame: pl.DataFrame, names: tuple[str, ...]) -> None:
        self._frame = frame
        self._names = names
        if names:
            self.ids = frame.select(pl.struct(names).rank("dense")).to_series().to_numpy()
        else:
            self.ids = np.zeros(frame.height, dtype=np.int64)

    def labels_of(self, at: Indices) -> set[tuple[str | None, ...]]:
        """The label sets of some rows."""
        return set(_label_sets(self._frame[at], self._names)) if len(at) else set()

    def ids_of(self, alerts: Sequence[Alert], names: tuple[str, ...]) -> list[int]:
        """The numbers of alerts' label sets, as far as they are here."""
        wanted = (tuple(alert.labels.get(name) for name in names) for alert in alerts)
        numbers = self._numbers
        return [numbers[one] for one in wanted if one in numbers]

    @cached_property
    def _numbers(self) -> dict[tuple[str | None, ...], int]:
        return dict(zip(_label_sets(self._frame, self._names), self.ids.tolist(), strict=True))


_NONE: Final = np.empty(0, dtype=np.int64)
_NOTHING: Final = Signals((), 0)


def _truth_of(column: pl.Series) -> _Truth:
    holds = column.arg_true().to_numpy() if column.any() else _NONE
    unknown = column.is_null().arg_true().to_numpy() if column.null_count() else _NONE
    return _Truth(holds, unknown)


def _label_sets(frame: pl.DataFrame, names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """The label set of each row; without labels they all have the same one. Here alone values
    become labels: an alert is known by them again."""
    if not names:
        return [()] * frame.height
    return frame.select(_text_of(name, frame.schema[name]).alias(name) for name in names).rows()


def _text_of(name: str, kind: pl.DataType) -> pl.Expr:
    """A column's values as texts."""
    if isinstance(kind, pl.Datetime):
        return pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
    text = pl.col(name).cast(pl.String)
    return text.str.slice(0, FIGURE_MAX) if kind == pl.String else text


def _rows_of(rule: Rule, looked: Looked) -> _Rows:
    """The rows that a rule judges: those of the last `within`, without what is silent or withheld,
    apart from those by which gold says that nothing is known."""
    frame = _narrowed(rule.tables[0], rule.within_us, looked)
    if rule.unknown is None:
        return _Rows(frame, frame.clear())
    is_vague = frame.select(rule.unknown.expression.fill_null(value=False).alias("0")).to_series()
    judged = frame.filter(~is_vague)
    if rule.unknown.text == watched()[rule.tables[0]].unknown and "state" in judged.columns:
        # Figures of it are known, its state is not: what decides by the state is unknown.
        is_unknown = pl.col("state") == "UNKNOWN"
        judged = judged.with_columns(state=pl.when(~is_unknown).then("state"))
    return _Rows(judged, frame.filter(is_vague))


def _narrowed(name: str, within_us: int, looked: Looked) -> pl.DataFrame:
    table, frame = watched()[name], looked.rows[name]
    if name == GROUP_STATE.name:
        frame = with_bounds(frame)
    now_us = looked.data_us
    moment = pl.lit(now_us, pl.Int64).cast(pl.Datetime("us", "UTC"))
    if frame.is_empty():
        return frame.with_columns(moment.alias(NOW))
    if now_us is not None and table.shape is not Shape.STATE:
        is_recent = pl.col("observed_at") > moment - pl.duration(microseconds=within_us)
        if table.shape is Shape.INTERVALS:
            is_recent = (pl.col("state") == "OPEN") | (is_recent & (within_us > 0))
        frame = frame.filter(is_recent)
    if not table.is_of_lake:
        frame = _without_doubts(name, frame, looked)
    return frame.with_columns(moment.alias(NOW))


def _without_doubts(name: str, frame: pl.DataFrame, looked: Looked) -> pl.DataFrame:
    """Rows of emitters that speak, and whose verdicts may be believed."""
    if "emitter" not in frame.columns:
        return frame
    if looked.silent:
        frame = frame.filter(~pl.col("emitter").is_in(list(looked.silent)))
    assert looked.data_us is not None
    for one in looked.trust.standing(name, moment_at(looked.data_us)):
        frame = frame.filter(~one.rows_of(frame.columns))
    return frame


def _of_query(
    rule: Rule, looked: Looked, alerts: Sequence[Alert], left: int, *, answering: Answering
) -> Signals:
    rows = {name: _narrowed(name, rule.within_us, looked).drop(NOW) for name in rule.tables}
    if GROUP_STATE.name in rows:
        rows[GROUP_STATE.name] = by_bounds(rows[GROUP_STATE.name])
    answer = answering(rule.sql, rows)
    judged = _Rows(answer, answer.clear())
    everything = _Truth(np.arange(answer.height, dtype=np.int64), _NONE)
    signals = judged.signals(rule, everything, alerts, left)
    return (
        replace(signals, unknown=_unknown_to_query(rule, rows, signals, alerts))
        if alerts
        else signals
    )


def _unknown_to_query(
    rule: Rule, rows: Mapping[str, pl.DataFrame], signals: Signals, alerts: Sequence[Alert]
) -> dict[str, str]:
    """Alerts that a query's answer lacks, where gold says that nothing is known of what they name:
    the query has seen no figures of it."""
    shown = {fingerprint_of(rule.name, one.labels) for one in signals.holds}
    found: dict[str, str] = {}
    for name, frame in rows.items():
        names = [one for one in rule.label_columns if one in frame.columns]
        text = watched()[name].unknown
        if text is None or not names:
            continue
        condition = read_condition(text, watched()[name].table.columns)
        vague = set(_label_sets(frame.filter(condition.expression), names))
        for alert in alerts:
            if alert.fingerprint in shown:
                continue
            if tuple(alert.labels.get(one) for one in names) in vague:
                found[alert.fingerprint] = _UNKNOWN
    return found


def _with_doubts(rule: Rule, outcome: Signals, looked: Looked, alerts: Sequence[Alert]) -> Signals:
    """Adds what nobody knows of its alerts: those of silent emitters, or of withheld verdicts."""
    if rule.is_of_lake:
        return outcome
    assert looked.data_us is not None
    doubts = [(_place(emitter, None), reason) for emitter, reason in looked.silent.items()]
    withheld: dict[tuple[tuple[str, str], ...], str] = {}
    for name in rule.tables:
        for one in looked.trust.standing(name, moment_at(looked.data_us)):
            place = _place(one.emitter, one.group)
            doubts.append((place, str(one)))
            withheld[tuple(place.items())] = str(one)
    if not doubts:
        return outcome
    holding = {fingerprint_of(rule.name, one.labels) for one in outcome.holds} if alerts else ()
    unknown = dict(outcome.unknown)
    for alert in alerts:
        for place, reason in doubts:
            if alert.fingerprint not in holding and _may_concern(place, alert.labels):
                unknown[alert.fingerprint] = reason
    reasons = tuple((dict(place), reason) for place, reason in withheld.items())
    return Signals(outcome.holds, outcome.matched, unknown, reasons)


def _place(emitter: str | None, group: str | None) -> dict[str, str]:
    """The labels that name an emitter's broker, and a group."""
    parts = (emitter or "").split("/")
    place = {"cluster": parts[0], "broker": parts[1]} if len(parts) >= 2 else {}
    return place | ({"group": group} if group is not None else {})


def _may_concern(place: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Do the labels contradict the place nowhere?"""
    return all(labels.get(name, value) == value for name, value in place.items())
