"""Finds a JDK for Spark and the interop tests, or installs one with apt when run as root.

Without root it says what to install.

Looked at in order: JAVA_HOME, the one of the last run, PATH, /usr/lib/jvm. The first that Spark
accepts is linked as `java-home`, so that every later command uses the same one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from provision.errors import ProvisionError
from provision.places import IS_CLONE, JAVA_LINK
from provision.shell import can_install_system_packages, install_system_package

OLDEST, NEWEST = 17, 21  # What Spark 4.2 is built and tested for; this project is tested on 17.
PACKAGED_VERSIONS = (17, 21)  # Debian 12 and Ubuntu have 17, Debian 13 has 21.
INSTALLED = Path("/usr/lib/jvm")


def ensure(*, with_compiler: bool, may_install: bool = True) -> Path:
    """Return the home of a usable Java; `with_compiler`: javac too; `may_install`: it may be
    installed for the whole machine.
    """
    home = find(with_compiler=with_compiler)
    if home is None and may_install:
        install(with_compiler=with_compiler)
        home = find(with_compiler=with_compiler)
    if home is None:
        raise ProvisionError(missing(with_compiler=with_compiler))
    if not JAVA_LINK.is_symlink() or JAVA_LINK.resolve() != home:
        JAVA_LINK.parent.mkdir(parents=True, exist_ok=True)
        JAVA_LINK.unlink(missing_ok=True)
        JAVA_LINK.symlink_to(home)
    return home


def find(*, with_compiler: bool) -> Path | None:
    """The first suitable Java home of this machine, or None."""
    for home in candidates():
        suitable = OLDEST <= major_version(home) <= NEWEST
        if suitable and (not with_compiler or (home / "bin" / "javac").exists()):
            return home
    return None


def candidates() -> Iterator[Path]:
    """Java homes in the order a user would expect them to be preferred."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named).resolve()
    if JAVA_LINK.exists():
        yield JAVA_LINK.resolve()
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    if INSTALLED.is_dir():
        yield from sorted({entry.resolve() for entry in INSTALLED.iterdir() if entry.is_dir()})


def major_version(home: Path) -> int:
    """Feature release of a Java home by its `release` file (no JVM is started); 0 when not one."""
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return 0
    if not (home / "bin" / "java").exists():
        return 0
    found = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else 0


def install(*, with_compiler: bool) -> None:
    """Install the oldest accepted OpenJDK of the distribution, if we may."""
    if not can_install_system_packages():
        return
    kind = "jdk" if with_compiler else "jre"
    refusals = []
    for version in PACKAGED_VERSIONS:
        try:
            install_system_package(f"openjdk-{version}-{kind}-headless")
        except ProvisionError as refusal:
            refusals.append(str(refusal))
        else:
            return
    raise ProvisionError("\n".join([missing(with_compiler=with_compiler), *refusals]))


def missing(*, with_compiler: bool) -> str:
    """The sentence for a person who has to install Java."""
    kind = "jdk" if with_compiler else "jre"
    return (
        f"no Java {OLDEST} to {NEWEST}{' with javac' if with_compiler else ''} was found: "
        f"install one (Debian and Ubuntu: `sudo apt-get install openjdk-17-{kind}-headless`, "
        f"or 21) or set JAVA_HOME to it, then run {'make' if IS_CLONE else 'tidemark setup'} again."
    )
