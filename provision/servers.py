"""Finds the servers that tests start, or installs them with apt when run as root.

They are PostgreSQL, Redis, MariaDB, Alertmanager and promtool, for the tests of what speaks to
them, or is checked by them.

Only their programs are used: the tests start servers of their own, on free ports of 127.0.0.1, in
folders of their own. Without them the set-up says so: everything else works, and those tests fail
with a sentence.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from provision.errors import ProvisionError
from provision.shell import can_install_system_packages, install_system_package, say

POSTGRESQL_HOMES = Path("/usr/lib/postgresql")  # Debian keeps initdb off PATH, by version.
MISSING = (
    "no {program}: the tests of what {title} is for here will fail until one is there "
    "(Debian: `sudo apt-get install {package}`)."
)
POSTGRESQL_MISSING = MISSING.format(program="initdb", title="PostgreSQL", package="postgresql")
REDIS_MISSING = MISSING.format(program="redis-server", title="Redis", package="redis-server")
MARIADB_MISSING = MISSING.format(
    program="mariadbd", title="MariaDB", package="mariadb-server-core mariadb-client"
)
ALERTMANAGER_MISSING = MISSING.format(
    program="prometheus-alertmanager", title="Alertmanager", package="prometheus-alertmanager"
)

PROMTOOL_MISSING = MISSING.format(program="promtool", title="Prometheus", package="prometheus")


def ensure() -> None:
    """Install what is missing when we may; otherwise say that it is missing."""
    for find, package, missing in (
        (postgresql_programs, "postgresql", POSTGRESQL_MISSING),
        (redis_server, "redis-server", REDIS_MISSING),
        (mariadb_server, "mariadb-server-core", MARIADB_MISSING),
        (mariadb_dump, "mariadb-client", MARIADB_MISSING),
        (alertmanager, "prometheus-alertmanager", ALERTMANAGER_MISSING),
        (promtool, "prometheus", PROMTOOL_MISSING),
    ):
        if find() is None and can_install_system_packages():
            try:
                install_system_package(package)
            except ProvisionError as refusal:
                say(str(refusal))
        if find() is None:
            say(missing)


def postgresql_programs() -> Path | None:
    """The folder that holds initdb and postgres, or None."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    homes = sorted(POSTGRESQL_HOMES.glob("*/bin"), key=lambda folder: folder.parent.name)
    return next((home for home in reversed(homes) if (home / "initdb").exists()), None)


def redis_server() -> Path | None:
    """The program, or None."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


def mariadb_server() -> Path | None:
    """The program, which Debian keeps off the PATH of most, or None."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/libexec")
    return Path(found) if found else None


def mariadb_dump() -> Path | None:
    """What writes a database of MariaDB as SQL, or None."""
    found = shutil.which("mariadb-dump")
    return Path(found) if found else None


def alertmanager() -> Path | None:
    """The program, by Debian's name or its own, or None."""
    found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    return Path(found) if found else None


def promtool() -> Path | None:
    """What checks and tests files of Prometheus rules, or None."""
    found = shutil.which("promtool")
    return Path(found) if found else None
