"""Aggregates pulls that read from far behind the end of the commit log.

Place in the walk: beside it; a pull that was answered so is added here, and each TOLD_EACH_SAMPLES
the sums become facts, with what the process read from disk meanwhile. Such reads say why a group
does not catch up: each may cost a read of the disk, and behind `resident_bytes` answers are small
(maxTransferCountOnMessageInDisk).

Invariant: at most `count_max` pairs of group and topic between two takes; those beyond are added to
nobody. Absent on purpose: whose page it was. The kernel reads ahead of what is asked for, so what
is in memory when an answer is made says little; what was read from disk is known of the whole
process alone.
"""

from __future__ import annotations

from typing import Final

from engine.foundation.limits import COLD_READERS_MAX
from engine.foundation.observing import ColdReads
from engine.foundation.units import MIB

TOLD_EACH_SAMPLES: Final = 10
"""Samples of watermarks between two times that the sums are reported: ten seconds."""
FAR_BEHIND_BYTES: Final = 64 * MIB
"""Nearer to the end of the log nothing is taken to be on disk, whatever else is read from there."""
DISK_PART: Final = 4
"""Of reads nearer than `resident_bytes` it is reported when one byte in so many may be from disk.
"""


class ColdReadSums:
    """The sums of one broker since they were taken last."""

    def __init__(self, count_max: int = COLD_READERS_MAX) -> None:
        self._count_max = count_max
        self._sums: dict[tuple[str, str], ColdReads] = {}
        self._fetched_bytes: int | None = None
        """Of the process, when the sums were taken last."""

    def add(
        self,
        group: str,
        topic: str,
        *,
        messages: int,
        size_bytes: int,
        behind_bytes: int,
        resident_bytes: int,
        messages_a_pull_max: int,
    ) -> None:
        """A pull of the group was answered with such messages."""
        sums = self._sums.get((group, topic))
        if sums is None:
            if len(self._sums) >= self._count_max:
                return
            sums = self._sums[group, topic] = ColdReads(
                group, topic, 0, 0, 0, 0, resident_bytes, messages_a_pull_max
            )
        sums.pulls += 1
        sums.messages += messages
        sums.size_bytes += size_bytes
        sums.behind_bytes_max = max(sums.behind_bytes_max, behind_bytes)

    def take(self, fetched_bytes: int | None) -> list[ColdReads]:
        """The sums, which begin anew. `fetched_bytes`: what the process has read from disk in its
        life; None is unknown.
        """
        read_bytes = None
        if fetched_bytes is not None and self._fetched_bytes is not None:
            read_bytes = fetched_bytes - self._fetched_bytes
        self._fetched_bytes = fetched_bytes
        taken = list(self._sums.values())
        self._sums.clear()
        for sums in taken:
            sums.disk_read_bytes = read_bytes
        return [sums for sums in taken if _may_be_cold(sums)]


def _may_be_cold(sums: ColdReads) -> bool:
    """Were answers small, or may so much have come from disk that somebody should hear of it?"""
    read_bytes = sums.disk_read_bytes
    is_from_disk = read_bytes is not None and read_bytes * DISK_PART >= sums.size_bytes
    return is_from_disk or sums.behind_bytes_max > sums.resident_bytes
