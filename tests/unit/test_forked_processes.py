"""Commands of ours that tests start are forked from a process that has loaded the rooms, and are
else what a new interpreter would be.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked_processes import TIDEMARK

COMMAND = [sys.executable, "-m", "tests.unit.said_of_itself", "a word"]
GONE_S = 10


def said(command: list[str], **options: Any) -> dict[str, Any]:
    """What a process says of itself; its exit code is how much it was sent."""
    done = subprocess.run(
        command, input="four", stdout=subprocess.PIPE, text=True, check=False, **options
    )
    assert done.returncode == len("four")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_it_has_the_words_the_variables_the_session_and_the_parent_that_it_would_have() -> None:
    home = {"env": {**os.environ, "TIDEMARK_HOME": "/nowhere"}}
    forked, new = (said(one, **home) for one in (COMMAND, ["env", *COMMAND]))
    assert (forked.pop("forked"), new.pop("forked")) == (True, False)
    assert forked == new
    assert forked["parent"] == os.getpid()
    assert forked["home"] == "/nowhere"
    assert said(COMMAND, start_new_session=True)["leads"] is True


def test_it_works_in_the_folder_that_is_given(tmp_path: Path) -> None:
    assert said(COMMAND, cwd=tmp_path)["folder"] == str(tmp_path)
    assert said(COMMAND)["folder"] == str(Path.cwd())


def test_a_command_of_tidemark_says_the_same_and_ends_alike() -> None:
    ends = [
        subprocess.run(command, capture_output=True, text=True, check=False)
        for command in ([TIDEMARK, "admin", "nix"], ["env", TIDEMARK, "admin", "nix"])
    ]
    forked, new = ((end.returncode, end.stdout, end.stderr) for end in ends)
    assert forked == new
    assert "Usage: tidemark admin" in forked[2]


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**os.environ, "POLARS_MAX_THREADS": "2"}},
        {"executable": sys.executable},
        {"preexec_fn": os.getpid},
        {"umask": 0o77},
    ],
    ids=["a variable of a library", "another program", "a call before", "a mask"],
)
def test_who_asks_for_more_has_a_new_interpreter(options: dict[str, Any]) -> None:
    assert said(COMMAND, **options)["forked"] is False


def test_a_variable_of_the_test_s_own_process_holds_for_what_it_forks_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said(COMMAND)
    with monkeypatch.context() as patch:
        patch.setenv("POLARS_MAX_THREADS", "2")
        assert said(COMMAND)["forked"] is True
        assert said(COMMAND)["threads"] == "2"
    after = said(COMMAND)
    assert (after["forked"], after["threads"]) == (True, os.environ.get("POLARS_MAX_THREADS"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_by_a_signal_and_is_waited_for(number: signal.Signals) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(GONE_S) == -number


async def test_it_is_a_process_of_asyncio_as_well() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate(b"four")
    assert json.loads(answer)["forked"] is True
    assert process.returncode == len("four")


def test_it_ends_with_its_parent_where_that_is_asked() -> None:
    """The parent is a process that starts it as tests do, and is killed."""
    script = (
        "import subprocess, sys, time; from tests.forked_processes import ForkingPopen\n"
        "child = ForkingPopen(['setpriv', '--pdeathsig', 'KILL', *sys.argv[1:]], stdin=-1)\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", script, *COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert json.loads(parent.stdout.readline())["parent"] == parent.pid
        parent.kill()
        assert parent.stdout.read() == b"", "who wrote to it lives no longer"


def test_what_cannot_be_loaded_says_so_as_ever() -> None:
    command = [sys.executable, "-m", "tests.unit.absent"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "No module named tests.unit.absent" in done.stderr
