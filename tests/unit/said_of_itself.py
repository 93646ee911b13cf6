"""A process that says what it is, and then waits for the end of its input.

python -m tests.unit.said_of_itself WORD ...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FORKING = "ctypes"
"""What forks a process has loaded it, and nothing else has here."""

if __name__ == "__main__":
    said = {
        "folder": str(Path.cwd()),
        "forked": FORKING in sys.modules,
        "home": os.environ.get("TIDEMARK_HOME"),
        "leads": os.getsid(0) == os.getpid(),
        "parent": os.getppid(),
        "threads": os.environ.get("POLARS_MAX_THREADS"),
        "words": sys.argv[1:],
    }
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()
    sys.exit(len(sys.stdin.read()))
