"""Sentences about the messages that groups skipped in recreated topics.

Place in the walk: `evidence` is the column of passed_over_messages, of one queue; `NewLife` sums up
rows of topic_lives and passed_over_messages for pages and `tm` alike. Pure. Invariant: in a sum a
topic is named once, however many brokers have it, and a group that read all of it is not named.
Absent on purpose: where a group began (`pipelines/marts/new_life_cases`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.sentences.figures import clock, messages, moment, queue_of, whole

SAME_ORDER: Final = timedelta(minutes=1)
"""Brokers that get one order to make a topic do so within this time."""
Row = Mapping[str, Any]


@dataclass(slots=True)
class NewLife:
    """A topic that was made again."""

    at: datetime
    """When the newest fact about it was known."""
    made_at: datetime
    cluster: str
    topic: str
    passed: dict[str, int] = field(default_factory=dict)
    """Messages by group."""
    perhaps: dict[str, int] = field(default_factory=dict)
    """By group, how many at most, where nobody saw it."""

    @property
    def text(self) -> str:
        """The sentences."""
        parts = [f"topic {self.topic} was made again at {moment(self.made_at)}"]
        for group, count in self.passed.items():
            parts.append(f"group {group} passed over {messages(count)} of its new life")
        for group, count in self.perhaps.items():
            most = messages(count)
            parts.append(f"group {group} may have passed over up to {most} of its new life")
        return whole(*parts)

    @property
    def is_loss(self) -> bool:
        """Was anything passed over, or may it have been?"""
        return bool(self.passed or self.perhaps)


def new_lives(lives: Iterable[Row], passed: Iterable[Row]) -> list[NewLife]:
    """Of each topic and new life one, oldest first."""
    rows = [(row["observed_at"], row) for row in lives]
    rows += [(row["made_again_at"], row) for row in passed]
    found: list[NewLife] = []
    newest: dict[tuple[str, str], NewLife] = {}
    for made_at, row in sorted(rows, key=lambda one: (one[0], one[1]["observed_at"])):
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


def evidence(row: Row, how: str) -> str:
    """What a group did with the first messages of a queue's new life, or skipped later; `how`: how
    that is known.
    """
    group = f"group {row['group']}"
    where = queue_of(row["topic"], row["queue_id"], row["broker"])
    made = f"the topic was made again at {clock(row['made_again_at'])}"
    begin, end = row["from_offset"], row["to_offset"]
    span = f"[{begin}, {end})"
    if row["outcome"] == "READ":
        return whole(f"{group} reads all of {where}: {made}", how)
    most = messages(end - begin)
    if row["outcome"] == "SET":
        return whole(f"{group} leaves out {most} of {where}, {span}: {made}", how)
    if row["messages"] is None:
        said = f"{group} may have passed over up to {most} of {where}, {span}: {made}"
        were = "it was" if end - begin == 1 else "they were"
        advice = f"see whether {were} processed, and set its offset to {begin} if not"
    else:
        said = f"{group} passed over {messages(row['messages'])} of {where}, {span}: {made}"
        advice = f"set its offset to {begin} if {'it' if end - begin == 1 else 'they'} must be read"
    return whole(said, how, advice)
