"""Uses uv to create the virtual environment `.venv` from uv.lock.

uv is taken from PATH when it is new enough, else installed into a small environment of its own
below `.cache`.

Invariant: `.venv` carries a stamp of the lock it was made from. An equal stamp means nothing to do,
so a second run neither starts uv nor needs a network. Nothing is taken whose hash is not in this
repository: uv's are in UV_REQUIREMENTS, all others in the lock, those of the build back-ends too.
Therefore these come first, and what is built is built with them, never in an environment that an
installer fills by itself. Absent on purpose: the bytes of pip, which come with Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from provision.errors import ProvisionError
from provision.places import CACHE, ROOT, VENV
from provision.shell import can_install_system_packages, install_system_package, run, say

UV_OLDEST = (0, 8)  # The first line whose reading of this lock's revision was tried.
UV_REQUIREMENTS = ROOT / "provision" / "uv-requirements.txt"
STAMP = VENV / "tidemark.lock-stamp"
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def ensure() -> None:
    """Make `.venv` equal to uv.lock; do nothing when it already is."""
    wanted = lock_stamp()
    if installed_stamp() == wanted:
        return
    uv = find_uv()
    say("installing the locked packages into .venv (about a minute the first time)")
    index = configured_index()
    if index is None:
        locked = ("sync", "--frozen", "--python", sys.executable)
        uv_run(uv, *locked, "--only-group", "build", "--no-build")
        uv_run(uv, *locked, "--all-groups", "--no-build-isolation")
    else:
        install_from(index, uv)
    STAMP.write_text(wanted)


def install_from(index: str, uv: Path) -> None:
    """Install the locked versions, with the lock's hashes, from the user's own package index.

    `uv sync` would take the files from the addresses in the lock, which a machine that has a
    mirror configured may not reach.
    """
    builders, locked = CACHE / "build-requirements.txt", CACHE / "requirements.txt"
    export = ("export", "--frozen", "--no-emit-project", "--quiet")
    uv_run(uv, *export, "--only-group", "build", "--output-file", str(builders))
    uv_run(uv, *export, "--all-groups", "--output-file", str(locked))
    uv_run(uv, "venv", "--allow-existing", "--python", sys.executable, str(VENV))
    into = ("--python", str(VENV / "bin" / "python"), "--default-index", index)
    hashed = ("--require-hashes", "--no-build-isolation")
    uv_run(uv, "pip", "sync", *into, *hashed, "--only-binary", ":all:", str(builders))
    uv_run(uv, "pip", "sync", *into, *hashed, str(locked))
    uv_run(uv, "pip", "install", *into, "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def configured_index() -> str | None:
    """The package index the user has set for uv or pip, None when it is the default one."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if address := os.environ.get(name):
            return address
    ask = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def uv_run(uv: Path, *arguments: str) -> None:
    """Run uv in the project folder with the environment it needs."""
    run(
        [uv, *arguments],
        cwd=ROOT,
        environment=uv_environment(),
        failure="uv could not install the locked packages",
    )


def lock_stamp(root: Path = ROOT) -> str:
    """Digest of what decides the environment's contents: lock, project, Python, place."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    project.pop("tool", None)  # Settings of linters and tests do not change what is installed.
    digest = hashlib.sha256((root / "uv.lock").read_bytes())
    digest.update(f"{project} {sys.version_info[:3]} {root}".encode())
    return digest.hexdigest()


def installed_stamp() -> str | None:
    """Stamp of the environment that is there, or None when it is absent or its Python does not
    start.
    """
    try:
        stamp = STAMP.read_text()
        subprocess.run([VENV / "bin" / "python", "-c", ""], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return stamp


def uv_environment() -> dict[str, str]:
    """Environment for uv: this project's `.venv`, our Python, the machine's certificates.

    uv's built-in certificate list would fail behind a company's own authority, the machine's list
    would fail on an image without ca-certificates; hence the look. Bytecode is compiled at once: it
    takes 11 s here and saves two thirds of the start of each of the demo's processes.
    """
    environment = dict(os.environ, UV_PROJECT_ENVIRONMENT=str(VENV), UV_PYTHON_DOWNLOADS="never")
    environment["UV_COMPILE_BYTECODE"] = "1"
    environment.pop("VIRTUAL_ENV", None)
    if SYSTEM_CERTIFICATES.exists():
        environment.setdefault("UV_SYSTEM_CERTS", "1")  # Its name in newer uv,
        environment.setdefault("UV_NATIVE_TLS", "1")  # and in older.
    return environment


def find_uv() -> Path:
    """A usable uv: on PATH, else the project's own, installed now when absent."""
    for candidate in (shutil.which("uv"), CACHE / "uv" / "bin" / "uv"):
        if candidate is not None and uv_version(Path(candidate)) >= UV_OLDEST:
            return Path(candidate)
    return install_uv()


def uv_version(uv: Path) -> tuple[int, ...]:
    """Version of this uv, (0,) when it does not run."""
    try:
        answer = subprocess.run(
            [uv, "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    found = re.match(r"uv (\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else (0,)


def install_uv() -> Path:
    """Install uv into an environment of its own, by pip and so with the user's settings."""
    home = CACHE / "uv"
    say("installing uv into .cache/uv")
    if not can_make_environments():
        if not can_install_system_packages():
            raise ProvisionError(
                "Python's venv module is not complete on this machine: install it "
                "(Debian and Ubuntu: `sudo apt-get install python3-venv`) or put uv on PATH, "
                "then run make again."
            )
        install_system_package(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")
    shutil.rmtree(home, ignore_errors=True)
    run([sys.executable, "-m", "venv", home], failure="python -m venv failed")
    run(
        [
            *(home / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "--require-hashes", "-r", UV_REQUIREMENTS),
        ],
        failure="pip could not install uv",
    )
    return home / "bin" / "uv"


def can_make_environments() -> bool:
    """Whether `python -m venv` brings pip: Debian splits ensurepip off into python3-venv."""
    probe = subprocess.run(
        [sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False
    )
    return probe.returncode == 0
