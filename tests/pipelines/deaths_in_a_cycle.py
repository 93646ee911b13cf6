"""A process whose children carry out a cycle of a lake's run, and die at a step of it.

    python -m tests.pipelines.deaths_in_a_cycle

A line of standard input is a JSON object: `lake`, `rows_per_cycle` and `die_at`, the name of a step
or null. A line of standard output: `steps`, those that were come to, in order, and `died`.

A step is what one call into a library, or into the system, has changed below the lake; its name
says what and where, without the parts that chance chooses. Nobody lists the steps: the kernel
reports changes (inotify), and one looks behind every native call of every thread. So what a cycle
does tomorrow is a step tomorrow. Calls into Delta's library, of which four are under way at a
time, are let through one by one: whoever dies at the commit of a table has committed no other
meanwhile.

Invariant: here no thread is ever started and no table is opened, so that a child has all that its
parent had. Absent on purpose: states in the middle of one call into Delta's library.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import struct
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.pipelines.in_process import SHORT, driver_of

_EVENT: Final = struct.Struct("iIII")
"""inotify_event: watch, mask, cookie, length of the name behind it."""
_CREATED, _MODIFIED, _WRITTEN = 0x100, 0x2, 0x8
_RENAMED, _MOVED_IN, _DELETED = 0x40, 0x80, 0x200
_WORDS: Final = {
    _CREATED: "begun",
    _MODIFIED: "in part",
    _WRITTEN: "written",
    _MOVED_IN: "moved in",
    _DELETED: "removed",
}
_ONLY_FOLDERS, _IS_FOLDER = 0x01000000, 0x40000000
_BY_CHANCE: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{8,32}(?!\d)")
_NUMBERS: Final = re.compile(r"0{5,}(\d+)")
_DRAFT: Final = re.compile(r"#\d+$")
"""Of what Delta's library writes first, and then gives its name."""


class Changes:
    """What changes below a folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folders: dict[int, str] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._inotify >= 0, os.strerror(ctypes.get_errno())
        self._follow(root)

    def _follow(self, folder: str) -> None:
        mask = sum(_WORDS) | _ONLY_FOLDERS
        watch = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), mask)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        self._folders[watch] = folder
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                self._follow(entry.path)

    def news(self) -> list[str]:
        """Names of the changes since the last call."""
        names: list[str] = []
        while read := self._read():
            at = 0
            while at < len(read):
                watch, mask, _, length = _EVENT.unpack_from(read, at)
                at += _EVENT.size + length
                file = read[at - length : at].rstrip(b"\0").decode()
                path = f"{self._folders[watch]}/{file}"
                if mask & _IS_FOLDER and mask & _CREATED:
                    self._follow(path)
                if not _DRAFT.search(path):
                    names.append(f"{_named(path[len(self._root) + 1 :])} {_word(mask)}")
        return names

    def _read(self) -> bytes:
        try:
            return os.read(self._inotify, 1 << 16)
        except BlockingIOError:
            return b""


def _named(path: str) -> str:
    """A path without what differs between two runs that do the same."""
    return _NUMBERS.sub(r"\1", _BY_CHANCE.sub("*", _NUMBERS.sub(r"\1", path)))


def _place(step: str) -> str:
    """The table or the part of the state that a step changes.

    What two threads have changed between two looks is a step of each: whoever dies there dies
    behind both.
    """
    return "/".join(step.split("/")[:2])


def _word(mask: int) -> str:
    return next(word for bit, word in _WORDS.items() if mask & bit)


class Mortal:
    """Looks for changes behind every call of this process, and ends it at one of them."""

    def __init__(self, lake: str, die_at: str | None) -> None:
        self._changes = Changes(lake)
        self._die_at = die_at
        self._seen: Counter[str] = Counter()
        self._one_by_one = threading.RLock()
        self.steps: list[str] = []

    def look(self, _: FrameType, event: str, called: Any) -> None:
        """As `sys.setprofile` calls it."""
        if event == "c_call":
            if _is_of_delta(called):
                self._one_by_one.acquire()
            return
        if event in {"call", "return"}:
            return
        try:
            self._look()
        finally:
            if _is_of_delta(called):
                self._one_by_one.release()

    def _look(self) -> None:
        numbered = (self._numbered(name) for name in self._changes.news())
        if names := [name for name in numbered if name is not None]:
            if self._die_at in names:
                os.kill(os.getpid(), signal.SIGKILL)
            self.steps += {_place(name): name for name in names}.values()

    def _numbered(self, name: str) -> str | None:
        """None when a file is written on: the first part of it is a step."""
        self._seen[name] += 1
        count = self._seen[name]
        if count == 1:
            return name
        return None if name.endswith(_WORDS[_MODIFIED]) else f"{name} ({count})"


def _is_of_delta(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    module = getattr(called, "__module__", None) or type(owner).__module__
    return str(module).startswith("deltalake")


def main() -> None:
    """Answer until nobody asks any more."""
    assert threading.active_count() == 1
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        steps, died = _cycle_in_a_child(asked)
        sys.stdout.write(f"{json.dumps({'steps': steps, 'died': died})}\n")
        sys.stdout.flush()


def _cycle_in_a_child(asked: dict[str, Any]) -> tuple[list[str], bool]:
    heard, readable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        mortal = Mortal(asked["lake"], asked["die_at"])
        threading.setprofile(mortal.look)
        sys.setprofile(mortal.look)
        driver = driver_of(
            Path(asked["lake"]), evaluation=SHORT, rows_per_cycle=asked["rows_per_cycle"]
        )
        driver.next_cycle()
        sys.setprofile(None)
        os.write(readable, json.dumps(mortal.steps).encode())
        os._exit(0)
    os.close(readable)
    with os.fdopen(heard) as answer:
        steps = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return json.loads(steps or "[]"), code == -signal.SIGKILL


if __name__ == "__main__":
    main()
