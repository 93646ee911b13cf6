"""Files of rules and of their tests: what the commands say of them, and those shipped."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.alerting.commands import app
from pipelines.alerting.rule_files import SHIPPED, read_rules, rule_files, shipped_files
from pipelines.alerting.rule_tests import CheckedCases, cases_of, run

ROOT = Path(__file__).parents[3]
TESTS = sorted((SHIPPED / "tests").glob("*.toml"))

RULES = """
[[rule]]
name = "Behind"
table = "group_state"
when = "time_lag_ms > 1m"
for = "30s"
annotations = { summary = "{{ labels.group }} is {{ time_lag_ms | duration }} behind" }
"""
CASES = """
rules = ["rules.toml"]
every = "10s"
[[test]]
name = "a group that falls behind"
[[test.rows]]
table = "group_state"
at = "0s"
until = "3m"
every = "30s"
values = { group = "orders", state = "SLOW", time_lag_ms = "0+30000x" }
[[test.expect]]
at = "1m20s"
[[test.expect]]
at = "2m"
alerts = [{ alertname = "Behind", group = "orders", summary = "orders is 2 min behind" }]
"""


def output_of(*words: str) -> tuple[int, str]:
    """The exit code of `tidemark alerts …`, and all that it writes."""
    done = CliRunner().invoke(app, ["alerts", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "cases.toml").write_text(CASES)
    return tmp_path


def test_rules_are_tried_on_rows_that_are_written_down(written: Path) -> None:
    assert output_of("check", str(written / "rules.toml")) == (0, "1 rule in 1 file, no faults\n")
    assert output_of("test", str(written / "cases.toml")) == (0, "1 test passed, 0 failed\n")


def test_a_test_that_fails_says_what_there_is_instead(written: Path) -> None:
    file = written / "cases.toml"
    file.write_text(CASES.replace("is 2 min behind", "is 3 min behind"))
    code, said = output_of("test", str(file))
    assert code == 1
    assert "FAILED cases.toml: a group that falls behind: at 2m: there is no alert" in said
    assert "there is {alertname='Behind'" in said
    assert "severity='warning'" in said
    assert "nobody expects" in said
    file.write_text(CASES.replace('"1m20s"', '"2m10s"'))
    code, said = output_of("test", str(file))
    assert code == 1
    assert "at 2m10s: nobody expects {alertname='Behind', cluster='c'" in said


def test_faults_of_rules_are_printed_one_a_line_with_exit_code_1(written: Path) -> None:
    file = written / "rules.toml"
    file.write_text(RULES.replace("time_lag_ms > 1m", "time_lag > 1m").replace("30s", "30 s"))
    code, said = output_of("check", str(file))
    assert code == 1
    lines = said.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"tidemark alerts check: {file}: rule Behind: ") for line in lines)
    assert output_of("test", str(written / "cases.toml"))[0] == 1


def test_a_file_of_routes_is_checked_as_one(tmp_path: Path) -> None:
    file = tmp_path / "routing.toml"
    file.write_text('receiver = "mail"\ngroup_wait = "soon"\n')
    code, said = output_of("check", str(file))
    assert code == 1
    assert "group_wait = 'soon': must be a span of time" in said
    assert output_of("check") == (0, "55 rules in 7 files, no faults\n")


@pytest.mark.parametrize("data", [b"[[rule", b"\xff\xfe", b"[rule]\n" + b"a=" + b"[" * 3000])
def test_a_file_that_is_no_toml_is_a_fault_like_others(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "rules.toml"
    file.write_bytes(data)
    code, said = output_of("check", str(file))
    assert code == 1
    assert "it is no TOML" in said
    assert "cannot be read" in output_of("check", str(tmp_path / "missing.toml"))[1]


def checked(**keys: Any) -> CheckedCases:
    document = tomllib.loads(CASES)
    document["test"][0] |= keys
    return cases_of("cases.toml", document)


ROWS = {"table": "group_state", "at": "0s"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"expects": []}, "there is no key 'expects'; near it: expect"),
        ({"expect": []}, "is missing: say which alerts there are"),
        ({"expect": [{"at": "5"}]}, "at = '5': must be a span of time"),
        ({"expect": [{"at": "15s"}]}, "at 15s nobody looks: looks come each 10s"),
        ({"expect": [{"at": "7d"}]}, "needs more than 20000 looks"),
        ({"expect": [{"at": "10s", "alerts": [{"group": "a"}]}]}, "must have an alertname"),
        ({"rows": [{**ROWS, "table": "groups"}]}, "there is no table 'groups'"),
        ({"rows": [{**ROWS, "values": {"lag": 1}}]}, "there is no column 'lag'"),
        ({"rows": [{**ROWS, "values": {"queues": "many"}}]}, "queues = 'many' is no int"),
        ({"rows": [{**ROWS, "values": {"group": 1}}]}, "group = 1 is no string"),
        ({"rows": [{**ROWS, "until": "7d", "every": "1s"}]}, "makes more than 10000 rows"),
        ({"rows": [{**ROWS, "every": "0s"}]}, "makes more than 10000 rows"),
    ],
)
def test_a_fault_of_a_test_file_is_shown_with_its_place(keys: dict[str, Any], said: str) -> None:
    faults = [str(fault) for fault in checked(**keys).faults]
    assert any(said in fault for fault in faults), faults
    assert faults[0].startswith("cases.toml: rule test a group that falls behind: ")


@pytest.mark.parametrize("file", TESTS, ids=[file.stem for file in TESTS])
def test_the_rules_that_are_shipped_do_what_their_tests_say(file: Path) -> None:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    cases = cases_of(file.name, document)
    rules = read_rules(file.parent / name for name in document["rules"])
    assert not cases.faults
    assert not rules.faults
    wrong = {case.name: found for case in cases.cases if (found := run(case, rules.rules))}
    assert not wrong


def test_each_rule_that_is_shipped_is_expected_by_a_test() -> None:
    expected = set(re.findall(r'alertname = "(\w+)"', "".join(map(Path.read_text, TESTS))))
    rules = read_rules(shipped_files()).rules
    assert {rule.name for rule in rules} == expected
    assert all(rule.annotations.get("first_step") for rule in rules)


def test_each_known_incident_has_a_rule_that_finds_it() -> None:
    page = (ROOT / "docs" / "alerting.md").read_text(encoding="utf-8")
    incidents = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")
    table = incidents.split("| incident | finding | played |\n|---|---|---|\n")[1].split("\n\n")[0]
    rules = {rule.name for rule in read_rules(shipped_files()).rules}
    rows = dict(re.findall(r"^\| ([^|]+) \| (`\w+`[^|]*) \|$", page, re.MULTILINE))
    for line in table.splitlines():
        incident = line.split(" | ")[0].removeprefix("| ")
        named = set(re.findall(r"`(\w+)`", rows.get(incident, "")))
        assert named, f"docs/alerting.md names no rule for: {incident}"
        assert named <= rules


def test_a_folder_in_which_no_rules_can_be_found_is_a_fault_and_not_a_folder_of_none(
    written: Path,
) -> None:
    assert [file.name for file in rule_files([written])] == ["cases.toml", "rules.toml"]
    for file in written.glob("*.toml"):
        file.rename(file.with_suffix(".old"))
    [fault] = read_rules(rule_files([written])).faults
    assert str(fault) == f"{written}: it is a folder without a file that ends in .toml"


@pytest.mark.parametrize("rules", ["", "rules = []", 'rules = "rules.toml"'])
def test_a_file_of_tests_that_names_no_rules_could_not_fail_and_is_refused(
    written: Path, rules: str
) -> None:
    cases = (written / "cases.toml").read_text()
    (written / "cases.toml").write_text(cases.replace('rules = ["rules.toml"]', rules))
    code, output = output_of("test", str(written / "cases.toml"))
    assert code == 1
    assert "must be a list of files of rules" in output


def test_rows_of_a_table_that_no_rule_reads_could_not_fail_and_are_named(written: Path) -> None:
    cases = (written / "cases.toml").read_text().partition('at = "2m"')[0]
    rows = cases.replace('"group_state"', '"rebalances"').partition("values")[0]
    expects = 'values = { group = "orders" }\n[[test.expect]]\nat = "1m"\n'
    (written / "cases.toml").write_text(rows + expects)
    code, output = output_of("test", str(written / "cases.toml"))
    assert code == 1
    assert "no rule reads rebalances" in output
