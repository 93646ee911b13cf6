"""Schedules questions by turns when there are more than one look has time for.

Invariant: what is urgent comes first, and of the rest those that were asked longest ago; what is
never urgent is asked all the same, within `len(all) / (count / 2)` looks if there is time for all
that is due; what there was no time for is due again. Pure: a look is a number.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Turns(Generic[Name]):
    """One kind of question, about each of many."""

    def __init__(self, count_max: int, *, first_max: int | None = None) -> None:
        """At most `count_max` a look; `first_max`, where that is more, as long as somebody was
        never asked.
        """
        self._usual_max = count_max
        self._first_max = count_max if first_max is None else first_max
        self._asked: dict[Name, int] = {}
        self._known_count = 0
        self._look = 0

    def due(
        self,
        everyone: Collection[Name],
        urgent: Iterable[Name] = (),
        *,
        of: Iterable[Name] | None = None,
    ) -> list[Name]:
        """Whom to ask in this look: of everyone, or `of` those alone, if given; when the others
        were asked is not forgotten.
        """
        self._look += 1
        known = set(everyone)
        self._known_count = len(known)
        self._asked = {name: at for name, at in self._asked.items() if name in known}
        if of is not None:
            known &= set(of)
        first = [name for name in dict.fromkeys(urgent) if name in known]
        count_max = self._usual_max if len(self._asked) == self._known_count else self._first_max
        room = count_max if len(known) <= count_max else count_max // 2
        first.sort(key=self._last_asked)
        chosen = dict.fromkeys(first[: max(room, count_max - (len(known) - len(first)))])
        for name in sorted(known - chosen.keys(), key=self._last_asked):
            if len(chosen) >= count_max:
                break
            chosen[name] = None
        return list(chosen)

    def begin(self, name: Name) -> None:
        """It is asked now."""
        self._asked[name] = self._look

    def were_all_asked_since(self, look: int, everyone: Collection[Name]) -> bool:
        """Was each of them asked in a look after this one?"""
        return all(self._asked.get(name, 0) > look for name in everyone)

    @property
    def has_new(self) -> bool:
        """Is there somebody, as of the newest look, who was never asked?"""
        return len(self._asked) < self._known_count

    @property
    def look(self) -> int:
        """Number of the newest look."""
        return self._look

    def _last_asked(self, name: Name) -> tuple[int, str]:
        return self._asked.get(name, 0), str(name)
