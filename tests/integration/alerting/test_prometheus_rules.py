"""Rules and boards for who has a Prometheus and a Grafana: promtool takes each expression, the
tests of rules pass, and each metric and label that they name is one that we export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.alerting.rule_files import SHIPPED
from provision import servers
from tests.integration.alerting.scraped_metrics import labels_of_all

FOLDER = SHIPPED / "prometheus"
RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks.md"
OWN_NAMES = (
    *("group_state", "rebalances_total", "duplicate_risk_messages", "stalled_windows"),
    *("dq_check_failed", "pipeline_freshness_seconds", "collect_seconds"),
)
"""Names that boards of others may rest on: they stay."""
BOARDS = SHIPPED / "grafana"
METRIC = re.compile(r"\b((?:tidemark|rocketmq)_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
BY = re.compile(r"\b(?:by|on)\s*\(([^)]+)\)")
LEGEND = re.compile(r"\{\{(\w+)\}\}")
LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")


def promtool(folder: Path, *words: str) -> str:
    program = servers.promtool()
    assert program is not None, servers.PROMTOOL_MISSING
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_them_and_their_tests_pass(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "rules")
    assert "rules found" in promtool(folder, "check", "rules", "rules.yml")
    assert "SUCCESS" in promtool(folder, "test", "rules", "tests.yml")


def test_there_are_rules_for_who_has_none_and_each_has_a_test() -> None:
    rules = alert_names("rules.yml", r"- alert: (\w+)")
    assert len(rules) >= 25
    assert alert_names("tests.yml", r"alertname: (\w+)") == rules


def alert_names(file: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (FOLDER / file).read_text()))


def test_they_name_metrics_that_we_export_and_runbooks_that_there_are() -> None:
    labels_by_metric = labels_of_all()
    text = (FOLDER / "rules.yml").read_text()
    assert {f"tidemark_{name}" for name in OWN_NAMES} <= set(labels_by_metric)
    assert not list(faults_of(text, labels_by_metric))
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert set(re.findall(r"runbooks\.md#(\w+)", text)) <= {one.lower() for one in sections}


def boards() -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(BOARDS.glob("*.json"))}


def expressions_of(board: dict[str, Any]) -> list[str]:
    """Those of panels, and what variables ask for."""
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    return [*found, *(LABEL_VALUES.sub(r"\1", one) for one in asked)]


def faults_of(expression: str, labels_by_metric: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Metrics, and labels in their braces, that nobody exports."""
    for name, chosen in METRIC.findall(expression):
        if name not in labels_by_metric:
            yield name
            continue
        for label in LABEL.findall(chosen):
            if label not in labels_by_metric[name]:
                yield f"{name}{{{label}}}"


def test_boards_ask_for_metrics_and_labels_that_we_export() -> None:
    labels_by_metric = labels_of_all()
    found = boards()
    assert len(found) >= 6
    for name, board in found.items():
        expressions = expressions_of(board)
        assert len(expressions) >= 8, name
        for one in expressions:
            assert not list(faults_of(one, labels_by_metric)), (name, one)
            known = set().union(*(labels_by_metric[metric] for metric, _ in METRIC.findall(one)))
            grouped = {label.strip() for part in BY.findall(one) for label in part.split(",")}
            assert grouped <= known, (name, one)
        for panel in board["panels"]:
            for target in panel["targets"]:
                known = set().union(
                    *(labels_by_metric[one] for one, _ in METRIC.findall(target["expr"]))
                )
                assert set(LEGEND.findall(target["legendFormat"])) <= known, (name, panel["title"])


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(tidemark_group_lag)", "tidemark_group_lag"),
        ('tidemark_group_lag_seconds{topic="t"} > 0', "tidemark_group_lag_seconds{topic}"),
        ('rocketmq_group_diff{cluster=~"c"}', "rocketmq_group_diff{cluster}"),
    ],
)
def test_what_nobody_exports_is_found(expression: str, fault: str) -> None:
    assert list(faults_of(expression, labels_of_all())) == [fault]


def test_promtool_reads_every_expression_of_a_board(tmp_path: Path) -> None:
    rules = [
        {"record": f"board:{number}", "expr": _without_variables(one)}
        for number, one in enumerate(
            one for board in boards().values() for one in expressions_of(board)
        )
    ]
    text = json.dumps({"groups": [{"name": "boards", "rules": rules}]})  # JSON is YAML.
    (tmp_path / "boards.yml").write_text(text)
    assert f"{len(rules)} rules found" in promtool(tmp_path, "check", "rules", "boards.yml")


def _without_variables(expression: str) -> str:
    """As Grafana asks it, with everything chosen."""
    plain = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$\w+", ".*", plain)


def test_grafana_takes_the_boards() -> None:
    """What Grafana 10 asks of a file: a version of its schema, an id by name, panels in a grid that
    do not overlap, and each of them asks the source that is chosen."""
    names = set()
    for name, board in boards().items():
        assert board["schemaVersion"] >= 38, name
        assert board["id"] is None
        names.add(board["uid"])
        assert len(board["uid"]) <= 40
        variables = {one["name"]: one for one in board["templating"]["list"]}
        assert list(variables)[:2] == ["datasource", "cluster"]
        assert variables["datasource"]["type"] == "datasource"
        assert variables["datasource"]["query"] == "prometheus"
        used = {"datasource", *re.findall(r"\$(\w+)", " ".join(expressions_of(board)))}
        assert used - {"__rate_interval"} <= set(variables), name
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, (name, panel["title"])
            assert place["x"] + place["w"] <= 24
            taken |= cells
            assert panel["title"]
            for asked in (panel, *panel["targets"]):
                assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
    assert len(names) == len(boards())
