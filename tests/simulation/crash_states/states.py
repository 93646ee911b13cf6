"""Enumerates the disk states that a power cut may leave at every point of a recording.

Persistence model: of each file, what was synced is there; of the writes since then any subset of
512-byte sectors is, and any subset of the changes of its length. A folder's entries (made, renamed,
removed) survive in the order in which they were made, up to some point after its last sync: file
systems journal them in order. A file whose name did not survive is gone.

Small sets of unsynced pieces are enumerated whole; of larger ones the extremes (nothing, all, all
but one, only one) and a random sample by seed are taken.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product

from tests.simulation.crash_states.recording import Change, RecordingDisk, Tree

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Piece:
    """What reaches the disk whole or not at all: a sector, or (no data) a change of length."""

    position: int
    data: bytes | None


@dataclass(slots=True)
class FileState:
    """One file: what is durable, and the pieces that may be, too."""

    durable: bytes = b""
    pending: list[Piece] = field(default_factory=list)

    def image(self, chosen: Sequence[bool]) -> bytes:
        """The content when the chosen pieces arrived."""
        image = bytearray(self.durable)
        for piece, arrived in zip(self.pending, chosen, strict=True):
            if not arrived:
                continue
            if piece.data is None:
                image = image[: piece.position].ljust(piece.position, b"\0")
                continue
            end = piece.position + len(piece.data)
            if len(image) < end:
                image = image.ljust(end, b"\0")
            image[piece.position : end] = piece.data
        return bytes(image)


Entries = dict[str, int]
"""Name → number of the file, -1 for a folder."""


@dataclass(slots=True)
class FolderState:
    """One folder: the durable entries, and each later version of them."""

    versions: list[Entries]

    def change(self, change: Change) -> None:
        """One more version."""
        entries = dict(self.versions[-1])
        if change.kind == "link":
            entries[change.name] = change.position
        elif change.kind == "unlink":
            entries.pop(change.name)
        else:
            entries[change.new_name] = entries.pop(change.name)
        self.versions.append(entries)

    def sync(self) -> None:
        """What is there now stays."""
        del self.versions[:-1]


class Disk:
    """The disk as far as a recording has been followed."""

    def __init__(self, recording: RecordingDisk) -> None:
        self.files: dict[int, FileState] = {}
        self.folders: dict[str, FolderState] = {}
        number = 0
        for path, data in sorted(recording.start.items()):
            folder, name = posixpath.split(path)
            if data is None:
                self.folders[path] = FolderState([{}])
            if path == "/":
                continue
            self.folders[folder].versions[0][name] = -1 if data is None else number
            if data is not None:
                self.files[number] = FileState(data)
                number += 1

    def follow(self, change: Change) -> None:
        """Apply one more change."""
        if isinstance(change.target, str):
            folder = self.folders.setdefault(change.target, FolderState([{}]))
            if change.kind == "sync_folder":
                folder.sync()
                return
            folder.change(change)
            if change.kind == "link" and change.position >= 0:
                self.files[change.position] = FileState()
            elif change.kind == "link":
                self.folders[posixpath.join(change.target, change.name)] = FolderState([{}])
            return
        file = self.files[change.target]
        if change.kind == "sync":
            file.durable = file.image([True] * len(file.pending))
            file.pending.clear()
        elif change.kind == "resize":
            file.pending.append(Piece(change.position, None))
        else:
            file.pending += _sectors(change.position, change.data)

    def states(self, count_max: int, chance: random.Random) -> Iterator[Tree]:
        """Up to `count_max` trees that a power cut may leave now."""
        files = {number: file for number, file in self.files.items() if file.pending}
        folders = {path: each for path, each in self.folders.items() if len(each.versions) > 1}
        pieces = sum(len(file.pending) for file in files.values())
        names = [range(len(folder.versions)) for folder in folders.values()]
        combinations = 2**pieces
        for each in names:
            combinations *= len(each)
        if combinations <= count_max:
            choices: Iterator[tuple[tuple[bool, ...], tuple[int, ...]]] = (
                (chosen, versions)
                for chosen in product((False, True), repeat=pieces)
                for versions in product(*names)
            )
        else:
            choices = _sampled(pieces, names, count_max, chance)
        for chosen, versions in choices:
            images, at = {}, 0
            for number, file in files.items():
                images[number] = file.image(chosen[at : at + len(file.pending)])
                at += len(file.pending)
            yield self._tree(images, dict(zip(folders, versions, strict=True)))

    def _tree(self, images: dict[int, bytes], versions: dict[str, int]) -> Tree:
        tree: Tree = {"/": None}
        waiting = ["/"]
        while waiting:
            folder = waiting.pop()
            for name, number in self.folders[folder].versions[versions.get(folder, 0)].items():
                path = posixpath.join(folder, name)
                if number == -1:
                    tree[path] = None
                    waiting.append(path)
                else:
                    tree[path] = images.get(number, self.files[number].durable)
        return tree


def _sectors(position: int, data: bytes) -> list[Piece]:
    pieces, at = [], 0
    while at < len(data):
        length = min(SECTOR_BYTES - (position + at) % SECTOR_BYTES, len(data) - at)
        pieces.append(Piece(position + at, data[at : at + length]))
        at += length
    return pieces


def _sampled(
    pieces: int, names: list[range], count_max: int, chance: random.Random
) -> Iterator[tuple[tuple[bool, ...], tuple[int, ...]]]:
    """The extremes first, then chance."""
    newest, oldest = tuple(each[-1] for each in names), tuple(0 for _ in names)
    everything, nothing = (True,) * pieces, (False,) * pieces
    extremes = [(everything, newest), (nothing, newest), (everything, oldest), (nothing, oldest)]
    for number in range(pieces):
        extremes.append((_flipped(everything, number), newest))
        extremes.append((_flipped(nothing, number), newest))
    if len(extremes) > count_max:
        extremes = extremes[:4] + chance.sample(extremes[4:], max(0, count_max - 4))
    yield from extremes[:count_max]
    for _ in range(count_max - len(extremes)):
        likely = chance.random()
        yield (
            tuple(chance.random() < likely for _ in range(pieces)),
            tuple(chance.choice(each) for each in names),
        )


def _flipped(chosen: tuple[bool, ...], number: int) -> tuple[bool, ...]:
    return (*chosen[:number], not chosen[number], *chosen[number + 1 :])


def crash_states(
    recording: RecordingDisk, count_max: int, seed: str
) -> Iterator[tuple[int, Tree, bytes]]:
    """(number of changes made, what is left, its fingerprint) of `count_max` crashes or so, spread
    evenly over every point of the recording.
    """
    chance, disk = random.Random(seed), Disk(recording)
    changes = recording.changes
    share = max(4, -(-count_max // (len(changes) + 1)))
    for done in range(len(changes) + 1):
        if done:
            disk.follow(changes[done - 1])
        for tree in disk.states(share, chance):
            yield done, tree, fingerprint(tree)


def fingerprint(tree: Tree) -> bytes:
    """Equal for equal trees."""
    summary = blake2b(digest_size=16)
    for path, data in sorted(tree.items()):
        summary.update(path.encode() + b"\0" + (b"d" if data is None else b"f%d:" % len(data)))
        summary.update(data or b"")
    return summary.digest()
