"""Who waits for something: later is not failed, and nothing is waited for in vain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.patience import RENEWALS_MAX, Patience, worked_s
from demo.processes import Actor, StageError


def last_wait_s(patience: Patience) -> int:
    """How long it lasts, looked at each ten seconds."""
    return next(now_s for now_s in range(0, 10_000, 10) if patience.is_over(now_s))


def test_what_moves_is_waited_for_again_and_again_and_what_stands_is_not() -> None:
    moves = iter(["cycle 1", "cycle 2", "cycle 3", "cycle 3"])
    assert last_wait_s(Patience(0.0, 180.0, lambda: next(moves))) == 3 * 190
    assert last_wait_s(Patience(0.0, 180.0, lambda: "cycle 1")) == 190


def test_where_nobody_watches_even_what_moves_is_given_up_at_last() -> None:
    moves = iter(range(10_000))
    alone = Patience(0.0, 180.0, lambda: next(moves))
    assert last_wait_s(alone) == (RENEWALS_MAX + 1) * 190
    watched = Patience(0.0, 180.0, lambda: next(moves), renewals_max=None)
    assert not any(watched.is_over(now_s) for now_s in range(0, 10_000, 10))


def test_whoever_watches_hears_a_word_each_half_minute() -> None:
    patience = Patience(0.0, 180.0, lambda: None)
    assert [second for second in range(1, 100) if patience.is_tried(second)] == [30, 60, 90]


def test_a_process_that_does_nothing_is_given_up(tmp_path: Path) -> None:
    actor = Actor("idle", [sys.executable, "-c", "input()"], tmp_path, talks=True)
    actor.start()
    with pytest.raises(StageError, match="did not end within 0 s"):
        actor.await_end(within_s=0.2)
    actor.send_line("")
    actor.finish()


def test_one_that_ends_without_having_done_its_part_is_reported_with_its_words(
    tmp_path: Path,
) -> None:
    actor = Actor("check", ["/bin/sh", "-c", "echo the lake is locked; exit 2"], tmp_path)
    actor.start()
    with pytest.raises(StageError, match="check ended with exit code 2: the lake is locked"):
        actor.await_end(within_s=60, exit_codes=(0, 1))
    actor.finish()


def test_the_work_of_a_process_counts_that_of_its_children() -> None:
    """A shell that waits for somebody who works."""
    busy = f"{sys.executable} -c 'while True: pass'"
    with subprocess.Popen(["/bin/sh", "-c", f"{busy}; true"], start_new_session=True) as shell:
        try:
            until_s = time.monotonic() + 100
            while (worked := worked_s(shell.pid)) < 0.5 and time.monotonic() < until_s:
                time.sleep(0.05)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert worked >= 0.5
