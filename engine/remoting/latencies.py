"""Measures request latencies in server connections, and records them in histograms.

Place in the walk: around `connection` and `turn`, which do the work; metrics and runtime info read
the histograms.

    read ── began_us ──▶ handler ──▶ answer noted ──▶ turn ends: facts, frames ── now_us ──▶
    reported

The first request of a turn stamps it, for what arrives in one pass of the loop arrives together.
Equal answers of a turn make a run, of which only the length is counted; a request that is not
answered at once is remembered with its stamp.

Invariant: an answer is counted once, and what is measured changes nothing of it. A peer chooses its
request codes, so those that RocketMQ has not are counted together, under UNKNOWN. It costs 0.4 us a
request in turns of many, 2.2 us a turn of one. Absent on purpose: clocks (times arrive as steady
microseconds) and names of codes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import accumulate, repeat
from typing import Final, NamedTuple

from engine.protocol.codes import RequestCode
from engine.protocol.command import FLAG_ONE_WAY, RemotingCommand
from engine.remoting.connection import Connection
from engine.remoting.turn import Turn

PERCENTILE_BOUNDS_MS: Final = tuple(
    accumulate(
        step_ms
        for step_ms, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
        for step_ms in repeat(step_ms, count)
    )
)
"""Up to 20 ms by one, up to 50 by two, and so on up to 10 s: what RocketMQ 5.5 sorts puts by."""
RANGE_ENDS_MS: Final = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)
"""Last whole milliseconds of the ranges in which RocketMQ 5.5 prints puts."""
BOUNDS_MS: Final = tuple(sorted({*PERCENTILE_BOUNDS_MS, *RANGE_ENDS_MS}))
"""Every bound that anybody asks for, so that each answer is exact."""

LONG_POLLED: Final = (int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE))
"""Requests that were held, when they are not answered at once; others wait for the disk."""
UNKNOWN: Final = -1
"""The request code under which those are counted that RocketMQ has not."""
KNOWN_CODES: Final = frozenset(int(code) for code in RequestCode)


class Result(Enum):
    """What became of an answer, in RocketMQ's words."""

    SUCCESS = "success"
    ONE_WAY = "oneway"
    WRITE_FAILED = "write_channel_failed"
    """The connection had ended."""


class LatencyKey(NamedTuple):
    """What is measured apart."""

    request_code: int
    response_code: int
    is_long_polling: bool
    result: Result


class Histogram:
    """Times of one kind in whole milliseconds."""

    __slots__ = ("counts", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """Times up to each of BOUNDS_MS and above the one before, and those above all."""
        self.total_ms = 0
        self.max_ms = 0

    def add(self, elapsed_ms: int, count: int) -> None:
        """`count` answers took as long."""
        self.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += count
        self.total_ms += elapsed_ms * count
        self.max_ms = max(self.max_ms, elapsed_ms)


class Latencies:
    """The histograms of one party."""

    def __init__(self) -> None:
        self.by_key: dict[LatencyKey, Histogram] = {}

    def histogram(
        self, request_code: int, response_code: int, result: Result, *, is_late: bool
    ) -> Histogram:
        """The histogram of such answers; `is_late`: they are not given at once."""
        key = LatencyKey(
            request_code if request_code in KNOWN_CODES else UNKNOWN,
            int(response_code),
            is_late and request_code in LONG_POLLED,
            result,
        )
        return self.by_key.setdefault(key, Histogram())


def summed(counts: Iterable[list[int]]) -> list[int]:
    """Several histograms' counts as one."""
    return [sum(column) for column in zip([0] * (len(BOUNDS_MS) + 1), *counts, strict=True)]


def regrouped(counts: list[int], bounds_ms: tuple[int, ...]) -> list[int]:
    """Counts up to each of fewer bounds, all of BOUNDS_MS, and those above."""
    below = list(accumulate(counts))
    up_to = [below[BOUNDS_MS.index(bound)] for bound in bounds_ms]
    return [here - before for before, here in zip([0, *up_to], [*up_to, below[-1]], strict=True)]


class Run:
    """Answers of this turn that are measured as one: given at once, with equal codes."""

    __slots__ = ("count", "histogram", "request_code", "response_code")

    def __init__(self, request_code: int, response_code: int, histogram: Histogram) -> None:
        self.request_code = request_code
        self.response_code = response_code
        self.histogram = histogram
        self.count = 0


_NO_RUN = Run(-1, -1, Histogram())
"""A run that nothing is added to."""


class MeasuredTurn(Turn):
    """A turn that settles the latencies when its answers are written."""

    __slots__ = ("_late", "_runs", "_runs_known", "began_us", "latencies", "run", "steady_us")

    def __init__(
        self,
        before_answers: Callable[[], None],
        latencies: Latencies,
        steady_us: Callable[[], int],
    ) -> None:
        super().__init__(before_answers)
        self.latencies = latencies
        self.steady_us = steady_us
        self.began_us = 0
        """When the requests of this turn arrived; 0 before the first."""
        self.run = _NO_RUN
        """The run of the last answer, of this turn or an earlier one."""
        self._runs: list[Run] = []
        """Further runs of this turn."""
        self._runs_known: dict[tuple[int, int], Run] = {}
        """By codes that RocketMQ has: they are used turn after turn."""
        self._late: dict[tuple[int, int, int], int] = {}
        """(stamp, codes) → answers of this turn that were not given at once."""

    def end(self) -> None:
        """See `Turn.end`."""
        Turn.end(self)
        began_us, self.began_us = self.began_us, 0
        if not self.run.count and not self._late:
            return
        now_us = self.steady_us()
        if self.run.count:
            self._settle((now_us - began_us) // 1000 if began_us else None)
        if self._late:
            late, self._late = self._late, {}
            for (arrived_us, code, response_code), count in late.items():
                histogram = self.latencies.histogram(
                    code, response_code, Result.SUCCESS, is_late=True
                )
                histogram.add((now_us - arrived_us) // 1000, count)

    def _settle(self, took_ms: int | None) -> None:
        """None: nobody stamped it, as when a peer uses an opaque twice; that is not measured."""
        self._runs.append(self.run)
        for run in self._runs:  # One that came back is here twice, and has nothing left then.
            if run.count and took_ms is not None:
                run.histogram.add(took_ms, run.count)
            run.count = 0
        self._runs.clear()

    def begin_run(self, request_code: int, response_code: int) -> Run:
        """The run of an answer that is not of the same kind as the one before."""
        if self.run.count:
            self._runs.append(self.run)
        codes = (request_code, response_code)
        run = self._runs_known.get(codes)
        if run is None:
            run = Run(*codes, self.latencies.histogram(*codes, Result.SUCCESS, is_late=False))
            if request_code in KNOWN_CODES:
                self._runs_known[codes] = run
        self.run = run
        return run

    def note_late(self, began_us: int, request_code: int, response_code: int) -> None:
        """An answer to a request that had to wait."""
        key = (began_us, request_code, response_code)
        self._late[key] = self._late.get(key, 0) + 1

    def forget_stamp_if_idle(self) -> None:
        """What was read is with its handlers; unless one has answered, nothing ends the turn."""
        if self._end_handle is None:
            self.began_us = 0


class MeasuredConnection(Connection):
    """A connection of a server; `measured_in` comes before everything else."""

    is_answered = False
    """Was the request answered that is with its handler?"""

    def measured_in(self, turn: MeasuredTurn) -> MeasuredConnection:
        """This connection, whose answers leave with `turn`."""
        self._measured = turn
        self._late: dict[int, int] = {}
        """Stamps of requests that were not answered at once, by opaque."""
        return self

    def act_on(self, commands: list[RemotingCommand]) -> None:
        """See `Connection.act_on`. Requests that are read together arrive together."""
        Connection.act_on(self, commands)
        self._measured.forget_stamp_if_idle()

    def answered_later(self, request: RemotingCommand) -> None:
        """Its handler has returned without an answer."""
        if not request.flag & FLAG_ONE_WAY:
            self.keep(request)
            self._late[request.opaque] = self._measured.began_us

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """See `Peer.answer`. Hot."""
        Connection.answer(self, request, response)
        if (
            self._closed
            or request.flag & FLAG_ONE_WAY
            or (self._late and request.opaque in self._late)
        ):
            self._note_other(request, int(response.code))
            return
        self.is_answered = True
        run = self._measured.run
        if run.request_code != request.code or run.response_code != response.code:
            run = self._measured.begin_run(request.code, response.code)
        run.count += 1

    def _note_other(self, request: RemotingCommand, response_code: int) -> None:
        """It comes late, or nobody gets it."""
        turn = self._measured
        began_us = self._late.pop(request.opaque, None)
        if began_us is not None and not self._closed:
            turn.note_late(began_us, request.code, response_code)
            return
        is_late = began_us is not None
        if began_us is None:
            self.is_answered = True
            began_us = turn.began_us
        if not began_us:
            return  # Nobody waits for it, and when it arrived was not kept.
        result = Result.ONE_WAY if request.is_oneway else Result.WRITE_FAILED
        histogram = turn.latencies.histogram(request.code, response_code, result, is_late=is_late)
        histogram.add((turn.steady_us() - began_us) // 1000, 1)
