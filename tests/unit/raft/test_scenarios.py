"""Row C11: what a node does, message by message, in the files of `scenarios`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.raft.scenario_files import files, played


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_a_scenario_leaves_its_trace(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert played(text) == text
