"""Runs the set-up again after it has succeeded, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def set_up_again(scope: str) -> str:
    """`python -m provision SCOPE` in this clone, where it was run before; what it says."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    hooks = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath"}
    hooks["GIT_CONFIG_VALUE_0"] = ".ci/hooks"  # No test switches anything on in this clone.
    done = subprocess.run(
        [sys.executable, "-m", "provision", scope],
        cwd=ROOT,
        env=os.environ | nowhere | hooks,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
