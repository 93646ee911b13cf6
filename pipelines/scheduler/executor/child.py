"""Child process that executes job handlers, one run after another.

It runs until it is asked to end.

    python -m pipelines.scheduler.executor.child CONTROL MODULE PARENT

CONTROL is the descriptor of a socket. On it the child says which handlers its module has, then
takes one order a line and answers each with one line, all of it JSON. What handlers print goes to
standard output, which is the run's log: it is flushed before the answer, so that whoever has the
answer can have the whole log.

SIGTERM writes the stack of all threads into the log, even of a thread stuck in C, and raises
RunStopped in the handler. When the executor dies, so does the child: a run whose executor is gone
would otherwise be at work beside the one that the centre starts in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson

from pipelines.scheduler.executor.handlers import Handler, JobContext, RunStopped, handlers_in
from pipelines.scheduler.result_words import failure_of, head_and_tail
from pipelines.scheduler.wire.messages import Code

PR_SET_PDEATHSIG: Final = 1
CODE_MAX: Final = 2**31 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def main(arguments: list[str]) -> int:
    """Serve one executor until its end of the socket is closed."""
    descriptor = int(arguments[0])
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    _die_with_parent(int(arguments[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stopped)
    faulthandler.register(signal.SIGTERM, file=sys.stderr, all_threads=True, chain=True)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        handlers = handlers_in(importlib.import_module(arguments[1]))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the operator sees it, whatever it is
        _say(control, {"failed": _in_a_line(error)})
        return 1
    _say(control, {"handlers": sorted(handlers)})
    os.register_at_fork(after_in_child=lambda: _let_go(descriptor))
    try:
        _serve(control, handlers)
    except RunStopped:
        return 1
    return 0


def _serve(control: socket.socket, handlers: dict[str, Handler]) -> None:
    served_by = os.getpid()
    with control.makefile("rb") as orders:
        for line in orders:
            order = orjson.loads(line)
            code, message = _run(order, handlers)
            sys.stdout.flush()
            sys.stderr.flush()
            if os.getpid() != served_by:  # A fork of the handler's has come back: it ends here.
                os._exit(0)
            _say(control, {"code": code, "message": message, "word": order["word"]})


def _run(order: dict[str, Any], handlers: dict[str, Handler]) -> tuple[int, str]:
    if order["script"] is not None:
        return _run_script(order["script"], order)
    context = JobContext(
        job_id=order["job_id"],
        log_id=order["log_id"],
        parameters=order["parameters"],
        triggered_at=_moment(order["log_time_ms"]),
        fire_time=_moment(order["fire_time_ms"] or order["log_time_ms"]),
        fire_time_is_known=order["fire_time_ms"] is not None,
        shard_index=order["shard_index"],
        shard_total=order["shard_total"],
    )
    try:
        handlers[order["handler"]](context)
        return _outcome(context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the run has failed
        context.log(traceback.format_exc().rstrip())
        return 500, failure_of(error)


def _outcome(context: JobContext) -> tuple[int, str]:
    """What the handler has said of its run, as far as an admin can read it."""
    code, message = context.code, head_and_tail(str(context.message))
    if type(code) is not Code and (type(code) is not int or not 0 < code <= CODE_MAX):
        return 500, f"the handler has set the code {str(code)[:100]!r}, which is none; {message}"
    return int(code), message


def _run_script(script: dict[str, str], order: dict[str, Any]) -> tuple[int, str]:
    """It is given the parameters, the shard's index and how many there are. A stop ends it, for
    `subprocess.run` kills what it waits for when something is raised."""
    arguments = [order["parameters"], str(order["shard_index"]), str(order["shard_total"])]
    parent = os.getpid()
    Path(script["file"]).write_text(script["source"], encoding="utf-8", newline="")
    try:
        done = subprocess.run(
            [script["command"], script["file"], *arguments],
            check=False,
            preexec_fn=lambda: _die_with_parent(parent),
        )
    except (OSError, ValueError) as error:
        return 500, f"{script['command']} cannot be run: {error}"
    return (200, "") if done.returncode == 0 else (500, f"script exit value({done.returncode})")


def _let_go(descriptor: int) -> None:
    """A fork does not speak with the executor, nor keep it waiting."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _stopped(*_: object) -> NoReturn:
    raise RunStopped


def _say(control: socket.socket, words: dict[str, Any]) -> None:
    for key, value in words.items():
        if isinstance(value, str):
            words[key] = value.encode("utf-8", "replace").decode()
    control.sendall(orjson.dumps(words) + b"\n")


def _in_a_line(error: BaseException) -> str:
    """The error that was raised, and its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{text} ({last.filename}:{last.lineno})"


def _moment(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)


def _die_with_parent(parent: int) -> None:
    """By the kernel's hand. Where it has no such thing, the closed socket ends the child after the
    run that it is in."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # It died before it could be asked for.
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
