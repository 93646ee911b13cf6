"""A damaged file of a lake is one sentence on standard error, whichever command meets it: no trace
of Python or Java, and no name of a class."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from pipelines import tm
from tests.pipelines.cluster_story import ClusterStory
from tests.pipelines.in_process import SHORT, driver_of, run_to_the_end

TIDEMARK = str(Path(sys.executable).parent / "tidemark")
FIGURES = ("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms))
RUN = ("pipeline", "run", *FIGURES, "--no-upkeep", "--checks-every", "0")
TO_THE_END = ("--to", "2026-03-01T12:01", "--into", "INTO")
PERIOD = ("--period", "custom", "--from", "2026-03-01T12:00", "--to", "2026-03-01T12:05")
FILES = {
    "plans": "state/plans/**/*.parquet",
    "state": "state/keyed/**/*.state",
    "bronze": "bronze/group_watermarks/**/*.parquet",
    "gold": "gold/consumer_lag/**/*.parquet",
}
NOISE = re.compile(
    r"Traceback|^\s+(at|File) |\bException\b|Error: |\bWARN\b|\bERROR\b", re.MULTILINE
)
BEGINNING = re.compile(
    r"(?m)^(WARNING: Using incubator modules|.* WARN NativeCodeLoader: |Using Spark's default log4j"
    r"|Setting default log level|To adjust logging level|Setting Spark log level).*\n+"
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with its gold, and facts that no cycle has taken."""
    lake = tmp_path_factory.mktemp("written") / "lake"
    story = ClusterStory(lake)
    story.group("orders", ["orders-1"])
    story.run(40)
    run_to_the_end(driver_of(lake, evaluation=SHORT))
    story.run(20)
    return lake


@pytest.fixture
def lake(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "lake"))


def damage(lake: Path, kind: str) -> None:
    files = [*lake.glob(FILES[kind])]
    assert files
    for file in files:
        file.write_bytes(bytes(file.stat().st_size))


def said(*command: str) -> tuple[int, list[str]]:
    """Exit code, and the lines on standard error."""
    done = subprocess.run([TIDEMARK, *command], capture_output=True, text=True, check=False)
    return done.returncode, of_ours(done.stderr)


def of_ours(written: str) -> list[str]:
    """Without what Java says of itself when it begins."""
    assert NOISE.search(BEGINNING.sub("", written)) is None, written
    return BEGINNING.sub("", written).splitlines()


def tries(lake: Path, number: int) -> list[str]:
    """What a run says on standard error until it has tried so often."""
    with subprocess.Popen([TIDEMARK, *RUN, "--lake", str(lake)], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        lines: list[str] = []
        while sum("trying again" in line for line in lines) < number:
            line = run.stderr.readline().decode()
            assert line, lines
            lines.append(line)
        run.terminate()
        assert run.wait(60) == 0
    return of_ours("".join(lines))


@pytest.mark.parametrize("kind", [pytest.param("state", marks=pytest.mark.slow), "bronze"])
def test_a_run_shows_each_try_in_one_line(lake: Path, kind: str) -> None:
    damage(lake, kind)

    lines = tries(lake, 2)

    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(rf"{lake}/{kind}/\S+ is damaged \(.*\): .*; trying again in .* s", line)


# A Spark for each command: all of them end in the same lines of code; the slow ones show it.
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("plans", RUN),
        pytest.param("plans", ("check",), marks=pytest.mark.slow),
        pytest.param("bronze", ("pipeline", "replay", *TO_THE_END), marks=pytest.mark.slow),
        pytest.param("gold", ("check",), marks=pytest.mark.slow),
        pytest.param("gold", ("reports", "run", *PERIOD), marks=pytest.mark.slow),
    ],
    ids=["run-plans", "check-plans", "replay-bronze", "check-gold", "report-gold"],
)
def test_any_other_command_ends_with_one_line(
    lake: Path,
    tmp_path: Path,
    kind: str,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    damage(lake, kind)
    asked = [str(tmp_path / "into") if one == "INTO" else one for one in command]

    code, lines = said(*asked, "--lake", str(lake))

    assert code in (1, 2)
    assert len(lines) == 1
    assert lines[0].startswith(f"tidemark {command[0]}: ")
    assert str(lake) in lines[0]


@pytest.mark.parametrize("kind", ["plans", "gold"])
def test_a_notebook_shows_the_same(lake: Path, kind: str) -> None:
    damage(lake, kind)

    with pytest.raises(LakeError, match=str(lake)) as raised:
        tm.connect(str(lake)).groups()
    assert NOISE.search(str(raised.value)) is None
