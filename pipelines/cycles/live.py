"""Runs the live pipeline, performing one cycle after another until it is stopped.

Place in the walk: `tidemark pipeline run`, `tidemark demo` and the freshness bench. A cycle begins
as soon as a shipment is there, and no sooner than `Pace.cycle_ms` after the one before it.

Invariant: one process a lake computes its gold; a second is refused with the holder's name. What
goes wrong is reported and tried again with a growing pause, from what is recorded. Absent on
purpose: Structured Streaming (docs/adr/0003-gold-by-a-driver-loop.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from engine.foundation.errors import LakeError, TidemarkError
from pipelines.base.settings import Pace
from pipelines.cycles.driver import Progress
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.lease import DRIVER, Lease, acquire

POLL_S: Final = 0.1
"""How often the log of the shipments is looked at: one file that is not there yet."""
REMOTE_POLL_S: Final = 0.5
"""The same in an object store, where each look is two requests."""
PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""After so many failures in a row; the last one stays."""


class Right(Protocol):
    """The lease of the lake's driver, as `Lease` has it."""

    @property
    def is_held(self) -> bool:
        """May this process act now?"""

    @property
    def is_lost(self) -> bool:
        """Has another process taken it over?"""

    def found_nothing(self) -> None:
        """Let others know that the lake was looked at, and there was nothing new."""


class Cycles(Protocol):
    """What computes gold, as `Driver` does."""

    def next_cycle(self) -> Progress | None:
        """Carry out the next cycle; None when nothing is new."""


def run_live(
    begin: Callable[[], Cycles],
    lease: Right,
    *,
    pace: Pace,
    wanted: Callable[[], bool],
    poll_s: float = POLL_S,
    say: Callable[[Progress], None],
    say_failure: Callable[[str], None],
) -> None:
    """Compute gold while `wanted()`; a cycle under way is finished first. Where nothing is new, one
    looks again after `poll_s`.

    begin: makes the driver, from what is recorded. A TidemarkError that it raises the first time is
    raised: such a lake is not this run's. All other failures, of storage or of executors, are
    reported and tried again. LakeError when another process has taken the lease over.
    """
    driver: Cycles | None = None
    has_begun = False
    failures = 0
    while wanted():
        started_s = time.monotonic()
        if lease.is_lost:
            raise LakeError("the lake's gold is computed by another process now; this one ends")
        if not lease.is_held:  # It can't be renewed now: another one may take it.
            _wait(started_s=started_s, for_s=POLL_S, wanted=wanted)
            continue
        try:
            if driver is None:
                driver = begin()
                has_begun = True
                started_s = time.monotonic()
            progress = driver.next_cycle()
        except Exception as error:  # raised again when the lake is not this run's, else reported
            if isinstance(error, TidemarkError) and not has_begun:
                raise
            driver = None
            pause_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
            failures += 1
            say_failure(f"{first_line(error)}; trying again in {pause_s:g} s")
            _wait(started_s=time.monotonic(), for_s=pause_s, wanted=wanted)
            continue
        failures = 0
        if progress is None:
            lease.found_nothing()
            _wait(started_s=started_s, for_s=poll_s, wanted=wanted)
            continue
        say(progress)
        if progress.bronze_rows < pace.rows_per_cycle:
            _wait(started_s=started_s, for_s=pace.cycle_ms / 1000, wanted=wanted)


def poll_s_of(lake: Lake) -> float:
    """How often it is worth while to look whether a lake has something new."""
    return REMOTE_POLL_S if "://" in lake.root else POLL_S


def only_driver(lake: Lake) -> Lease:
    """The right to compute a lake's gold. LeaseHeld when another process has it."""
    return acquire(lake, DRIVER, makes_lake=True)  # It may be there before what it waits for.


def _wait(*, started_s: float, for_s: float, wanted: Callable[[], bool]) -> None:
    while wanted() and (left_s := started_s + for_s - time.monotonic()) > 0:
        time.sleep(min(POLL_S, left_s))


def await_first_shipment(lake: Lake, *, patience_ms: int, wanted: Callable[[], bool]) -> bool:
    """Wait until a shipper has written to the lake; False when no longer wanted.

    LakeError after `patience_ms`.
    """
    deadline_s = time.monotonic() + patience_ms / 1000
    address = lake.bronze("shipments")
    while wanted():
        if lake.exists(address):
            return True
        if time.monotonic() > deadline_s:
            raise LakeError(
                f"nothing has been shipped to {lake.root} within {patience_ms} ms: start an engine "
                f"with this lake (`tidemark engine --lake {lake.root} ...`), or name another one"
            )
        time.sleep(POLL_S)
    return False
