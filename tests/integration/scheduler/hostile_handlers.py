"""Handlers that do to their executor what handlers should not. They run in its children."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from pipelines.scheduler.executor import JobContext, handler

MIB = 1024 * 1024


@handler("says-its-number")
def says_its_number(context: JobContext) -> None:
    context.handle_success(f"run {context.log_id}")


@handler("forks")
def forks(context: JobContext) -> None:
    """Both processes come back from here."""
    is_child = os.fork() == 0
    context.handle_fail("the fork") if is_child else context.handle_success("the handler")


@handler("dies-and-leaves-a-fork")
def dies_and_leaves_a_fork(context: JobContext) -> None:
    """The fork keeps what it has inherited."""
    fork = os.fork()
    if fork:
        Path(context.parameters).write_text(str(fork))
        os._exit(7)
    time.sleep(600)


@handler("forges-answers")
def forges_answers(context: JobContext) -> None:
    """Writes what it likes to every socket that it finds."""
    for descriptor in range(64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, context.parameters.encode())
        except OSError:
            continue


@handler("answers-oddly")
def answers_oddly(context: JobContext) -> None:
    """A result that is none."""
    context.code = {"zero": 0, "text": "x", "none": None, "huge": 2**80}[context.parameters]  # type: ignore[assignment]


@handler("prints-much")
def prints_much(context: JobContext) -> None:
    block = b"x" * MIB
    for _ in range(int(context.parameters)):
        os.write(1, block)
    context.handle_success("all printed")


@handler("prints-empty-lines")
def prints_empty_lines(context: JobContext) -> None:
    for _ in range(15):
        sys.stdout.write("\n" * MIB)


@handler("leaves-a-daemon")
def leaves_a_daemon(context: JobContext) -> None:
    """A process in a session of its own, whose parent has ended: nobody's child any more."""
    daemon = f"echo $$ > {context.parameters}; exec sleep 600"
    subprocess.run(["setsid", "--fork", "sh", "-c", daemon], check=True)
    while not Path(context.parameters).exists():
        time.sleep(0.01)
    signal.pause()


@handler("closes-all")
def closes_all(_: JobContext) -> None:
    os.closerange(0, 256)


@handler("raises-what-is-no-error")
def raises_what_is_no_error(_: JobContext) -> None:
    raise GeneratorExit("odd")
