"""Tracks how many messages each queue and group receives and consumes in each time slot.

Place in the walk: group_watermarks → sums of groups, from which the causes of a lag are named. Of a
queue it is known what it was given in the present slot and the one before; of a group what it was
given in each of the last SLOTS slots, and in the last two consumed, as new messages, as failed ones
(`retried`), or as ones whose invisible time ran out (`came_back`). Invariant: a row adds what lies
between it and its queue's row before, in the order of seq, so sums do not depend on cuts. Absent on
purpose: names of causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_run, numbers
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import own_numbers, with_rows
from pipelines.marts.keys import QUEUE_FIELDS, positions_of
from pipelines.marts.lifecycle_events import ended
from pipelines.marts.mart import Given, Positions

SLOTS: Final = 10
"""Slots of a group that are remembered: five minutes, with windows of half a minute."""
RETRY: Final = "%RETRY%"

GROUP_KEY: Final = ("cluster", "broker", "emitter", "group")
_GIVEN: Final = tuple(f"given_{slot}" for slot in range(SLOTS))
COUNTED: Final = ("consumed", "retried", "came_back")
_RECENT: Final = tuple(name for one in COUNTED for name in (one, f"{one}_before"))
_GROUP_FIGURES: Final = (
    *("lag", "queues", "members", "seq", "slot", "first_us", "named", "named_us"),
    *_RECENT,
    *_GIVEN,
)
GROUPS: Final = pa.schema(
    [*((name, KEY_TEXT) for name in GROUP_KEY), *((name, pa.int64()) for name in _GROUP_FIGURES)]
)
"""named: which causes were reported last, a bit each; named_us: when."""
_QUEUE_FIGURES: Final = (
    *("group_number", "max_offset", "committed", "lag", "seq"),
    *("slot", "given", "given_before", "is_unknown"),
)
QUEUES: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("is_retry", pa.bool_()),
        *((name, pa.int64()) for name in _QUEUE_FIGURES),
    ]
)
"""By their numbers. UNKNOWN stands for null; lag is 0 where it is unknown (is_unknown: 1), seq is 0
of a queue that is not there.
"""


class Marks:
    """Groups and queues of a cycle, as of the rows that were taken so far."""

    def __init__(self, given: Given) -> None:
        facts = given.facts["group_watermarks"]
        self.slot_us = given.evaluation.window_us
        self.facts = facts
        # Numbers of its own: those of other judges began earlier in a lake older than this table.
        shared = given.facts[QUEUE_NUMBERS]
        self.number, first = own_numbers(given.state["queues"], facts, shared)
        self._rows = {
            "max_offset": numbers(facts["max_offset"]),
            "committed": numbers(facts["committed"]),
            "lag": np.maximum(numbers(facts["lag_messages"]), 0),
            "is_unknown": np.asarray(pc.is_null(facts["lag_messages"])).astype(np.int64),
            "members": numbers(facts["members"]),
            "seq": numbers(facts["seq"]),
        }
        self._add_new(given, first)
        self.touched_groups = np.zeros(self.group_keys.num_rows, bool)
        self.touched_queues = np.zeros(self.queue_keys.num_rows, bool)

    def _add_new(self, given: Given, first: Positions) -> None:
        groups, queues = given.state["groups"], given.state["queues"]
        self.group_keys = groups.select(list(GROUP_KEY))
        self.queue_keys = queues.select(QUEUES.names[:4])
        # An earlier version did not carry whether a lag is unknown, nor what came back.
        self.groups = {
            name: np.asarray(pc.fill_null(groups[name], 0)).copy() for name in _GROUP_FIGURES
        }
        self.queues = {
            name: np.asarray(pc.fill_null(queues[name], 0)).copy() for name in _QUEUE_FIGURES
        }
        self.is_retry = np.array(queues["is_retry"]).astype(bool)
        self.is_of_pop = self.is_retry & _is_of_pop(queues)
        if not len(first):
            return
        new = self.facts.take(pa.array(first))
        number, new_groups = positions_of(self.group_keys, new, GROUP_KEY)
        self.group_keys = with_rows(self.group_keys, new, new_groups)
        self.queue_keys = with_rows(self.queue_keys, new, np.arange(len(first)))
        is_retry = np.asarray(pc.starts_with(pc.cast(new["topic"], pa.string()), RETRY))
        self.is_retry = np.concatenate([self.is_retry, is_retry.astype(bool)])
        self.is_of_pop = np.concatenate([self.is_of_pop, is_retry & _is_of_pop(new)])
        moments = numbers(new["event_us"])[new_groups]
        slots = _slot_of(moments, self.slot_us)
        begin: dict[str, Positions | int] = {"members": UNKNOWN, "slot": slots, "first_us": moments}
        self.groups = _grown(self.groups, len(new_groups), begin)
        slots = _slot_of(numbers(new["event_us"]), self.slot_us)
        unknown: dict[str, Positions | int] = {"max_offset": UNKNOWN, "committed": UNKNOWN}
        self.queues = _grown(
            self.queues, len(first), {"group_number": number, "slot": slots, **unknown}
        )

    def take(self, rows: Positions, slot: int) -> None:
        """Some rows of the facts, in order; all lie in one slot."""
        order = as_run(rows[np.argsort(self.number[as_run(rows)], kind="stable")])
        number = self.number[order]
        is_first = np.append(True, number[1:] != number[:-1])
        is_last = np.append(is_first[1:], True)
        group = self.queues["group_number"][number]
        is_concerned = np.zeros(len(self.groups["lag"]), bool)
        is_concerned[group] = True
        groups, queues = np.flatnonzero(is_concerned), number[is_last]
        self._roll_groups(groups, slot)
        self._roll_queues(queues, slot)
        now = {name: values[order] for name, values in self._rows.items()}
        given = self._advance(now, number, is_first, "max_offset")
        done = self._advance(now, number, is_first, "committed")
        is_retry, is_of_pop = self.is_retry[number], self.is_of_pop[number]
        before = np.where(is_first, self.queues["lag"][number], np.roll(now["lag"], 1))
        np.add.at(self.groups["lag"], group, now["lag"] - before)
        np.add.at(self.groups[_GIVEN[slot % SLOTS]], group[~is_retry], given[~is_retry])
        np.add.at(self.groups["consumed"], group[~is_retry], done[~is_retry])
        for name, counts in (("retried", ~is_of_pop & is_retry), ("came_back", is_of_pop)):
            np.add.at(self.groups[name], group[counts], done[counts])
        np.add.at(self.queues["given"], number, given)
        np.maximum.at(self.groups["seq"], group, now["seq"])
        fresh = queues[(self.queues["seq"][queues] == 0) & ~self.is_retry[queues]]
        np.add.at(self.groups["queues"], self.queues["group_number"][fresh], 1)
        for name in ("max_offset", "committed", "lag", "seq", "is_unknown"):
            self.queues[name][queues] = now[name][is_last]
        by_seq = np.argsort(now["seq"], kind="stable")
        self.groups["members"][group[by_seq]] = now["members"][by_seq]
        self.touched_groups[groups] = True
        self.touched_queues[queues] = True

    def _advance(
        self, now: Mapping[str, Positions], number: Positions, is_first: Flags, name: str
    ) -> Positions:
        """How far each row lies above the one of its queue before."""
        values = now[name]
        before = np.where(is_first, self.queues[name][number], np.roll(values, 1))
        is_known = (before != UNKNOWN) & (values != UNKNOWN)
        return np.where(is_known, np.maximum(values - np.where(is_known, before, 0), 0), 0)

    def end(self, event: Mapping[str, Any]) -> None:
        """What the end of a topic, of queues or of a group ends is nobody's lag."""
        seq = self.queues["seq"]
        is_earlier = (seq > 0) & (seq < event["seq"])
        chosen = np.flatnonzero(np.asarray(ended(self.queue_keys, event)) & is_earlier)
        group = self.queues["group_number"][chosen]
        np.add.at(self.groups["queues"], group[~self.is_retry[chosen]], -1)
        np.add.at(self.groups["lag"], group, -self.queues["lag"][chosen])
        nothing = {"lag": 0, "seq": 0, "is_unknown": 0, "max_offset": UNKNOWN, "committed": UNKNOWN}
        for name, value in nothing.items():
            self.queues[name][chosen] = value
        self.touched_groups[group] = True
        self.touched_queues[chosen] = True

    def _roll_groups(self, groups: Positions, slot: int) -> None:
        """Begin the slot for groups that were in an earlier one."""
        figures = self.groups
        behind = slot - figures["slot"][groups]
        for distance in range(1, min(SLOTS, int(behind.max(initial=0))) + 1):
            late = groups[behind >= distance]
            column = (figures["slot"][late] + distance) % SLOTS
            for which in np.unique(column).tolist():
                figures[_GIVEN[which]][late[column == which]] = 0
        for name in COUNTED:
            _begin_slot(figures, name, groups, behind)
        figures["slot"][groups] = np.maximum(figures["slot"][groups], slot)

    def _roll_queues(self, queues: Positions, slot: int) -> None:
        behind = slot - self.queues["slot"][queues]
        _begin_slot(self.queues, "given", queues, behind)
        self.queues["slot"][queues] = np.maximum(self.queues["slot"][queues], slot)

    def are_in_part(self) -> Flags:
        """Of each group: is the lag of one of its queues unknown?"""
        is_part = np.zeros(len(self.groups["lag"]), bool)
        is_part[self.queues["group_number"][self.queues["is_unknown"] > 0]] = True
        return is_part

    def names_of(self, groups: Positions) -> list[dict[str, str]]:
        """The keys of these groups."""
        keys = self.group_keys.take(pa.array(groups))
        texts = (pc.cast(column, pa.string()).to_pylist() for column in keys.columns)
        return [dict(zip(GROUP_KEY, key, strict=True)) for key in zip(*texts, strict=True)]

    def given_by_slot(self, groups: Positions, slot: int) -> list[list[int]]:
        """What each of these groups was given in each of the last SLOTS slots up to this one,
        oldest first.
        """
        known = self.groups["slot"][groups]
        given = [
            np.where(
                (known - SLOTS < one) & (one <= known),
                self.groups[_GIVEN[one % SLOTS]][groups],
                0,
            )
            for one in range(slot - SLOTS + 1, slot + 1)
        ]
        counts: list[list[int]] = np.stack(given, axis=1).tolist()
        return counts

    def recently(self, groups: Positions, name: str, slot: int) -> Positions:
        """How many of these each group consumed in this slot and the one before; see COUNTED."""
        return _recent(self.groups, name, groups, slot)

    def given_recently(self, queues: Positions, slot: int) -> Positions:
        """What each of these queues was given in this slot and the one before."""
        return _recent(self.queues, "given", queues, slot)

    def sent_recently(self, groups: Positions, slot: int) -> Positions:
        """What each of these groups was given in this slot and the one before."""
        sent = np.zeros(len(groups), np.int64)
        known = self.groups["slot"][groups]
        for one in (slot - 1, slot):
            column = self.groups[_GIVEN[one % SLOTS]][groups]
            sent += np.where((known - SLOTS < one) & (one <= known), column, 0)
        return sent

    def state(self) -> dict[str, pa.Table]:
        """What is carried on."""
        groups = [*self.group_keys.columns, *(pa.array(one) for one in self.groups.values())]
        figures = (pa.array(one) for one in self.queues.values())
        queues = [*self.queue_keys.columns, pa.array(self.is_retry), *figures]
        return {
            "groups": pa.table(groups, schema=GROUPS),
            "queues": pa.table(queues, schema=QUEUES),
        }

    def touched(self, known: Mapping[str, pa.Table]) -> dict[str, Positions]:
        """Rows of the state that differ from `known` or are new."""
        return {
            "groups": _changed(self.touched_groups, known["groups"].num_rows),
            "queues": _changed(self.touched_queues, known["queues"].num_rows),
        }


def _is_of_pop(queues: pa.Table) -> Flags:
    """Of queues of retry topics: do messages come there whose invisible time ran out? A group's own
    retry topic, where failed ones come, has its name alone.
    """
    group, topic = (pc.cast(queues[name], pa.string()) for name in ("group", "topic"))
    own = pc.binary_join_element_wise(pa.scalar(RETRY), group, "")
    return np.asarray(pc.not_equal(topic, own)).astype(bool)


def _changed(touched: Flags, known: int) -> Positions:
    is_changed = touched.copy()
    is_changed[known:] = True
    return np.flatnonzero(is_changed)


def _recent(figures: Mapping[str, Positions], name: str, places: Positions, slot: int) -> Positions:
    """What is counted of each of these places for this slot and the one before."""
    age = slot - figures["slot"][places]
    now, before = figures[name][places], figures[f"{name}_before"][places]
    return np.select([age <= 0, age == 1], [now + before, now], 0)


def _begin_slot(
    figures: dict[str, Positions], name: str, places: Positions, behind: Positions
) -> None:
    """What was of the present slot is of the one before, or of none that counts."""
    late = places[behind > 0]
    figures[f"{name}_before"][late] = np.where(behind[behind > 0] == 1, figures[name][late], 0)
    figures[name][late] = 0


def _slot_of(moments_us: Positions, slot_us: int) -> Positions:
    """A slot reaches from behind its beginning to its end."""
    return (moments_us - 1) // slot_us


def _grown(
    figures: Mapping[str, Positions], count: int, begin: Mapping[str, Positions | int]
) -> dict[str, Positions]:
    return {
        name: np.concatenate([values, np.broadcast_to(begin.get(name, 0), count)])
        for name, values in figures.items()
    }
