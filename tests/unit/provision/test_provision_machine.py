"""Java, uv and the scopes: what is found on a machine, and what a person is told when it is not
there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from provision import environment, java, servers
from provision.__main__ import main

ROOT = Path(__file__).parents[3]


def java_home(folder: Path, version: str, *tools: str) -> Path:
    """A folder that looks like a Java installation of this version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    for tool in tools:
        (folder / "bin" / tool).touch(mode=0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.1", 25), ("1.8.0_452", 1)]
)
def test_the_release_file_tells_the_feature_release(
    version: str, major: int, tmp_path: Path
) -> None:
    assert java.major_version(java_home(tmp_path / "jdk", version, "java")) == major


def test_a_folder_without_java_is_no_java_home(tmp_path: Path) -> None:
    assert java.major_version(tmp_path / "absent") == 0
    assert java.major_version(java_home(tmp_path / "empty", "17.0.1")) == 0


def test_java_home_is_preferred_when_spark_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = java_home(tmp_path / "jdk", "17.0.1", "java", "javac")
    monkeypatch.setenv("JAVA_HOME", str(ours))
    assert java.find(with_compiler=True) == ours


def test_a_java_too_new_or_without_compiler_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, version, tools in (
        ("new", "25", ("java", "javac")),
        ("runtime", "17.0.1", ("java",)),
    ):
        unfit = java_home(tmp_path / folder, version, *tools)
        monkeypatch.setenv("JAVA_HOME", str(unfit))
        assert java.find(with_compiler=True) != unfit


def test_who_has_no_java_is_told_what_to_install() -> None:
    assert "openjdk-17-jdk-headless" in java.missing(with_compiler=True)
    assert "openjdk-17-jre-headless" in java.missing(with_compiler=False)


def test_who_has_no_database_server_is_told_what_to_install() -> None:
    assert servers.POSTGRESQL_MISSING.endswith("`sudo apt-get install postgresql`).")
    assert servers.REDIS_MISSING.endswith("`sudo apt-get install redis-server`).")


def test_the_stamp_changes_with_lock_and_dependencies_but_not_with_lint_rules(
    tmp_path: Path,
) -> None:
    lock, project = tmp_path / "uv.lock", tmp_path / "pyproject.toml"
    lock.write_text("version = 1\n")
    project.write_text('[project]\nname = "a"\n[tool.ruff]\nline-length = 100\n')
    first = environment.lock_stamp(tmp_path)
    project.write_text('[project]\nname = "a"\n[tool.ruff]\nline-length = 90\n')
    assert environment.lock_stamp(tmp_path) == first
    project.write_text('[project]\nname = "a"\ndependencies = ["rich"]\n')
    assert environment.lock_stamp(tmp_path) != first
    project.write_text('[project]\nname = "a"\n')
    lock.write_text("version = 2\n")
    assert environment.lock_stamp(tmp_path) != first


def test_a_package_index_set_for_uv_or_pip_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    assert environment.configured_index() == "https://mirror.example/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://nearer.example/simple")
    assert environment.configured_index() == "https://nearer.example/simple"


def test_the_python_that_runs_set_up_must_be_new_enough() -> None:
    source = (ROOT / "provision" / "__main__.py").read_text()
    check, imports = source.index("sys.version_info <"), source.index("from provision import")
    assert check < imports


def test_an_unknown_scope_is_refused_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["everything"]) == 2
    assert "run|test" in capsys.readouterr().err


def test_a_second_set_up_needs_no_network_and_says_where_it_is() -> None:
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "provision", "test"],
        cwd=ROOT,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "set-up: ready in" in done.stdout
    assert "fetching" not in done.stdout
    assert "installing the locked" not in done.stdout
