"""The machine's disk, with syncs, writes or space that fail on command.

It is a real implementation of the port (every call reaches real files), so what the store does
after a failure is seen on real files, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.foundation.errors import DiskFull, StorageError
from engine.runtime.disk import File, SystemDisk
from engine.store.mapped_file import MAKING

HOLD_S_MAX = 30
Answer = TypeVar("Answer")
Data = bytes | bytearray | memoryview


class FailingDisk(SystemDisk):
    """Works until it is switched off."""

    __slots__ = (
        *("fail_syncs", "fail_writes", "free_bytes", "hold_making", "hold_syncs"),
        *("log", "ratio", "ratios", "skip_syncs"),
    )

    def __init__(self) -> None:
        self.fail_syncs: bool | str = False
        """Syncs fail: all, or those of paths that hold this text."""
        self.fail_writes = False
        self.skip_syncs = False
        """Syncs do nothing: for many short lives in which the power stays on."""
        self.free_bytes: int | None = None
        """Bytes that new files and reservations may still take; None is plenty."""
        self.ratio: float | None = None
        """What `used_ratio` says; None asks the machine."""
        self.ratios: dict[str, float] = {}
        """The same for folders of these names, which are volumes of their own."""
        self.hold_syncs: asyncio.Event | None = None
        """Work beside the loop waits for this before it begins."""
        self.hold_making: threading.Event | None = None
        """Files that are made ahead, beside the loop, wait for this."""
        self.log: list[str] = []
        """sync, sync_directory and write calls in order, with the file's name."""

    async def off_loop(self, work: Callable[[], Answer]) -> Answer:
        if self.hold_syncs is not None:
            await self.hold_syncs.wait()
        return await super().off_loop(work)

    def open(self, path: str, *, create: bool = False) -> File:
        if self.hold_making is not None and path.endswith(MAKING):
            assert self.hold_making.wait(HOLD_S_MAX), "nobody lets it go on"
        if create and self.free_bytes is not None and not self.exists(path):
            self.take(path, 1)
        return FailingFile(self, super().open(path, create=create))

    def sync_directory(self, path: str) -> None:
        self.check_sync(path)
        self.log.append(f"sync_directory {short(path)}")
        if self.skip_syncs:
            return
        super().sync_directory(path)

    def used_ratio(self, path: str) -> float:
        ratio = self.ratios.get(path.rpartition("/")[2], self.ratio)
        return super().used_ratio(path) if ratio is None else ratio

    def take(self, path: str, size_bytes: int) -> None:
        """Use up space. Raises DiskFull when there is not that much."""
        if self.free_bytes is None:
            return
        if size_bytes > self.free_bytes:
            raise DiskFull(f"writing {path}: no space left on the device")
        self.free_bytes -= size_bytes

    def check_sync(self, path: str) -> None:
        if self.fail_syncs is True or (self.fail_syncs and self.fail_syncs in path):
            raise StorageError(f"syncing {path}: Input/output error")


class FailingFile:
    """A file of a `FailingDisk`."""

    def __init__(self, disk: FailingDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def pwrite(self, data: Data, position: int) -> None:
        if self._disk.fail_writes:
            raise StorageError(f"writing {self.path}: Input/output error")
        self._disk.log.append(f"write {short(self.path)} {position}+{len(data)}")
        self._file.pwrite(data, position)

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self._disk.log.append(f"write {short(self.path)} {position}+{sum(map(len, parts))}")
        self._file.pwritev(parts, position)

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def written_from(self, position: int) -> tuple[int, int] | None:
        return self._file.written_from(position)

    def view(self) -> memoryview:
        return self._file.view()

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)

    def allocate(self, size_bytes: int) -> None:
        self._disk.take(self.path, size_bytes)
        self._file.allocate(size_bytes)

    def sync(self) -> None:
        self._disk.check_sync(self.path)
        self._disk.log.append(f"sync {short(self.path)}")
        if not self._disk.skip_syncs:
            self._file.sync()

    async def sync_async(self) -> None:
        await self._disk.off_loop(self.sync)

    def lock(self) -> bool:
        return self._file.lock()

    def close(self) -> None:
        self._file.close()


def short(path: str) -> str:
    """The last two parts of a path."""
    return "/".join(path.split("/")[-2:])


class WatchedDisk(FailingDisk):
    """Notes the syncs that keep the event loop waiting."""

    __slots__ = ("held_the_loop",)

    def __init__(self) -> None:
        super().__init__()
        self.held_the_loop: list[str] = []

    def check_sync(self, path: str) -> None:
        with contextlib.suppress(RuntimeError):  # Beside the loop no loop is running.
            asyncio.get_running_loop()
            self.held_the_loop.append(path)
        super().check_sync(path)
