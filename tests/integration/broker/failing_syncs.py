"""`tidemark` on a machine whose disk breaks: every sync of matching files fails from then on that
the file named by TIDEMARK_BROKEN_DISK exists; it holds the name of the error and their pattern.

    python -m tests.integration.broker.failing_syncs broker --store ...

The command and all it runs are the product's own; only the machine's two sync calls are replaced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from tidemark import main

SWITCH = "TIDEMARK_BROKEN_DISK"
"""Environment variable that names the file, which holds for example `EIO /commitlog/`."""


def breaking(sync: Callable[[int], None]) -> Callable[[int], None]:
    """`sync`, failing as a broken disk does."""
    switch = Path(os.environ[SWITCH])

    def work(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if switch.exists():
            name, pattern = switch.read_text().split()
            if pattern in path:
                number = getattr(errno, name)
                raise OSError(number, os.strerror(number))
        sync(descriptor)

    return work


if __name__ == "__main__":
    os.fdatasync, os.fsync = breaking(os.fdatasync), breaking(os.fsync)  # type: ignore[assignment]
    main()
