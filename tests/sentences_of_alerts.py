"""Texts of the shipped alerts, with figures that are many, one, and unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.alerting.rule_tables import watched
from pipelines.alerting.rules import Rule
from pipelines.alerting.texts import rendered
from pipelines.marts.columns import STRING, TIMESTAMP

MOMENT: Final = "2026-03-01T19:10:03.000Z"
HEADLINE: Final = "Group shipping stands on queue 2 of orders on broker-a."
NAMES: Final = {
    "cluster": "prod",
    "broker": "broker-a",
    "group": "shipping",
    "topic": "orders",
    "queue_id": "2",
    "client_id": "192.0.2.2@4711#1234567890123",
    "other_client_id": "192.0.2.3@12#1234567890123",
    "next_client_id": "192.0.2.3@12#1234567890123",
    "emitter": "prod/broker-a/0",
    "evidence": "It is as the table says.",
    "reason": "It is as the table says.",
    "headline": HEADLINE,
    "job": "the nightly count",
    "app": "shop",
    "run": "17",
    "executor": "http://192.0.2.9:9999",
    "last_lines": "it failed",
    "expectation": "offsets_known",
    "table": "consumer_lag",
}
TIMES: Final = ("opened_at", "retained_until", "planned_at", "judged_to", "since", "moment")
MAY_BE_UNKNOWN: Final = ("redelivered", "unknown_reason", "reason")
"""Of columns of a query."""
IDS: Final = {
    "cycle": 7,
    "job_id": 7,
    "offset": 451,
    "previous_offset": 480,
    "max_offset": 550,
    "seq_to": 99,
}


def of_alerts() -> Iterator[tuple[str, str]]:
    """Summary, description and first step of each shipped rule."""
    for rule in read_rules(shipped_files()).rules:
        said: dict[str, str] = {}
        for kind, count in (("many", 12_345), ("one", 1), ("unknown", None)):
            for name, text in _texts(rule, count).items():
                if text not in said.values():
                    said[f"{rule.name}, {name}, figures {kind}"] = text
        yield from said.items()


def of_prometheus() -> Iterator[tuple[str, str]]:
    """Summaries of the rules for who has a Prometheus, which fills them."""
    shipped = files("pipelines.alerting").joinpath("shipped", "prometheus", "rules.yml")
    rule = re.compile(r"- alert: (\w+)\n(?:.*\n)*?\s+summary: '(.*)'\n")
    yield from rule.findall(shipped.read_text(encoding="utf-8"))


def _texts(rule: Rule, count: int | None) -> dict[str, str]:
    labels = {name: NAMES.get(name, name) for name in rule.label_columns}
    evidence = NAMES["evidence"]
    given = {
        "alertname": rule.name,
        "severity": rule.severity.value,
        "owner": "",
        "evidence": evidence,
        "since": MOMENT,
        "moment": MOMENT,
    }
    kinds = {one.name: one for one in watched()[rule.tables[0]].table.columns}
    figures: dict[str, Any] = {}
    for name in rule.columns:
        column = kinds.get(name)
        is_known = count is not None or (
            name not in MAY_BE_UNKNOWN if column is None else not column.nullable
        )
        if name in TIMES or (column is not None and column.type == TIMESTAMP):
            figures[name] = MOMENT if is_known else None
        elif name in NAMES or (column is not None and column.type == STRING):
            figures[name] = NAMES.get(name, name) if is_known else None
        else:
            figures[name] = IDS.get(name, count if count is not None else 2) if is_known else None
    templates = {name: text for name, text in rule.annotations.items() if not name.endswith("_url")}
    if "evidence" in figures:
        figures["evidence"] = evidence
    return rendered(templates, labels=labels, figures=figures, given=given)
