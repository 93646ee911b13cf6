"""The spool, which stores telemetry rows in segment files for the shipper.

Place in the walk: after `events`, before the shipper. A write that returned survives SIGKILL; what
`sync` returned for survives a power cut.

Invariant: the newest segment always begins with a Life that holds every mark, in one frame and one
write; an older segment may vanish at any time (the shipper drops it), the newest never.

A heartbeat says only that time went on, so the next frame is written over it: an idle broker's
spool does not grow. Every later frame is at least as long, so nothing of it is left behind.

A spool that finds no room for its first Life has no segment yet: `begin` is tried again, and
nothing can be written before.

Absent on purpose: what a row means, what to do when a write fails. Both are the caller's.
"""

from __future__ import annotations

from functools import partial

from engine.foundation.errors import StorageError
from engine.runtime import Disk, File
from engine.telemetry.frames import Life, encode_frame
from engine.telemetry.segments import Restored, first_seq_of, segment_name, segment_names


class Spool:
    """The segment being written, and the sizes of those before it."""

    __slots__ = (
        "_closed_sizes",
        "_directory",
        "_directory_dirty",
        "_dirty",
        "_disk",
        "_file",
        "_life_bytes",
        "_name",
        "_position",
        "_restored",
        "_rolled",
        "_segment_bytes",
    )

    def __init__(
        self, disk: Disk, directory: str, restored: Restored, *, segment_bytes: int
    ) -> None:
        """Go on after `restored`, once `begin` has succeeded."""
        self._disk = disk
        self._directory = directory
        self._restored = restored
        self._segment_bytes = segment_bytes
        self._closed_sizes = dict(restored.sizes)
        self._rolled: list[File] = []
        self._dirty = False
        self._directory_dirty = False
        self._file: File | None = None
        self._name = ""
        self._position = self._life_bytes = 0

    @property
    def has_begun(self) -> bool:
        """Is there a segment to write into?"""
        return self._file is not None

    def begin(self, life: Life) -> None:
        """Begin the first segment of this `life`; `sync` makes it last.

        Raises DiskFull or StorageError; then nothing of it is left behind.
        """
        assert self._file is None, "begun already"
        restored, name = self._restored, segment_name(life.first_seq)
        goes_on = restored.newest == name  # It has no rows: the new life goes on in it.
        path, at = f"{self._directory}/{name}", restored.end if goes_on else 0
        header = encode_frame(life)
        file = self._disk.open(path, create=not goes_on)
        try:
            file.pwrite(header, at)
        except StorageError:
            if goes_on:
                file.truncate(at)
            file.close()
            if not goes_on:
                self._disk.remove(path)
            raise
        self._closed_sizes.pop(name, None)
        self._file, self._name, self._position = file, name, at + len(header)
        self._life_bytes = self._position
        self._dirty = self._directory_dirty = True

    def sync_at_once(self) -> None:
        """As `sync`, at boot, when nobody waits for the event loop. Raises StorageError."""
        assert self._file is not None, "not begun"
        self._file.sync()
        self._disk.sync_directory(self._directory)
        self._dirty = self._directory_dirty = False

    @property
    def wants_roll(self) -> bool:
        """Is the segment full?

        The Life at its start does not count, or many marks would make it full at once.
        """
        return self._position - self._life_bytes >= self._segment_bytes

    @property
    def first_seq(self) -> int:
        """First seq of the segment being written."""
        return first_seq_of(self._name)

    def size_bytes(self) -> int:
        """All segments together, as far as known here; `refresh` finds out which ones were shipped
        meanwhile."""
        return sum(self._closed_sizes.values()) + self._position

    def refresh(self) -> None:
        """Forget the segments that the shipper has dropped."""
        present = set(segment_names(self._disk, self._directory))
        self._closed_sizes = {
            name: size for name, size in self._closed_sizes.items() if name in present
        }

    def write(self, data: bytes, *, heartbeat: bool = False) -> None:
        """Write one frame. Raises StorageError; then nothing of `data` counts as written."""
        assert self._file is not None, "not begun"
        self._file.pwrite(data, self._position)
        if not heartbeat:
            self._position += len(data)
        self._dirty = True

    def discard_tail(self) -> None:
        """After a failed write: cut what it left behind, so that no reader meets half a frame for
        long."""
        if self._file is not None:
            self._file.truncate(self._position)

    def roll(self, first_seq: int, header: bytes) -> None:
        """Begin the next segment with `header`, the frame of a life from `first_seq` on. Raises
        StorageError; then the old segment goes on.

        The old segment must hold a row, or both would have the same name.
        """
        assert first_seq > self.first_seq, "a segment without rows has no successor"
        name = segment_name(first_seq)
        path = f"{self._directory}/{name}"
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(header, 0)
        except StorageError:
            file.close()
            self._disk.remove(path)
            raise
        assert self._file is not None, "not begun"
        self._rolled.append(self._file)
        self._closed_sizes[self._name] = self._position
        self._file, self._name, self._position = file, name, len(header)
        self._life_bytes = self._position
        self._dirty = self._directory_dirty = True

    async def sync(self) -> None:
        """Put everything written so far on stable storage, oldest first.

        Raises StorageError; not to be tried again.
        """
        while self._rolled:
            file = self._rolled[0]
            try:
                await file.sync_async()
            finally:
                self._rolled.pop(0)
                file.close()
        if self._directory_dirty:
            self._directory_dirty = False
            await self._disk.off_loop(partial(self._disk.sync_directory, self._directory))
        if self._dirty and self._file is not None:
            self._dirty = False
            await self._file.sync_async()

    def close(self) -> None:
        """Give the files back; unsynced bytes stay as they are."""
        for file in (*self._rolled, self._file):
            if file is not None:
                file.close()
        self._rolled.clear()
