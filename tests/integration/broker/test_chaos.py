"""Row C11: a Raft group, and pairs, under all that `make chaos` plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = int(os.environ.get("TIDEMARK_CHAOS_S", "120"))


@pytest.mark.slow
@pytest.mark.timeout(600 + 2 * SECONDS)
def test_copies_keep_their_promises_whatever_happens(tmp_path: Path) -> None:
    played = ("-m", "tests.chaos", "--seconds", str(SECONDS), "--at", str(tmp_path))
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "-Urnm", sys.executable, *played]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
