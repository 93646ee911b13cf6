"""`make test-fast` and `make check` need Python and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDS_MORE = {"spark", "browser", "chromium_path", "apache_rocketmq", "java_checks"}
"""Fixtures that start a JVM or a browser."""
FAST_FOLDERS = ("unit", "property", "architecture")


@pytest.mark.parametrize("target", ["test-fast", "check", "format"])
def test_the_target_brings_python_alone(target: str) -> None:
    would_run = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.findall(r"-m provision (\w+)", would_run) == ["python"]


def test_the_folders_of_the_fast_tests_hold_no_test_that_needs_java_or_a_browser() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"pytest {' '.join(f'tests/{name}' for name in FAST_FOLDERS)}" in recipe
    needy = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for folder in FAST_FOLDERS
        for path in (ROOT / "tests" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and NEEDS_MORE & {one.arg for one in [*node.args.args, *node.args.kwonlyargs]}
    ]
    assert not needy, f"they belong below tests/integration or further: {needy}"
