"""The command line: every command is where tidemark.py says it is, and help costs no imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemark import COMMANDS, app, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_room_has_the_command_that_is_mounted(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.help


def test_help_lists_every_command_with_its_summary() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    for name, mount in COMMANDS.items():
        assert name in shown
        assert mount.summary in shown


def test_an_unknown_command_is_refused() -> None:
    answer = CliRunner().invoke(app, ["nonsense"])
    assert answer.exit_code == 2
    assert "No such command 'nonsense'" in answer.output


def test_python_without_assertions_is_refused() -> None:
    tidemark = Path(sys.prefix) / "bin" / "tidemark"
    done = subprocess.run(
        [sys.executable, "-O", tidemark, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "python -O" in done.stderr


def test_it_is_a_module_that_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidemark", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "COMMAND" in done.stdout
