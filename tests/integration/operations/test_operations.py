"""Row D7: long actions in processes of their own; whatever ends them is known, and known once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines.database import operations
from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.database.operations import RUNNING_MAX, SILENT_US, Operation
from pipelines.database.tables import Ended
from pipelines.operations import service
from pipelines.operations.keeper import identity
from pipelines.operations.service import found, operation_json, stop
from tests.integration.alerting.stores import sqlite_address
from tidemark import app

COMMAND = Path(sys.prefix) / "bin" / "tidemark"
PATIENCE_S = 60
HOUR_US = 3_600_000_000
LASTS = ("scheduler", "run", "--port", "0")
"""A command that does not end by itself, and says `ready`."""
GONE = "reports", "run", "--lake"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return sqlite_address(tmp_path)


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    opened = Database.at(address)
    yield opened
    opened.close()


def now_us(database: Database) -> int:
    return database_ms(database) * 1000


def asked(address: str, *words: str, code: int = 0) -> str:
    """What the command says."""
    done = CliRunner().invoke(app, ["operations", *words], env={"TIDEMARK_DATABASE": address})
    assert done.exit_code == code, f"{done.output} {done.exception}"
    return done.stdout.strip() or str(done.exception)


def until(database: Database, operation_id: str, is_so: Callable[[Operation], Any]) -> Operation:
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        one = found(database, operation_id)
        assert one is not None
        if is_so(one):
            return one
        assert time.monotonic() < give_up_s, one
        time.sleep(0.05)


def over(database: Database, operation_id: str) -> tuple[Operation, dict[str, Any]]:
    one = until(database, operation_id, lambda one: one.state is not Ended.RUNNING)
    return one, operation_json(one)["result"]


def begun(database: Database, address: str, *, lasts_us: int = HOUR_US) -> tuple[Operation, int]:
    """One whose command is at work, and the number of the command's process."""
    moment = now_us(database)
    operations.begin(
        database, "lasts", "replay", now_us=moment, expires_us=moment + lasts_us, command=LASTS
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMARK_DATABASE", address)
        service.launch("lasts", address)
    one = until(database, "lasts", lambda one: "ready" in one.said)
    assert one.pid is not None
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    [command] = [int(child) for child in children]
    return one, command


def test_it_answers_at_once_and_its_end_is_known_after_who_asked_is_gone(
    tmp_path: Path, address: str
) -> None:
    made_id = subprocess.run(
        [COMMAND, "operations", "run", "--", *GONE, str(tmp_path / "no-lake")],
        env=os.environ | {"TIDEMARK_DATABASE": address},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout.strip()
    assert made_id.startswith("report-")
    asked(address, "wait", made_id, "--for", "50", code=1)
    shown = json.loads(asked(address, "show", made_id, "--json"))
    assert (shown["state"], shown["kind"], shown["result"]["exit_code"]) == ("FAILED", "report", 1)
    assert "no cycle" in shown["result"]["lines"][-1]
    [listed] = json.loads(asked(address, "list", "--json"))
    assert listed == shown
    assert "FAILED" in asked(address, "list")
    assert not (tmp_path / "no-lake").exists()
    assert "one that begins with" in asked(address, "run", "--", "broker", code=1)
    assert "there is no operation 'another'" in asked(address, "show", "another", code=1)


def test_the_same_id_is_the_same_operation(tmp_path: Path, address: str) -> None:
    words = ("run", "--id", "mine", "--", *GONE, str(tmp_path / "no-lake"))
    assert asked(address, *words) == asked(address, *words) == "mine"
    assert len(json.loads(asked(address, "list", "--json"))) == 1
    assert "no operation has yet" in asked(address, *words, "--newest", code=1)


def test_a_command_that_is_killed_has_failed_by_a_signal(database: Database, address: str) -> None:
    _, command = begun(database, address)
    os.kill(command, signal.SIGKILL)
    one, result = over(database, "lasts")
    assert (one.state, result["signal"]) == (Ended.FAILED, "SIGKILL")
    assert "ready" in result["lines"][0]


def test_a_keeper_that_is_killed_leaves_it_lost_and_no_process(
    database: Database, address: str
) -> None:
    one, command = begun(database, address)
    its_process = identity(command)
    assert one.pid is not None
    os.kill(one.pid, signal.SIGKILL)
    lost, result = over(database, "lasts")
    assert (lost.state, result["lines"]) == (Ended.LOST, [one.said])
    assert "part of it may be done" in result["error"]
    give_up_s = time.monotonic() + PATIENCE_S
    while identity(command) == its_process:
        assert time.monotonic() < give_up_s, "its command goes on"
        time.sleep(0.05)
    moment = now_us(database)
    assert not operations.end(database, "lasts", Ended.DONE, result="{}", now_us=moment)
    database.close()
    again = Database.at(address)
    assert found(again, "lasts") == lost, "it is known after a restart"
    again.close()


def test_it_is_stopped_by_hand(database: Database, address: str) -> None:
    _, command = begun(database, address)
    its_process = identity(command)
    assert stop(database, "lasts").state is Ended.RUNNING
    one, result = over(database, "lasts")
    assert (one.state, result["error"]) == (Ended.FAILED, "stopped by hand")
    assert identity(command) != its_process
    assert stop(database, "lasts") == one, "it is over"


def test_its_command_ends_when_its_time_is_over(database: Database, address: str) -> None:
    _, command = begun(database, address, lasts_us=12_000_000)
    its_process = identity(command)
    one, _ = over(database, "lasts")
    assert one.state is Ended.EXPIRED
    assert one.ended_us == one.expires_us
    give_up_s = time.monotonic() + PATIENCE_S
    while identity(command) == its_process:
        assert time.monotonic() < give_up_s, "its command goes on"
        time.sleep(0.05)


def kept_elsewhere(database: Database) -> int:
    """One that a process of another machine keeps; when it was heard of last."""
    operations.begin(database, "far", "report", now_us=1, expires_us=HOUR_US, command=("check",))
    assert operations.keep(database, "far", host="elsewhere", pid=7, process="a", now_us=2)
    assert not operations.keep(database, "far", host="here", pid=8, process="b", now_us=2)
    assert operations.beat(database, "far", said="on my way", now_us=3)
    return 3


def test_one_whose_process_is_silent_is_lost_for_good(database: Database) -> None:
    seen_us = kept_elsewhere(database)
    just = operations.operation(database, "far", now_us=seen_us + SILENT_US - 1)
    late = operations.operation(database, "far", now_us=seen_us + SILENT_US)
    assert just is not None
    assert late is not None
    assert (just.state, late.state) == (Ended.RUNNING, Ended.LOST)
    assert (late.ended_us, late.said) == (seen_us + SILENT_US, "on my way")
    moment = seen_us + SILENT_US
    assert not operations.beat(database, "far", said="back", now_us=moment)
    assert not operations.end(database, "far", Ended.DONE, result="{}", now_us=moment)
    assert operations.running(database, "report", now_us=moment) == ()
    with pytest.raises(ConfigError, match="kept at elsewhere"):
        service.ask_to_end(just)


def test_only_the_process_that_was_seen_dead_loses_it(database: Database) -> None:
    kept_elsewhere(database)
    one = operations.operation(database, "far", now_us=4)
    assert one is not None
    assert one.process == "a"
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE operations SET process = 'c'")
    assert not operations.lose(database, one, result="{}", now_us=5)
    assert operations.end(database, "far", Ended.DONE, result="{}", now_us=6)


def test_no_more_than_some_run_at_once(database: Database) -> None:
    fields: dict[str, Any] = {"now_us": 1, "expires_us": HOUR_US, "command": ("check",)}
    for number in range(RUNNING_MAX):
        operations.begin(database, str(number), "check", **fields)
    with pytest.raises(ConfigError, match="wait for one"):
        operations.begin(database, "one more", "check", **fields)
    operations.begin(database, "without a command", "x", now_us=1, expires_us=2)
    operations.begin(database, "later", "check", **fields | {"now_us": 1 + SILENT_US})
    assert len(operations.newest(database, now_us=2)) == RUNNING_MAX + 2


def test_a_number_that_another_process_has_now_is_not_the_one_that_was() -> None:
    mine = identity(os.getpid())
    assert mine is not None
    assert identity(os.getpid()) == mine
    assert identity(os.getppid()) != mine
    with subprocess.Popen([sys.executable, "-c", ""]) as short:
        while identity(short.pid) is not None:
            time.sleep(0.01)
        # Its number is taken still, by what nobody has waited for.
        assert Path(f"/proc/{short.pid}").exists()
