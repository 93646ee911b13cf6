"""Notes which groups were deleted since consumerOffset.json was written.

Place in the walk: beside it. `removing/topics_and_groups` notes a group, `persistence` keeps the
notes in subscriptionGroup.json, which is on disk before a deletion is answered; consumerOffset.json
says after how many deletions it was written, and what it holds of a group deleted later is void.

Invariant: a group is noted until the file of offsets and the version before it, which is read when
that is damaged, were both begun after its deletion.
Absent on purpose: files, offsets, deletions of topics (`store/tombstones`).
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.foundation.errors import CorruptRecord
from engine.foundation.limits import DELETED_GROUPS_NOTED_MAX

DELETED_GROUPS = "deletedGroups"
GROUP_DELETIONS = "groupDeletions"


class DeletedGroups:
    """The notes of one broker."""

    def __init__(self, names_max: int = DELETED_GROUPS_NOTED_MAX) -> None:
        self.names_max = names_max
        self.deletions = 0
        """How many deletions of groups were noted, ever."""
        self._numbers: dict[str, int] = {}
        """Group → number of its latest deletion, in ascending order."""
        self._deletions_in_file = 0
        """After how many of them the file of offsets was begun."""

    @property
    def is_full(self) -> bool:
        """Must the file of offsets be written before another group is noted?"""
        return len(self._numbers) >= self.names_max

    def note(self, group: str) -> None:
        """The group was deleted just now."""
        self.deletions += 1
        self._numbers.pop(group, None)
        self._numbers[group] = self.deletions

    def after(self, deletions: int) -> list[str]:
        """Groups deleted later than so many deletions ago."""
        return [group for group, number in self._numbers.items() if number > deletions]

    def written(self, deletions: int) -> None:
        """A file of offsets that was begun after so many deletions is on disk, beside the version
        before it."""
        over, self._deletions_in_file = self._deletions_in_file, deletions
        self._numbers = {group: number for group, number in self._numbers.items() if number > over}

    def expect(self, deletions: int) -> None:
        """The file of offsets was written after so many deletions: numbers go on behind them."""
        self.deletions = max(self.deletions, deletions)
        self._deletions_in_file = deletions

    def to_document(self) -> dict[str, object]:
        """Fields of our own in subscriptionGroup.json; none before the first deletion."""
        if not self.deletions:
            return {}
        return {GROUP_DELETIONS: self.deletions, DELETED_GROUPS: dict(self._numbers)}

    def load(self, document: Mapping[str, object]) -> None:
        """Take over the fields of subscriptionGroup.json, if it has any. Raises CorruptRecord."""
        deletions, numbers = document.get(GROUP_DELETIONS, 0), document.get(DELETED_GROUPS, {})
        if type(deletions) is not int or not isinstance(numbers, Mapping):
            raise CorruptRecord(
                f"subscriptionGroup.json: {GROUP_DELETIONS} is {deletions!r}, not a number, or "
                f"{DELETED_GROUPS} is not a table; remove both fields to do without them"
            )
        self._numbers = {
            str(group): number for group, number in numbers.items() if type(number) is int
        }
        self.deletions = max([deletions, *self._numbers.values()])
