"""Stores offsets committed on a non-master broker until its master can merge them.

Place in the walk: `commit_reports` notes them, `persistence` keeps them in the file of offsets, a
copy of the master's table passes them over, `replicating/offset_merges` hands them to the master.

Invariant: what is noted is noted until a master has it. The time of a commit is an age on this
node's steady clock: clocks of two machines differ. Absent on purpose: which of two commits counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey
from engine.broker.offsets.consumer_offsets import Table, from_document

FIELD = "outageOffsets"
"""Field of our own in consumerOffset.json."""


@dataclass(frozen=True, slots=True)
class Noted:
    """One offset."""

    offset: int
    noted_ms: int | None
    """Steady time; None: in an earlier life."""


class OutageOffsets:
    """Those of one broker."""

    def __init__(self) -> None:
        self._noted: dict[QueueKey, Noted] = {}

    def __len__(self) -> int:
        """How many are noted."""
        return len(self._noted)

    def note(self, key: QueueKey, offset: int, *, steady_ms: int) -> None:
        """A client committed it here."""
        self._noted[key] = Noted(offset, steady_ms)

    def all(self) -> dict[QueueKey, Noted]:
        """What no master has yet."""
        return dict(self._noted)

    def merged(self, handed: Mapping[QueueKey, Noted]) -> None:
        """A master has these, unless another was committed since."""
        for key, noted in handed.items():
            if self._noted.get(key) is noted:
                del self._noted[key]

    def forget(self) -> None:
        """This broker's own table is the master's now."""
        self._noted.clear()

    def lay_over(self, table: Table) -> None:
        """Put them into a copy of a master's table, which is older."""
        for (group, topic, queue_id), noted in self._noted.items():
            table.setdefault((topic, group), {})[queue_id] = noted.offset

    def to_document(self) -> dict[str, dict[str, int]]:
        """As offsets are in the file of offsets."""
        document: dict[str, dict[str, int]] = {}
        for (group, topic, queue_id), noted in self._noted.items():
            document.setdefault(f"{topic}@{group}", {})[str(queue_id)] = noted.offset
        return document

    def load(self, found: object) -> None:
        """Take over what the file holds. Raises CorruptRecord."""
        if found is not None:
            self._load(from_document({"offsetTable": found}).items())

    def _load(self, entries: Iterable[tuple[tuple[str, str], dict[int, int]]]) -> None:
        self._noted = {
            (group, topic, queue_id): Noted(offset, None)
            for (topic, group), queues in entries
            for queue_id, offset in queues.items()
        }
