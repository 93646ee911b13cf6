"""Collects the responses of one event-loop iteration and sends them when it ends.

Place in the walk: handlers queue their answers here; when the loop has read what there was to read,
`before_answers` runs once (it writes the turn's facts into the spool), and then each connection
gets its frames in one write. Batching makes the broker fast, and the order makes it honest: a
process killed in between has answered nothing that it did not report.

Invariant: no frame leaves before `before_answers` ran after it was queued. One failing connection
never keeps the others' answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from engine.foundation.limits import TURN_WRITES_MAX
from engine.runtime.gathering import Part

_log = logging.getLogger(__name__)


class Outlet(Protocol):
    """A connection, as the turn sees it."""

    def write_frames(self, parts: list[Part]) -> None:
        """Write the parts of whole frames, in order."""
        ...


class Turn:
    """Collects frames; one turn is open at a time, and the next one opens with the first frame."""

    __slots__ = ("_before_answers", "_end_handle", "_frames", "_leaving", "queued_bytes")

    def __init__(self, before_answers: Callable[[], None]) -> None:
        self._before_answers = before_answers
        self._frames: dict[Outlet, list[Part]] = {}
        self._leaving: OrderedDict[Outlet, list[Part]] = OrderedDict()
        """What was reported and has not left yet, because too many are answered at once."""
        self._end_handle: asyncio.Handle | None = None
        self.queued_bytes = 0
        """Of all frames of this turn, until now."""

    def add(self, outlet: Outlet, head: bytes, body: Part, frame_bytes: int) -> None:
        """Queue one frame, of that length in all, for the end of this turn."""
        self.queued_bytes += frame_bytes
        parts = self._frames.get(outlet)
        if parts is None:
            parts = self._frames[outlet] = []
        parts.append(head)
        if body:
            parts.append(body)
        self.open()

    def open(self) -> None:
        """Make sure that the turn ends, even when nobody is to be answered."""
        if self._end_handle is None:
            self._end_handle = asyncio.get_running_loop().call_soon(self.end)

    def end(self) -> None:
        """Report, then answer: TURN_WRITES_MAX connections now, the others in the next steps of
        the event loop, each in the order in which its frames were queued.
        """
        if self._end_handle is not None:
            self._end_handle.cancel()
            self._end_handle = None
        frames, self._frames, self.queued_bytes = self._frames, {}, 0
        self._before_answers()
        if not self._leaving and len(frames) <= TURN_WRITES_MAX:
            for outlet, parts in frames.items():
                _write(outlet, parts)
            return
        leaving = self._leaving
        for outlet, parts in frames.items():
            leaving.setdefault(outlet, []).extend(parts)
        for _ in range(min(TURN_WRITES_MAX, len(leaving))):
            _write(*leaving.popitem(last=False))
        if leaving:
            self.open()

    def end_for(self, outlet: Outlet) -> None:
        """End the open turn at once: a connection has so much to get that it must have it before
        its next request is looked at.
        """
        self.end()
        parts = self._leaving.pop(outlet, None)
        if parts is not None:
            _write(outlet, parts)

    def finish(self) -> None:
        """End the open turn at once, whatever it takes: the party stops."""
        self.end()
        while self._leaving:
            _write(*self._leaving.popitem(last=False))


def _write(outlet: Outlet, parts: list[Part]) -> None:
    try:
        outlet.write_frames(parts)
    except Exception:  # noqa: BLE001 - a departed client must not keep others' answers.
        _log.exception("writing answers failed; the connection is left to its fate")
