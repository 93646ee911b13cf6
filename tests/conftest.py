"""What every test shares: the order of the folders, and the Java that set-up found.

Order: what fails fast runs first, and the tests that use Spark run as one block, so that they share
one session and its memory is gone before browsers and notebooks start. When several
processes share the suite, each takes whole files, and one of them all that share a dear set-up.

Properties get the same examples each time, so that a run tells of the commit alone; `make explore`
draws others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from provision import chromium
from tests.asynchronous import run_async_test

TESTS = Path(__file__).parent
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("same")
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
TOGETHER = ("integration/demo", "interop", "dashboards")
"""Folders whose tests share a set-up too dear for two: a played demo, a cluster, servers."""
FIRST = TOGETHER[:2]
"""Those that begin; the browser stays last, for its driver keeps a loop of its own running."""


BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)


def pytest_configure(config: pytest.Config) -> None:
    """Give Spark and every process a test starts the Java and the commands of `.venv`."""
    if hasattr(
        config, "workerinput"
    ):  # Or PySpark takes a process without a main file for its own.
        sys.modules["__main__"].__file__ = pytest.__file__
    environment = Path(sys.prefix)
    if (environment / "java-home").exists():
        os.environ["JAVA_HOME"] = str((environment / "java-home").resolve())
    os.environ["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by folder; tests that ask for the fixture `spark` go with those of tests/pipelines."""
    items.sort(key=_place)
    if hasattr(config, "workerinput"):  # One of several processes.
        shares = {item: _share(item) for item in items}
        for item, share in shares.items():
            item.add_marker(pytest.mark.xdist_group(share))
        items.sort(key=lambda item: shares[item] not in FIRST)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests may be async functions."""
    return run_async_test(pyfuncitem)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The machine's Chromium; a page test fails, and never passes silently, without one."""
    found = chromium.find()
    if found is None:
        pytest.fail(chromium.MISSING)
    return found


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator[Browser]:
    """That Chromium, driven by Playwright: one for all, for a second driver beside it fails."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium_path, args=list(BROWSER_ARGUMENTS)
        )
        yield launched
        launched.close()


def _place(item: pytest.Item) -> int:
    if "spark" in getattr(item, "fixturenames", ()):
        return ORDER.index("pipelines")
    folder = item.path.relative_to(TESTS).parts[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def _share(item: pytest.Item) -> str:
    """What goes to one process as a whole."""
    place = item.path.relative_to(TESTS).as_posix()
    return next((folder for folder in TOGETHER if place.startswith(folder + "/")), place)
