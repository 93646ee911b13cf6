"""A cycle of a live run dies by SIGKILL at any step of it, and a new driver goes on: gold is what
it would be without that death, in all columns of all tables.

Which steps there are is found, not listed: see `deaths_in_a_cycle`. The suite takes one step of
each kind; `make test-slow` takes them all, which are about 250.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pytest
from deltalake import DeltaTable

from pipelines.cycles.driver import Driver
from pipelines.reading.catalogue import COMPUTED_TABLES
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.in_process import driver_of

ROWS_PER_CYCLE: Final = 500
FEW: Final = (1, 4)
"""Cycles of the story that die in the suite: the first makes the tables and keeps a state."""
MANY: Final = (1, 4, 8)
"""Between them these commit to every table."""


@dataclass(frozen=True, slots=True)
class Life:
    """A cycle that goes undisturbed, and what comes of it."""

    cycle: int
    before: Path
    """A lake in which it is the next cycle."""
    steps: tuple[str, ...]
    tables: frozenset[str]
    """To which it commits rows."""
    after: dict[str, list[str]]
    """All gold once the cycle behind it is done, too."""


class Mortals:
    """Carries out cycles that die."""

    def __init__(self, asked: IO[str], answers: IO[str]) -> None:
        self._asked = asked
        self._answers = answers

    def cycle(self, lake: Path, *, die_at: str | None = None) -> tuple[str, ...]:
        """The steps of the lake's next cycle, which is carried out up to one of them."""
        asked = {"lake": str(lake), "rows_per_cycle": ROWS_PER_CYCLE, "die_at": die_at}
        self._asked.write(f"{json.dumps(asked)}\n")
        self._asked.flush()
        answer = json.loads(self._answers.readline())
        assert answer["died"] == (die_at is not None), f"it did not come to {die_at}"
        return tuple(answer["steps"])


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipelines.deaths_in_a_cycle"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Mortals(process.stdin, process.stdout)
        process.stdin.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(FEW, id="one step of each kind"),
        pytest.param(MANY, id="every step", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def lives(
    request: pytest.FixtureRequest,
    mortals: Mortals,
    fresh_lake: Callable[[], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Life]:
    lake, home = fresh_lake(), tmp_path_factory.mktemp("lives")
    found = []
    for cycle in request.param:
        before = home / f"before-{cycle}"
        if cycle > 1:
            to_cycle(driver_over(lake), cycle - 1)
        shutil.copytree(lake, before)
        watched = home / f"watched-{cycle}"
        shutil.copytree(before, watched)
        steps = mortals.cycle(watched)
        driver = driver_over(lake)
        progress = driver.next_cycle()
        assert progress is not None
        to_cycle(driver, cycle + 1)
        tables = frozenset(progress.gold_rows)
        found.append(Life(cycle, before, steps, tables, everything(lake)))
    return found


def driver_over(lake: Path) -> Driver:
    return driver_of(lake, evaluation=SHORT, rows_per_cycle=ROWS_PER_CYCLE)


def to_cycle(driver: Driver, cycle: int) -> None:
    """Go on until a cycle is done."""
    plans = driver.plans
    while plans.last is None or plans.last.cycle < cycle or not plans.is_done:
        assert driver.next_cycle() is not None


def test_the_steps_that_are_found_are_what_a_cycle_writes_and_in_which_order(
    lives: Sequence[Life],
) -> None:
    for life in lives:
        committed = {step.split("/")[1] for step in life.steps if part_of(step) == "commits"}
        assert committed == life.tables
        assert {step.split("/")[1] for step in life.steps if ".parquet" in step} == life.tables
        parts = [part_of(step) for step in life.steps]
        order = list(dict.fromkeys(parts[parts.index("plans") :]))
        kept = ["snapshots"] if life.cycle == 1 else []
        assert order == ["plans", "files", "keyed", "commits", *kept, "readers"]
        last_commit = len(parts) - parts[::-1].index("commits")
        assert parts[last_commit:].count("plans") == 1, "what is done is recorded behind all gold"
    if len(lives) == len(MANY):
        committed = set().union(*(life.tables for life in lives))
        assert committed == {table.name for table in COMPUTED_TABLES}


def part_of(step: str) -> str:
    """What it is a step of."""
    top, _, rest = step.partition("/")
    if "/_delta_log/" in rest and top == "gold":
        return "commits"
    if "/observed_date=" in rest:
        return "files"
    return rest.split("/")[0].split(" ")[0] if top == "state" and rest else "tables"


def test_a_cycle_that_dies_at_any_step_is_gone_on_with_to_the_same_rows(
    mortals: Mortals, lives: Sequence[Life], tmp_path: Path
) -> None:
    every_step = [(life, step) for life in lives for step in life.steps]
    for life, step in every_step if len(lives) == len(MANY) else one_of_each_kind(lives):
        lake = tmp_path / "lake"
        shutil.copytree(life.before, lake)
        mortals.cycle(lake, die_at=step)
        to_cycle(driver_over(lake), life.cycle + 1)
        assert everything(lake) == life.after, f"cycle {life.cycle} died at: {step}"
        assert twice_committed(lake) == {}, f"cycle {life.cycle} died at: {step}"
        shutil.rmtree(lake)


def one_of_each_kind(lives: Sequence[Life]) -> list[tuple[Life, str]]:
    """Kinds are parts of a cycle; its two records are two."""
    by_kind: dict[tuple[str, bool], list[tuple[Life, str]]] = {}
    for life in lives:
        has_committed = False
        for step in life.steps:
            part = part_of(step)
            has_committed = has_committed or part == "commits"
            by_kind.setdefault((part, has_committed), []).append((life, step))
    seeded = random.Random(7)
    return [seeded.choice(steps) for steps in by_kind.values()]


def twice_committed(lake: Path) -> dict[str, list[str]]:
    """Tables with the cycles that they have more than one commit of."""
    found: dict[str, list[str]] = {}
    for table in COMPUTED_TABLES:
        history = DeltaTable(str(lake / "gold" / table.name)).history()
        cycles = [entry["cycle"] for entry in history if "cycle" in entry]
        if len(set(cycles)) < len(cycles):
            found[table.name] = cycles
    return found
