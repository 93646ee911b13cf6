"""A file system of a few mebibytes in a mount namespace of its own, and programs that live on it.

No root is needed: the namespace belongs to a user namespace. The file system goes when the test
ends, however it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOUNT = 'mount -t tmpfs -o "size=$1,mode=0700" tmpfs "$2" && echo mounted && exec cat'
MAY_NOT = (
    "this test mounts a tmpfs of its own by `unshare -Urm`: run it as root, or allow user "
    "namespaces (sysctl kernel.unprivileged_userns_clone=1 "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)
BALLAST_CHUNK = bytes(64 * 1024)


@dataclass(frozen=True)
class SmallDisk:
    """A mounted file system: programs inside know it as `path`, the test as `outside`."""

    path: Path
    outside: Path
    enter: tuple[str, ...]
    """Words before a command that let it run where the file system is mounted."""

    def fill(self) -> int:
        """Take all the space that is left; returns how many bytes that was."""
        with (self.outside / "ballast").open("ab", buffering=0) as ballast:
            for size in (len(BALLAST_CHUNK), 4096, 1):
                try:
                    while ballast.write(BALLAST_CHUNK[:size]) == size:
                        pass
                except OSError:
                    continue
            return ballast.tell()

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.outside / "ballast").unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """A tmpfs of `size_bytes` at `folder`, for those who enter."""
    folder.mkdir()
    command = ["unshare", "-Urm", "sh", "-c", MOUNT, "sh", str(size_bytes), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:  # It ends with its standard input, so also when we are killed.
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "mounted\n":
                raise AssertionError(f"{MAY_NOT}: {holder.stderr.read()}")
            outside = Path(f"/proc/{holder.pid}/root{folder}")
            enter = ("nsenter", f"--target={holder.pid}", "-U", "-m", "--preserve-credentials")
            yield SmallDisk(folder, outside, (*enter, "setpriv", "--pdeathsig", "KILL"))
        finally:
            holder.kill()
