"""Set-up switches the hook for commit messages on in a clone, and takes nobody's hooks away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision import commit_hook

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nobody_has_configured_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "n")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "n@example.org")


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def hooks_path(folder: Path) -> str:
    return git(folder, "config", "--get", "core.hooksPath").stdout.strip()


def clone(folder: Path) -> Path:
    folder.mkdir(parents=True)
    assert git(folder, "init", "-q").returncode == 0
    return with_hooks(folder)


def with_hooks(folder: Path) -> Path:
    shutil.copytree(ROOT / ".ci" / "hooks", folder / ".ci" / "hooks")
    return folder


def test_a_clone_that_was_set_up_refuses_a_message_of_another_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = clone(tmp_path / "own")
    commit = ("commit", "--allow-empty", "-q", "-m")
    assert git(own, *commit, "no room").returncode == 0, "git itself does not know the hook"
    commit_hook.ensure(own)
    assert "git looks at commit messages from now on" in capsys.readouterr().err
    refused = git(own, *commit, "no room")
    assert (refused.returncode, "does not name its room" in refused.stderr) == (1, True)
    assert git(own, *commit, "store: a hole", "-m", "Why.").returncode == 0
    commit_hook.ensure(own)
    assert capsys.readouterr().err == "", "the second time there is nothing to do"


@pytest.mark.parametrize("hooks", ["", "/elsewhere"])
def test_every_set_up_brings_the_hook(tmp_path: Path, hooks: str) -> None:
    """With a uv that installs nothing, the whole command."""
    own = clone(tmp_path / "own")
    if hooks:
        git(own, "config", "core.hooksPath", hooks)
    shutil.copytree(ROOT / "provision", own / "provision")
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, own / name)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text('#!/bin/sh\n[ "$1" = --version ] && echo uv 0.13.9 && exit\nmkdir -p .venv\n')
    uv.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "provision", "python"],
        cwd=own,
        env=os.environ | {"PATH": f"{uv.parent}:{os.environ['PATH']}"},
        check=True,
        timeout=60,
    )
    assert hooks_path(own) == (hooks or ".ci/hooks")


def test_a_linked_work_tree_has_the_hook_too(tmp_path: Path) -> None:
    own = clone(tmp_path / "own")
    git(own, "commit", "--allow-empty", "-q", "-m", "first")
    git(own, "add", ".")
    git(own, "commit", "-q", "-m", "hooks")
    assert git(own, "worktree", "add", "-q", str(tmp_path / "linked")).returncode == 0
    commit_hook.ensure(tmp_path / "linked")
    refused = git(tmp_path / "linked", "commit", "--allow-empty", "-q", "-m", "no room")
    assert "does not name its room" in refused.stderr


def test_hooks_of_its_own_stay(tmp_path: Path) -> None:
    own = clone(tmp_path / "own")
    hook = own / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    commit_hook.ensure(own)
    assert hooks_path(own) == ""


@pytest.mark.parametrize("where", ["--local", "--global"])
def test_a_folder_of_hooks_that_is_configured_stays(tmp_path: Path, where: str) -> None:
    own = clone(tmp_path / "own")
    git(own, "config", where, "core.hooksPath", "/elsewhere")
    commit_hook.ensure(own)
    assert hooks_path(own) == "/elsewhere"


def test_an_archive_unpacked_in_another_projects_clone_changes_nothing_there(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    commit_hook.ensure(with_hooks(other / "vendor"))
    assert hooks_path(other) == ""


def test_without_a_clone_or_without_git_set_up_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_hook.ensure(with_hooks(tmp_path / "unpacked"))
    own = clone(tmp_path / "own")
    with monkeypatch.context() as machine:
        machine.setenv("PATH", str(tmp_path))
        commit_hook.ensure(own)
    assert hooks_path(own) == ""
    assert capsys.readouterr().err == ""


def test_a_configuration_that_cannot_be_written_is_logged_and_set_up_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = clone(tmp_path / "own")
    (own / ".git" / "config.lock").touch()
    commit_hook.ensure(own)
    assert hooks_path(own) == ""
    assert "commit messages are not looked at here" in capsys.readouterr().err
