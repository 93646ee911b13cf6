"""The judge of kills speaks when there is something to say, and then no figure is claimed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bench.bars import SCHEDULER_TWICE
from bench.scheduler_kills import _judged
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store.results import Run
from tests.integration.scheduler.kill_story import judge

RUN = Run(
    log_id=1,
    job_id=1,
    cause="plan:5",
    state=RunState.DONE,
    planned_ms=5,
    attempt=0,
    shard_index=0,
    shard_total=1,
    address=None,
    sent_ms=6,
    trigger_code=200,
    trigger_message=None,
    ended_ms=7,
    result_code=200,
    result_message=None,
    late_code=None,
)
LOST = replace(RUN, log_id=2, cause="plan:6", state=RunState.LOST)


def test_a_sound_history_is_counted() -> None:
    assert judge([RUN, LOST], Counter({1: 1})) == Counter(triggers=2, lost=1)


@pytest.mark.parametrize(
    ("runs", "begun", "said"),
    [
        ([RUN], {1: 2}, "it began twice"),
        ([RUN], {}, "done, and never begun"),
        ([replace(RUN, state=RunState.REFUSED)], {1: 1}, "nobody had it, and yet it began"),
        ([RUN, replace(RUN, log_id=2)], {1: 1}, "a time has two runs"),
    ],
)
def test_a_history_with_a_fault_is_reported(
    runs: list[Run], begun: dict[int, int], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        judge(runs, Counter(begun))


def test_where_the_judge_has_spoken_no_figure_is_claimed() -> None:
    assert _judged(SCHEDULER_TWICE, "") == "0 (≤ 0)"
    assert _judged(SCHEDULER_TWICE, "it began twice") == "?"
