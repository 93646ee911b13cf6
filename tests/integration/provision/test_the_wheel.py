"""What `pip install` of our wheel brings: the product runs in an empty folder, without a clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipelines.lake import class_archive
from provision.jars import DELTA
from provision.places import CACHE, ROOT

ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/")
OTHERS = {"3.11", "3.12", "3.13"} - {f"{sys.version_info[0]}.{sys.version_info[1]}"}
FOUND = (shutil.which(f"python{version}") for version in sorted(OTHERS))
PYTHONS = [sys.executable, *filter(None, FOUND)]
"""This Python, and each of another version that is on PATH."""


def build(into: Path) -> Path:
    """Build the wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    return wheel


class Installed:
    """An environment that the wheel is installed in, and an empty folder to work in."""

    def __init__(self, root: Path, python: Path | str) -> None:
        self.environment = root / "environment"
        self.folder = root / "empty"
        self.folder.mkdir()
        self.cache = root / "cache"
        subprocess.run([python, "-m", "venv", "--without-pip", self.environment], check=True)
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEMARK_", "PYTHON"))
        }
        self.variables["TIDEMARK_CACHE"] = str(self.cache)

    @property
    def packages(self) -> Path:
        (found,) = self.environment.glob("lib/python3*/site-packages")
        return found

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `tidemark` in the folder."""
        return subprocess.Popen(
            [self.environment / "bin" / "python", "-m", "tidemark", *arguments],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run `tidemark` to its end; the exit code and what it printed."""
        with self.start(*arguments) as process:
            printed, _ = process.communicate()
            return process.returncode, printed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel beside the packages of this environment, which a path names: seconds, not minutes.
    The jars are copied, so that nothing is fetched.
    """
    root = tmp_path_factory.mktemp("wheel")
    made = Installed(root, sys.executable)
    with zipfile.ZipFile(build(root)) as wheel:
        wheel.extractall(made.packages)
    (made.packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield made
    shutil.rmtree(root)


def test_built_twice_it_has_the_same_bytes(tmp_path: Path) -> None:
    first, again = (build(tmp_path / name).read_bytes() for name in ("first", "again"))
    assert first == again


def test_a_missing_jar_is_named_and_found_once_it_is_there(installed: Installed) -> None:
    code, printed = installed.run("setup", "--check")
    assert (code, "missing: delta-storage-4.4.0.jar is missing" in printed) == (1, True), printed
    shutil.copytree(DELTA.folder, installed.cache / "delta-4.4.0")
    code, printed = installed.run("setup", "--check")
    assert (code, "missing" in printed) == (0, False), printed
    assert str(installed.cache / "delta-4.4.0") in printed


def test_the_lab_opens_copies_of_the_notebooks_and_keeps_what_was_changed(
    installed: Installed,
) -> None:
    shutil.copytree(DELTA.folder, installed.cache / "delta-4.4.0", dirs_exist_ok=True)
    for archive in class_archive.FOLDER.glob(class_archive.PATTERN):  # Half a minute to make.
        (installed.cache / archive.name).symlink_to(archive)
    own = installed.folder / "notebooks"
    own.mkdir()
    (own / "00_tour.ipynb").write_text("mine")
    with installed.start("lab", "--no-browser", "--port", "0") as lab:
        try:
            assert lab.stdout is not None
            address = next(filter(None, map(ADDRESS.search, lab.stdout)))[1]
            assert httpx.get(f"{address}/api").json()["version"]
        finally:
            lab.kill()
    found = {path.relative_to(ROOT) for path in (ROOT / "notebooks").rglob("*.ipynb")}
    shipped = {path for path in found if ".ipynb_checkpoints" not in path.parts}
    assert {path.relative_to(installed.folder) for path in own.rglob("*.ipynb")} == shipped
    assert (own / "00_tour.ipynb").read_text() == "mine"
    json.loads((own / "investigate" / "lag.ipynb").read_text())


def test_it_brings_the_rules_that_are_shipped(installed: Installed) -> None:
    code, printed = installed.run("alerts", "check", "--help")
    assert code == 0, printed
    with_data = {".toml", ".ipynb", ".xml", ".txt", ".css", ".js", ".j2", ".sql"}
    rooms = ("engine", "pipelines", "dashboards", "expectations", "demo", "provision", "notebooks")
    listed = subprocess.run(
        ["git", "ls-files", *rooms], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    data = [name for name in listed if Path(name).suffix in with_data]
    assert [name for name in data if not (installed.packages / name).is_file()] == []


@pytest.mark.slow  # Installs all packages for each Python, and plays the demo on each.
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_demo_plays_in_an_empty_folder(tmp_path: Path, python: str) -> None:
    uv = shutil.which("uv") or CACHE / "uv" / "bin" / "uv"
    made = Installed(tmp_path, python)
    locked = tmp_path / "locked.txt"
    export = ("export", "--frozen", "--no-emit-project", "--no-dev", "--no-hashes", "--quiet")
    subprocess.run([uv, *export, "--output-file", locked], cwd=ROOT, check=True)
    target = ("--python", made.environment / "bin" / "python")
    subprocess.run(
        [uv, "pip", "install", "--quiet", *target, "-c", locked, build(tmp_path)], check=True
    )
    code, printed = made.run("demo", "--headless", "--for", "90", "--port", "0")
    assert code == 0, printed
    assert (made.cache / "delta-4.4.0").is_dir(), "fetched at first need"
