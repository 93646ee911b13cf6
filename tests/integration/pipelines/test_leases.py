"""One process of a kind a lake: real processes, killed and stopped, on a disk and on S3."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.lease import LEASES, Holder, LeaseHeld, acquire, holder_of
from pipelines.lake.small_files import SmallFiles
from tests.integration.pipelines.s3_server import BUCKET, ROOT, s3_server

HEARTBEAT_S = 0.3
"""The processes' own; they are stale after three."""


class Asking:
    """A process that asks for the lease `pipeline`."""

    def __init__(self, address: str, environment: Mapping[str, str], stack: ExitStack) -> None:
        command = (
            sys.executable,
            "-m",
            "tests.integration.pipelines.lease_holder",
            address,
            "pipeline",
            str(HEARTBEAT_S),
        )
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self.process)
        stack.callback(self.process.kill)

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asked(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self.hears()


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options:
        yield options


@pytest.fixture(params=["disk", "s3"])
def home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Mapping[str, str]]:
    """A lake's address, and the environment in which it is reached."""
    if request.param == "disk":
        (tmp_path / "lake").mkdir()
        return str(tmp_path / "lake"), {}
    options: Mapping[str, str] = request.getfixturevalue("s3")
    for name, text in options.items():
        monkeypatch.setenv(name, text)
    return f"s3://{BUCKET}/{tmp_path.name}", options


def test_a_second_one_is_refused_with_who_holds_it(home: tuple[str, Mapping[str, str]]) -> None:
    with ExitStack() as stack:
        first = Asking(*home, stack)
        assert first.hears().startswith("held ")
        second = Asking(*home, stack)
        refused = second.hears()
        assert refused.startswith(f"refused one pipeline a lake: process {first.process.pid} on ")
        assert "stop it first" in refused
        with acquire(Lake.at(home[0]), "maintainer"):
            pass  # Another role is another lease.
        first.asked("go")
        third = Asking(*home, stack)
        assert third.hears().startswith("held ")


def test_a_killed_holder_is_followed_by_another(home: tuple[str, Mapping[str, str]]) -> None:
    lake = Lake.at(home[0])
    with ExitStack() as stack:
        first = Asking(*home, stack)
        assert first.hears().startswith("held ")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        deadline_s = time.monotonic() + 30
        while True:
            second = Asking(*home, stack)
            if (answer := second.hears()).startswith("held "):
                break
            assert str(first.process.pid) in answer
            assert time.monotonic() < deadline_s
        holder = holder_of(lake, "pipeline")
        assert holder is not None
        assert holder.pid == second.process.pid
        assert second.asked("held?") == "True"


def test_of_many_that_race_exactly_one_wins(home: tuple[str, Mapping[str, str]]) -> None:
    with ExitStack() as stack:
        dead = Asking(*home, stack)
        assert dead.hears().startswith("held ")
        dead.process.kill()
        dead.process.wait()
        time.sleep(3 * HEARTBEAT_S)
        racers = [Asking(*home, stack) for _ in range(6)]
        answers = [racer.hears() for racer in racers]
        winners = [racer for racer, said in zip(racers, answers, strict=True) if "held " in said]
        assert len(winners) == 1, answers
        assert winners[0].asked("held?") == "True"


def test_one_that_stood_still_and_was_replaced_learns_of_it(s3: Mapping[str, str]) -> None:
    home = (f"s3://{BUCKET}/stood-still", s3)
    with ExitStack() as stack:
        first = Asking(*home, stack)
        assert first.hears().startswith("held ")
        first.process.send_signal(signal.SIGSTOP)
        time.sleep(4 * HEARTBEAT_S)
        second = Asking(*home, stack)
        assert second.hears().startswith("held ")
        first.process.send_signal(signal.SIGCONT)
        assert first.asked("held?") == "False", "it is not sure of it from the first moment on"
        deadline_s = time.monotonic() + 30
        while first.asked("lost?") != "True":
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert second.asked("held?") == "True"


def test_a_holder_whose_clock_is_slow_is_watched_before_it_is_replaced(
    s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in s3.items():
        monkeypatch.setenv(name, text)
    lake = Lake.at(f"s3://{BUCKET}/slow-clock")
    files, address = SmallFiles(lake), f"{lake.state(LEASES)}/pipeline.json"
    gone = threading.Event()

    def renew_with_a_clock_of_years_ago() -> None:
        beats = 0
        while not gone.wait(0.1):
            beats += 1
            renewed = f"2020-01-01T00:00:00.{beats:03d}+00:00"
            holder = Holder("pipeline", "other", 7, "2020-01-01", "token", renewed)
            files.replace(address, holder.as_bytes())

    other = threading.Thread(target=renew_with_a_clock_of_years_ago)
    other.start()
    try:
        while holder_of(lake, "pipeline") is None:
            time.sleep(0.05)
        with pytest.raises(LeaseHeld, match="process 7 on other, since 2020-01-01"):
            acquire(lake, "pipeline", heartbeat_s=0.3, stale_after_s=1)
    finally:
        gone.set()
        other.join()
    with acquire(lake, "pipeline", heartbeat_s=0.3, stale_after_s=1) as lease:
        assert lease.is_held, "now it is really stale"


def test_what_was_given_back_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    lake = Lake.at(str(tmp_path / "lake"))
    with acquire(lake, "maintainer") as lease:
        assert lease.is_held
        assert holder_of(lake, "maintainer") == lease.holder
    assert not lease.is_held
    assert holder_of(lake, "maintainer") is None


def test_whoever_had_the_lease_of_a_state_that_was_moved_away_has_none_of_the_new_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "lake").mkdir()
    lake = Lake.at(str(tmp_path / "lake"))
    with acquire(lake, "pipeline", heartbeat_s=0.1, stale_after_s=1) as first:
        assert first.is_held
        shutil.move(lake.state(LEASES), tmp_path / "moved")
        assert not first.is_held, "from the first moment on"
        with acquire(lake, "pipeline") as second:
            deadline_s = time.monotonic() + 30
            while not first.is_lost:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            assert second.is_held
            assert not second.is_lost


def test_a_lake_that_takes_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(LakeError, match="cannot be written"):
        acquire(Lake.at(str(tmp_path / "lake")), "maintainer", makes_lake=True)


def test_whoever_reads_takes_no_lease_of_a_lake_that_is_not_there(tmp_path: Path) -> None:
    lake = tmp_path / "mistyped" / "lake"
    with pytest.raises(LakeError, match="there is no lake at"):
        acquire(Lake.at(str(lake)), "maintainer")
    assert not lake.parent.exists()
