"""A slip of the pen in an address of a lake leaves nothing: who reads a lake makes none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.testing import CliRunner

from engine.foundation.errors import LakeError
from pipelines.alerting.history import HistoryTable
from pipelines.lake.lake import Lake
from tidemark import COMMANDS, app, load

COMMAND = Path(sys.prefix) / "bin" / "tidemark"
SINCE = "2026-01-01T00:00"
MAKE = {
    ("engine",): "its shipper fills the lake",
    ("broker",): "its shipper fills the lake",
    ("observe",): "its shipper fills the lake",
    ("shipper",): "it fills the lake",
    ("pipeline", "run"): "it waits for the first shipment, and may be there before",
    ("experiment", "kills"): "its engine's shipper fills the lake",
}
"""Who makes a lake, and why."""

READ: dict[tuple[str, ...], tuple[str, ...]] = {
    ("pipeline", "replay"): ("--into", "OTHER", "--to", SINCE),
    ("lab",): (),
    ("lake", "maintain"): ("--once",),
    ("lake", "status"): (),
    ("lake", "retire"): ("c/b/0",),
    ("backtest",): ("ours", "--from", SINCE, "--to", "2026-01-02T00:00"),
    ("alerts", "list"): (),
    ("alerts", "show"): ("x",),
    ("alerts", "rules"): (),
    ("alerts", "ack"): ("x", "--author", "a"),
    ("alerts", "silence"): ('group="g"', "--for", "1h", "--comment", "c", "--author", "a"),
    ("alerts", "silences"): (),
    ("alerts", "unsilence"): ("x",),
    ("reports", "run"): (),
    ("reports", "list"): (),
    ("reports", "show"): ("lag-daily",),
    ("reports", "open"): ("lag-daily",),
    ("reports", "compare"): ("lag-daily", "lag-daily"),
    ("reports", "send"): ("lag-daily", "x", "--receivers", "none.toml"),
    ("reports", "tidy"): (),
    ("reports", "digest"): (),
    ("check",): (),
}
SERVE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("alerts", "run"): (),
    ("dash",): ("--port", "0"),
}
"""They read, and go on until they are stopped."""
OTHERS = {("lab",)}
"""It becomes another program, which reads nothing before somebody opens a notebook."""


def with_a_lake(command: Any, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command below that has --lake."""
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from with_a_lake(inner, (*before, name))
    elif any("--lake" in param.opts for param in command.params):
        yield before


def test_every_command_with_a_lake_is_tried_here() -> None:
    known = {words for name in COMMANDS for words in with_a_lake(load(name), (name,))}
    assert known == {*MAKE, *READ, *SERVE}


@pytest.mark.parametrize("words", [words for words in READ if words not in OTHERS], ids=" ".join)
def test_who_reads_a_lake_makes_none(tmp_path: Path, words: tuple[str, ...]) -> None:
    lake = tmp_path / "mistyped" / "lake"
    more = [str(tmp_path / "into") if word == "OTHER" else word for word in READ[words]]
    environment = {"TIDEMARK_HOME": str(tmp_path / "home")}
    done = CliRunner().invoke(app, [*words, *more, "--lake", str(lake)], env=environment)
    assert done.exit_code != 2 or words == ("check",), f"a wrong call: {done.output}"
    assert not lake.parent.exists(), f"{done.output} {done.exception}"


@pytest.mark.parametrize("words", SERVE, ids=" ".join)
def test_who_serves_what_is_not_there_makes_none(tmp_path: Path, words: tuple[str, ...]) -> None:
    lake = tmp_path / "mistyped" / "lake"
    with subprocess.Popen(
        [COMMAND, *words, *SERVE[words], "--lake", str(lake)],
        env=os.environ | {"TIDEMARK_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
    assert not lake.parent.exists()


def test_changes_of_alerts_wait_while_there_is_no_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    table = HistoryTable(Lake.at(str(lake)))
    with pytest.raises(LakeError, match="there is no lake at"):
        table.taken("h")
    assert not lake.exists()
    lake.mkdir()
    assert table.taken("h") == 0
