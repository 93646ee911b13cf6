"""Which node of a broker reports on it, and until when each other node did.

Place in the walk: lifecycle (ROLE_CHANGE) → a `Moment`, which takes no row of a node beyond the end
of its leadership. So gold has one broker over all of its nodes, though a former master that nobody
reaches goes on reporting.

Invariant: of two nodes that say that they lead, the one of the greater epoch does, from its own row
on; who says that it follows has ended then. A node that never said what it is leads in epoch 0.
Absent on purpose: earlier leaderships of a node that leads again, and clocks that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipelines.lake.lake import Lake, sql_text
from pipelines.marts.lifecycle_events import MASTER, ROLE_CHANGE
from pipelines.reading.lasting_lifecycle import lasting_rows

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Leadership:
    """The last one of a node."""

    epoch: int
    since: datetime | None
    """None: it never said."""
    until: datetime | None
    """When it said that it follows; None: it did not."""


def ends_of_leading(lake: Lake, reached: Mapping[str, int]) -> dict[str, datetime]:
    """Per emitter that does not lead its broker, since when; `reached`: emitters, and up to which
    seq of each is looked. Brokers with one node are not looked at.
    """
    nodes = _nodes_of_brokers(reached)
    if not nodes:
        return {}
    each = (
        f"(emitter = {sql_text(emitter)} AND seq <= {reached[emitter]})"
        for emitters in nodes
        for emitter in emitters
    )
    said: dict[str, list[Row]] = {}
    for row in lasting_rows(lake, (ROLE_CHANGE,), " OR ".join(each)):
        if row["role"] is not None:
            said.setdefault(row["emitter"], []).append(row)
    ends: dict[str, datetime] = {}
    for emitters in nodes:
        ends |= ends_of({emitter: said.get(emitter, []) for emitter in emitters})
    return ends


def _nodes_of_brokers(emitters: Iterable[str]) -> list[list[str]]:
    """Emitters of brokers that have several nodes which report on themselves."""
    brokers: dict[str, list[str]] = {}
    for emitter in emitters:
        broker, _, number = emitter.rpartition("/")
        if number.isdecimal():
            brokers.setdefault(broker, []).append(emitter)
    return [nodes for nodes in brokers.values() if len(nodes) > 1]


def ends_of(said: Mapping[str, Sequence[Row]]) -> dict[str, datetime]:
    """Per node of one broker that does not lead, since when; `said`: what each said of its role, in
    the order of seq.
    """
    leaderships = {emitter: leadership(rows) for emitter, rows in said.items()}
    ends: dict[str, datetime] = {}
    for emitter, own in leaderships.items():
        if own is None:
            ends[emitter] = said[emitter][0]["event_time"]
            continue
        taken = [
            row["event_time"]
            for other, rows in said.items()
            for row in rows
            if other != emitter and row["role"] == MASTER and row["term"] > own.epoch
        ]
        over = [*taken, *([own.until] if own.until is not None else [])]
        if over:
            ends[emitter] = min(over)
    return ends


def leadership(rows: Sequence[Row]) -> Leadership | None:
    """The last leadership of a node; None of one that has said nothing but that it follows."""
    if not rows:
        return Leadership(0, None, None)
    led = [at for at, row in enumerate(rows) if row["role"] == MASTER]
    if not led:
        return None
    last = rows[led[-1]]
    after = rows[led[-1] + 1 :]
    return Leadership(last["term"], last["event_time"], after[0]["event_time"] if after else None)
