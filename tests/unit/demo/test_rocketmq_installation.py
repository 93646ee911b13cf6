"""What a real RocketMQ is run with is found, or named in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.rocketmq import (
    BROKER,
    JARS_VARIABLE,
    VERSION,
    Installation,
    broker_properties,
    configure,
    find_installation,
)
from engine.foundation.errors import ConfigError


def test_missing_jars_are_named_with_what_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    words = f"RocketMQ {VERSION}: run `tidemark setup --rocketmq`"
    with pytest.raises(ConfigError, match=words) as refusal:
        find_installation()
    assert str(tmp_path) in str(refusal.value)


def test_a_server_reads_what_was_written_for_it_and_writes_below_its_folder_only(
    tmp_path: Path,
) -> None:
    properties = broker_properties("127.0.0.1:9876", 10911, tmp_path / "store")
    configure(tmp_path, BROKER, properties)
    command = Installation(Path("/java"), Path("/jars")).party_command(BROKER, tmp_path)
    assert command[0] == "/java/bin/java"
    written = Path(command[command.index("-c") + 1]).read_text()
    assert "namesrvAddr=127.0.0.1:9876\n" in written
    assert f"storePathRootDir={tmp_path / 'store'}\n" in written
    (log,) = (word.partition("=")[2] for word in command if word.startswith("-Drmq.logback"))
    assert str(tmp_path / "broker.log") in Path(log).read_text()


def test_a_program_is_run_from_where_it_was_compiled() -> None:
    command = Installation(Path("/java"), Path("/jars")).program_command(Path("/play"), "Consumer")
    assert command[-3:] == ["-cp", "/play/classes:/jars/*", "Consumer"]
