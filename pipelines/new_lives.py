"""Topics that were made again, in one sentence each: which group passed over what of them.

Place in the walk: rows of topic_lives and passed_over_messages → pages and `tm` alike.
Pure. Invariant: a topic is told once, however many brokers have it; of a group that read all of it
nothing is told. Absent on purpose: queues, whose rows say more (`evidence`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.wording import clock, plural

SAME_ORDER: Final = timedelta(minutes=1)
"""Brokers that are told to make a topic do so within this time."""
Row = Mapping[str, Any]


@dataclass(slots=True)
class NewLife:
    """A topic that was made again."""

    at: datetime
    """When the newest of what is told of it was known."""
    made_at: datetime
    cluster: str
    topic: str
    passed: dict[str, int] = field(default_factory=dict)
    """Messages by group."""
    perhaps: dict[str, int] = field(default_factory=dict)
    """By group, how many at most, where nobody saw it."""

    @property
    def text(self) -> str:
        """The sentence."""
        parts = [f"topic {self.topic} made again at {clock(self.made_at)}"]
        for group, count in self.passed.items():
            verb = "was" if count == 1 else "were"
            messages = plural(count, "message")
            parts.append(f"{messages} of its new life {verb} passed over by group {group}")
        for group, count in self.perhaps.items():
            most = plural(count, "message")
            parts.append(f"group {group} may have passed over up to {most} of its new life")
        return "; ".join(parts)

    @property
    def is_loss(self) -> bool:
        """Was anything passed over, or may it have been?"""
        return bool(self.passed or self.perhaps)


def new_lives(lives: Iterable[Row], passed: Iterable[Row]) -> list[NewLife]:
    """Of each topic and new life one, oldest first."""
    told = [(row["observed_at"], row) for row in lives]
    told += [(row["made_again_at"], row) for row in passed]
    found: list[NewLife] = []
    newest: dict[tuple[str, str], NewLife] = {}
    for made_at, row in sorted(told, key=lambda one: (one[0], one[1]["observed_at"])):
        key = row["cluster"], row["topic"]
        life = newest.get(key)
        if life is None or made_at - life.made_at > SAME_ORDER:
            life = newest[key] = NewLife(made_at, made_at, *key)
            found.append(life)
        _add(life, row)
    return found


def _add(life: NewLife, row: Row) -> None:
    """What a row of either table says."""
    outcome = row.get("outcome")
    if outcome not in ("PASSED_OVER", "UNKNOWN"):
        return
    counts = life.passed if outcome == "PASSED_OVER" else life.perhaps
    count = row["to_offset"] - row["from_offset"]
    counts[row["group"]] = counts.get(row["group"], 0) + count
    life.at = max(life.at, row["observed_at"])
