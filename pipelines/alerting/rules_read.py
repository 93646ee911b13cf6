"""The current rules for pages that show them, read again when a file has changed.

Place in the walk: beside the process, which reads the same files and keeps the rules that it had
when one of them is broken. Invariant: what is broken is shown as the process logs it. Absent on
purpose: whether a process is at work with these files (`board`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from pipelines.alerting.files import read_rules, rule_files
from pipelines.alerting.rules import Checked


class RulesRead:
    """Rules of files, kept while the files stay as they are. Safe for use by several threads."""

    def __init__(self, given: Sequence[Path] = ()) -> None:
        """given: files and folders, as the process takes them; none: the shipped ones."""
        self._given = given
        self._lock = threading.Lock()
        self._seen: object = None
        self._checked = Checked()

    def read(self) -> Checked:
        """The rules, and all that is wrong with their files."""
        with self._lock:
            files = rule_files(self._given)
            seen = [(file, _stamp(file)) for file in files]
            if seen != self._seen:
                self._checked = read_rules(files)
                self._seen = seen
            return self._checked


def _stamp(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return -1, -1
    return stat.st_mtime_ns, stat.st_size
