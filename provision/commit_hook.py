"""Enables the commit-message hook in a clone, because git enables no hooks by default.

Earlier decisions stay: a folder of hooks that any of git's files configures already, and hooks that
somebody has put into the clone. A folder that is no git work tree (an unpacked archive, also one
inside another project's clone) is left alone. Invariant: a set-up does not fail because of it.
Absent on purpose: what the hook demands; the hook says so itself.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from provision.places import ROOT
from provision.shell import say

HOOKS = ".ci/hooks"


def ensure(root: Path = ROOT) -> None:
    """Let git start the hooks of `.ci/hooks` in this clone, unless it has others."""
    if not (root / HOOKS).is_dir() or not _is_work_tree(root) or _has_others(root):
        return
    if _git(root, "config", "core.hooksPath", HOOKS) is None:
        say(f"git did not take {HOOKS}: commit messages are not looked at here")
    else:
        say(f"git looks at commit messages from now on (core.hooksPath is {HOOKS})")


def _is_work_tree(root: Path) -> bool:
    """Is this the top of a work tree, and not a folder somewhere in another one's?"""
    top = _git(root, "rev-parse", "--show-toplevel")
    return bool(top) and Path(str(top)).resolve() == root.resolve()


def _has_others(root: Path) -> bool:
    """Is a folder of hooks configured, this one included, or is a hook in git's own folder?"""
    if _git(root, "config", "--get", "core.hooksPath") is not None:
        return True
    folder = _git(root, "rev-parse", "--git-path", "hooks")
    if folder is None or not (root / folder).is_dir():
        return False
    return any(hook.suffix != ".sample" for hook in (root / folder).iterdir())


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers about this folder; None when it refuses, or is not there."""
    names = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # Of a clone whose hook runs us.
    environment = {name: value for name, value in os.environ.items() if name not in names}
    try:
        done = subprocess.run(
            ["git", "-C", root, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
