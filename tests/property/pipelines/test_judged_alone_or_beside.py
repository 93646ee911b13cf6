"""A queue is judged alike, whether all queues are looked at with it or only some."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.base.settings import Evaluation
from pipelines.marts.judging.attention import RING, VERDICT, Attention, Moment
from pipelines.marts.judging.news import FIGURES
from pipelines.marts.judging.packed import NEVER, UNKNOWN
from pipelines.marts.mart import Positions

EVALUATION = Evaluation()
TICK_US = 3_000 * EVALUATION.slide_us
QUEUES = 20_000
FLAGS = ("is_broadcast", "is_locked", "is_bad", "is_exposed", "had_members", "by_pulls", "moves")
CADENCES_MS = (-1, 5_000, 60_000, 600_000)


def some_figures(name: str, chance: np.random.Generator) -> Positions:
    """A value of each queue, of those that its column may have."""
    if name == "is_gone":
        return np.zeros(QUEUES, np.int64)
    if name in FLAGS:
        return chance.integers(0, 2, QUEUES)
    if name in ("rule", "kind", "fires"):
        return chance.integers(0, 3, QUEUES)
    if name.endswith("_ms"):
        return chance.choice(CADENCES_MS, QUEUES)
    is_time = name.endswith("_us")
    of = (TICK_US - 20 * EVALUATION.window_us, TICK_US + 1) if is_time else (0, 7)
    found = chance.integers(*of, QUEUES)
    always = ("event_us", "moved_us", "max_offset", "commit_held_last", "commit_held")
    return found if name in always else np.where(chance.random(QUEUES) < 0.2, UNKNOWN, found)


def looked_at(seed: int, *, is_due: Positions) -> dict[str, Positions]:
    """What is remembered of all queues behind a look at those that are due."""
    chance = np.random.default_rng(seed)
    columns = {name: some_figures(name, chance) for name in (*FIGURES, *VERDICT)}
    columns["due_us"] = np.where(is_due, 0, NEVER)
    attention = Attention(np.arange(QUEUES), np.zeros(QUEUES, np.int64), columns, EVALUATION)
    attention.emits_snapshots = np.ones(1, bool)
    for slots in attention.ring.values():
        for slot in slots:
            slot[:] = some_figures("committed", chance)
    zero = np.zeros(1, np.int64)
    before_us = np.array([TICK_US - EVALUATION.slide_us])
    at = Moment(TICK_US, np.ones(1, bool), zero, zero, before_us, zero - 1, zero)
    attention.begin(at)
    attention.look(at)
    return attention.columns | {
        name: attention.ring[name][attention.slot(TICK_US)] for name in RING
    }


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_of_a_queue_does_not_depend_on_who_is_looked_at_with_it(seed: int) -> None:
    some = np.random.default_rng(seed).random(QUEUES) < 0.5
    beside, apart = (looked_at(seed, is_due=due) for due in (np.ones(QUEUES, bool), some))
    differ = {name: int((beside[name] != apart[name])[some].sum()) for name in beside}
    assert {name: count for name, count in differ.items() if count} == {}
