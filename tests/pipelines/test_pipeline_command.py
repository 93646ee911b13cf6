"""`tidemark pipeline run` as a process: it says when it is ready, and ends cleanly when asked, also
on a machine whose own name no one knows (containers without a hosts file).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NAMELESS = ("unshare", "-Uru", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "nameless")

pytestmark = pytest.mark.timeout(300)


def test_sigterm_ends_a_waiting_stream_with_zero(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "tidemark"), "pipeline", "run"]
    with subprocess.Popen(
        [*NAMELESS, *command, "--lake", str(tmp_path / "lake")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as stream:
        assert stream.stdout is not None
        first = stream.stdout.readline()
        assert first.startswith(f"ready lake={tmp_path / 'lake'}"), first
        stream.terminate()
        assert stream.wait(60) == 0
