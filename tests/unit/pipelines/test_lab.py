"""What `tidemark lab` gives JupyterLab, and where it keeps it."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from demo.commands import demo
from pipelines.lab.lab import lab_command, lab_environment
from pipelines.lake.lake import Lake
from provision.places import JUPYTER, ROOT


def test_a_lab_gives_its_kernels_the_lake_and_keeps_what_was_set_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", "/of/the/user")
    monkeypatch.delenv("JUPYTER_CONFIG_PATH", raising=False)

    environment = lab_environment(tmp_path, Lake.at(str(tmp_path / "lake")))

    assert environment["TIDEMARK_LAKE"] == str(tmp_path / "lake")
    assert environment["JUPYTER_PATH"] == f"{tmp_path}{os.pathsep}/of/the/user"
    assert environment["JUPYTER_CONFIG_PATH"] == str(tmp_path / "config")
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)


def test_the_lab_s_server_listens_on_this_machine_only() -> None:
    assert "--ServerApp.ip=127.0.0.1" in lab_command(port=0, browser=False)


def test_a_lab_leaves_the_demo_s_home_as_it_is() -> None:
    home = inspect.signature(demo).parameters["home"].default
    assert not JUPYTER.is_relative_to(ROOT / home)
