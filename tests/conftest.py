"""What every test shares: the order of the folders, and the Java that set-up found.

Order: what fails fast runs first, and the tests that use Spark run as one block, so that they share
one session and its memory is gone before browsers and notebooks start.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from provision import chromium

TESTS = Path(__file__).parent
ORDER = (
    "architecture",
    "unit",
    "property",
    "simulation",
    "integration",
    "interop",
    "pipelines",
    "dashboards",
    "notebooks",
)


def pytest_configure() -> None:
    """Give Spark and every process a test starts the Java and the commands of `.venv`."""
    environment = Path(sys.prefix)
    if (environment / "java-home").exists():
        os.environ["JAVA_HOME"] = str((environment / "java-home").resolve())
    os.environ["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by folder; tests that ask for the fixture `spark` go with those of tests/pipelines."""
    items.sort(key=_place)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The machine's Chromium; a page test fails, and never passes silently, without one."""
    found = chromium.find()
    if found is None:
        pytest.fail(chromium.MISSING)
    return found


def _place(item: pytest.Item) -> int:
    if "spark" in getattr(item, "fixturenames", ()):
        return ORDER.index("pipelines")
    folder = item.path.relative_to(TESTS).parts[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)
