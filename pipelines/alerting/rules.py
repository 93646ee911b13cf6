"""Builds alert rules from parsed rule files and reports any faults in them.

Place in the walk: documents (TOML) → rules → evaluation. docs/alerting.md has every key. Invariant:
a rule that was made here can be evaluated on any rows of its tables; of a document with faults none
of its rules is taken, and each fault names file, rule, key, value and what to do. Absent on
purpose: files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import polars as pl

from pipelines.alerting.alerts import ALERT_NAME, OUTCOME
from pipelines.alerting.conditions import (
    Condition,
    ConditionFault,
    read_condition,
    span_us,
    unknown_name,
)
from pipelines.alerting.rule_tables import Shape, Watched, watched
from pipelines.alerting.sql import answered
from pipelines.alerting.texts import TemplateFault, check_template
from pipelines.base.settings import DAY_US
from pipelines.base.wording import bound_of
from pipelines.sentences.alerts import TEXTS

RULES_MAX: Final = 10_000
"""Rules of one document."""
SQL_MAX: Final = 4_000
"""Characters of a query."""
SIGNALS_MAX: Final = 10_000
"""Signals of one rule that may be asked for."""
SIGNALS: Final = 1_000
"""Signals of one rule, unless it asks for another number."""
SPAN_MAX_US: Final = 7 * DAY_US
"""The longest `for`, `keep_firing_for` and `within`."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SQL_FILES: Final = re.compile(r"\b(read_|scan_)\w*", re.IGNORECASE)
_SQL_TEXTS: Final = re.compile(r"'(?:[^']|'')*'")

ANNOTATIONS: Final = (
    "summary", "description", "first_step", "runbook_url", "page_url", "notebook_url",
)  # fmt: skip
RESERVED: Final = (ALERT_NAME, "severity", "owner", OUTCOME)
"""Labels that no rule gives itself."""


class Severity(StrEnum):
    """How bad, the worst first; PagerDuty's words."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


Word = TypeVar("Word", bound=StrEnum)


class Policy(StrEnum):
    """What is done when a rule cannot be judged. Whatever it is, nothing is resolved by it."""

    TELL = "tell"
    """An alert of its own says so, once it has lasted."""
    KEEP = "keep"
    """What is known stays as it is, and nobody is notified."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file of rules."""

    file: str
    rule: str
    """Its name, or its number; empty: the file as a whole."""
    key: str
    value: str
    what: str
    """The fault, and what would be right."""

    def __str__(self) -> str:
        parts = [self.file]
        if self.rule:
            parts.append(f"rule {self.rule}")
        if self.key:
            shown = f" = {self.value}" if self.value else ""
            parts.append(f"{self.key}{shown}")
        return f"{': '.join(parts)}: {self.what}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, checked."""

    name: str
    file: str
    tables: tuple[str, ...]
    """What it reads; with a condition, one table."""
    when: Condition | None
    """Over the rows of its table; None: the query says it."""
    unknown: Condition | None
    """A condition: nothing is known of the rows for which it holds."""
    sql: str
    """Over its tables: each row of the answer is a signal; empty: the condition says it."""
    columns: tuple[str, ...]
    """Of the rows that it judges: figures of its alerts."""
    label_columns: tuple[str, ...]
    severity: Severity
    owner: str
    within_us: int = 0
    """Of events and intervals: how far back they count; 0: intervals that are open."""
    for_us: int = 0
    """How long its condition must have held before it fires."""
    keep_firing_for_us: int = 0
    """How long it goes on firing after its condition last held."""
    fixed_labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Templates by name."""
    since: str | None = None
    """The column that says since when; None: since it was seen."""
    evidence: str | None = None
    """The column that says what is seen, in a sentence."""
    worst: str | None = None
    """The column by which signals are ordered, the greatest first."""
    signals_max: int = SIGNALS
    no_data: Policy = Policy.TELL
    eval_error: Policy = Policy.TELL
    withheld: Policy = Policy.TELL

    @property
    def is_of_lake(self) -> bool:
        """Is it about the lake itself, silence included?"""
        return all(watched()[name].is_of_lake for name in self.tables)


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of documents."""

    rules: tuple[Rule, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules in force, and the faults of what was read last; the faulty is not in force."""

    rules: tuple[Rule, ...] = ()
    faults: tuple[Fault, ...] = ()

    def reloaded(self, read: Checked) -> RuleSet:
        """After files were read again: their rules when nothing is wrong with any of them, else
        the old ones, with what is wrong. One broken file keeps all: a rule may have moved from it
        to another one.
        """
        if read.faults:
            return RuleSet(self.rules, read.faults)
        return RuleSet(read.rules)


def check(documents: Mapping[str, object]) -> Checked:
    """The rules of documents by their files' names, and all that is wrong with them."""
    rules: list[Rule] = []
    faults: list[Fault] = []
    seen: dict[str, str] = {}
    for file, document in documents.items():
        made = _of_document(file, document)
        faults += made.faults
        rules += made.rules
        for rule in made.rules:
            if rule.name in seen:
                what = f"there is one in {seen[rule.name]}: give them different names"
                faults.append(Fault(file, rule.name, "name", "", what))
            seen[rule.name] = file
    return Checked(tuple(rules), tuple(faults))


def _of_document(file: str, document: object) -> Checked:
    listed = document.get("rule") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(listed, list) or not listed:
        return Checked(faults=(Fault(file, "", "", "", "it has no [[rule]]: write one"),))
    others = sorted(str(key) for key in document if key != "rule")
    if others:
        what = "is not known: a file has [[rule]] and nothing else"
        return Checked(faults=(Fault(file, "", ", ".join(others), "", what),))
    if len(listed) > RULES_MAX:
        what = f"it has {len(listed)} rules; at most {RULES_MAX} are taken"
        return Checked(faults=(Fault(file, "", "", "", what),))
    rules, faults = [], []
    for number, entry in enumerate(listed, 1):
        given = _Given(file, number, entry)
        rule = given.rule()
        faults += given.faults
        if rule is not None and not given.faults:
            rules.append(rule)
    return Checked(tuple(rules), tuple(faults))


_KEYS: Final = (
    "name", "table", "when", "unknown", "sql", "tables", "within", "for", "keep_firing_for",
    "severity", "owner", "labels", "extra_labels", "annotations", "since", "evidence", "worst",
    "signals_max", "no_data", "eval_error", "withheld",
)  # fmt: skip


class Given:
    """A document of tables, read key by key; faults are gathered, so that all are shown."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.faults: list[Fault] = []

    def fault(self, entry: Mapping[str, Any], key: str, place: str, what: str) -> None:
        """Note a fault."""
        value = repr(entry[key])[:120] if key in entry else ""
        self.faults.append(Fault(self._file, place, key, value, what))

    def only(self, entry: Mapping[str, Any], keys: Sequence[str], place: str) -> None:
        """Note keys that are not known."""
        for key in entry:
            if key not in keys:
                self.fault(entry, key, place, unknown_name(key, dict.fromkeys(keys), "key"))

    def tables(self, entry: Mapping[str, Any], key: str, place: str) -> list[Mapping[str, Any]]:
        """The tables of a list."""
        listed = entry.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
            self.fault(entry, key, place, f"must be a list of tables, [[{key}]]")
            return []
        return listed


class _Given:
    """One entry of a document, read key by key; faults are gathered, so that all are shown."""

    def __init__(self, file: str, number: int, entry: object) -> None:
        self._file = file
        self._entry: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        named = self._entry.get("name")
        self._rule = str(named)[:100] if named else f"number {number}"
        self.faults: list[Fault] = []

    def rule(self) -> Rule | None:
        """The rule; None, or one that is not to be used, when there are faults."""
        for key in self._entry:
            if key not in _KEYS:
                self._fault(key, unknown_name(key, dict.fromkeys(_KEYS), "key"))
        name = self._text("name", must=True)
        if name and not _NAME.fullmatch(name):
            self._fault("name", "is letters, digits and _, at most 100, like QueueStalled")
        tables = self._tables()
        if not tables:
            return None
        sql = self._text("sql")
        table = watched()[tables[0]]
        within_us = self._within(tables)
        when = unknown = None
        columns = table.table.column_names
        if sql:
            columns = self._answer_of(sql, tables)
        else:
            text = self._text("when", must=True)
            when = self._condition("when", text, table)
            said = self._entry.get("unknown", table.unknown)
            unknown = self._condition("unknown", said, table) if said else None
        labels = self._label_columns(columns, table, is_sql=bool(sql))
        extra = self._extra_labels(labels)
        severity = self._choice("severity", Severity, Severity.WARNING)
        return Rule(
            name, self._file, tables, when, unknown, sql, columns, labels, severity,
            self._text("owner"),
            within_us=within_us,
            for_us=self._span("for"),
            keep_firing_for_us=self._span("keep_firing_for"),
            fixed_labels=extra,
            annotations=self._annotations(columns, (*labels, *extra)),
            since=self._column("since", columns, _one_of(columns, "opened_at")),
            evidence=self._column("evidence", columns, _one_of(columns, "evidence", "reason")),
            worst=self._column(
                "worst", columns, _one_of(columns, *_WORST)
            ),
            signals_max=self._signals_max(),
            no_data=self._choice("no_data", Policy, Policy.TELL),
            eval_error=self._choice("eval_error", Policy, Policy.TELL),
            withheld=self._choice("withheld", Policy, Policy.TELL),
        )  # fmt: skip

    def _fault(self, key: str, what: str) -> None:
        value = self._entry.get(key)
        shown = "" if value is None else repr(value)
        if len(shown) > 120:
            shown = f"{shown[:119]}…"
        self.faults.append(Fault(self._file, self._rule, key, shown, what))

    def _text(self, key: str, *, must: bool = False) -> str:
        value = self._entry.get(key, "")
        if not isinstance(value, str):
            self._fault(key, "must be a text")
            return ""
        if must and not value.strip():
            self._fault(key, "is missing: each rule has one" if key == "name" else _LACKING)
        return value

    def _texts(self, key: str) -> list[str] | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._fault(key, "must be a list of texts")
            return None
        return value

    def _span(self, key: str) -> int:
        text = self._text(key)
        if not text or text == "0":
            return 0
        found = span_us(text)
        if found is None or found > SPAN_MAX_US:
            self._fault(key, "must be a span of time like 30s, 5m or 1h30m, at most 7d")
            return 0
        return found

    def _choice(self, key: str, words: type[Word], usual: Word) -> Word:
        value = self._entry.get(key, usual)
        try:
            return words(value)
        except ValueError:
            self._fault(key, f"must be one of {', '.join(word.value for word in words)}")
            return usual

    def _tables(self) -> tuple[str, ...]:
        has_sql = "sql" in self._entry
        if has_sql and ("when" in self._entry or "table" in self._entry):
            what = "stands beside when or table: a rule has table and when, or tables and sql"
            self._fault("sql", what)
            return ()
        named = self._texts("tables") if has_sql else [self._text("table")]
        if not named or not all(named):
            self._fault(
                "tables" if has_sql else "table", f"is missing: one of {', '.join(watched())}"
            )
            return ()
        for name in named:
            if name not in watched():
                self._fault(
                    "tables" if has_sql else "table", unknown_name(name, watched(), "table")
                )
                return ()
        return tuple(named)

    def _within(self, tables: Sequence[str]) -> int:
        found = self._span("within")
        shapes = {watched()[name].shape for name in tables}
        if Shape.EVENTS in shapes and not found:
            what = f"is missing: rows of {', '.join(tables)} are events: say how long they count"
            self._fault("within", f"{what}, like 10m")
        if found and shapes == {Shape.STATE}:
            what = f"rows of {', '.join(tables)} are a state: the newest counts; leave it out"
            self._fault("within", what)
        return found

    def _condition(self, key: str, text: object, table: Watched) -> Condition | None:
        if not isinstance(text, str) or not text.strip():
            return None
        try:
            return read_condition(text, table.table.columns)
        except ConditionFault as fault:
            self._fault(key, str(fault))
            return None

    def _answer_of(self, sql: str, tables: Sequence[str]) -> tuple[str, ...]:
        """The columns of a query's answer, asked of tables without rows."""
        if len(sql) > SQL_MAX:
            self._fault("sql", f"has {len(sql)} characters; at most {SQL_MAX} are taken")
            return ()
        if _SQL_FILES.search(_SQL_TEXTS.sub("''", sql)):
            self._fault("sql", "reads files: a rule reads gold tables alone")
            return ()
        try:
            none = {name: watched()[name].none() for name in tables}
            return tuple(answered(sql, none).columns)
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._fault("sql", f"cannot be asked of {', '.join(tables)}: {text}")
            return ()

    def _label_columns(
        self, columns: Sequence[str], table: Watched, *, is_sql: bool
    ) -> tuple[str, ...]:
        named = self._texts("labels")
        if named is None:
            usual = (
                table.labels if not is_sql else ("cluster", "group", "topic", "broker", "queue_id")
            )
            return tuple(name for name in usual if name in columns)
        for name in named:
            if name not in columns:
                self._fault("labels", unknown_name(name, dict.fromkeys(columns), "column"))
        return tuple(dict.fromkeys(named))

    def _extra_labels(self, labels: Sequence[str]) -> dict[str, str]:
        given = self._mapping("extra_labels")
        for name in given:
            if name in labels or name in RESERVED or not _NAME.fullmatch(name):
                what = f"{name!r} is taken, or no name: choose another"
                self._fault("extra_labels", what)
        return given

    def _annotations(self, columns: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
        given = self._with_texts(self._mapping("annotations"))
        if "summary" not in given:
            self._fault(
                "annotations",
                "has no summary: one line that says what is wrong, and whose; or texts, the name "
                "of a shipped rule whose texts it takes",
            )
        for name, text in given.items():
            if name not in ANNOTATIONS:
                self._fault("annotations", unknown_name(name, dict.fromkeys(ANNOTATIONS), "text"))
                continue
            try:
                check_template(text, columns, labels)
            except TemplateFault as fault:
                self._fault(f"annotations.{name}", str(fault))
        return given

    def _with_texts(self, given: dict[str, str]) -> dict[str, str]:
        """The annotations, with the texts that they name; what stands there itself wins."""
        name = given.pop("texts", None)
        if name is None:
            return given
        if name not in TEXTS:
            self._fault("annotations.texts", unknown_name(name, TEXTS, "texts"))
        return {**TEXTS.get(name, {}), **given}

    def _mapping(self, key: str) -> dict[str, str]:
        value = self._entry.get(key, {})
        if not isinstance(value, Mapping) or not all(
            isinstance(one, str) for one in value.values()
        ):
            self._fault(key, "must be texts by name")
            return {}
        return dict(value)

    def _column(self, key: str, columns: Sequence[str], usual: str | None) -> str | None:
        if key not in self._entry:
            return usual
        name = self._text(key)
        if name not in columns:
            self._fault(key, unknown_name(name, dict.fromkeys(columns), "column"))
            return None
        return name

    def _signals_max(self) -> int:
        value = self._entry.get("signals_max", SIGNALS)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= SIGNALS_MAX:
            self._fault("signals_max", f"must be a whole number, 1 to {SIGNALS_MAX}")
            return SIGNALS
        return value


_LACKING: Final = "is missing: a condition like \"state = 'STALLED' and time_lag_ms > 5m\""


_WORST: Final = (
    *(bound_of("time_lag_ms"), "time_lag_ms"),
    *(bound_of("lag_messages"), "lag_messages", "age_ms"),
)
"""By the first of these that a table has its signals are ordered."""


def _one_of(columns: Sequence[str], *names: str) -> str | None:
    return next((name for name in names if name in columns), None)
