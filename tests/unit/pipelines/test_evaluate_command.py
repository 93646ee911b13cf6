"""`tidemark evaluate`: a line per case, a last line with counts, and three exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.commands import app

CASES = Path(__file__).parents[2] / "cases"


def evaluate(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = CliRunner().invoke(app, ["evaluate", "--rules", "burrow", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "count"), [("burrow_differential.json", 152), ("burrow_rules.json", 63)]
)
def test_the_cases_of_the_project_are_all_ok(name: str, count: int) -> None:
    code, said, errors = evaluate(CASES / name)
    lines = said.splitlines()
    assert (code, errors) == (0, "")
    assert len(lines) == count + 1
    assert all(line.endswith(" ok") for line in lines[:-1])
    assert lines[-1] == f"{count} cases: {count} ok, 0 DIFFERENT"


def test_one_difference_is_printed_and_exits_with_1(tmp_path: Path) -> None:
    document = json.loads((CASES / "burrow_rules.json").read_text(encoding="utf-8"))
    document["weakness_probes"]["cases"][0]["expected"]["status"] = "OK"
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    code, said, _ = evaluate(file)
    different = [line for line in said.splitlines() if "DIFFERENT  " in line]
    assert code == 1
    assert len(different) == 1
    assert different[0].startswith("weakness_probes W1 a new consumer's first commit")
    assert "expected OK " in different[0]
    assert "got STOP " in different[0]
    assert "status: expected 'OK', got 'STOP'" in different[0]
    assert said.splitlines()[-1] == "63 cases: 62 ok, 1 DIFFERENT"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "mine.json: is not JSON"),
        ('{"cases": []}', "'cases' is not a kind of case; known kinds are partition_cases"),
        ('{"partition_cases": [{"id": 1}]}', "partition_cases[0]: 'offsets' is missing; add the"),
    ],
)
def test_a_bad_file_gets_one_sentence_and_2(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text, encoding="utf-8")
    code, output, errors = evaluate(file)
    assert (code, output) == (2, "")
    assert errors.startswith("tidemark evaluate: mine.json")
    assert said in errors
    assert errors.count("\n") == 1


def test_a_case_that_is_bad_behind_good_ones_refuses_the_file(tmp_path: Path) -> None:
    document = json.loads((CASES / "burrow_rules.json").read_text(encoding="utf-8"))
    del document["partition_cases"][-1]["now_s"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    code, said, errors = evaluate(file)
    assert (code, said) == (2, "")
    assert "'now_s' is missing" in errors


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert evaluate(tmp_path / "none.json")[0] == 2
    code, _, errors = evaluate(tmp_path)
    assert code == 2
    assert "Is a directory" in errors


def test_unknown_rules_are_refused() -> None:
    done = CliRunner().invoke(app, ["evaluate", "--rules", "mine", str(CASES)])
    assert done.exit_code == 2
    assert "'mine' is not" in done.stderr


def test_the_command_needs_neither_spark_nor_arrow() -> None:
    arguments = ["tidemark", "evaluate", "--rules", "burrow", str(CASES / "burrow_rules.json")]
    script = (
        "import sys, tidemark\n"
        f"sys.argv = {arguments!r}\n"
        "try:\n    tidemark.main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(set(sys.modules) & {'pyspark', 'pyarrow', 'deltalake', 'polars', 'dash'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
