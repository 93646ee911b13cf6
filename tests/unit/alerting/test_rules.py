"""Rules as files say them: what they mean, and what is said of a file with a fault in it."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.alerting.rules import RULES_MAX, RuleSet, Severity, check
from tests.alert_stories import rule

GOOD: dict[str, Any] = {
    "name": "Behind",
    "table": "group_state",
    "when": "time_lag_ms > 5m",
    "annotations": {"summary": "{{ labels.group }} is {{ time_lag_ms | duration }} behind"},
}


def faults(**keys: Any) -> list[str]:
    """What is said of one rule in which these keys stand as well; None: the key is left out."""
    entry = {name: value for name, value in {**GOOD, **keys}.items() if value is not None}
    checked = check({"rules.toml": {"rule": [entry]}})
    assert not (checked.faults and checked.rules)
    return [str(fault) for fault in checked.faults]


def test_a_rule_says_little_when_it_means_what_is_usual() -> None:
    made = rule(**GOOD)
    assert made.label_columns == ("cluster", "broker", "group")
    assert made.severity is Severity.WARNING
    assert (made.evidence, made.worst, made.since) == ("reason", "time_lag_at_least_ms", None)
    assert made.unknown is not None
    assert "UNKNOWN" in made.unknown.text
    assert (made.for_us, made.keep_firing_for_us) == (0, 0)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"name": None}, "rules.toml: rule number 1: name: is missing"),
        ({"name": "Is behind"}, "name = 'Is behind': is letters, digits and _"),
        ({"table": "grup_state"}, "there is no table 'grup_state'; near it: group_state"),
        ({"table": None}, "table: is missing: one of consumer_lag,"),
        ({"wenn": "true"}, "wenn = 'true': there is no key 'wenn'; near it: when"),
        ({"when": None}, "when: is missing: a condition like"),
        ({"when": "lag > 1"}, "when = 'lag > 1': there is no column 'lag'"),
        ({"unknown": "state = 1"}, "unknown = 'state = 1': state is a text"),
        ({"sql": "select 1"}, "sql = 'select 1': stands beside when or table"),
        ({"for": "five minutes"}, "for = 'five minutes': must be a span of time like 30s"),
        ({"for": "30d"}, "for = '30d': must be a span of time"),
        ({"for": 5}, "for = 5: must be a text"),
        ({"within": "5m"}, "within = '5m': rows of group_state are a state"),
        ({"table": "dead_letters", "when": "true", "annotations": {"summary": "x"}},
         "within: is missing: rows of dead_letters are events"),
        ({"severity": "bad"}, "severity = 'bad': must be one of critical, error, warning, info"),
        ({"no_data": "fire"}, "no_data = 'fire': must be one of tell, keep"),
        ({"labels": "group"}, "labels = 'group': must be a list of texts"),
        ({"labels": ["grp"]}, "labels = ['grp']: there is no column 'grp'; near it: group"),
        ({"extra_labels": {"alertname": "x"}}, "'alertname' is taken, or no name"),
        ({"extra_labels": {"a": 1}}, "extra_labels = {'a': 1}: must be texts by name"),
        ({"annotations": None}, "annotations: has no summary"),
        ({"annotations": {"summary": "x", "sumary": "x"}}, "there is no text 'sumary'"),
        ({"annotations": {"summary": "{{ lag }}"}}, "annotations.summary: there is no value 'lag'"),
        ({"annotations": {"summary": "{{ labels.grp }}"}}, "there is no label 'grp'; near it: gro"),
        ({"annotations": {"summary": "{{ group"}}, "annotations.summary: it cannot be read"),
        ({"annotations": {"summary": "{{ group | upper }}"}}, "there is no filter 'upper'"),
        ({"annotations": {"summary": "{{ 'x' * 9999999 }}"}}, "mul in line 1"),
        ({"annotations": {"summary": "{% for a in labels %}{% endfor %}"}}, "for in line 1"),
        ({"annotations": {"summary": "{{ group.upper() }}"}}, "call in line 1"),
        ({"worst": "lag"}, "worst = 'lag': there is no column 'lag'"),
        ({"signals_max": 0}, "signals_max = 0: must be a whole number, 1 to 10000"),
    ],
)  # fmt: skip
def test_a_fault_names_file_rule_key_value_and_what_to_do(keys: dict[str, Any], text: str) -> None:
    found = faults(**keys)
    assert any(text in fault for fault in found), found
    assert all(fault.startswith("rules.toml: rule ") for fault in found)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select * from read_csv('/etc/passwd')", "reads files"),
        ("select * from consumer_lag", "cannot be asked of rebalances"),
        ("select nothing from rebalances", "cannot be asked of rebalances"),
        ("select * from rebalances where kind = 'read_csv('", ""),
    ],
)
def test_a_query_reads_the_tables_that_its_rule_names(sql: str, text: str) -> None:
    entry = {"name": "Q", "sql": sql, "tables": ["rebalances"], "within": "1m",
             "annotations": {"summary": "x"}}  # fmt: skip
    found = [str(fault) for fault in check({"a": {"rule": [entry]}}).faults]
    assert bool(found) is bool(text)
    assert not text or text in found[0]


@pytest.mark.parametrize(
    "document", [None, [], {}, {"rules": []}, {"rule": []}, {"rule": [GOOD], "route": 1},
                 {"rule": [GOOD] * (RULES_MAX + 1)}, {"rule": ["x"]}],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_as_such(document: object) -> None:
    assert check({"rules.toml": document}).faults


def test_all_faults_of_all_files_are_shown_at_once_and_two_rules_need_two_names() -> None:
    checked = check(
        {
            "a.toml": {"rule": [GOOD, {**GOOD, "for": "x", "severity": "y"}]},
            "b.toml": {"rule": [GOOD]},
        }
    )
    faults = [str(fault) for fault in checked.faults]
    assert any("a.toml: rule Behind: for = 'x'" in one for one in faults)
    assert any("a.toml: rule Behind: severity = 'y'" in one for one in faults)
    assert any("b.toml: rule Behind: name: there is one in a.toml" in one for one in faults)


def test_a_broken_file_keeps_the_old_rules_and_says_so() -> None:
    old = RuleSet().reloaded(check({"a.toml": {"rule": [GOOD]}}))
    broken = old.reloaded(check({"a.toml": {"rule": [{**GOOD, "when": "lag >"}]}}))
    assert [made.name for made in broken.rules] == ["Behind"]
    assert "a.toml" in str(broken.faults[0])
    mended = broken.reloaded(check({"a.toml": {"rule": [{**GOOD, "name": "Later"}]}}))
    assert [made.name for made in mended.rules] == ["Later"]
    assert mended.faults == ()
