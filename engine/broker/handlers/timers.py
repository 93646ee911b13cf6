"""Reports timer progress to RocketMQ slaves and to our admin client.

Place in the walk: beside it. RocketMQ's check point knows seconds; which timers are done to the
millisecond stands beside it, in the field `marks`.

Absent on purpose: which timers wait: whoever asks reads them in the topic of timers.
"""

from __future__ import annotations

from engine.delay import TimeWheel
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.timers import MARKS_FIELD
from engine.remoting import Handlers, Peer, serves


class TimerHandlers(Handlers):
    """Questions about the time wheel."""

    def __init__(self, wheel: TimeWheel) -> None:
        self._wheel = wheel

    @serves(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT (60)."""
        marks = b";".join(mark.to_text() for mark in self._wheel.marks()).decode()
        return request.respond(
            ResponseCode.SUCCESS,
            fields={MARKS_FIELD: marks},
            body=self._wheel.check_point().to_bytes(),
        )
