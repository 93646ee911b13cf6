"""Row F1: what a centre says of runs that it does not understand, by what their executors know."""

from __future__ import annotations

import asyncio

import pytest

from pipelines.scheduler.centre.calls import SILENT_MS, Doubts, Finding, Outcome, Sight
from pipelines.scheduler.run_life import UNKNOWN_MS_MAX, RunEvent, RunState
from pipelines.scheduler.store.results import Doubt
from pipelines.scheduler.store.sending import Sending

NOW_MS = 1_780_000_000_000
AT = "http://10.0.0.1:9999/"


class Played:
    """An executor that says what it is set to say."""

    def __init__(self, is_idle: bool | None, sight: Sight | None) -> None:
        self.idle, self.sight = is_idle, sight

    async def run(self, sending: Sending) -> Outcome:
        raise AssertionError(f"{sending} is not sent by who asks")

    async def is_there(self, address: str) -> bool:
        return address == AT

    async def is_idle(self, address: str, job_id: int) -> bool | None:
        if job_id == 13:
            raise RuntimeError("something that nobody foresaw")
        return self.idle if address == AT else None

    async def sight_of(self, doubt: Doubt) -> Sight | None:
        return self.sight if doubt.address == AT else None


def a_doubt(state: RunState, *, log_id: int = 1, job_id: int = 7) -> Doubt:
    return Doubt(log_id, job_id, AT, state, NOW_MS - 20_000, NOW_MS - 20_000, NOW_MS - 10_000)


def said(
    state: RunState,
    is_idle: bool | None,
    sight: Sight | None,
    *,
    after_ms: int = 0,
    is_there: bool = True,
) -> RunEvent | None:
    """Of a run that was asked about now, and again after so long."""
    clock = [NOW_MS]
    doubts = Doubts(Played(is_idle, sight), lambda: clock[0])
    there = frozenset({AT} if is_there else ())
    found: dict[int, Finding] = {}
    for clock[0] in (NOW_MS, NOW_MS + after_ms):
        found = asyncio.run(doubts.found_out([a_doubt(state)], there))
    return found[1][0] if found else None


@pytest.mark.parametrize(
    ("is_idle", "sight", "event"),
    [
        (True, Sight.HERE, RunEvent.SEE),
        (False, Sight.HERE, RunEvent.SEE),
        (True, Sight.NEVER, RunEvent.MISS),
        (False, Sight.NEVER, RunEvent.MISS),  # It is busy with another run of the job.
        (True, Sight.FORGOTTEN, RunEvent.BEREAVE),
        (True, Sight.NO_LOG, RunEvent.MISS),
        (False, Sight.NO_LOG, None),  # It may wait there.
        (True, None, None),
        (None, None, None),
    ],
)
def test_an_unknown_run_is_planned_again_only_when_nobody_has_it(
    is_idle: bool | None, sight: Sight | None, event: RunEvent | None
) -> None:
    assert said(RunState.UNKNOWN, is_idle, sight) is event


@pytest.mark.parametrize(
    ("is_idle", "sight"), [(False, Sight.NO_LOG), (True, None), (False, None), (None, None)]
)
def test_nothing_stays_unknown_for_ever(is_idle: bool | None, sight: Sight | None) -> None:
    after_ms = UNKNOWN_MS_MAX - 10_000
    assert said(RunState.UNKNOWN, is_idle, sight, after_ms=after_ms - 1) is None
    assert said(RunState.UNKNOWN, is_idle, sight, after_ms=after_ms) is RunEvent.GIVE_UP


@pytest.mark.parametrize("state", [RunState.UNKNOWN, RunState.ACCEPTED, RunState.RUNNING])
def test_a_run_of_an_executor_that_is_gone_is_lost(state: RunState) -> None:
    assert said(state, None, None, is_there=False, after_ms=SILENT_MS - 1) is None
    assert said(state, None, None, is_there=False, after_ms=SILENT_MS) is RunEvent.BEREAVE


@pytest.mark.parametrize("state", [RunState.ACCEPTED, RunState.RUNNING])
def test_what_an_executor_took_is_lost_when_it_is_idle_and_reports_no_result(
    state: RunState,
) -> None:
    assert said(state, False, Sight.HERE, after_ms=10 * UNKNOWN_MS_MAX) is None
    assert said(state, True, Sight.HERE, after_ms=SILENT_MS - 1) is None
    assert said(state, True, Sight.HERE, after_ms=SILENT_MS) is RunEvent.MISS


def test_who_cannot_be_asked_about_one_run_is_asked_about_the_others() -> None:
    doubts = Doubts(Played(True, Sight.NEVER), lambda: NOW_MS)
    asked = [a_doubt(RunState.UNKNOWN, log_id=n, job_id=13 if n == 2 else 7) for n in range(4)]
    found = asyncio.run(doubts.found_out(asked, frozenset({AT})))
    assert sorted(found) == [0, 1, 3]
