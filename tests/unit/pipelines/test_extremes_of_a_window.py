"""What waited over a window: of the queues that are asked for, whichever were noted."""

from __future__ import annotations

import numpy as np

from pipelines.base.settings import Evaluation
from pipelines.marts.judging.growths import Growths
from pipelines.marts.judging.packed import UNKNOWN

EVALUATION = Evaluation()
SIZE = EVALUATION.ticks_per_window + 1
NOW = 120 * EVALUATION.slide_us
ENDS = np.array([1_000, 2_000, 3_000])


def growths() -> Growths:
    """Three queues that are behind by 100, 200 and 300 messages, known at the present tick only."""
    columns = {
        "max_offset": ENDS,
        "late_us": np.full(3, UNKNOWN),
        "based_us": np.full(3, UNKNOWN),
        **{name: np.full(3, UNKNOWN) for name in ("growth_from_us", "growth_from")},
        "growth_least": np.full(3, UNKNOWN),
    }
    ring = {name: np.full((SIZE, 3), UNKNOWN) for name in ("max_offset", "reached")}
    slot = NOW // EVALUATION.slide_us % SIZE
    ring["max_offset"][slot] = ENDS
    ring["reached"][slot] = ENDS - [100, 200, 300]
    return Growths(
        columns, ring, slot=lambda at: at // EVALUATION.slide_us % SIZE, evaluation=EVALUATION
    )


def test_rules_get_the_extremes_of_their_queues_and_not_those_that_were_noted() -> None:
    known = growths()
    everything = np.arange(3)
    known.note(everything, ENDS // 10, np.full(3, UNKNOWN), np.ones(3, bool), tick_us=NOW)
    assert known.extremes(everything, NOW).open_least.tolist() == [100, 200, 300]
    some = known.extremes(np.array([1]), NOW)
    assert (some.open_first.tolist(), some.open_least.tolist()) == ([200], [200])
    assert (some.reached_midway.tolist(), some.only_grew.tolist()) == ([1_800], [False])
