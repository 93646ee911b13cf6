"""Small worlds for alerting tests: rules and gold rows in one line each, and polls of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl

from pipelines.alerting.alerts import Alert
from pipelines.alerting.evaluating import Looked, Outcome, evaluate
from pipelines.alerting.life_cycle import Change, Now, step
from pipelines.alerting.rule_tables import watched
from pipelines.alerting.rules import Rule, check
from pipelines.alerting.wait_clock import Steady
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros, moment_at
from pipelines.reading.trust import Trust

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = micros(NOON)


def rule(**keys: Any) -> Rule:
    """One rule, about groups that are behind unless the keys say otherwise."""
    entry: dict[str, Any] = {
        "name": "Behind",
        "annotations": {"summary": "{{ labels.group }}"},
        **keys,
    }
    if "sql" not in entry:
        entry = {"table": "group_state", "when": "time_lag_ms > 1m", **entry}
    checked = check({"rules.toml": {"rule": [entry]}})
    assert not checked.faults, "\n".join(map(str, checked.faults))
    return checked.rules[0]


def rows(table: str, *given: Mapping[str, Any]) -> pl.DataFrame:
    """Rows of a table: what they leave out is usual, or null."""
    schema = watched()[table].none().schema
    usual = {
        "observed_at": NOON,
        "cluster": "c",
        "broker": "b",
        "emitter": "c/b/0",
        "group": "orders",
        "state": "OK" if table == "group_state" else "OPEN",
        "seq": 1,
        "waits": False,
        "emitters": 1,
        "emitters_silent": 0,
    }
    filled = [
        {name: one.get(name, usual.get(name)) for name in schema}
        | ({"window_id": one.get("window_id", str(at))} if "window_id" in schema else {})
        for at, one in enumerate(given)
    ]
    return pl.DataFrame(filled, schema=schema)


@dataclass
class Story:
    """One rule's alerts over looks at gold, a few seconds apart."""

    rule: Rule
    data_us: int = NOON_US
    now_us: int = NOON_US
    steady: Steady = field(default_factory=Steady)
    alerts: tuple[Alert, ...] = ()
    changes: tuple[Change, ...] = ()

    def look(
        self,
        frame: pl.DataFrame | None,
        *,
        after_s: float = 5,
        process_s: float | None = None,
        **found: Any,
    ) -> Story:
        """Gold after so many seconds of data time, and of the process: what it found steps on."""
        self.data_us += round(after_s * SECOND_US)
        self.now_us += round((after_s if process_s is None else process_s) * SECOND_US)
        tables = {} if frame is None else {self.rule.tables[0]: frame}
        return self.after(Looked(self.data_us, tables, **found))

    def after(self, looked: Looked) -> Story:
        """The same for a look that is at hand."""
        self.steady = self.steady.advanced(looked.data_us, self.now_us)
        outcome = self.outcome(looked)
        now = Now(self.data_us, self.steady.total_us)
        stepped = step(self.rule, self.alerts, outcome, now, gone=looked.gone)
        self.alerts, self.changes = stepped.alerts, stepped.changes
        return self

    def outcome(self, looked: Looked) -> Outcome:
        """What the rule comes to."""
        return evaluate([self.rule], looked, {self.rule.name: self.alerts})[self.rule.name]

    @property
    def states(self) -> list[str]:
        """Of all alerts, in the order of their fingerprints."""
        return [alert.state.value for alert in self.alerts]

    @property
    def state(self) -> str:
        """Of the only alert; empty: there is none."""
        assert len(self.alerts) <= 1
        return self.states[0] if self.alerts else ""

    @property
    def kinds(self) -> list[str]:
        """What changed at the last look."""
        return [change.kind.value for change in self.changes]


def behind(seconds: float | None, *, group: str = "orders", **fields: Any) -> dict[str, Any]:
    """The state of a group that is so far behind."""
    lag = None if seconds is None else round(seconds * 1000)
    return {"group": group, "time_lag_ms": lag, **fields}


def looked_at(at_us: int, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Looked:
    """A look at tables of which these rows count."""
    return Looked(
        at_us,
        {name: rows(name, *rows_of_table) for name, rows_of_table in tables.items()},
        trust=Trust(),
    )


def moment(seconds: float) -> datetime:
    """So many seconds after noon."""
    return moment_at(NOON_US + round(seconds * SECOND_US))
