"""The machine's disk as one process sees it: when the process dies, its files are closed and its
locks free.

A test that plays several lives of a broker in one process needs that, because nothing else here
dies.
"""

from __future__ import annotations

from engine.runtime import File, SystemDisk


class MortalDisk(SystemDisk):
    """Remembers what it opened, so that `die` can close it as the kernel would."""

    __slots__ = ("_opened",)

    def __init__(self) -> None:
        self._opened: list[File] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        self._opened.append(file)
        return file

    def die(self) -> None:
        """What SIGKILL does to a process's files: nothing is written, everything is given back."""
        for file in self._opened:
            file.close()
        self._opened.clear()
