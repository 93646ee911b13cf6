"""Creates or empties the demo folder and locks it while the demo runs.

Invariant: only what a demo makes is removed, in a folder that an earlier demo made and in which
none plays: any other store beside it stays. The lock is on the marker, which therefore outlives the
emptying: a marker made anew could be locked by two.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.foundation.errors import ConfigError

MARKER = "made-by-tidemark-demo"
"""A file that says: what a demo makes in this folder may be removed by the next one."""

MADE: Final = ("accounts", "lake", "ledgers", "logs", "rocketmq", "store")
"""What a demo makes in its folder."""

MARKER_TEXT: Final = f"The next run of the demo removes: {', '.join(MADE)}.\n".encode()


@contextmanager
def fresh_home(home: Path) -> Iterator[Path]:
    """A folder at `home` without anything of an earlier demo, for one alone until the block ends.

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
        os.ftruncate(marker, 0)
        os.pwrite(marker, MARKER_TEXT, 0)
        _empty(home)
        (home / "logs").mkdir()
        yield home
    finally:
        os.close(marker)


def _ours_to_empty(home: Path) -> bool:
    return home.is_dir() and ((home / MARKER).exists() or not any(home.iterdir()))


def _empty(home: Path) -> None:
    """Remove what an earlier demo made."""
    for path in (home / name for name in MADE):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
