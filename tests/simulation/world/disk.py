"""A virtual disk per node that knows what was synced and what was only written.

Persistence model (after ALICE): a process crash keeps everything that was written; a power cut
keeps all that was synced, and of the unsynced writes of each file either a random prefix, the last
of them possibly torn, or any subset of their sectors. Creations, renames and removals, of folders
as well, survive it only up to a random prefix of those made since the folder they are in was last
synced. A file that was never synced, or whose folder was not, may be gone.

When a scenario says so, bits of what was synced flip, the node down or up; reads of some files
fail, syncs fail, there is no room, and what blocks on the disk is slow or stands still.

Absent on purpose: timing (syncs take a drawn virtual time).
"""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from engine.foundation.errors import DiskFull, StorageError
from engine.runtime.kernel import UnwrittenPages
from tests.sparse_files import written_from

if TYPE_CHECKING:
    from tests.simulation.world.world import World

Answer = TypeVar("Answer")
Data = bytes | bytearray | memoryview
SECTOR_BYTES = 512


@dataclass(slots=True)
class _Inode:
    """A file's bytes as the kernel shows them, and what is known to be on the platter."""

    image: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # (position, data) or (new size, None)
    mirrors: list[bytearray] = field(default_factory=list)
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if end > len(self.image):
            self._resize(end)
        self.image[position:end] = data
        for mirror in self.mirrors:  # Views taken before the file grew still show later writes.
            if position < len(mirror):
                part = data[: len(mirror) - position]
                mirror[position : position + len(part)] = part
        self.unsynced.append((position, data))

    def resize(self, size_bytes: int) -> None:
        if size_bytes != len(self.image):
            self._resize(size_bytes)
            self.unsynced.append((size_bytes, None))

    def _resize(self, size_bytes: int) -> None:
        fresh = bytearray(size_bytes)
        keep = min(size_bytes, len(self.image))
        fresh[:keep] = self.image[:keep]
        self.mirrors.append(self.image)
        self.image = fresh

    def sync(self) -> None:
        self.durable = bytes(self.image)
        self.unsynced.clear()

    def power_cut(self, chance: random.Random) -> None:
        """Keep the synced bytes, and of the later writes what chance has it."""
        survivor = bytearray(self.durable)
        for position, data in self._prefix(chance) if chance.random() < 0.5 else self._some(chance):
            if data is None:
                survivor = survivor[:position].ljust(position, b"\0")
                continue
            end = position + len(data)
            survivor = survivor.ljust(end, b"\0")
            survivor[position:end] = data
        self.image = survivor
        self.mirrors.clear()
        self.sync()

    def _prefix(self, chance: random.Random) -> Iterator[tuple[int, bytes | None]]:
        """The first of the unsynced writes, the last of these torn."""
        kept = chance.randint(0, len(self.unsynced))
        for number, (position, data) in enumerate(self.unsynced[:kept], 1):
            torn = data is not None and number == kept
            yield position, data[: chance.randint(0, len(data))] if data and torn else data

    def _some(self, chance: random.Random) -> Iterator[tuple[int, bytes | None]]:
        """Any of the sectors of the unsynced writes, and of the changes of length."""
        likely = chance.random()
        for position, data in self.unsynced:
            at = 0
            while data is not None and at < len(data):
                length = SECTOR_BYTES - (position + at) % SECTOR_BYTES
                if chance.random() < likely:
                    yield position + at, data[at : at + length]
                at += length
            if data is None and chance.random() < likely:
                yield position, None

    @property
    def used_bytes(self) -> int:
        """Behind the last synced byte that is not zero: files are made in their full length."""
        return len(self.durable.rstrip(b"\0"))

    def flip(self, bit: int) -> None:
        """One synced bit is another from now on."""
        mask, position = 1 << bit % 8, bit // 8
        durable = bytearray(self.durable)
        durable[position] ^= mask
        self.durable = bytes(durable)
        for shown in (self.image, *self.mirrors):
            if position < len(shown):
                shown[position] ^= mask


@dataclass(slots=True)
class _Folder:
    entries: dict[str, _Inode | _Folder] = field(default_factory=dict)
    durable: dict[str, _Inode | _Folder] = field(default_factory=dict)
    unsynced: list[dict[str, _Inode | _Folder]] = field(
        default_factory=list
    )  # The folder after each later change.

    def files(self) -> dict[str, _Inode]:
        return {name: each for name, each in self.entries.items() if isinstance(each, _Inode)}

    def changed(self) -> None:
        self.unsynced.append(dict(self.entries))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsynced.clear()

    def power_cut(self, chance: random.Random) -> None:
        """Keep the synced entries, and a prefix of the later changes of them."""
        states = [self.durable, *self.unsynced]
        self.entries = dict(states[chance.randint(0, len(states) - 1)])
        self.sync()


class VirtualDisk:
    """The platter of one node; outlives its crashes. `mount` gives the port the engine uses until
    the next crash.
    """

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.folders: dict[str, _Folder] = {"/": _Folder()}
        self.locks: dict[str, MountedFile] = {}
        self.free_bytes: int | None = None
        self.fail_syncs = False
        self.fail_reads: str | None = None
        """Reads of files whose path holds this text fail."""
        self.still_until_s = 0.0
        """What blocks on the disk waits until then, in virtual time."""
        self.slow_s = 0.0
        """What blocks on the disk takes up to this much longer, and at least half of it."""

    async def take_time(self) -> None:
        """What blocks on the disk does so beside the event loop: others run meanwhile."""
        chance, now_s = self.world.random, asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self.still_until_s - now_s))
        await asyncio.sleep(
            chance.uniform(0.0001, 0.005)
            + (chance.uniform(self.slow_s / 2, self.slow_s) if self.slow_s else 0.0)
        )

    def mount(self) -> MountedDisk:
        return MountedDisk(self)

    def crash(self, *, power_cut: bool) -> None:
        """The node dies; with `power_cut` the unsynced part of its data does, too, as far as
        chance has it.
        """
        self.locks.clear()
        if not power_cut:
            return
        chance, waiting, left = self.world.random, [("/", self.folders["/"])], {}
        while waiting:
            path, folder = waiting.pop()
            folder.power_cut(chance)
            left[path] = folder
            for name, each in folder.entries.items():
                if isinstance(each, _Folder):
                    waiting.append((posixpath.join(path, name), each))
        self.folders = left
        seen: dict[int, None] = {}
        for folder in left.values():
            for inode in folder.files().values():
                if id(inode) not in seen:
                    seen[id(inode)] = None
                    inode.power_cut(chance)

    def has_synced(self, below: str) -> bool:
        """Is anything but zeros synced in the files below the folder?"""
        return bool(self._synced(below))

    def _synced(self, below: str) -> dict[str, _Inode]:
        return {
            posixpath.join(path, name): inode
            for path, folder in sorted(self.folders.items())
            if path == below or path.startswith(f"{below}/")
            for name, inode in sorted(folder.files().items())
            if inode.used_bytes
        }

    def flip_a_bit(self, below: str) -> tuple[str, int]:
        """Flip a synced bit of a file below the folder; which file, and which byte of it."""
        files = self._synced(below)
        assert files, f"nothing is synced below {below}"
        path = self.world.random.choice(sorted(files))
        bit = self.world.random.randrange(8 * files[path].used_bytes)
        files[path].flip(bit)
        self.world.trace_event("flip", self.host, f"{path} {bit}".encode())
        return path, bit // 8


class MountedFile:
    """The `File` port over an inode, until its node crashes."""

    def __init__(self, disk: MountedDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    @property
    def path(self) -> str:
        return self._path

    def size_bytes(self) -> int:
        return len(self._inode.image)

    def pwrite(self, data: Data, position: int) -> None:
        self._disk.write_into(self._inode, position, bytes(data))

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self.pwrite(b"".join(bytes(part) for part in parts), position)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check_read(self._path)
        return bytes(self._inode.image[position : position + length])

    def written_from(self, position: int) -> tuple[int, int] | None:
        return written_from(self._inode.image, position)

    def view(self) -> memoryview:
        self._disk.check_read(self._path)
        return memoryview(self._inode.image).toreadonly()

    def truncate(self, size_bytes: int) -> None:
        self._disk.check_alive()
        self._inode.resize(size_bytes)

    def allocate(self, size_bytes: int) -> None:
        self._disk.check_alive()
        if size_bytes > len(self._inode.image):
            self._inode.resize(size_bytes)

    def sync(self) -> None:
        self._disk.sync_inode(self._inode)

    async def sync_async(self) -> None:
        await self._disk.platter.take_time()
        self.sync()

    def lock(self) -> bool:
        self._disk.check_alive()
        return self._disk.platter.locks.setdefault(self._path, self) is self

    def close(self) -> None:
        if self._disk.platter.locks.get(self._path) is self:
            del self._disk.platter.locks[self._path]


class MountedDisk:
    """The `Disk` port of one life of a node."""

    def __init__(self, platter: VirtualDisk) -> None:
        self.platter = platter
        self.alive = True

    def check_alive(self) -> None:
        if not self.alive:
            raise StorageError(f"node {self.platter.host} is down")

    def check_read(self, path: str) -> None:
        failing = self.platter.fail_reads
        if failing is not None and failing in path:
            raise StorageError(f"reading {path}: Input/output error")

    def write_into(self, inode: _Inode, position: int, data: bytes) -> None:
        self.check_alive()
        free_bytes = self.platter.free_bytes
        if free_bytes is not None:
            grows = max(0, position + len(data) - len(inode.image))
            if grows > free_bytes:
                raise DiskFull(f"writing on {self.platter.host}: no space left on the device")
            self.platter.free_bytes = free_bytes - grows
        inode.write(position, data)
        inode.modified_ms = self.platter.world.now_ms()
        self.platter.world.trace_event("write", self.platter.host, data)

    def sync_inode(self, inode: _Inode) -> None:
        self.check_alive()
        if self.platter.fail_syncs:
            raise StorageError(f"syncing on {self.platter.host}: Input/output error")
        inode.sync()

    async def off_loop(self, work: Callable[[], Answer]) -> Answer:
        """Other tasks run before `work` does, and it may find its node dead."""
        await self.platter.take_time()
        self.check_alive()
        return work()

    def open(self, path: str, *, create: bool = False) -> MountedFile:
        self.check_alive()
        folder, name = self._locate(path)
        if name not in folder.entries:
            if not create:
                raise StorageError(f"opening {path}: No such file or directory")
            folder.entries[name] = _Inode(modified_ms=self.platter.world.now_ms())
            folder.changed()
        inode = folder.entries[name]
        if isinstance(inode, _Folder):
            raise StorageError(f"opening {path}: Is a directory")
        return MountedFile(self, path, inode)

    def exists(self, path: str) -> bool:
        if self.is_directory(path):
            return True
        folder = self.platter.folders.get(posixpath.dirname(path))
        return folder is not None and posixpath.basename(path) in folder.entries

    def is_directory(self, path: str) -> bool:
        return _clean(path) in self.platter.folders

    def names(self, path: str) -> list[str]:
        folder = self.platter.folders.get(_clean(path))
        return [] if folder is None else sorted(folder.entries)

    def make_directories(self, path: str) -> None:
        self.check_alive()
        clean = _clean(path)
        if clean in self.platter.folders:
            return
        self.make_directories(posixpath.dirname(clean))
        folder, name = self._locate(clean)
        folder.entries[name] = self.platter.folders[clean] = _Folder()
        folder.changed()

    def read(self, path: str) -> bytes:
        self.check_read(path)
        return bytes(self.open(path)._inode.image)

    def write(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)

    def rename(self, source: str, target: str) -> None:
        self.check_alive()
        from_folder, from_name = self._locate(source)
        to_folder, to_name = self._locate(target)
        if from_name not in from_folder.entries:
            raise StorageError(f"renaming {source}: No such file or directory")
        to_folder.entries[to_name] = from_folder.entries.pop(from_name)
        from_folder.changed()
        if to_folder is not from_folder:
            to_folder.changed()

    def remove(self, path: str) -> None:
        self.check_alive()
        folder, name = self._locate(path)
        if folder.entries.pop(name, None) is not None:
            folder.changed()

    def remove_directory(self, path: str) -> None:
        clean = _clean(path)
        if clean in self.platter.folders and not self.names(path):
            del self.platter.folders[clean]
            folder, name = self._locate(clean)
            del folder.entries[name]
            folder.changed()

    def sync_file(self, path: str) -> None:
        self.open(path).sync()

    def sync_directory(self, path: str) -> None:
        self.check_alive()
        folder = self.platter.folders.get(_clean(path))
        if folder is None:
            raise StorageError(f"syncing folder {path}: No such file or directory")
        folder.sync()

    def modified_ms(self, path: str) -> int:
        return self.open(path)._inode.modified_ms

    def space_bytes(self, path: str) -> tuple[int, int]:
        del path
        return 1 << 40, 1 << 39

    def used_ratio(self, path: str) -> float:
        del path
        return (
            0.5
            if self.platter.free_bytes is None
            else (0.99 if self.platter.free_bytes < 4096 else 0.5)
        )

    def fetched_bytes(self) -> int | None:
        """See `Disk.fetched_bytes`: these disks have no memory beside them."""
        return None

    def unwritten_pages(self) -> UnwrittenPages:
        unsynced = [
            len(data or b"")
            for folder in self.platter.folders.values()
            for inode in folder.files().values()
            for _, data in inode.unsynced
        ]
        return UnwrittenPages(sum(unsynced), 0)

    def _locate(self, path: str) -> tuple[_Folder, str]:
        folder = self.platter.folders.get(posixpath.dirname(path))
        if folder is None:
            raise StorageError(f"opening {path}: No such file or directory")
        return folder, posixpath.basename(path)


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"
