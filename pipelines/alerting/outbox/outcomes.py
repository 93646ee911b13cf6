"""Defines the outcomes of notice deliveries and decides when to retry a failed one.

Invariant: pure; the moment and the chance are arguments. A notice that was not delivered is due
again, later and later, until it is too old; only one that its channel cannot reach makes the whole
receiver rest, so that one bad notice holds up no good one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipelines.database.limits import GIVE_UP_US, SECOND_US, TEXT_CHARS_MAX

FIRST_DELAY_US: Final = 2 * SECOND_US
DELAY_MAX_US: Final = 300 * SECOND_US
"""The longest pause between two tries, and the longest that a channel may ask for."""

DOUBLINGS_MAX: Final = 16


class Trouble(StrEnum):
    """Why a notice was not delivered."""

    UNREACHABLE = "UNREACHABLE"
    """No answer, or one that says "later". Perhaps it was delivered all the same."""
    NOT_SET_UP = "NOT_SET_UP"
    """The channel cannot work as it is set up: a person has to mend that."""
    REFUSED = "REFUSED"
    """The channel understood this notice, and does not want it."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The channel has it."""

    remark: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The channel does not have it, or nobody knows."""

    trouble: Trouble
    error: str
    """One sentence without secrets."""
    retry_after_us: int = 0
    """How long the channel asked to be left alone."""


Outcome = Delivered | Failed


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a failure."""

    is_given_up: bool
    due_us: int
    """When the notice is due again."""
    rest_until_us: int
    """When its receiver may be sent to again."""
    error: str


def after(
    failed: Failed, *, tries: int, failures: int, created_us: int, now_us: int, chance: float
) -> Next:
    """What follows the failure of try number `tries`, when its receiver has failed `failures`
    times in a row, refusals not counted.

    `chance` lies in [0, 1).
    """
    assert tries >= 1, "it was tried"
    error = failed.error[:TEXT_CHARS_MAX]
    rests = failed.trouble is not Trouble.REFUSED
    pause_us = delay_us(failures if rests else tries, chance)
    pause_us = min(max(pause_us, failed.retry_after_us), DELAY_MAX_US)
    return Next(
        is_given_up=now_us - created_us >= GIVE_UP_US,
        due_us=now_us if rests else now_us + pause_us,
        rest_until_us=now_us + pause_us if rests else 0,
        error=f"{failed.trouble}: {error}",
    )


def delay_us(tries: int, chance: float) -> int:
    """How long to wait after so many tries: anything up to a bound that doubles (full jitter), so
    that many who failed together do not come back together.
    """
    doublings = min(max(tries, 1) - 1, DOUBLINGS_MAX)
    bound_us = min(FIRST_DELAY_US * 2**doublings, DELAY_MAX_US)
    return int(bound_us * chance)


def is_due(moment_us: int, *, now_us: int) -> bool:
    """Has the moment come? One that lies further ahead than any pause was noted by a clock that has
    been set since.
    """
    return moment_us <= now_us or moment_us > now_us + DELAY_MAX_US
