"""One seed, many seeds or the suite's own: read in one place, the same for every seeded story."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import range_of, seeds
from tests.simulation.__main__ import SEEDS_A_SHARE, shares

ROOT = Path(__file__).resolve().parents[3]
STORIES = ROOT / "tests" / "simulation"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, range(20)),
        ({"TIDEMARK_SEED": "137"}, range(137, 138)),
        ({"TIDEMARK_SEEDS": "500"}, range(500)),
        ({"TIDEMARK_SEEDS": "100-199"}, range(100, 200)),
        ({"TIDEMARK_SEEDS": "7-7"}, range(7, 8)),
    ],
    ids=str,
)
def test_the_seeds_are_those_asked_for_or_the_suite_s(
    environment: dict[str, str], expected: range
) -> None:
    assert seeds(environment, 20) == expected


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TIDEMARK_SEED": "x"}, "TIDEMARK_SEED=x: a seed is a number"),
        ({"TIDEMARK_SEED": "-1"}, "TIDEMARK_SEED=-1: a seed is a number"),
        ({"TIDEMARK_SEEDS": "many"}, "seeds 'many': give how many, 500, or a range, 100-199"),
        ({"TIDEMARK_SEEDS": ""}, "seeds '': give how many"),
        ({"TIDEMARK_SEEDS": "0"}, "seeds '0': there is none of them"),
        ({"TIDEMARK_SEEDS": "9-3"}, "seeds '9-3': there is none of them"),
        ({"TIDEMARK_SEED": "1", "TIDEMARK_SEEDS": "2"}, "give one of them"),
    ],
    ids=str,
)
def test_what_is_no_seed_is_refused_with_what_to_give(
    environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        seeds(environment, 20)


@pytest.mark.parametrize("text", ["1", "25", "26", "500", "100-199", "490-517"])
def test_shares_play_every_seed_once_and_the_unseeded_stories_once(text: str) -> None:
    cut = shares(range_of(text))
    played = [seed for share in cut if share.seeds is not None for seed in share.seeds]
    assert played == list(range_of(text))
    assert [share.seeds for share in cut].count(None) == 1
    assert all(share.seeds is None or len(share.seeds) <= SEEDS_A_SHARE for share in cut)


def test_every_story_with_a_seed_plays_the_seeds_asked_for() -> None:
    """What a file of the simulation calls a seed comes from here, and so is in `make sim`."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    asked = subprocess.run(
        [*command, "-m", "seeded", str(STORIES)],
        cwd=ROOT,
        env={**os.environ, "TIDEMARK_SEEDS": "731-732", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    collected = re.findall(r"::(test_\w+)\[\D*(\d+)", asked)
    assert {seed for _, seed in collected} == {"731", "732"}
    with_a_seed = {
        name
        for path in STORIES.glob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(\s*seed: int", path.read_text())
    }
    assert {name for name, _ in collected} == with_a_seed


def test_nobody_else_reads_the_variables() -> None:
    reading = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r'environ(\.get\(|\[)"TIDEMARK_SEED', path.read_text())
    ]
    assert reading == []
