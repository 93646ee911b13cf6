"""Several processes share the suite file by file: a set-up that a file shares is made once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "tests/unit/foundation/test_java_properties.py",
    "tests/unit/foundation/test_log_floods.py",
)


def test_no_file_is_split_between_processes() -> None:
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", *FILES]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    processes = defaultdict(set)
    for process, file in re.findall(r"^\[(gw\d)\].* PASSED (\S+?)::", run.stdout, re.MULTILINE):
        processes[file].add(process)
    assert sorted(processes) == sorted(FILES)
    assert [len(of_file) for of_file in processes.values()] == [1, 1], processes
