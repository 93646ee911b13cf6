"""`make test-fast` and `make check` need Python and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NOT_FAST

ROOT = Path(__file__).parents[3]
NEEDS_MORE = {"spark", "browser", "chromium_path", "apache_rocketmq", "java_checks"}
"""Fixtures that start a JVM or a browser."""
FAST_FOLDERS = ("unit", "property", "architecture")
BRINGS_MORE = re.compile(r"-m provision (?:run|rocketmq|test|slow)\b")
"""Commands that bring Java, jars or a browser."""
STARTS = {"main", "provide", "set_up_again"}
"""Functions that are such a command, by its scope."""


def test_what_the_fast_tests_leave_out_is_there_and_lies_in_their_folders() -> None:
    for place in NOT_FAST:
        assert (ROOT / "tests" / place).exists(), place
        assert place.startswith(FAST_FOLDERS)


@pytest.mark.parametrize("target", ["test-fast", "check", "format"])
def test_the_target_brings_python_alone(target: str) -> None:
    assert scopes_of(target) == ["python"]


@pytest.mark.parametrize(
    ("arguments", "scope"), [("--headless", "run"), ("--headless --rocketmq", "rocketmq")]
)
def test_a_demo_brings_rocketmq_only_when_it_is_played_on_it(arguments: str, scope: str) -> None:
    assert scopes_of("demo", f"ARGS={arguments}") == [scope]


def scopes_of(*words: str) -> list[str]:
    """What the set-ups of a target bring."""
    would_run = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return re.findall(r"-m provision (\w+)", would_run)


def test_the_folders_of_the_fast_tests_hold_no_test_that_needs_java_or_a_browser() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"pytest -n $(JOBS) {' '.join(f'tests/{name}' for name in FAST_FOLDERS)}" in recipe
    needy = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for folder in FAST_FOLDERS
        for path in (ROOT / "tests" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and NEEDS_MORE & {one.arg for one in [*node.args.args, *node.args.kwonlyargs]}
    ]
    assert not needy, f"they belong below tests/integration or further: {needy}"


def test_no_fast_test_starts_a_set_up_that_brings_more_than_python() -> None:
    starts = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FAST_FOLDERS
        for path in (ROOT / "tests" / folder).rglob("*.py")
        if path != Path(__file__)
        for line in set_ups_with_more(path.read_text(encoding="utf-8"))
    ]
    assert not starts, f"they belong below tests/integration or further: {starts}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('run([sys.executable, "-m", "provision", "test"])', [1]),
        ('start = ("python3", "-m", "provision", "run")', [1]),
        ('os.system("python3 -m provision test")', [1]),
        ('\nmain(["test"])', [2]),
        ('main.provide("run")', [1]),
        ('main(["rocketmq"])', [1]),
        ('set_up_again("test")', [1]),
        ('run([sys.executable, "-m", "provision", "python"])', []),
        ('main(["python"])', []),
    ],
)
def test_a_set_up_that_brings_more_is_distinguished_from_one_that_does_not(
    source: str, lines: list[int]
) -> None:
    assert list(set_ups_with_more(source)) == lines


def set_ups_with_more(source: str) -> Iterator[int]:
    """Lines of a module on which Java, jars or a browser are asked for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple):
            command = " ".join(map(_word, node.elts))
        elif isinstance(node, ast.Call) and _called(node) in STARTS:
            arguments = [each for one in node.args for each in getattr(one, "elts", [one])]
            command = " ".join(["-m provision", *map(_word, arguments)])
        else:
            command = _word(node)
        if BRINGS_MORE.search(command):
            yield node.lineno  # type: ignore[attr-defined]


def _word(node: ast.AST) -> str:
    """The text of a string, a question mark for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "?"


def _called(node: ast.Call) -> str:
    """The last word of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))
