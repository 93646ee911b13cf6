"""The page about exit codes is what the commands do: each of its examples is run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.forked_processes import TIDEMARK
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


@pytest.mark.parametrize(("example", "code"), EXAMPLES, ids=[one for one, _ in EXAMPLES])
def test_a_command_ends_as_the_page_says(example: str, code: int, tmp_path: Path) -> None:
    words = shlex.split(example.replace("EMPTY", str(tmp_path)))
    done = subprocess.run(
        [TIDEMARK, *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    usage = code == 2 and words[0] != "check"
    if code and not usage:
        *_, last = done.stderr.strip().splitlines()
        assert re.match(rf"tidemark {words[0]}( check)?: \S", last), done.stderr
