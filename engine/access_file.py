"""Reads the access file at start-up and again whenever it changes.

Place in the walk: below the command line, which names the file; the party's gate looks at it while
it runs. Absent on purpose: what the words in it mean (remoting/access).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from engine.foundation.errors import ConfigError
from engine.remoting.access import Access, read_access
from engine.remoting.accounts import Account

_log = logging.getLogger(__name__)


class AccessFile:
    """See `accounts_watch.AccountsSource`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: Access | None = None
        self.name = str(path)

    def read(self) -> Access:
        """What the file says. Raises ConfigError, also for one that everybody may read."""
        try:
            text, mode = self._path.read_text(encoding="utf-8"), self._path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("access", self.name, f"a file that can be read ({error})") from error
        if mode & 0o007:
            raise ConfigError(
                "access", self.name, "a file of secrets that others may not read: chmod 600"
            )
        access = replace(read_access(text, str(self._path.absolute())), source=self)
        self._first = self._first or access
        return access

    def stamp(self) -> object:
        """See `AccountsSource.stamp`: time alone would miss a second change within its tick."""
        try:
            stat = self._path.stat()
        except OSError as error:
            return error.errno
        return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_mode)

    def accounts(self) -> tuple[Account, ...]:
        """See `AccountsSource.accounts`."""
        first, access = self._first, self.read()
        if first is not None and (
            (access.server_tls, access.client_tls) != (first.server_tls, first.client_tls)
        ):
            _log.warning("[tls] of %s has changed: it counts from the next start", self.name)
        return access.accounts


def access_of(path: Path | None) -> Access:
    """The access that a party is given: that of a file, or none."""
    return Access() if path is None else AccessFile(path).read()
