"""Java, uv and the scopes: what is found on a machine, and what a person reads when it is not
there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from provision import environment, java, servers
from provision.__main__ import main
from tests.second_set_up import set_up_again

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
def test_the_release_file_says_the_feature_release(
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


def test_who_has_no_java_sees_what_to_install() -> None:
    assert "openjdk-17-jdk-headless" in java.missing(with_compiler=True)
    assert "openjdk-17-jre-headless" in java.missing(with_compiler=False)


def test_who_has_no_server_for_tests_sees_what_to_install() -> None:
    assert servers.POSTGRESQL_MISSING.endswith("`sudo apt-get install postgresql`).")
    assert servers.REDIS_MISSING.endswith("`sudo apt-get install redis-server`).")
    assert servers.ALERTMANAGER_MISSING.endswith("`sudo apt-get install prometheus-alertmanager`).")
    assert servers.PROMTOOL_MISSING.endswith("`sudo apt-get install prometheus`).")


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
    assert "python|run|rocketmq|test|slow" in capsys.readouterr().err


def test_a_second_set_up_of_python_needs_no_network_and_says_where_it_is() -> None:
    said = set_up_again("python")
    assert f"({ROOT})" in said.partition("set-up: ready in")[2]
    assert "fetching" not in said
    assert "installing" not in said


def test_what_is_fetched_has_a_hash_that_is_written_down_here() -> None:
    """uv by its list, everything else by the lock; what builds is locked and comes first."""
    lines = environment.UV_REQUIREMENTS.read_text().splitlines()
    requirements = [line for line in lines if line and not line.startswith(("#", "    --hash="))]
    assert len(requirements) == 1
    name, _, version = requirements[0].removesuffix(" \\").partition("==")
    assert name == "uv"
    assert tuple(map(int, version.split(".")[:2])) >= environment.UV_OLDEST
    hashes = [line for line in lines if line.startswith("    --hash=sha256:")]
    assert len(hashes) > 1, "one for each platform"
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    locked = {package["name"]: package for package in lock["package"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    builders = {re.split(r"[<>=]", one)[0] for one in project["dependency-groups"]["build"]}
    wanted = {re.split(r"[<>=]", one)[0] for one in project["build-system"]["requires"]}
    assert wanted <= builders, "what builds this project"
    assert all(locked[builder]["wheels"] for builder in builders), "nothing builds the builders"
    built = {name for name, one in locked.items() if "sdist" in one and not one.get("wheels")}
    assert built == {"pyspark"}, "setuptools, which is among the builders, builds it"
    for name, package in locked.items():
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        assert all(one["hash"].startswith("sha256:") for one in files), name


@pytest.mark.parametrize("index", ["", "https://mirror.example/simple"])
def test_what_builds_is_installed_first_and_nothing_is_built_in_an_environment_of_its_own(
    tmp_path: Path, index: str
) -> None:
    project, commands = tmp_path / "project", tmp_path / "commands"
    shutil.copytree(ROOT / "provision", project / "provision")
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, project / name)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo uv 0.13.9 && exit\n'
        f'mkdir -p .venv .cache; echo "$@" >> {commands}\n'
    )
    uv.chmod(0o755)
    others_set = {"UV_INDEX_URL", "PIP_INDEX_URL", "UV_DEFAULT_INDEX"}
    machine = {name: value for name, value in os.environ.items() if name not in others_set}
    machine |= {"PATH": f"{uv.parent}:{machine['PATH']}", "PIP_CONFIG_FILE": os.devnull}
    subprocess.run(
        [sys.executable, "-c", "from provision import environment; environment.ensure()"],
        cwd=project,
        env=machine | ({"UV_DEFAULT_INDEX": index} if index else {}),
        check=True,
    )
    first, *others = [
        line.split()
        for line in commands.read_text().splitlines()
        if line.startswith(("sync", "pip sync", "pip install"))
    ]
    assert "--no-build" in first or "--only-binary" in first, "the builders are not built"
    assert others
    assert all("--no-build-isolation" in words for words in others)
    for words in (first, *others):
        if words[:2] == ["pip", "install"]:
            assert "--no-deps" in words, "the project alone, which is built here"
        else:
            assert ("--require-hashes" if words[0] == "pip" else "--frozen") in words
            assert not [word for word in words if "verify-hashes" in word]


def test_uv_is_installed_from_the_hashes_that_are_written_down_here(tmp_path: Path) -> None:
    """A `venv` and an `ensurepip` that lie before Python's own; the pip of the first notes what it
    is asked for.
    """
    project, commands, modules = tmp_path / "project", tmp_path / "commands", tmp_path / "modules"
    shutil.copytree(ROOT / "provision", project / "provision")
    (project / ".cache").mkdir()
    modules.mkdir()
    (modules / "ensurepip.py").touch()
    (modules / "venv.py").write_text(
        "import pathlib, sys\n"
        "if __name__ == '__main__':\n"
        "    python = pathlib.Path(sys.argv[1], 'bin', 'python')\n"
        "    python.parent.mkdir(parents=True)\n"
        f'    python.write_text(\'#!/bin/sh\\nprintf "%s\\\\n" "$@" >> {commands}\\n\')\n'
        "    python.chmod(0o755)\n"
    )
    subprocess.run(
        [sys.executable, "-c", "from provision import environment; environment.install_uv()"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(modules)},
        check=True,
    )
    words = commands.read_text().splitlines()
    assert words[:3] == ["-m", "pip", "install"]
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(words)
    written_down = str(project / "provision" / environment.UV_REQUIREMENTS.name)
    asked_for = [word for word in words[3:] if not word.startswith("-") and word != ":all:"]
    assert asked_for == [written_down], "nothing beside the list with the hashes"
    assert words[words.index(written_down) - 1] == "-r"
