"""Handlers that end, fail, hang and die as the tests want it. They run in children of executors."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from pathlib import Path

from pipelines.scheduler.executor import JobContext, RunStopped, handler

NAP_S = 0.01


@handler("demo")
def demo(context: JobContext) -> None:
    """The handler of the recorded executor."""
    if context.parameters == "fail":
        context.handle_fail("bad")
    elif context.parameters == "boom":
        raise RuntimeError("boom")
    elif context.parameters.startswith("sleep"):
        time.sleep(int(context.parameters.removeprefix("sleep")) / 1000)
    else:
        shard = f"{context.shard_index}/{context.shard_total}"
        context.log(f"hello {context.parameters} shard {shard}")


@handler("says-its-time")
def says_its_time(context: JobContext) -> None:
    known = "planned" if context.fire_time_is_known else "as triggered"
    context.handle_success(f"{context.fire_time.isoformat()} {known}")


@handler("marks-and-waits")
def marks_and_waits(context: JobContext) -> None:
    """Adds its id to a file, then waits until the file's neighbour is there."""
    place = Path(context.parameters)
    with place.open("a") as file:
        file.write(f"{context.log_id}\n")
    while not place.with_suffix(".go").exists():
        time.sleep(NAP_S)
    context.handle_success(f"process {os.getpid()}")


@handler("marks-its-begin")
def marks_its_begin(context: JobContext) -> None:
    """Adds its id to a file, and works for a moment, by its id short or long."""
    with Path(context.parameters).open("a") as file:
        file.write(f"{context.log_id}\n")
    time.sleep(context.log_id % 7 * 0.05)


@handler("waits-for-ever")
def waits_for_ever(context: JobContext) -> None:
    context.log("will not come back")
    try:
        _a_lock_that_nobody_gives_back()
    finally:
        print("and tidies up")  # noqa: T201 - into the log


@handler("tidies-up-at-the-end-of-its-process")
def tidies_up_at_the_end_of_its_process(context: JobContext) -> None:
    atexit.register(_tidy_up_slowly)
    context.log("will not come back")
    time.sleep(600)


def _tidy_up_slowly() -> None:
    time.sleep(0.5)
    print("and has tidied up", flush=True)  # noqa: T201 - into the log


@handler("is-stubborn")
def is_stubborn(_: JobContext) -> None:
    while True:
        try:
            time.sleep(60)
        except RunStopped:
            print("not me")  # noqa: T201 - into the log


@handler("is-killed")
def is_killed(context: JobContext) -> None:
    print("last words")  # noqa: T201 - into the log
    os.kill(os.getpid(), signal.SIGKILL)


@handler("leaves-a-child")
def leaves_a_child(context: JobContext) -> None:
    child = subprocess.Popen(["sleep", "600"])
    Path(context.parameters).write_text(str(child.pid))
    time.sleep(600)


@handler("exits")
def exits(_: JobContext) -> None:
    raise SystemExit(3)


@handler("says-odd-things")
def says_odd_things(context: JobContext) -> None:
    print("no end and \udcff".encode("utf-8", "surrogateescape"))  # noqa: T201 - into the log
    os.write(1, b"\xff\xfe raw bytes")
    context.handle_fail("half a pair \ud800")


@handler("shows-the-environment")
def shows_the_environment(context: JobContext) -> None:
    context.handle_success(",".join(sorted(name for name in os.environ if "TOKEN" in name)))


def _a_lock_that_nobody_gives_back() -> None:
    time.sleep(600)
