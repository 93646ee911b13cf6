"""Provides Spark's non-Python dependencies: Java and the two Delta jars.

Place in the walk: `make` brings them into a working copy and `tidemark setup` for an installed
package; whatever starts Spark asks `ensure` first, so nobody has to know of either.

Invariant: nothing is installed for the whole machine unless somebody runs the set-up; otherwise one
sentence says what root has to install. One process fetches at a time. Absent on purpose: the bar
that shows how far a download is (`commands`): this module is standard library only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision import jars, java
from provision.errors import ProvisionError
from provision.places import CACHE, ROOT, VENV
from provision.shell import run, say


def missing() -> list[str]:
    """What Spark needs and is not here, one phrase each; empty when all is here."""
    found = [] if java.find(with_compiler=False) else [java.missing(with_compiler=False)]
    return found + jars.faults_of(jars.DELTA)


def ensure(*, may_install: bool) -> Path:
    """Bring what is missing and return the home of Java. `may_install`: root may have Java
    installed for the whole machine. Raises ProvisionError, which says what to do.
    """
    with one_at_a_time():
        home = java.ensure(with_compiler=False, may_install=may_install)
        jars.ensure(jars.DELTA, java_home=home)
        remember_classes(home)
    return home


def remember_classes(java_home: Path) -> None:
    """Have Spark's classes archived, so that it starts sooner; without, it starts as well."""
    try:
        run(
            [VENV / "bin" / "python", "-m", "pipelines.lake.archived_start"],
            cwd=ROOT,
            environment={**os.environ, "JAVA_HOME": str(java_home)},
            failure="Spark will start more slowly: its classes could not be archived",
        )
    except ProvisionError as error:
        say(str(error))


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two set-ups at once would write into one folder: the second waits."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
