"""A set-up that is done already: nothing is fetched, nothing is installed, no network is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_second_set_up_needs_no_network_and_says_where_it_is() -> None:
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    hooks = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath"}
    hooks["GIT_CONFIG_VALUE_0"] = ".ci/hooks"  # No test switches anything on in this clone.
    done = subprocess.run(
        [sys.executable, "-m", "provision", "test"],
        cwd=ROOT,
        env=os.environ | nowhere | hooks,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "set-up: ready in" in done.stdout
    assert "fetching" not in done.stdout
    assert "installing the locked" not in done.stdout
