"""The hook for commit messages: what it refuses, and what it says then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOOK = ROOT / ".ci" / "hooks" / "commit-msg"
WHY = "\n\nWhy it changed.\n"


def judged(message: str, folder: Path) -> tuple[int, str]:
    """Exit code and words of the hook, started as git starts it."""
    place = folder / "COMMIT_EDITMSG"
    place.write_text(message, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, HOOK, place], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "store: a hole ends at the next sound record" + WHY,
        "docs, tests: files that a page names are there" + WHY,
        "store: " + "x" * 65 + WHY,
        "Merge branch 'other'",
        'Revert "store: a hole"\n\nThis reverts commit 1.\n',
        "fixup! store: a hole",
        "\n# a comment of git's\nstore: a hole" + WHY + "# Please enter the message\n",
    ],
)
def test_a_message_as_agreed_passes(message: str, tmp_path: Path) -> None:
    assert judged(message, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("a hole ends" + WHY, "'a hole ends' does not name its room"),
        ("Store: a hole" + WHY, "does not name its room"),
        ("store:a hole" + WHY, "does not name its room"),
        ("store: " + "x" * 66 + WHY, "the subject has 73 characters; 72 at most"),
        ("store: a hole", "no body: say why"),
        ("store: a hole\n\n# only comments\n", "no body: say why"),
        ("store: a hole\nand more\n\nwhy", "the line behind the subject is not empty"),
        ("", "does not name its room"),
        (
            "store: a hole\n# ------------------------ >8 ------------------------\ndiff --git a b",
            "no body: say why",
        ),
    ],
)
def test_another_message_is_refused_with_what_to_write(
    message: str, words: str, tmp_path: Path
) -> None:
    code, said = judged(message, tmp_path)
    assert code == 1
    assert words in said
    assert "CONTRIBUTING.md" in said


def test_git_starts_it_where_contributing_says(tmp_path: Path) -> None:
    """A clone that has done as the page says refuses a commit without a room."""
    [line] = [
        line.strip()
        for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
        if "core.hooksPath" in line
    ]
    hooks = tmp_path / ".ci" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "commit-msg").write_bytes(HOOK.read_bytes())
    (hooks / "commit-msg").chmod(HOOK.stat().st_mode)
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    command = line.partition("#")[0].split()
    assert command[0] == "git"
    subprocess.run([*git, *command[1:]], check=True)
    asked = [*git, "commit", "--allow-empty", "-q", "-m"]
    refused = subprocess.run([*asked, "no room"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "does not name its room" in refused.stderr) == (1, True)
    subprocess.run([*asked, "store: a hole", "-m", "Why."], check=True)
