"""Async tests are really run, on whatever they name, with their fixtures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.asynchronous import awaited

ROOT = Path(__file__).parents[2]
CONFTEST = "from tests.conftest import pytest_pyfunc_call\n"
TESTS = """
import asyncio
import pytest
from hypothesis import given, strategies as st
from tests.asynchronous import run_by

def in_a_world(story, *, named="world"):
    asyncio.run(story(named))

@pytest.mark.parametrize("number", [1, 2])
async def test_on_a_loop(number, tmp_path):
    await asyncio.sleep(0)
    assert tmp_path.is_dir()
    assert number == 1

def in_a_folder(folder, story):
    asyncio.run(story(folder))

@run_by(in_a_folder, "tmp_path")
async def test_in_a_folder(folder):
    await asyncio.sleep(0)
    assert folder.is_dir()

@pytest.mark.parametrize("number", [3, 4])
@run_by(in_a_world, named="another")
async def test_in_a_world(world, *, number, tmp_path):
    await asyncio.sleep(0)
    assert tmp_path.is_dir()
    assert (world, number) == ("another", 3)

@pytest.mark.parametrize("allowed", [100, 9])
@given(number=st.integers(0, 99))
async def test_by_examples(number, allowed):
    await asyncio.sleep(0)
    assert number < allowed
"""


def test_async_tests_run_with_their_fixtures_and_fail_when_they_fail(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_stories.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:dash", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "3 failed, 4 passed" in done, done
    assert "test_by_examples[9] - assert 9 < 9" in done, "the least example that fails"
    assert "test_on_a_loop[2] - assert 2 == 1" in done
    assert "test_in_a_world[4] - AssertionError" in done


async def test_work_is_awaited_where_a_loop_runs_already_as_behind_the_tests_of_pages() -> None:
    async def which() -> int:
        return id(asyncio.get_running_loop())

    assert awaited(which()) != id(asyncio.get_running_loop())
