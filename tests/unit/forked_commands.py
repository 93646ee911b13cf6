"""A process that has loaded every room answers command lines, each in a child of its own.

    python -m tests.unit.forked_commands

A line of standard input is a JSON object with the words of a command and the folder it runs in; a
line of standard output, its exit code and what it said on standard error. What a new interpreter
for each would spend on loading the same rooms is spent once.

Invariant: here no thread is ever started, so that a child has all that its parent had.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
import threading

import tidemark


def main() -> None:
    """Answer until nobody asks any more."""
    for mount in tidemark.COMMANDS.values():
        importlib.import_module(mount.module)
    assert threading.active_count() == 1
    gc.freeze()  # No child collects what all of them share.
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as said:
            code = _run_in_child(asked["words"], asked["folder"], said.fileno())
            said.seek(0)
            answer = {"code": code, "errors": said.read().decode()}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


def _run_in_child(words: list[str], folder: str, errors: int) -> int:
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        os.dup2(errors, 2)
        os.chdir(folder)
        sys.argv = ["tidemark", *words]
        tidemark.main()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
