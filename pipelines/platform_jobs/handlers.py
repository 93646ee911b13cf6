"""Job handlers that carry out each run of a platform job as one `tidemark` command.

Place in the walk: `tidemark executor --module pipelines.platform_jobs.handlers`: a run's command
has a process of its own, whose lines go into the run's log, and the last line is the run's message.
Invariant: a run that is killed ends its command, and the command whatever it has started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from typing import Final

from pipelines.lake.lake import Lake
from pipelines.lake.lease import holder_of
from pipelines.platform_jobs.job_commands import VARIABLE, command_of, read_settings
from pipelines.scheduler.executor import JobContext, handler
from pipelines.upkeep.maintainer import ROLE

LAST_LINES: Final = 5
END_S: Final = 10


@handler("lag-report")
def lag_report(context: JobContext) -> None:
    """Make the lag report of the period that was over when the run was planned."""
    _run("lag-report", context)


@handler("expectations")
def expectations(context: JobContext) -> None:
    """Check the data; fails when a check of the least severity fails."""
    _run("expectations", context)


@handler("table-maintenance")
def table_maintenance(context: JobContext) -> None:
    """Merge, drop and vacuum, unless another process looks after the lake already."""
    lake = Lake.at(read_settings(os.environ.get(VARIABLE)).lake)
    holder = holder_of(lake, ROLE)
    if holder is not None and _lives(holder.host, holder.pid):
        context.handle_success(f"maintained by {holder}")
        return
    _run("table-maintenance", context)


@handler("backtest")
def backtest(context: JobContext) -> None:
    """Try rule sets on the last days."""
    _run("backtest", context)


@handler("retention")
def retention(context: JobContext) -> None:
    """Remove files of reports whose days are over."""
    _run("retention", context)


@handler("alert-digest")
def alert_digest(context: JobContext) -> None:
    """Tell what alerts there were."""
    _run("alert-digest", context)


def _run(name: str, context: JobContext) -> None:
    settings = read_settings(os.environ.get(VARIABLE))
    arguments = command_of(name, context.parameters, settings, context.fire_time)
    if arguments[0] == "reports":  # The run vouches for what it asks: the scheduler allowed it.
        arguments += ["--for-run", str(context.log_id)]
    context.log(f"tidemark {' '.join(arguments)}")
    last: deque[str] = deque(maxlen=LAST_LINES)
    with subprocess.Popen(
        [sys.executable, "-m", "tidemark", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip():
                    context.log(line.rstrip())
                    last.append(line.strip())
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code:
        context.handle_fail(f"exit code {code}: {' / '.join(last)}")
    else:
        context.handle_success(last[-1] if last else "")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _lives(host: str, pid: int) -> bool:
    """Is it there still, as far as that can be seen from here?"""
    if host != os.uname().nodename:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
