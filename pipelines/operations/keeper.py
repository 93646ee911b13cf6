"""Runs an operation's command in a supervising process and records how it ends.

Place in the walk: begun by `commands`, in a session of its own, so that it outlives whoever asked.

Invariant: whatever ends the command is said, with its last lines: its end, an exception, a signal.
What ends this process ends its command with it (on Linux), and is found out: it beats no more, and
who asks on the same machine sees that it is gone. Absent on purpose: trying again; a log: the last
lines are kept, no more; and other systems than Linux, where a process is known by its number alone
and only its silence shows that it is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from engine.foundation.errors import TidemarkError
from pipelines.database import operations
from pipelines.database.clock import database_ms
from pipelines.database.database import Database, StoreUnavailable, opened
from pipelines.database.operations import BEAT_US, SAID_CHARS_MAX, SILENT_US, Operation
from pipelines.database.tables import Ended

DATABASE: Final = "TIDEMARK_OPERATION_DATABASE"
"""The variable with the address of the database: it may have a password, which is no argument."""

LAST_LINES: Final = 20
END_S: Final = 10.0
"""A command that is asked to end has so long."""
AGAIN_S: Final = 1.0
PR_SET_PDEATHSIG: Final = 1
START_FIELD: Final = 22
"""Of /proc/PID/stat: the moment at which it began, in ticks since the machine did."""


class Stopped(Exception):
    """Somebody wants the operation to end."""


def main() -> None:
    """Keep the operation that is named."""
    operation_id = sys.argv[1]
    address = os.environ.pop(DATABASE, "") or None
    database = opened(address)
    try:
        keep(database, operation_id)
    finally:
        database.close()


def keep(database: Database, operation_id: str) -> None:
    """Run its command to the end."""

    def now_us() -> int:
        return database_ms(database) * 1000

    one = operations.operation(database, operation_id, now_us=now_us())
    if one is None or one.state is not Ended.RUNNING:
        return
    pid, host = os.getpid(), socket.gethostname()
    process = identity(pid)
    if not operations.keep(
        database, operation_id, host=host, pid=pid, process=process, now_us=now_us()
    ):
        return
    signal.signal(signal.SIGTERM, _stop)
    lines: deque[str] = deque(maxlen=LAST_LINES)
    state, result = Ended.FAILED, dict[str, object]()
    try:
        code = _run(database, one, lines, now_us)
        state = Ended.DONE if code == 0 else Ended.FAILED
        result = {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}
    except Stopped as stopped:
        result = {"error": str(stopped)}
    except (OSError, TidemarkError) as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _say(database, one, state, json.dumps({**result, "lines": list(lines)}))


def _run(database: Database, one: Operation, lines: deque[str], now_us: Callable[[], int]) -> int:
    """The exit code of its command; negative: the signal that ended it. Raises Stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemark", *one.command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # This process has one thread as yet.
        preexec_fn=die_with_parent,  # noqa: PLW1509
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        while True:
            try:
                code = process.wait(BEAT_US / 1_000_000)
            except subprocess.TimeoutExpired:
                _beat(database, one, lines, now_us)
            else:
                reader.join(END_S)
                return code
    except BaseException:
        _end(process)
        raise


def _read(pipe: IO[str], lines: deque[str]) -> None:
    for line in pipe:
        if line.strip():
            lines.append(line.rstrip()[:SAID_CHARS_MAX])


def _beat(database: Database, one: Operation, lines: deque[str], now_us: Callable[[], int]) -> None:
    said = lines[-1] if lines else ""
    try:
        if not operations.beat(database, one.operation_id, said=said, now_us=now_us()):
            raise Stopped("its time is over, or it counts as lost")
    except StoreUnavailable:
        return  # It is asked again at the next beat; too many of them missed, and it is LOST.


def _say(database: Database, one: Operation, state: Ended, result: str) -> None:
    """Say how it ended, as long as that can still count."""
    give_up_s = time.monotonic() + SILENT_US / 1_000_000
    while True:
        try:
            now_us = database_ms(database) * 1000
            operations.end(database, one.operation_id, state, result=result, now_us=now_us)
        except StoreUnavailable:
            if time.monotonic() > give_up_s:
                return
            time.sleep(AGAIN_S)
        else:
            return


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop(_: int, __: FrameType | None) -> Any:
    raise Stopped("stopped by hand")


def identity(pid: int) -> str | None:
    """A text that no other process of this number has; None: there is none, or it is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The name, in brackets, may have blanks and brackets of its own.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] == "Z":
        return None
    return f"{boot[:36]}:{fields[START_FIELD - 3]}"


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
