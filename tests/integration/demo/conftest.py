"""The demo of the suite goes on stage before the first test, beside the tests that only compute.

It plays for minutes and mostly waits. Its own tests find it played; without tests that compute in
the same run, or with other processes that run them, it begins when they ask for it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.plan import DURATION_S_MIN
from tests.integration.demo.process_list import marked

SEED, DURATION_S = 1, DURATION_S_MIN
RUN_TIMEOUT_S = 900


@dataclass
class Stage:
    """A demo that plays or has played."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def output(self) -> str:
        return (self.folder / "output").read_text()


ON_STAGE = pytest.StashKey[Stage]()


def begin(session: pytest.Session) -> Stage:
    """Start the demo as a user would."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-demo-test-"))
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "demo", "--headless", "--port", "0"]
    command += ["--for", str(DURATION_S), "--seed", str(SEED), "--home", str(folder / "home")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=marked(folder / "home")
        )
    stage = session.stash[ON_STAGE] = Stage(process, folder)
    return stage


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin early when its tests come long after others that leave a processor to it."""
    folders = {item.path.parts[-3:-1] for item in session.items}
    wanted = any("stage" in getattr(item, "fixturenames", ()) for item in session.items)
    computing = any("property" in parts for parts in folders)
    is_alone = not hasattr(session.config, "workerinput")
    if wanted and computing and is_alone and not session.config.option.collectonly:
        begin(session)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End it; what it left stays when a test has failed."""
    stage = session.stash.get(ON_STAGE, None)
    if stage is None:
        return
    if stage.process.poll() is None:
        stage.process.terminate()
        stage.process.wait(60)
    if exitstatus == pytest.ExitCode.OK:
        shutil.rmtree(stage.folder)


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Stage:
    """The demo, played to its end."""
    stage = request.session.stash.get(ON_STAGE, None) or begin(request.session)
    stage.process.wait(RUN_TIMEOUT_S)
    return stage
