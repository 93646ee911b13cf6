"""The folder a demo plays in: made or emptied for it, and locked as long as it plays.

Invariant: nothing is removed from a folder that the demo did not make, nor from one in which a
demo plays. The lock is on the marker, which therefore outlives the emptying: a marker made anew
could be locked by two.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.foundation.errors import ConfigError

MARKER = "made-by-tidemark-demo"
"""A file that says: this folder was made by the demo and may be emptied by the next one."""

MARKER_TEXT = b"Everything in here is removed by the next run of the demo.\n"


@contextmanager
def fresh_home(home: Path) -> Iterator[Path]:
    """An empty folder at `home`, for one demo alone until the block ends.

    Raises ConfigError when it holds something the demo did not make, or when a demo plays in it;
    SIGKILL frees it by itself.
    """
    home = home.absolute()
    if home.exists() and not _ours_to_empty(home):
        raise ConfigError(
            "home", str(home), "a folder that is empty, absent or made by an earlier demo"
        )
    home.mkdir(parents=True, exist_ok=True)
    marker = os.open(home / MARKER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "home", str(home), "a demo is playing in it; stop that one, or choose another home"
            ) from None
        os.pwrite(marker, MARKER_TEXT, 0)
        _empty(home)
        (home / "logs").mkdir()
        yield home
    finally:
        os.close(marker)


def _ours_to_empty(home: Path) -> bool:
    return home.is_dir() and ((home / MARKER).exists() or not any(home.iterdir()))


def _empty(home: Path) -> None:
    """Remove everything but the marker."""
    for path in home.iterdir():
        if path.name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
