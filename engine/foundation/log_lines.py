"""Writes the log of every command to standard error, one event a line.

Place in the walk: set up by the commands; everybody else only takes a logger.

Invariant: an event's text is one line without control characters, whatever values it holds; the
lines of a traceback behind it begin with `TRACEBACK_MARK`, so nobody's text can begin a line that
looks like an event. Of one kind so many lines a second are written (log_floods). Absent on purpose:
files and their rotation, which are for whoever starts the process.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from engine.foundation.log_floods import FloodFilter
from engine.foundation.printable import printable

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
