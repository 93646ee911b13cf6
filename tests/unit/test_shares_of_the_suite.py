"""Several processes share the suite file by file: a set-up that a file shares is made once. One of
three takes what mostly waits, so that two processors have as much to compute as they can.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.conftest import share_for

ROOT = Path(__file__).parents[2]
FILES = (
    "tests/unit/foundation/test_java_properties.py",
    "tests/unit/foundation/test_log_floods.py",
)


def test_one_of_three_takes_what_waits_first_and_the_others_take_that_last() -> None:
    left = ["integration/demo", "unit/a.py", "pipelines/test_troubles_live.py", "unit/b.py"]
    taken = []
    while (share := share_for(left, waits=True)) is not None:
        left.remove(share)
        taken.append(share)
    waiting = ["integration/demo", "pipelines/test_troubles_live.py"]
    assert taken == [*waiting, "unit/b.py", "unit/a.py"]
    assert share_for(["integration/demo", "unit/a.py"], waits=False) == "unit/a.py"
    assert share_for(["interop", "unit/b.py"], waits=False) == "unit/b.py"
    assert share_for(["interop"], waits=False) == "interop"


def test_all_is_run_by_three_and_no_file_is_split_between_them() -> None:
    files = (*FILES, "tests/integration/client/test_unreadable_bodies.py")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "3", *files]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    processes = defaultdict(set)
    for process, file in re.findall(r"^\[(gw\d)\].* PASSED (\S+?)::", run.stdout, re.MULTILINE):
        processes[file].add(process)
    assert sorted(processes) == sorted(files)
    assert [len(of_file) for of_file in processes.values()] == [1, 1, 1], processes
    assert processes[files[-1]] == {"gw2"}
