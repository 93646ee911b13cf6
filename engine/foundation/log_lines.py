"""Logs events to standard error, one per line, with a rate limit for each type of event.

Place in the walk: set up by the commands; everybody else only takes a logger. A kind is a line
before its values are put in, so a flood of closed connections hides nothing else.

Invariant: an event's text is one line without control characters, whatever values it holds; the
lines of a traceback behind it begin with `TRACEBACK_MARK`, so nobody's text can begin a line that
looks like an event. No kind is silent for a whole second in which it was logged; the next line says
how many were not written. Absent on purpose: files and their rotation, which are for whoever starts
the process.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from engine.foundation.limits import LOG_KINDS_MAX, LOG_LINES_PER_SECOND_MAX
from engine.foundation.printable import printable


class FloodFilter(logging.Filter):
    """Lets a kind's first lines of each second through."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int, object], tuple[int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        key, second = (record.name, record.lineno, record.msg), int(record.created)
        began, count = self._kinds.get(key, (second, 0))
        if began == second:
            self._kinds[key] = second, count + 1
            if len(self._kinds) > LOG_KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            return count < LOG_LINES_PER_SECOND_MAX
        self._kinds[key] = second, 1
        unwritten = count - LOG_LINES_PER_SECOND_MAX
        if unwritten > 0:
            text = record.getMessage()
            record.msg, record.args = f"{text} (and {unwritten} like it that are not written)", ()
        return True


LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
TRACEBACK_MARK: Final = "    | "


class LogLines(logging.Formatter):
    """Makes an event's line."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name.
        """The event itself."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name.
        """The traceback, line by line; a message in it may have lines of its own."""
        return _marked(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name.
        """A stack that somebody asked for."""
        return _marked(stack_info)


def write_log() -> None:
    """Write what is logged in this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines())
    handler.addFilter(FloodFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _marked(text: str) -> str:
    return "\n".join([TRACEBACK_MARK + printable(line) for line in text.split("\n")])
