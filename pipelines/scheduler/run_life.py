"""State machine for runs: the transitions, and who may make each of them.

Place in the walk: `schedules` plans runs, the store keeps them, a centre moves them as written
here.

    PLANNED → CLAIMED → SENT → ACCEPTED → RUNNING → DONE | FAILED
       ↑         |       |  ↘ REFUSED      |   |
       |         |       ↓        ↑        ↓   ↓
       |         |    UNKNOWN ----+--→   LOST (may have run)
       |         |       |
       +---------+-------+   a claim that is over; a run that no executor has

A run is one row: a claim on (job, cause, shard, attempt), and the log of what came of it. A centre
that moves it names the token of its claim. Each claim has a new token, so a centre that slept
through the end of its claim moves nothing any more.

The law: each run begins at most once, on one executor. Hence SENT is written before anything is
sent, which gives the claim its full time again, and a centre sends only while that lasts. From then
on a run goes back to PLANNED only when its executor says that it has none of it and nothing that
was sent can still arrive (`is_quiet`). A run that an executor may have begun which is gone is LOST:
it is reported, and tried again only as a new attempt, where the job allows retries.

Invariant: pure. What ends stays as it ended: a result that comes for a LOST run is noted as late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CALL_TIMEOUT_MS: Final = 3_000
"""How long a centre waits for an executor's answer."""

CLAIM_MS: Final = 10_000
"""How long a run is its centre's, after it is due, was claimed again, or is about to be sent."""

SEND_MARGIN_MS: Final = 5_000
"""A centre sends only while its claim lasts for so long still: the call ends within it."""

UNKNOWN_MS_MAX: Final = 3_600_000
"""How long after its claim a run may stay UNKNOWN: an executor that is always busy with the job and
cannot say whether it has the run leaves it so. Then it is LOST, and reported as lost.
"""

QUIET_MS: Final = 10_000
"""How long after the end of a run's claim something that was sent under it may still arrive."""

OK: Final = 200
FAILED: Final = 500
TIMED_OUT: Final = 502
"""Codes of XXL-Job, of triggers and results alike."""

assert CALL_TIMEOUT_MS < SEND_MARGIN_MS < CLAIM_MS, "a call that was begun ends within its claim"
assert QUIET_MS < UNKNOWN_MS_MAX, "who may be asked is asked before it is given up"
assert CALL_TIMEOUT_MS < QUIET_MS, "what was sent has arrived, or never will"


class RunState(StrEnum):
    """Where a run stands."""

    PLANNED = "PLANNED"
    CLAIMED = "CLAIMED"
    """A centre will send it. Once the claim is over, another may claim it."""
    SENT = "SENT"
    """It was sent, or is just being; there is no answer yet."""
    ACCEPTED = "ACCEPTED"
    """An executor has it, in its queue or at work."""
    RUNNING = "RUNNING"
    """An executor was seen at work on it."""
    UNKNOWN = "UNKNOWN"
    """It was sent, and nobody knows what came of it: its executor is asked."""
    REFUSED = "REFUSED"
    """No executor has it: none is there, or it said no."""
    DONE = "DONE"
    FAILED = "FAILED"
    """It ran, and failed, timed out or was killed."""
    LOST = "LOST"
    """Its executor had it, or may have had it, and is gone or does not know of it."""
    CANCELLED = "CANCELLED"
    """Its job was paused, changed or removed before it was sent."""

    @classmethod
    def _missing_(cls, value: object) -> RunState:
        """What a row of other hands says, and nobody knows, is LOST: shown so, and moved no more.
        To raise would hold up all rows that are read with it."""
        del value
        return cls.LOST


class RunEvent(StrEnum):
    """What may happen to it."""

    CLAIM = "CLAIM"
    SEND = "SEND"
    BEGIN = "BEGIN"
    """It is a workflow's, and its steps begin: its executor is the centre."""
    ACCEPT = "ACCEPT"
    REFUSE = "REFUSE"
    LOSE_SIGHT = "LOSE_SIGHT"
    """No answer came, or the centre that waited for it is gone."""
    SEE = "SEE"
    """Its executor is at work on it."""
    MISS = "MISS"
    """Its executor is there and knows nothing of it."""
    BEREAVE = "BEREAVE"
    """Its executor is gone, or has forgotten what it had."""
    GIVE_UP = "GIVE_UP"
    """Nobody has found out for UNKNOWN_MS_MAX whether it arrived."""
    SUCCEED = "SUCCEED"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


_S = RunState
OUTSIDE: Final = (_S.SENT, _S.UNKNOWN, _S.ACCEPTED, _S.RUNNING)
"""An executor has it, or may have it."""

MOVES: Final[Mapping[RunEvent, Mapping[RunState, RunState]]] = {
    RunEvent.CLAIM: {_S.PLANNED: _S.CLAIMED, _S.CLAIMED: _S.CLAIMED},
    RunEvent.SEND: {_S.CLAIMED: _S.SENT},
    RunEvent.BEGIN: {_S.CLAIMED: _S.RUNNING},
    RunEvent.ACCEPT: {_S.SENT: _S.ACCEPTED, _S.UNKNOWN: _S.ACCEPTED},
    RunEvent.REFUSE: {_S.CLAIMED: _S.REFUSED, _S.SENT: _S.REFUSED, _S.UNKNOWN: _S.REFUSED},
    RunEvent.LOSE_SIGHT: {_S.SENT: _S.UNKNOWN},
    RunEvent.SEE: {_S.UNKNOWN: _S.RUNNING, _S.ACCEPTED: _S.RUNNING},
    RunEvent.MISS: {_S.UNKNOWN: _S.PLANNED, _S.ACCEPTED: _S.LOST, _S.RUNNING: _S.LOST},
    RunEvent.BEREAVE: {_S.UNKNOWN: _S.LOST, _S.ACCEPTED: _S.LOST, _S.RUNNING: _S.LOST},
    RunEvent.GIVE_UP: {_S.UNKNOWN: _S.LOST},
    # The result of a run that was sent before, and is planned again, is a result: it ran after all.
    RunEvent.SUCCEED: dict.fromkeys((*OUTSIDE, _S.PLANNED, _S.CLAIMED), _S.DONE),
    RunEvent.FAIL: dict.fromkeys((*OUTSIDE, _S.PLANNED, _S.CLAIMED), _S.FAILED),
    RunEvent.CANCEL: {_S.PLANNED: _S.CANCELLED, _S.CLAIMED: _S.CANCELLED},
}
"""What each event makes of each state; in a state that it does not name, it changes nothing."""

OPEN: Final = tuple(state for state in _S if any(state in move for move in MOVES.values()))
ENDED: Final = tuple(state for state in _S if state not in OPEN)
"""Nothing moves these any more."""

UNSUCCESSFUL: Final = (_S.REFUSED, _S.FAILED, _S.LOST)
"""Ends after which a job that allows retries is tried again."""

_BY_THE_CLAIM: Final = frozenset({RunEvent.SEND, RunEvent.BEGIN, RunEvent.ACCEPT, RunEvent.REFUSE})
"""Events that only the centre that has the claim can know of."""

assert set(ENDED) == {_S.REFUSED, _S.DONE, _S.FAILED, _S.LOST, _S.CANCELLED}


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides about a run: its state, its claim, and whether it was ever sent."""

    state: RunState
    token: int
    """Of the last claim; 0 before the first."""
    claim_until_ms: int
    sendings: int
    """How often it was sent."""


def moved(
    run: Standing, event: RunEvent, *, now_ms: int, token: int | None = None
) -> RunState | None:
    """The state that the event leads to; None when it may not happen to this run now.

    `token` is that of the claim under which somebody says so; None: by nobody's claim.
    """
    state = MOVES[event].get(run.state)
    if state is None or not _is_allowed(run, event, now_ms=now_ms, token=token):
        return None
    return state


def _is_allowed(run: Standing, event: RunEvent, *, now_ms: int, token: int | None) -> bool:
    if event in _BY_THE_CLAIM and token != run.token:
        return False
    match event:
        case RunEvent.CLAIM:
            return run.state is RunState.PLANNED or is_over(run, now_ms)
        case RunEvent.LOSE_SIGHT:
            return token == run.token or is_over(run, now_ms)
        case RunEvent.MISS:
            return is_quiet(run, now_ms)
        case RunEvent.GIVE_UP:
            return now_ms >= run.claim_until_ms + UNKNOWN_MS_MAX
        case RunEvent.SUCCEED | RunEvent.FAIL:
            return run.sendings > 0
        case _:
            return True


def is_over(run: Standing, now_ms: int) -> bool:
    """Has the claim ended?"""
    return now_ms >= run.claim_until_ms


def may_send(claim_until_ms: int, now_ms: int) -> bool:
    """Does the claim under which SENT was written last until a call that begins now has ended?"""
    return now_ms + SEND_MARGIN_MS <= claim_until_ms


def is_quiet(run: Standing, now_ms: int) -> bool:
    """Has all that was sent under the claim arrived by now, if ever?"""
    return now_ms >= run.claim_until_ms + QUIET_MS
