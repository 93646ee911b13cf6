"""Limits how many log lines of one kind are written a second, against floods by strangers.

Place in the walk: on the log handler of every command. A kind is a line before its values are put
in, so a flood of closed connections hides nothing else.

Invariant: no kind is silent for a whole second in which it was logged; the next line that is
written says how many were not. Absent on purpose: the clock. A line brings its own time.
"""

from __future__ import annotations

import logging

from engine.foundation.limits import LOG_KINDS_MAX, LOG_LINES_PER_SECOND_MAX


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
