"""docs/burrow.md says what the code does: each of its examples is played."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pipelines.rules.burrow.cases import RUNNERS, run_cases
from pipelines.rules.burrow.evaluator import Status
from pipelines.rules.burrow.notifier import ModuleSettings
from pipelines.rules.burrow.over_time import BurrowRules, EvaluatorSettings
from pipelines.rules.burrow.storage import StorageSettings
from pipelines.rules.case_fields import parse

ROOT = Path(__file__).parents[3]
BURROW = (ROOT / "docs" / "burrow.md").read_text(encoding="utf-8")
OWN = ROOT / "tests" / "cases" / "burrow_rules.json"
CASES: dict[str, Any] = json.loads(OWN.read_text(encoding="utf-8"))


def table(page: str, first_column: str) -> list[list[str]]:
    """Cells of the rows of the table whose head begins with `first_column`."""
    (found,) = [piece for piece in page.split("\n\n") if piece.startswith(f"| {first_column} |")]
    rows = [line.strip("|").split("|") for line in found.splitlines()[2:]]
    return [[cell.strip() for cell in row] for row in rows]


def hand_written(kind: str) -> dict[str, Any]:
    """Id -> case."""
    found = CASES[kind]["cases"] if isinstance(CASES[kind], dict) else CASES[kind]
    return {case["id"]: case for case in found}


GOT = {
    result.name.split(" ", 1)[1]: result.got
    for result in run_cases(parse(OWN.read_bytes(), name=OWN.name))
}


def test_every_weakness_of_the_page_is_a_case_and_burrow_says_what_it_says() -> None:
    rows = table(BURROW, "weakness")
    known = hand_written("weakness_probes")
    assert [row[0] for row in rows] == list(known)
    assert [row[0].split(" ")[0] for row in rows] == [f"W{number}" for number in range(1, 10)]
    for name, said, *_ in rows:
        assert GOT[name] == said == known[name]["expected"]["status"]


def test_every_rule_of_the_page_names_its_cases_in_the_order_of_the_code() -> None:
    rows = table(BURROW, "rule")
    cases = [name for name in hand_written("partition_cases") if name[0].isdigit()]
    listed = [(row[0], name) for row in rows for name in re.findall(r"“([^”]+)”", row[3])]
    assert [f"{number} {name}" for number, name in listed] == cases
    for row in rows:
        first = re.findall(r"“([^”]+)”", row[3])[0]
        assert GOT[f"{row[0]} {first}"] == row[2]


def test_the_storage_rules_of_the_page_are_those_that_cases_name() -> None:
    rules = {row[0] for row in table(BURROW, "storage rule")}
    named = {name[:2] for name in hand_written("group_cases") if name.startswith("S")}
    assert rules == named == {"S1", "S2", "S3", "S4", "S5"}


@pytest.mark.parametrize("settings", [StorageSettings, EvaluatorSettings, ModuleSettings])
def test_the_settings_of_the_page_have_the_names_and_defaults_of_the_code(settings: type) -> None:
    listed = {row[0].strip("`"): row[1] for row in table(BURROW, "setting")}
    for field in fields(settings):
        if field.name in ("name", "send_interval_s"):
            continue
        name = field.name.removesuffix("_s").replace("_", "-")
        default = field.default
        assert listed[name] == (default.name if isinstance(default, Status) else str(default))
    assert listed["offset-refresh"] == str(BurrowRules().offset_refresh_s)


def test_the_kinds_of_case_of_the_page_are_those_that_run() -> None:
    assert [row[0].strip("`") for row in table(BURROW, "kind of case")] == list(RUNNERS)


def test_the_file_of_the_page_runs_and_prints_what_the_page_prints() -> None:
    file, printed = re.findall(r"```(?:json|text)\n(.*?)```", BURROW, re.DOTALL)
    results = list(run_cases(parse(file.encode(), name="mine.json")))
    assert [str(one) for one in results] == printed.splitlines()
