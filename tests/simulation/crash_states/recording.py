"""A disk in memory that keeps every change in order, so that `states` can cut anywhere.

It implements the `Disk` port. Work "beside the loop" runs at once: interleavings are the business
of the other simulator; here only the order of changes counts.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from engine.foundation.errors import StorageError
from engine.runtime.kernel import UnwrittenPages
from tests.sparse_files import written_from

Answer = TypeVar("Answer")
Data = bytes | bytearray | memoryview
Tree = dict[str, "bytes | None"]
"""Path → content, None for a folder: what a power cut left, or where a recording begins."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing asked of the disk. `target` is the number of a file, or a folder's path."""

    kind: Literal["write", "resize", "sync", "link", "unlink", "rename", "sync_folder"]
    target: int | str
    position: int = 0
    """Of a write; of a resize the new size; of a link the file's number, -1 for a folder."""
    data: bytes = b""
    name: str = ""
    new_name: str = ""


@dataclass(slots=True, eq=False)
class Content:
    """The bytes of one file, whatever it is called."""

    number: int
    image: bytearray
    mirrors: list[bytearray] = field(default_factory=list)
    """Earlier buffers, which views of a shorter or longer time still show."""


class RecordingDisk:
    """Begins with `tree`, all of it durable; `changes` grows from there."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.changes: list[Change] = []
        self.contents: list[Content] = []
        self.folders: dict[str, dict[str, Content]] = {"/": {}}
        self.start: Tree = {"/": None, **(tree or {})}
        self.locks: dict[str, RecordingFile] = {}
        for path, data in sorted(self.start.items()):
            if data is None:
                self.folders.setdefault(path, {})
            else:
                self.folders[posixpath.dirname(path)][posixpath.basename(path)] = self._new(data)

    def _new(self, data: bytes) -> Content:
        content = Content(len(self.contents), bytearray(data))
        self.contents.append(content)
        return content

    def tree(self) -> Tree:
        """What the running process sees."""
        found: Tree = dict.fromkeys(self.folders)
        for folder, entries in self.folders.items():
            for name, content in entries.items():
                found[posixpath.join(folder, name)] = bytes(content.image)
        return found

    # ---- the port ---------------------------------------------------------------------------

    async def off_loop(self, work: Callable[[], Answer]) -> Answer:
        await asyncio.sleep(0)
        return work()

    def open(self, path: str, *, create: bool = False) -> RecordingFile:
        folder, name = self._locate(path)
        entries = self.folders[folder]
        if name not in entries:
            if not create:
                raise StorageError(f"opening {path}: No such file or directory")
            entries[name] = self._new(b"")
            self.changes.append(Change("link", folder, entries[name].number, name=name))
        return RecordingFile(self, path, entries[name])

    def exists(self, path: str) -> bool:
        if self.is_directory(path):
            return True
        folder = self.folders.get(posixpath.dirname(path))
        return folder is not None and posixpath.basename(path) in folder

    def is_directory(self, path: str) -> bool:
        return _clean(path) in self.folders

    def names(self, path: str) -> list[str]:
        clean = _clean(path)
        if clean not in self.folders:
            return []
        inside = [each for each in self.folders if each != "/" and posixpath.dirname(each) == clean]
        return sorted([*self.folders[clean], *(posixpath.basename(each) for each in inside)])

    def make_directories(self, path: str) -> None:
        clean = _clean(path)
        if clean in self.folders:
            return
        parent = posixpath.dirname(clean)
        self.make_directories(parent)
        self.folders[clean] = {}
        self.changes.append(Change("link", parent, -1, name=posixpath.basename(clean)))

    def read(self, path: str) -> bytes:
        return bytes(self.open(path).content.image)

    def write(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)

    def rename(self, source: str, target: str) -> None:
        folder, name = self._locate(source)
        to_folder, to_name = self._locate(target)
        assert folder == to_folder, "the engine renames inside a folder only"
        if name not in self.folders[folder]:
            raise StorageError(f"renaming {source}: No such file or directory")
        self.folders[folder][to_name] = self.folders[folder].pop(name)
        self.changes.append(Change("rename", folder, name=name, new_name=to_name))

    def remove(self, path: str) -> None:
        folder, name = self._locate(path)
        if self.folders[folder].pop(name, None) is not None:
            self.changes.append(Change("unlink", folder, name=name))

    def remove_directory(self, path: str) -> None:
        clean = _clean(path)
        if clean in self.folders and not self.names(clean):
            del self.folders[clean]
            parent, name = posixpath.split(clean)
            self.changes.append(Change("unlink", parent, name=name))

    def sync_file(self, path: str) -> None:
        self.open(path).sync()

    def sync_directory(self, path: str) -> None:
        clean = _clean(path)
        if clean not in self.folders:
            raise StorageError(f"syncing folder {path}: No such file or directory")
        self.changes.append(Change("sync_folder", clean))

    def modified_ms(self, path: str) -> int:
        self.open(path)
        return 0

    def used_ratio(self, path: str) -> float:
        return 0.1

    def fetched_bytes(self) -> int | None:
        """See `Disk.fetched_bytes`: nothing is known."""
        return None

    def unwritten_pages(self) -> UnwrittenPages | None:
        return None

    def _locate(self, path: str) -> tuple[str, str]:
        folder, name = posixpath.split(path)
        if folder not in self.folders:
            raise StorageError(f"opening {path}: No such file or directory")
        return folder, name


class RecordingFile:
    """The `File` port over a content."""

    def __init__(self, disk: RecordingDisk, path: str, content: Content) -> None:
        self._disk = disk
        self._path = path
        self.content = content

    @property
    def path(self) -> str:
        return self._path

    def size_bytes(self) -> int:
        return len(self.content.image)

    def pwrite(self, data: Data, position: int) -> None:
        content, written = self.content, bytes(data)
        end = position + len(written)
        if end > len(content.image):
            self._resize(end)
        content.image[position:end] = written
        for mirror in content.mirrors:
            part = written[: max(0, len(mirror) - position)]
            mirror[position : position + len(part)] = part
        self._disk.changes.append(Change("write", content.number, position, written))

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self.pwrite(b"".join(bytes(part) for part in parts), position)

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self.content.image[position : position + length])

    def written_from(self, position: int) -> tuple[int, int] | None:
        return written_from(self.content.image, position)

    def view(self) -> memoryview:
        return memoryview(self.content.image).toreadonly()

    def truncate(self, size_bytes: int) -> None:
        if size_bytes != len(self.content.image):
            self._resize(size_bytes)
            self._disk.changes.append(Change("resize", self.content.number, size_bytes))

    def allocate(self, size_bytes: int) -> None:
        if size_bytes > len(self.content.image):
            self.truncate(size_bytes)

    def _resize(self, size_bytes: int) -> None:
        content = self.content
        content.mirrors.append(content.image)
        content.image = bytearray(content.image[:size_bytes].ljust(size_bytes, b"\0"))

    def sync(self) -> None:
        self._disk.changes.append(Change("sync", self.content.number))

    async def sync_async(self) -> None:
        self.sync()

    def lock(self) -> bool:
        return self._disk.locks.setdefault(self._path, self) is self

    def close(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"
