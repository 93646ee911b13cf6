"""Identifies a process beyond its number, which a later process may have.

Absent on purpose: other systems than Linux, where nothing is known beyond the number: a process is
never found dead there, and only its silence shows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
START_FIELD: Final = 22
"""Of /proc/PID/stat: the moment at which it began, in ticks since the machine did."""


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
