"""Row C1: `tidemark admin` offers what the compared sub-commands of `mqadmin` do.

The table is compared with the sub-commands that run on both clusters, and with the present command
line: a command or an option that goes takes its line with it.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.interop.mqadmin_commands import COMMANDS
from tests.interop.mqadmin_counterparts import ARGUMENTS, COUNTERPARTS, WITHOUT
from tidemark import app

WIDE = {"COLUMNS": "200", "TERM": "dumb"}
COMPARED = [tuple(command.split()) for command in COMMANDS]


def help_of(words: list[str]) -> str:
    """What `tidemark admin <words> --help` says."""
    answer = CliRunner().invoke(app, ["admin", *words, "--help"], env=WIDE)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_every_compared_sub_command_has_a_counterpart_or_a_reason() -> None:
    assert {words[0] for words in COMPARED} == {*COUNTERPARTS, *WITHOUT}
    assert not set(COUNTERPARTS) & set(WITHOUT)
    assert all(reason.strip() for reason in WITHOUT.values())


@pytest.mark.parametrize(("command", "line"), [*COUNTERPARTS.items(), *ARGUMENTS.items()])
def test_the_counterpart_is_there_with_its_options(command: str, line: str) -> None:
    words = [word for word in line.split() if not word.startswith("--")]
    options = {word for word in line.split() if word.startswith("--")}
    said = help_of(words)
    assert f" admin {' '.join(words)} [OPTIONS]" in said
    assert " COMMAND " not in said, f"{line} is a group of commands"
    assert all(f" {option} " in said for option in options), f"{command}: {line}"


@pytest.mark.parametrize("line", ARGUMENTS)
def test_options_with_a_meaning_of_their_own_are_compared(line: str) -> None:
    name, *options = line.split()
    assert any(words[0] == name and {*options} <= {*words} for words in COMPARED)
