"""The list of planted bugs stays true as the code moves, and the runner knows caught from not."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import Copies, prove
from tests.mutants.mutants import (
    BROKEN,
    CAUGHT,
    ROOT,
    SURVIVED,
    UNPROVEN,
    Mutant,
    fail_anyway,
    judge,
    read_mutants,
)

CODE = "def double(number):\n    return number * 2\n"
TESTS = (
    "from code_under_test import double\n\n\n"
    "def test_of_two():\n    assert double(2) == 4\n\n\n"
    "def test_of_three():\n    assert double(3) == 6\n"
)
SQUARES = Mutant(
    topic="example",
    row="X1",
    says="squares instead of doubling",
    file="code_under_test.py",
    find="number * 2",
    replace="number ** 2",
    tests=("test_it.py::test_of_three",),
)


def project(folder: Path) -> Path:
    (folder / "code_under_test.py").write_text(CODE)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return folder


def test_every_listed_mutant_can_be_planted() -> None:
    faults = [
        f"{mutant.topic}.toml, row {mutant.row}: {fault}"
        for mutant in read_mutants()
        if (fault := mutant.fault(ROOT))
    ]
    assert not faults, "\n".join(faults)


def test_every_bug_is_code_that_runs_and_names_only_what_is_there(tmp_path: Path) -> None:
    """Any test notices a file that cannot be read, or a name that stands for nothing."""
    for number, mutant in enumerate(read_mutants()):
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        if mutant.file.endswith(".py"):
            planted = text.replace(mutant.find, mutant.replace)
            (tmp_path / f"{mutant.topic}_{number}.py").write_text(planted, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", str(tmp_path)]
    done = subprocess.run(
        [*command, "--select", "F821,F823", "--output-format", "concise"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_bug_is_listed_twice() -> None:
    counted = Counter((mutant.file, mutant.find, mutant.replace) for mutant in read_mutants())
    assert [bug for bug, count in counted.items() if count > 1] == []


def test_a_bug_that_a_test_notices_is_caught_and_taken_out_again(tmp_path: Path) -> None:
    copy = project(tmp_path)
    assert judge(SQUARES, copy).outcome == CAUGHT
    assert (copy / "code_under_test.py").read_text() == CODE


def test_bugs_as_long_as_the_right_text_are_planted_one_after_the_other(tmp_path: Path) -> None:
    """Compiled modules are distinguished by age and length: within a second, by neither."""
    copy = project(tmp_path)
    blind = ("test_it.py::test_of_two",)
    outcomes = [
        judge(replace(SQUARES, find="number * 2", replace=text, tests=blind), copy).outcome
        for text in ("number + 2", "number - 2", "number + 2", "number % 2")
    ]
    assert outcomes == [SURVIVED, CAUGHT, SURVIVED, CAUGHT]
    assert fail_anyway(copy, ["test_it.py"]) == {}


def test_a_test_that_fails_without_the_bug_as_well_proves_nothing(tmp_path: Path) -> None:
    copy = project(tmp_path)
    (copy / "test_it.py").write_text(TESTS + "\n\ndef test_of_nothing():\n    assert False\n")
    tests = [f"test_it.py::test_of_{name}" for name in ("two", "three", "nothing")]
    assert [*fail_anyway(copy, tests)] == ["test_it.py::test_of_nothing"]
    broken = replace(SQUARES, tests=(tests[2],))
    with ThreadPoolExecutor(1) as workers:
        verdicts = [judge(SQUARES, copy), judge(broken, copy)]
        assert [verdict.failed for verdict in verdicts] == [tests[1], tests[2]]
        proven = prove(verdicts, Copies([copy]), workers)
    assert [verdict.outcome for verdict in proven] == [CAUGHT, UNPROVEN]
    assert "assert False" in proven[1].detail


def test_a_bug_that_no_test_notices_survives(tmp_path: Path) -> None:
    blind = replace(SQUARES, tests=("test_it.py::test_of_two",))
    assert judge(blind, project(tmp_path)).outcome == SURVIVED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"find": "number"}, "stands 2 times"),
        ({"find": "gone"}, "stands 0 times"),
        ({"replace": "number * 2"}, "changes nothing"),
        ({"file": "other.py"}, "no file other.py"),
        ({"tests": ("test_gone.py::test_it",)}, "no test_gone.py"),
        ({"tests": ("test_it.py::test_gone",)}, "not found"),
        ({"replace": "number * ("}, "SyntaxError"),
    ],
)
def test_an_entry_that_tests_nothing_is_distinguished(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    verdict = judge(replace(SQUARES, **change), project(tmp_path))
    assert verdict.outcome == BROKEN
    assert reason in verdict.detail
