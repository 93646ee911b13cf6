"""Who a node is, the term that it has heard of, and its vote in it, as they are on disk.

Place in the walk: written before any message that leans on it; read when the node starts.

Invariant: a file that is damaged, or gone, is no vote of term 0: it is amnesia (`eligibility`).
Absent on purpose: a copy. Whoever restores an old one votes twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import CorruptRecord
from engine.raft.checked_file import read_checked, write_checked
from engine.raft.members import NodeId
from engine.runtime.disk import Disk

_MARK: Final = b"TMRV"


@dataclass(frozen=True, slots=True)
class StoredVote:
    """What the file says."""

    node: NodeId
    term: int = 0
    vote: NodeId | None = None


class VoteFile:
    """The file of one node."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.path = f"{folder}/vote"

    def load(self) -> StoredVote | None:
        """What was written last; None: nothing ever was. Raises CorruptRecord, StorageError."""
        document = read_checked(self._disk, self.path, _MARK)
        if document is None:
            return None
        try:
            return StoredVote(document["node"], document["term"], document["vote"])
        except KeyError as error:
            raise CorruptRecord(f"{self.path} lacks {error}") from error

    def save(self, vote: StoredVote) -> None:
        """Make it durable. Raises DiskFull, StorageError."""
        document = {"node": vote.node, "term": vote.term, "vote": vote.vote}
        write_checked(self._disk, self.path, _MARK, document)
