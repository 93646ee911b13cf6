"""File interface: positional writes, read-only mappings, data sync and durable renames.

Writing goes through `pwrite` and `fdatasync`, reading through a shared read-only mapping: on
Linux both see the same page cache. `mmap.flush` is not used, because it holds the interpreter
while the kernel writes. `ReadOnlyDisk` changes nothing.

Invariant: what `sync` returned for survives a power cut; a rename survives it after
`sync_directory` of its folder. Absent on purpose: record formats, retries. A failed sync is never
retried: the pages it lost are marked clean.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from engine.foundation.errors import DiskFull, StorageError
from engine.runtime.kernel import UnwrittenPages, fetched_bytes, unwritten_pages

Answer = TypeVar("Answer")


class File(Protocol):
    """An open file of bytes with positional access."""

    @property
    def path(self) -> str:
        """Where the file was opened."""

    def size_bytes(self) -> int:
        """Length of the file now."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`; it survives SIGKILL from then on.

        Raises DiskFull or StorageError.
        """

    def pwritev(self, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        """Write `parts` one after the other at `position`, in as few system calls as possible."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes at `position`; shorter at the end of the file."""

    def written_from(self, position: int) -> tuple[int, int] | None:
        """The first stretch [begin, end) at or behind `position` that was ever written; None when
        there is none. What lies between stretches reads as zeros, and costs nothing to pass over.
        """

    def view(self) -> memoryview:
        """A read-only view of the file as it is long now; later writes inside it show through.

        Release it before `close`. An empty file gives an empty view.
        """

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend (with zeros) to `size_bytes`."""

    def allocate(self, size_bytes: int) -> None:
        """Reserve `size_bytes` and extend to them with zeros; never shrinks. Raises DiskFull."""

    def sync(self) -> None:
        """Block until the file's data are on stable storage (fdatasync).

        Raises StorageError; a second try could succeed and mean nothing.
        """

    async def sync_async(self) -> None:
        """As `sync`, without holding the event loop."""

    def lock(self) -> bool:
        """Take the file for this opening alone, until `close`; False when another has it.

        Excludes other openings in this process and other processes, a Java broker included.
        """

    def close(self) -> None:
        """Give the descriptor back; a second close does nothing."""


class Disk(Protocol):
    """A file system."""

    async def off_loop(self, work: Callable[[], Answer]) -> Answer:
        """Run `work`, which blocks on files, beside the event loop; its answer or error comes back.

        `work` must touch nothing but the files it was given: it runs beside the loop.
        """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes it when missing.

        Raises StorageError when it is absent, or its folder is.
        """

    def exists(self, path: str) -> bool:
        """Is there a file or folder of that name?"""

    def is_directory(self, path: str) -> bool:
        """Is it a folder?"""

    def names(self, path: str) -> list[str]:
        """Names inside a folder, sorted; empty when there is no such folder."""

    def make_directories(self, path: str) -> None:
        """Make a folder and its parents, mode 0700; nothing happens when it is there."""

    def read(self, path: str) -> bytes:
        """The whole file. Raises StorageError when absent."""

    def write(self, path: str, data: bytes) -> None:
        """Replace the whole file, in place, not synced."""

    def rename(self, source: str, target: str) -> None:
        """Atomic replace within one file system."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder; nothing happens when it is absent or not empty."""

    def sync_file(self, path: str) -> None:
        """Open, sync, close."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals inside a folder survive a power cut."""

    def modified_ms(self, path: str) -> int:
        """Time of the last change, milliseconds since 1970."""

    def space_bytes(self, path: str) -> tuple[int, int]:
        """Size of the file system that holds `path`, and what of it is free for us."""

    def used_ratio(self, path: str) -> float:
        """Used share of the file system that holds `path`, 0.0 to 1.0."""

    def unwritten_pages(self) -> UnwrittenPages | None:
        """What the kernel has not written yet; None where it does not report."""

    def fetched_bytes(self) -> int | None:
        """What this process had read from storage since it began, for it was not in memory; None
        where the kernel does not report.
        """


def storage_error(doing: str, path: str, error: OSError) -> StorageError:
    """What an error of the machine means to a store."""
    # A sync that finds no room has lost what it was to save; DiskFull says that nothing is lost.
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and not doing.startswith("syncing"):
        return DiskFull(
            f"{doing} {path}: no space left on the device; free some, writes resume by themselves"
        )
    return StorageError(f"{doing} {path}: {error.strerror or error}")


class _SystemFile:
    __slots__ = ("_closed", "_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):  # A short write: finish it, or learn why not.
                rest = memoryview(data)
                while written < len(rest):
                    written += os.pwrite(self._descriptor, rest[written:], position + written)
        except OSError as error:
            raise storage_error("writing", self._path, error) from error

    def pwritev(self, parts: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        for first in range(0, len(parts), 1024):  # IOV_MAX of Linux.
            chunk = parts[first : first + 1024]
            total = sum(len(part) for part in chunk)
            try:
                written = os.pwritev(self._descriptor, chunk, position)
            except OSError as error:
                raise storage_error("writing", self._path, error) from error
            if written != total:
                self.pwrite(b"".join(chunk)[written:], position + written)
            position += total

    def pread(self, length: int, position: int) -> bytes:
        try:
            return os.pread(self._descriptor, length, position)
        except OSError as error:
            raise storage_error("reading", self._path, error) from error

    def written_from(self, position: int) -> tuple[int, int] | None:
        try:
            begin = os.lseek(self._descriptor, position, os.SEEK_DATA)
            return begin, os.lseek(self._descriptor, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Zeros to the end, or nothing.
                return None
            raise storage_error("reading", self._path, error) from error

    def view(self) -> memoryview:
        size_bytes = self.size_bytes()
        if size_bytes == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, size_bytes, prot=mmap.PROT_READ))

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise storage_error("truncating", self._path, error) from error

    def allocate(self, size_bytes: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size_bytes)
        except OSError as error:
            raise storage_error("allocating", self._path, error) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise storage_error("syncing", self._path, error) from error

    async def sync_async(self) -> None:
        await asyncio.to_thread(self.sync)

    def lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # The byte Java locks.
        except BlockingIOError:
            return False
        except OSError as error:
            raise storage_error("locking", self._path, error) from error
        return True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)


def _owners_alone(path: str, flags: int) -> int:
    """Open a file that, if it is new, nobody else may read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class SystemDisk:
    """The machine's file system."""

    __slots__ = ()
    access = os.O_RDWR
    """How files are opened."""

    async def off_loop(self, work: Callable[[], Answer]) -> Answer:
        """See `Disk.off_loop`."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def open(self, path: str, *, create: bool = False) -> File:
        """See `Disk.open`."""
        flags = self.access | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return _SystemFile(path, os.open(path, flags, 0o600))
        except OSError as error:
            raise storage_error("opening", path, error) from error

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """See `Disk.is_directory`."""
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """See `Disk.names`."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("listing", path, error) from error

    def make_directories(self, path: str) -> None:
        """See `Disk.make_directories`."""
        parent = os.path.dirname(path.rstrip("/"))
        if parent and not os.path.isdir(parent):
            self.make_directories(parent)  # os.makedirs gives its mode to the last folder only.
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            if not os.path.isdir(path):
                raise storage_error("making folder", path, error) from error

    def read(self, path: str) -> bytes:
        """See `Disk.read`."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise storage_error("reading", path, error) from error

    def write(self, path: str, data: bytes) -> None:
        """See `Disk.write`."""
        try:
            with open(path, "wb", opener=_owners_alone) as file:
                file.write(data)
        except OSError as error:
            raise storage_error("writing", path, error) from error

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`."""
        try:
            os.replace(source, target)
        except OSError as error:
            raise storage_error("renaming", source, error) from error

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("removing", path, error) from error

    def remove_directory(self, path: str) -> None:
        """See `Disk.remove_directory`."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise storage_error("removing folder", path, error) from error

    def sync_file(self, path: str) -> None:
        """See `Disk.sync_file`."""
        file = self.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def sync_directory(self, path: str) -> None:
        """See `Disk.sync_directory`."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error("syncing folder", path, error) from error

    def modified_ms(self, path: str) -> int:
        """See `Disk.modified_ms`."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_error("looking at", path, error) from error

    def space_bytes(self, path: str) -> tuple[int, int]:
        """See `Disk.space_bytes`."""
        try:
            usage = os.statvfs(path)
        except OSError as error:
            raise storage_error("measuring", path, error) from error
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def used_ratio(self, path: str) -> float:
        """See `Disk.used_ratio`."""
        try:
            usage = os.statvfs(path)
        except OSError as error:
            raise storage_error("measuring", path, error) from error
        used_blocks = usage.f_blocks - usage.f_bfree
        # As df counts: root's reserved share is neither used nor to be had.
        return used_blocks / max(used_blocks + usage.f_bavail, 1)

    def unwritten_pages(self) -> UnwrittenPages | None:
        """See `Disk.unwritten_pages`."""
        return unwritten_pages()

    def fetched_bytes(self) -> int | None:
        """See `Disk.fetched_bytes`."""
        return fetched_bytes()


class ReadOnlyDisk(SystemDisk):
    """What would change something raises StorageError."""

    __slots__ = ()
    access = os.O_RDONLY

    def open(self, path: str, *, create: bool = False) -> File:
        """See `Disk.open`; the file cannot be written."""
        if create and not self.exists(path):
            raise _refused(path)
        return super().open(path)

    def make_directories(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def write(self, path: str, data: bytes) -> None:
        """Refused."""
        del data
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        del target
        raise _refused(source)

    def remove(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def remove_directory(self, path: str) -> None:
        """Refused."""
        raise _refused(path)


def _refused(path: str) -> StorageError:
    return StorageError(f"{path}: opened to be read only")
