"""The file of groups' objectives, read again when it changes.

Invariant: a file that is broken later leaves what was given before, and is logged once; one that is
broken at the start is refused.
"""

from __future__ import annotations

import logging
from pathlib import Path

from engine.foundation.errors import ConfigError
from pipelines.alerting.objectives import Objectives, read_objectives

_log = logging.getLogger(__name__)


class ObjectivesFile:
    """What a file says now; without a file nobody has given any objective."""

    def __init__(self, file: Path | None) -> None:
        """Raises ConfigError for a file that is wrong."""
        self._file = file
        self._stamp = self._stamped()
        self._given = read_objectives(file)

    def __call__(self) -> Objectives:
        """What is given now."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._given = read_objectives(self._file)
            except ConfigError as error:
                _log.warning("objectives stay as they were: %s", error)
        return self._given

    def _stamped(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            stat = self._file.stat()
        except OSError:
            return -1, -1
        return stat.st_mtime_ns, stat.st_size
