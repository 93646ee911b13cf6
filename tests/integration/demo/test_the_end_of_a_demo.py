"""A demo is ended at the worst moments, and a second one is started in its folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from demo.ending import WishToEnd
from demo.processes import POLL_S, Actor, stop_all
from tests.integration.demo.process_list import demo_in, processes_of

BIRTHS = 60
STEP_S = 0.000_05
END_PATIENCE_S = 120


def test_no_process_is_left_at_whatever_moment_of_its_birth_the_signal_comes(
    tmp_path: Path,
) -> None:
    for birth in range(BIRTHS):
        sleeper = [sys.executable, "-c", "import time; time.sleep(10)", str(tmp_path)]
        actor = Actor(f"sleeper-{birth}", sleeper, tmp_path)
        try:
            live_until_signal(actor, delay_s=10 * STEP_S + birth * STEP_S)
        except KeyboardInterrupt:
            continue
    assert not processes_of(tmp_path)


def live_until_signal(actor: Actor, *, delay_s: float) -> None:
    """Start it, look around until the signal is heeded, stop it."""
    with WishToEnd() as wish:
        sender = threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        try:
            actor.start()
            while True:
                wish.heed()
                time.sleep(POLL_S)
        finally:
            sender.join()  # The next handler would get it.
            stop_all([actor])


# The first process takes what its actors' starting has in common with the others.
@pytest.mark.parametrize(
    "newborn",
    ["broker", *(pytest.param(one, marks=pytest.mark.slow) for one in ("pipeline", "ledger-2"))],
)
def test_two_signals_at_the_birth_of_a_process_leave_none_of_the_demo(
    tmp_path: Path, newborn: str
) -> None:
    home = tmp_path / "home"
    log = home / "logs" / f"{newborn}.log"  # Comes to be just before its process does.
    with demo_in(home) as demo:
        while not log.exists():
            assert demo.poll() is None, demo.communicate()
            time.sleep(STEP_S)
        demo.send_signal(signal.SIGTERM)
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=END_PATIENCE_S)
    assert demo.returncode == 130, output
    assert "stopping everything" in output
    assert not processes_of(home)


def test_a_second_demo_in_the_folder_of_one_that_plays_is_refused_and_removes_nothing(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with demo_in(home) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if "name server and broker are up" in line:
                break
        first.send_signal(signal.SIGSTOP)  # It plays, though at rest: before Spark, to end soon.
        with demo_in(home) as second:
            refusal, _ = second.communicate(timeout=END_PATIENCE_S)
        assert second.returncode == 1
        assert "a demo is playing in it; stop that one, or choose another home" in refusal
        assert len(refusal.splitlines()) == 1, "one sentence"
        assert (home / "logs" / "broker.log").read_text()
        assert (home / "store").is_dir()
        first.stdout.close()  # Nobody listens any more: no reason to leave a process behind.
        first.terminate()
        first.send_signal(signal.SIGCONT)
        first.wait(END_PATIENCE_S)
    assert not processes_of(home)


def test_a_port_that_somebody_has_is_named_before_anything_else_is_started(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with demo_in(home, port=port) as demo:
            refusal, _ = demo.communicate(timeout=END_PATIENCE_S)
    assert demo.returncode == 1
    assert f"host:port='127.0.0.1:{port}' is not allowed" in refusal
    assert [log.name for log in (home / "logs").iterdir()] == ["dash.log"]


def test_a_demo_of_no_seconds_is_refused_as_too_short_before_its_folder_is_looked_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "demo", "--for", "0"]
    done = subprocess.run(
        [*command, "--home", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=END_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "for=0 is not allowed: at least 90 seconds" in done.stderr
