"""Shared set-up of all tests: order of folders, shares of processes, Java, a browser.

Order: what fails fast runs first, and the tests that use Spark run as one block, so that they share
one session and its memory is gone before browsers and notebooks start. When several processes share
the suite, each takes whole files, and one of them takes all that share a costly set-up; the longest
files come first and the short ones last, so that no process waits long for another's end. Of three
or more processes, the last one takes only the files that mostly wait for others.

Properties get the same examples each time, so that a run depends on the commit alone; `make
explore` draws others.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser, sync_playwright
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from provision import chromium
from tests.asynchronous import run_async_test
from tests.forked_processes import ForkingPopen

if "PYTEST_XDIST_WORKER" in os.environ:
    # Or PySpark takes a process without a main file for its own, and ends it.
    sys.modules["__main__"].__file__ = pytest.__file__

# Polars and delta-rs read them when they are loaded. Tables of tests are small: to hand them from
# thread to thread took a tenth of the CPU time of tests that read and write them.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("TOKIO_WORKER_THREADS", "1")

TESTS = Path(__file__).parent
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("fast", UNTIMED, derandomize=True, max_examples=30)
settings.register_profile("explore", UNTIMED, print_blob=True)
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
TOGETHER = ("integration/demo", "interop")
"""Folders whose tests share a set-up too dear for two: a played demo, a cluster."""
WAITING = (
    "integration/demo",
    "interop",
    "integration/experiment",
    "integration/telemetry",
    "integration/observer",
    "integration/alerting",
    "integration/client",
    "integration/pipelines/test_live_stalls_and_silences.py",
    "pipelines/test_troubles_live.py",
    "pipelines/test_why_behind_live.py",
    "pipelines/test_incidents_live.py",
    "pipelines/test_controls_live.py",
)
"""Folders and files whose tests wait for processes that they start, longer than they compute."""
SHARED_ORDER = (
    *TOGETHER[:2],
    "pipelines",
    "integration",
    "simulation",
    "property",
    "dashboards",
    "notebooks",
    "architecture",
    "unit",
)
"""In which order several processes take their shares: by how long one of them can last."""
NOT_FAST = (
    "architecture/test_style.py",
    "property/alerting",
    "property/pipelines",
    "property/protocol/test_reading_costs.py",
    "property/protocol/test_selector_laws.py",
    "property/protocol/test_wire_laws.py",
    "property/store/test_cuts_and_copies.py",
    "property/store/test_damage_below_the_synced_position.py",
    "property/store/test_store_model.py",
    "property/telemetry/test_frame_codec.py",
    "property/test_hostile_bytes.py",
    "unit/alerting/test_derived_figures.py",
    "unit/alerting/test_rule_files.py",
    "unit/broker/test_steps_over_long_tables.py",
    "unit/expectations",
    "unit/mutants",
    "unit/observer/test_turns.py",
    "unit/pipelines",
    "unit/protocol/test_consume_stats_list.py",
    "unit/provision/test_fast_targets.py",
    "unit/remoting/test_parties_in_memory.py",
    "unit/reports",
    "unit/runtime/test_set_clocks.py",
    "unit/simulation/test_seeds.py",
    "unit/store/test_index_sums.py",
    "unit/telemetry/test_short_logs.py",
    "unit/test_exit_codes.py",
    "unit/test_forked_processes.py",
    "unit/test_shares_of_the_suite.py",
)
"""Folders and files that `--fast` leaves out: three quarters of the CPU time of unit, property and
architecture tests, most of it for lakes that are written and asked.
"""


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


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make test-fast`."""
    parser.addoption("--fast", action="store_true", help="leave out what takes long")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is left out is not even loaded."""
    if not config.getoption("fast") or not collection_path.is_relative_to(TESTS):
        return None
    place = str(collection_path.relative_to(TESTS))
    return any(_is_in(place, dear) for dear in NOT_FAST) or None


def pytest_configure(config: pytest.Config) -> None:
    """Give Spark and every process a test starts the Java and the commands of `.venv`; what they
    compile is kept, or a thousand processes would compile the same rooms, each 0.3 s and more.
    """
    if config.getoption("fast"):
        settings.load_profile("fast")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    environment = Path(sys.prefix)
    if (environment / "java-home").exists():
        os.environ["JAVA_HOME"] = str((environment / "java-home").resolve())
    os.environ["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.Popen = ForkingPopen  # type: ignore[misc, assignment]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's collector from what is loaded meanwhile: a million objects that stay, half a
    second of each of its looks at everything.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by folder; tests that ask for the fixture `spark` go with those of tests/pipelines, and
    files that use the shared RocketMQ come last in their folder.
    """
    late = {item.path for item in items if "apache_rocketmq" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (_place(item), item.path in late))
    if hasattr(config, "workerinput"):  # One of several processes.
        items.sort(key=lambda item: _turn(share_of(item.nodeid)))


class Shares(LoadScopeScheduling):
    """Gives each process whole shares. The marks of groups that xdist has for this are not read
    under pytest 9.2: each test was a share of its own, and each set-up was made by every process.
    """

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Of three processes or more, the last one takes what waits."""
        if self.numnodes > 2:
            waits = node.gateway.id == f"gw{self.numnodes - 1}"
            share = share_for(self.workqueue, waits=waits)
            if share is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(share, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    """Shares are taken in the order of the tests, not by how many tests they have."""
    config.option.loadscopereorder = False
    return Shares(config, log)


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


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """That Chromium, driven by Playwright, for one file: the driver keeps a loop running in its
    process, where no other can run and no second driver can be, until it ends.
    """
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


def share_of(nodeid: str) -> str:
    """What goes to one process as a whole: the test's file, or more."""
    place = nodeid.partition("::")[0].removeprefix(f"{TESTS.name}/")
    return next((folder for folder in TOGETHER if _is_in(place, folder)), place)


def share_for(left: Iterable[str], *, waits: bool) -> str | None:
    """Which of the shares that are left a process takes next. One that `waits` takes those of
    WAITING, and then from the end, where the short ones are; the others take WAITING last.
    """
    by_kind: dict[bool, list[str]] = {True: [], False: []}
    for share in left:
        by_kind[any(_is_in(share, place) for place in WAITING)].append(share)
    others = by_kind[False]
    chosen = [*by_kind[True], *reversed(others)] if waits else [*others, *by_kind[True]]
    return next(iter(chosen), None)


def _turn(share: str) -> int:
    """Where a share stands in SHARED_ORDER."""
    begins = [_is_in(share, place) for place in SHARED_ORDER]
    return begins.index(True) if any(begins) else len(begins)


def _is_in(share: str, place: str) -> bool:
    """Does a share lie in a folder, or is it that folder or file?"""
    return f"{share}/".startswith(f"{place}/")
