"""`tidemark pipeline run` as a process: it says when it is ready, and ends cleanly when asked, also
on a machine whose own name no one knows (containers without a hosts file).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

NAMELESS = ("unshare", "-Uru", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "nameless")

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300)


def test_sigterm_to_its_process_group_ends_a_waiting_stream_with_zero(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "tidemark"), "pipeline", "run", "--no-upkeep"]
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [*NAMELESS, *command, "--checks-every", "0", "--lake", str(tmp_path / "lake")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as run,
    ):
        assert run.stdout is not None
        first = run.stdout.readline()
        assert first.startswith(f"ready lake={tmp_path / 'lake'}"), first
        os.killpg(run.pid, signal.SIGTERM)
        assert run.wait(60) == 0
    assert "Traceback" not in (tmp_path / "errors").read_text()


ENDS = """
from pyspark import SparkContext
from pipelines.lake.session import end_java, open_session
context = open_session("local[1]").sparkContext
context.parallelize([1], 1).count()
server = context._accumulatorServer
end_java(SparkContext._gateway.proc)
# As for an object of Java that is collected now.
SparkContext._gateway._gateway_client.send_command("m\\nd\\no0\\ne\\n", retry=False)
server.shutdown()  # Returns when its thread has seen that Java is gone.
"""


# The same end, amid a job, stays in the suite.
@pytest.mark.slow
def test_a_process_that_ends_its_java_says_nothing_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr


ENDS_AMID_A_JOB = """
import os, signal, sys, threading, time
from pathlib import Path
from pipelines.lake.session import open_session
begun = Path(sys.argv[1])
def slow(batches):
    for batch in batches:
        begun.touch()
        time.sleep(0.2)
        yield batch
def end_soon():
    while not begun.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
session = open_session("local[2]")
threading.Thread(target=end_soon, daemon=True).start()
session.range(0, 400, 1, 400).mapInArrow(slow, "id long").count()
"""


def test_a_process_that_ends_amid_a_job_says_nothing_of_its_tasks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AMID_A_JOB, str(tmp_path / "begun")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " ERROR " not in done.stderr
    assert "Traceback" not in done.stderr
