"""Forks the processes that tests start from one that has loaded the rooms already.

A new interpreter loads a room in 0.3 to 1.5 s of CPU time, most of what a short process costs, and
tests start a thousand. `subprocess.Popen` becomes a class that recognises commands of `tidemark`
and modules of ours in its own interpreter. One process, the nursery, loads what such a command
lives in, once, and forks a child of which the test's process is the parent, as of any other: it is
waited for, signalled and killed alike, and has its own id, folder and streams. A test that changes
a variable of its own process has another nursery, and so has the first test after it.

Invariant: who wants a new interpreter gets one. That is what is started by other words (`[python,
tidemark, ...]`), in a terminal, with a variable other than ours that a library may read when it is
loaded, or with an option of Popen that is not named here.
Absent on purpose: our threads in the nursery; what libraries start there survives a fork.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
ROOT = Path(__file__).parents[1]
END_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]
FREE_VARIABLES = ("TIDEMARK_", "PYTEST_CURRENT_TEST")
"""How variables begin that no library reads while it is loaded."""
MESSAGE_BYTES = 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
REPARENTED_POLL_S = 0.000_2

_plain_popen = subprocess.Popen
_system = ctypes.CDLL(None, use_errno=True)


class Wanted(NamedTuple):
    """What Popen's own method is given for a new process, in its order."""

    args: Any
    executable: Any
    preexec_fn: Any
    close_fds: bool
    pass_fds: Sequence[int]
    cwd: Any
    env: Any
    startupinfo: Any
    creationflags: int
    shell: bool
    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int
    restore_signals: bool
    gid: Any
    gids: Any
    uid: Any
    umask: int
    start_new_session: bool
    process_group: int

    def streams(self) -> list[int]:
        """Its input, output and errors; ours where nothing else is said."""
        given = (self.p2cread, self.c2pwrite, self.errwrite)
        return [own if one == -1 else one for own, one in enumerate(given)]

    def is_ordinary(self) -> bool:
        """Does it ask for nothing but words, streams, a folder, variables and a session?"""
        odd = (self.executable, self.preexec_fn, self.gid, self.gids, self.uid)
        usual = (
            not self.pass_fds and not self.shell and (self.umask, self.process_group) == (-1,) * 2
        )
        return usual and odd == (None,) * 5 and not any(map(os.isatty, self.streams()))


class ForkingPopen(subprocess.Popen[Any]):
    """A Popen that takes commands of ours from the nursery."""

    def _execute_child(self, *given: Any) -> None:
        wanted = Wanted(*given)
        order = _order(wanted)
        born = _birth(order, wanted.streams()) if order else None
        if born is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid = born
        self._child_created = True
        self._close_pipe_fds(*wanted[10:16])  # type: ignore[attr-defined]


class Nursery:
    """The process that loads and forks, from outside."""

    def __init__(self) -> None:
        self._ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        self.variables = _read_at_loading(os.environ)
        command = [sys.executable, "-m", __name__, str(its.fileno())]
        quiet = subprocess.DEVNULL
        self._process = _plain_popen(
            command, cwd=ROOT, pass_fds=[its.fileno()], stdin=quiet, stdout=quiet
        )
        its.close()

    def birth(self, order: dict[str, Any], streams: list[int]) -> int | None:
        """Have a child forked; its id. None when what it lives in cannot be loaded."""
        _system.prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(self._ours, [json.dumps(order).encode()], streams)
            return int(self._ours.recv(MESSAGE_BYTES)) or None
        finally:
            _system.prctl(PR_SET_CHILD_SUBREAPER, 0)

    def end(self) -> None:
        """End it; its children live on."""
        self._ours.close()
        self._process.wait()


_one_at_a_time = threading.Lock()
_alive: list[Nursery] = []
"""The nursery, once there is one."""


def _birth(order: dict[str, Any], streams: list[int]) -> int | None:
    """Have a child forked; its id. None when it has to be a new interpreter."""
    with _one_at_a_time:
        if _read_at_loading(order["variables"]) != _read_at_loading(os.environ):
            return None
        if not _alive:
            _alive.append(Nursery())
            atexit.register(_end_nursery, os.getpid())
        elif _alive[0].owner != os.getpid():
            return None
        elif _alive[0].variables != _read_at_loading(os.environ):
            _alive.pop().end()
            _alive.append(Nursery())
        return _alive[0].birth(order, streams)


def _end_nursery(owner: int) -> None:
    if os.getpid() == owner:
        _alive.pop().end()


def _read_at_loading(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a library may read while it is loaded."""
    return {name: value for name, value in variables.items() if not name.startswith(FREE_VARIABLES)}


def _order(wanted: Wanted) -> dict[str, Any] | None:
    """What the nursery is asked for; None when the command is none of ours."""
    if isinstance(wanted.args, str | bytes | os.PathLike) or not wanted.is_ordinary():
        return None
    words = [os.fspath(word) for word in wanted.args]
    ends_with_parent = words[:3] == END_WITH_PARENT
    if ends_with_parent:
        words = words[3:]
    if not words or not all(isinstance(word, str) for word in words) or not _is_ours(words):
        return None
    return {
        "words": words,
        "folder": str(Path(wanted.cwd or os.curdir).absolute()),
        "variables": dict(os.environ if wanted.env is None else wanted.env),
        "session": wanted.start_new_session,
        "ends_with_parent": ends_with_parent,
    }


def _is_ours(words: list[str]) -> bool:
    if words[0] == TIDEMARK:
        return len(words) > 1 and not words[1].startswith("-")
    is_module = words[0] == sys.executable and words[1:2] == ["-m"] and len(words) > 2
    return is_module and words[2].partition(".")[0] in ("engine", "tests")


def main() -> None:
    """Be the nursery: fork what is asked for until nobody can ask any more."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, streams, *_ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        if not message:
            return
        order = json.loads(message)
        born = 0
        if _load(order["words"]):
            born = _fork_away(streams)
            if born == 0:
                asked.close()
                _live(order, streams)
                return
        for stream in streams:
            os.close(stream)
        asked.send(str(born).encode())


def _load(words: list[str]) -> bool:
    """Load what a command lives in, once; False when it cannot be loaded."""
    try:
        _loaded(words[1] if words[0] == TIDEMARK else f"-m {words[2]}")
    except Exception:  # noqa: BLE001 - the new interpreter that is started instead says why.
        return False
    return True


@cache
def _loaded(command: str) -> None:
    kind, _, module = command.partition(" ")
    if kind == "-m":
        importlib.import_module(module)
    else:
        tidemark = importlib.import_module("tidemark")
        room = importlib.import_module(tidemark.COMMANDS[kind].module.rpartition(".")[0])
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not found.name.endswith(".__main__"):
                with suppress(Exception):  # A script that runs within something is left to that.
                    importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # No child collects what all of them share.


def _fork_away(streams: list[int]) -> int:
    """Fork a grandchild and lose it to the asking process, which takes in orphans just now. Its id
    here, 0 in itself.
    """
    reading, writing = os.pipe()
    between = os.fork()
    if between:
        os.close(writing)
        os.waitpid(between, 0)
        with os.fdopen(reading) as answer:
            return int(answer.read())
    between = os.getpid()
    child = os.fork()
    if child:
        os.write(writing, str(child).encode())
        os._exit(0)
    os.close(reading)
    os.close(writing)
    while os.getppid() == between:
        time.sleep(REPARENTED_POLL_S)
    return 0


def _live(order: dict[str, Any], streams: list[int]) -> None:
    """Be what was asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["ends_with_parent"]:
        _system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if order["session"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["variables"])
    _end(_run(order["words"]))


def _run(words: list[str]) -> int:
    """Carry out a command; its exit code."""
    try:
        if words[0] == TIDEMARK:
            sys.argv = words
            runpy.run_path(TIDEMARK, run_name="__main__")
        else:
            sys.argv = words[2:]
            del sys.modules[words[2]]
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    return 0


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but for taking all down that was loaded: each page of it, which
    is the nursery's until it is written to, would be copied for that.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
