"""The page about exit codes is what the commands do: each of its examples is run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "exit-codes.md"
ROW = re.compile(
    r"^\| (?P<names>[^|]+) \| (?P<code>\d+) \| (?P<when>[^|]+) \| (`(?P<run>[^`]+)`)? ?\|$"
)


def rows() -> list[re.Match[str]]:
    """The lines of the table by command."""
    text = PAGE.read_text(encoding="utf-8").split("## By command")[1]
    return [found for line in text.splitlines() if (found := ROW.match(line))]


EXAMPLES = [(row["run"], int(row["code"])) for row in rows() if row["run"]]


def test_every_command_is_on_the_page() -> None:
    named = {name.split()[0] for row in rows() for name in re.findall("`([^`]+)`", row["names"])}
    assert named == set(COMMANDS)


@pytest.fixture(scope="module")
def commands() -> Iterator[subprocess.Popen[str]]:
    """What runs command lines, without loading the rooms anew for each."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.forked_commands"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize(("example", "code"), EXAMPLES, ids=[one for one, _ in EXAMPLES])
def test_a_command_ends_as_the_page_says(
    commands: subprocess.Popen[str], example: str, code: int, tmp_path: Path
) -> None:
    words = shlex.split(example.replace("EMPTY", str(tmp_path)))
    assert commands.stdin is not None
    assert commands.stdout is not None
    commands.stdin.write(f"{json.dumps({'words': words, 'folder': str(tmp_path)})}\n")
    commands.stdin.flush()
    done = json.loads(commands.stdout.readline())
    assert done["code"] == code, done["errors"]
    assert "Traceback" not in done["errors"]
    usage = code == 2 and words[0] != "check"
    if code and not usage:
        *_, last = done["errors"].strip().splitlines()
        assert re.match(rf"tidemark {words[0]}( check)?: \S", last), done["errors"]
