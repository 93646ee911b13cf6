"""Runs an external command quietly, and reports its last output lines if it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from provision.errors import ProvisionError

TAIL_LINES = 15


def say(text: str) -> None:
    """Print what is going on, beside the output of a command: steps can take a minute."""
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    *,
    failure: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run `command`, return its output; else raise ProvisionError opening with `failure`."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(environment) if environment is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ProvisionError(f"{failure} ({command[0]}: {error.strerror})") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-TAIL_LINES:])
        raise ProvisionError(f"{failure} (exit code {done.returncode})\n{tail}")
    return done.stdout


def can_install_system_packages() -> bool:
    """True for root on a Debian or Ubuntu; anybody else gets a list of what to install."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_system_package(name: str) -> None:
    """Install one Debian package, refreshing the package lists first when they do not know it."""
    say(f"installing {name} with apt-get")
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", name]
    try:
        run(command, environment=quiet, failure=f"apt-get could not install {name}")
    except ProvisionError:  # Lists may be absent (fresh image) or older than the archive.
        run(["apt-get", "update", "-q"], environment=quiet, failure="apt-get update failed")
        run(command, environment=quiet, failure=f"apt-get could not install {name}")
