"""Planted bugs: reads them, plants each in a copy of the project, and judges its tests.

Each row of docs/rows.md has a bug that somebody could well write, and the tests that must notice
it. A row whose bug nobody notices has no test, whatever its tests are called.

    [[mutant]]
    row = "C7"
    says = "an answer leaves before its bytes are synced"
    file = "engine/store/upkeep/flush.py"
    find = "exact text, found once in the file"
    replace = "the broken text"
    tests = ["tests/integration/store/test_failing_disk.py::test_one_sync_serves_every_waiter"]

A test that fails without the bug as well proves nothing: each one that failed is run once more on
the copy made whole.
Invariant: the project itself is never changed; a copy is, and is made whole again afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.mutants.judging import FAILED_FIRST

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutants"
SECONDS_MAX = 600
"""A run of tests that takes longer has noticed something: it is stopped and counts as caught."""
TEST_SECONDS_MAX = 60
"""A test that names no limit of its own hangs when it takes longer."""
SHARED = (".venv", ".cache")
"""Brought by set-up, too large to copy, never changed by a mutant: linked."""
LEFT_OUT = (".git", "var", "dist", "__pycache__", ".hypothesis", ".*_cache")
KEYS = {"row", "says", "file", "find", "replace", "tests"}

CAUGHT, SURVIVED, BROKEN = "caught", "SURVIVED", "BROKEN"
UNPROVEN = "UNPROVEN"
"""The test that failed fails without the bug, too."""
_FAILED_TESTS, _ALL_PASSED = 1, 0  # Exit codes of pytest; the others mean that nothing was tested.


@dataclass(frozen=True)
class Mutant:
    """One planted bug and the tests that must fail because of it."""

    topic: str
    row: str
    says: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def fault(self, root: Path) -> str:
        """What is wrong with this entry, in words; empty when it can be planted below `root`."""
        path = root / self.file
        if not path.is_file():
            return f"there is no file {self.file}"
        count = path.read_text(encoding="utf-8").count(self.find)
        if count != 1:
            return f"`find` stands {count} times in {self.file}, not once: {self.find!r}"
        if self.find == self.replace:
            return "`replace` changes nothing"
        missing = [test for test in self.tests if not (root / test.partition("::")[0]).is_file()]
        return f"there is no {missing[0]}" if missing or not self.tests else ""


@dataclass(frozen=True)
class Verdict:
    """What the tests said."""

    mutant: Mutant
    outcome: str
    seconds: float
    detail: str = ""
    failed: str = ""
    """The first test that failed; empty when none did, or all took too long."""


def read_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Every entry of every `*.toml` in the folder. Raises ValueError naming a malformed one."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for number, entry in enumerate(tomllib.loads(path.read_text())["mutant"], start=1):
            if entry.keys() != KEYS:
                wrong = sorted(entry.keys() ^ KEYS)
                raise ValueError(f"{path.name}, mutant {number}: missing or unknown {wrong}")
            found.append(Mutant(path.stem, **entry | {"tests": tuple(entry["tests"])}))
    return found


def copy_project(source: Path, target: Path) -> None:
    """Copy what tests need; the environment and its downloads are linked."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT, *SHARED))
    for name in SHARED:
        if (source / name).exists():
            (target / name).symlink_to(source / name)


@dataclass(frozen=True)
class Run:
    """What pytest did."""

    code: int | None
    """Its exit code; None: too slow."""
    said: str
    """The end of what it said."""
    failed: str = ""
    """The first test that failed."""


def run_tests(copy: Path, tests: Sequence[str]) -> Run:
    """Run tests inside a copy, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "--timeout"]
    command += [str(TEST_SECONDS_MAX), "-p", "tests.mutants.judging"]
    for not_needed in ("cacheprovider", "dash", "anyio"):
        command += ["-p", f"no:{not_needed}"]
    with tempfile.TemporaryDirectory(prefix="tidemark-mutant-") as folder:
        note = Path(folder) / "failed-first"
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=copy,
                env=os.environ | {"PYTHONPATH": str(copy), FAILED_FIRST: str(note)},
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(None, f"stopped after {SECONDS_MAX} s")
        failed = note.read_text(encoding="utf-8") if note.exists() else ""
    return Run(done.returncode, (done.stdout + done.stderr)[-3000:], failed)


_PLANTINGS = count(1)


@contextmanager
def planted(mutant: Mutant, copy: Path) -> Iterator[None]:
    """The copy with the bug in it.

    Compiled modules are known by the seconds of their source's age: each planting has its own, so
    that none runs as the one before it.
    """
    path = copy / mutant.file
    whole, age = path.read_text(encoding="utf-8"), path.stat().st_mtime
    try:
        path.write_text(whole.replace(mutant.find, mutant.replace), encoding="utf-8")
        os.utime(path, (age, age + next(_PLANTINGS)))
        yield
    finally:
        path.write_text(whole, encoding="utf-8")
        os.utime(path, (age, age))


def judge(mutant: Mutant, copy: Path) -> Verdict:
    """Plant the bug in the copy, run its tests, take the bug out again."""
    begun = time.monotonic()
    fault = mutant.fault(copy)
    if fault:
        return Verdict(mutant, BROKEN, 0.0, fault)
    with planted(mutant, copy):
        run = run_tests(copy, mutant.tests)
    seconds = time.monotonic() - begun
    if run.code in {_FAILED_TESTS, None}:
        return Verdict(mutant, CAUGHT, seconds, run.said, run.failed)
    return Verdict(mutant, SURVIVED if run.code == _ALL_PASSED else BROKEN, seconds, run.said)


def fail_anyway(copy: Path, tests: Sequence[str]) -> dict[str, str]:
    """Those of the tests that fail on a copy without a bug → what pytest said of them."""
    left = list(tests)
    found: dict[str, str] = {}
    while left:
        run = run_tests(copy, left)
        if run.code == _ALL_PASSED:
            break
        if run.failed not in left:  # A hook, an import, the time: who it was cannot be said.
            return found | dict.fromkeys(left, run.said)
        found[run.failed] = run.said
        left.remove(run.failed)
    return found
