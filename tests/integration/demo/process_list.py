"""Which processes of a demo run are alive: all of them inherit a mark in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MARK = "DEMO_UNDER_TEST"


def marked(home: Path) -> dict[str, str]:
    """The environment for a demo that plays in `home`."""
    return {**os.environ, MARK: str(home)}


def processes_of(home: Path) -> list[str]:
    """Command lines of processes with the mark of `home`, or that name it."""
    mark, name = f"{MARK}={home}\0".encode(), str(home).encode()
    return [
        command.replace(b"\0", b" ").decode(errors="replace")
        for folder in Path("/proc").glob("[0-9]*")
        if (command := _content(folder / "cmdline"))
        and (name in command or mark in _content(folder / "environ"))
    ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # The process ended meanwhile, or is not ours.
        return b""


def demo_in(home: Path, *, port: int = 0) -> subprocess.Popen[str]:
    """A demo as a user starts it, its processes marked."""
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "demo", "--headless"]
    command += ["--port", str(port)]
    return subprocess.Popen(
        [*command, "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=marked(home),
    )
