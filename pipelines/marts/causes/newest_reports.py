"""Keeps each group's latest member and broker reports for diagnosing lag.

Place in the walk: consume_stats, client_windows, rebalance_events, cold_reads and states of
groups → what a group that is behind is looked at with; of a queue whose pulls rest for SPAN, the
lowest unfinished message, beyond which a consumer hands out `queue_span_max` at most.

Invariant: rows are taken in the order in which ticks see them; a member that left, all members of a
broker's earlier life, and what was reported before rows were lost, say nothing. Times of a client
are subtracted from each other alone. Read from the state when the first row or question comes: a
cycle without either costs nothing. Absent on purpose: figures of queues, which are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.causes.finding import CAUSES, Finding, Row, length_ms, said
from pipelines.marts.lifecycle_events import BOOT, SPOOL_LOSS
from pipelines.marts.rebalances import MEMBERSHIP
from pipelines.sentences.causes import held_at, not_pulled

FLOW_CONTROL_MS: Final = 1_000
"""Pulls that rested for less of a minute, over all queues, are no cause."""
KINDS: Final = ("COUNT", "BYTES", "SPAN")
"""What clients hold too much of when their pulls rest: messages, bytes, or what lies beyond an
unfinished message.
"""
RESTS: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in ("emitter", "group", "topic", "client_id")),
        *((name, pa.int64()) for name in ("queue_id", "first_held", "held_count")),
        *((name, pa.int64()) for name in ("finished_count", "head_age_us", "event_us")),
    ]
)
"""Newest client_windows at rest for SPAN; head_age_us: how long the head had been in its listener
when the client answered, null when it is in none.
"""


FLAP_WINDOWS: Final = 10
"""Changes of members are looked at for so many windows."""
COLD_US: Final = 15 * SECOND_US
"""Cold reads are reported each ten seconds while there are any."""
NEARER: Final[Mapping[str, str]] = {
    "HOT_QUEUE": "LAGGING_QUEUE",
    "FEWER_QUEUES_THAN_MEMBERS": "MEMBERS_WITHOUT_QUEUES",
}
"""A cause that says more than another: while it holds, the other is not reported."""
CALM_WEIGHT: Final = 64
"""One new figure counts so little in what is usual for calls. A group falls behind slowly when
calls become a little too slow: what is usual must not have followed them by then.
"""
FASTER_WEIGHT: Final = 8
"""A lower one counts more."""
STANDING: Final = ("STALLED", "STOPPED", "DATA_LOST", "REWOUND")
"""States of groups in which a queue does not move, or not as it should."""

_TEXTS: Final = ("emitter", "group", "topic", "client_id")
_STATS: Final = (
    *("listeners", "listeners_busy", "listeners_queued", "calls", "consume_us_mean"),
    *("consume_ms_p99", "failed", "flow_count_ms", "flow_bytes_ms", "flow_span_ms"),
    *("queues_held", "topic_queues", "group_members"),
)
STATS: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _TEXTS),
        ("paused", pa.bool_()),
        *((name, pa.int64()) for name in (*_STATS, "calm_us", "idle_us")),
    ]
)
"""Newest consume_stats; calm_us: how long calls took while the group was not behind; idle_us: since
when the member holds no queue of the topic.
"""
KEYS: Final = pa.schema(
    [
        *((name, KEY_TEXT) for name in _TEXTS),
        ("queue_id", pa.int64()),
        ("top_key", pa.string()),
        ("top_key_messages", pa.int64()),
        ("keyed_messages", pa.int64()),
    ]
)
CHANGES: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("group", KEY_TEXT),
        ("client_id", KEY_TEXT),
        ("kind", KEY_TEXT),
        ("event_us", pa.int64()),
    ]
)
COLD: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("group", KEY_TEXT),
        ("topic", KEY_TEXT),
        ("event_us", pa.int64()),
        *(
            (name, pa.int64())
            for name in (
                *("pulls", "messages", "size_bytes", "behind_bytes_max"),
                *("resident_bytes", "messages_a_pull_max", "disk_read_bytes"),
            )
        ),
    ]
)
STATES: Final = pa.schema([("emitter", KEY_TEXT), ("group", KEY_TEXT), ("reason", pa.string())])
"""Groups of which a queue stands."""
HELD: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("group", KEY_TEXT),
        ("held_us", pa.int64()),
        ("cause", KEY_TEXT),
        ("evidence", pa.string()),
        ("measured", pa.int64()),
        ("expected", pa.int64()),
        ("unit", pa.string()),
        ("share_percent", pa.int64()),
        ("topic", KEY_TEXT),
        ("queue_id", pa.int64()),
        ("client_id", KEY_TEXT),
    ]
)
"""Causes that were found of late, each with what was found last, and when."""

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "stats": STATS,
    "keys": KEYS,
    "rests": RESTS,
    "changes": CHANGES,
    "cold": COLD,
    "states": STATES,
    "held": HELD,
}
_AGE: Final[Mapping[str, str]] = {"changes": "event_us", "cold": "event_us", "held": "held_us"}
"""Columns by which rows grow old."""
GroupKey = tuple[str, str]
"""(emitter, group)"""
_FINDING: Final = tuple(HELD.names[3:])
_figures_of = attrgetter(*_FINDING)


class Held(NamedTuple):
    """A cause that was found, and when last."""

    held_us: int
    found: Finding


class NewestReports:
    """The newest facts of a cycle, as of the rows that were taken so far."""

    def __init__(self, state: Mapping[str, pa.Table], window_us: int) -> None:
        self._state = state
        self._window_us = window_us
        self._flap_us = FLAP_WINDOWS * window_us
        self._read: dict[str, dict[GroupKey, dict[Any, Any]]] = {}

    def take_stats(self, row: Row, *, is_behind: bool) -> None:
        """A member reports how it works."""
        rows = self._of("stats").setdefault(_group(row), {})
        place = (row["client_id"], row["topic"])
        known = rows.get(place)
        calm_us, now_ms = known["calm_us"] if known else None, length_ms(row)
        if not is_behind and now_ms is not None:
            calm_us = _towards(calm_us, now_ms * 1000)
        idle_us = None
        if row["queues_held"] == 0:
            idle_us = row["event_us"]
            if known and known["queues_held"] == 0 and known["idle_us"] is not None:
                idle_us = known["idle_us"]
        learnt = {"calm_us": calm_us, "idle_us": idle_us}
        rows[place] = {name: row.get(name) for name in STATS.names} | learnt

    def take_window(self, row: Row) -> None:
        """A member reports what it holds of a queue."""
        place = (row["client_id"], row["topic"], row["queue_id"])
        rows = self._of("keys").setdefault(_group(row), {})
        if row["top_key"] is None:
            rows.pop(place, None)
        else:
            rows[place] = {name: row[name] for name in KEYS.names}
        rest, rests = rest_of(row), self._of("rests").setdefault(_group(row), {})
        if rest is None:
            rests.pop(place, None)
        else:
            rests[place] = rest

    def take_change(self, row: Row) -> None:
        """A member came or went."""
        if row["kind"] not in MEMBERSHIP:
            return
        rows = self._of("changes").setdefault(_group(row), {})
        rows[row["seq"]] = {name: row[name] for name in CHANGES.names}
        if row["kind"] == "JOINED":
            return
        for name in ("stats", "keys", "rests"):
            known = self._of(name).get(_group(row), {})
            for place in [one for one in known if one[0] == row["client_id"]]:
                del known[place]
        self._forget_held(_group(row), client_id=row["client_id"])

    def take_cold(self, row: Row) -> None:
        """A broker reports on reads from far behind."""
        rows = self._of("cold").setdefault(_group(row), {})
        rows[row["topic"]] = {name: row.get(name) for name in COLD.names}

    def take_state(self, row: Row) -> None:
        """A group's state."""
        if row["state"] in STANDING:
            standing = {name: row[name] for name in STATES.names}
            self._of("states")[_group(row)] = {"": standing}
        else:
            self._of("states").pop(_group(row), None)

    def end(self, event: Row) -> None:
        """A group is gone, or a broker begins a new life, or rows were lost: what is reported by
        members holds until it is reported otherwise, and that may be among them.
        """
        is_of_all = event["kind"] in (BOOT, SPOOL_LOSS)
        if not is_of_all and event["kind"] != "GROUP_GONE":
            return
        for name in SCHEMAS:
            if is_of_all and name in ("changes", "held"):
                continue  # Who came and went before it says as much after it; causes do so soon.
            known = self._of(name)
            for key in [one for one in known if one[0] == event["emitter"]]:
                if is_of_all or key[1] == event["group"]:
                    del known[key]

    def standing(self) -> dict[GroupKey, str]:
        """Groups of which a queue stands, and why."""
        return {key: rows[""]["reason"] for key, rows in self._of("states").items()}

    def hold(self, key: GroupKey, found: list[Finding], tick_us: int) -> list[Finding]:
        """What is to be reported on a group in which this was found: with it, what was found in the
        window before and is not found now. A figure that moves about its limit would else come and
        go with each tick.
        """
        held = self._of("held").setdefault(key, {})
        causes = {one.cause for one in found}
        if len(found) == 1 and held.keys() <= causes:  # So it is nearly always.
            held[found[0].cause] = Held(tick_us, found[0])
            return found
        if "NO_MEMBERS" in causes:  # And so whatever members did is over.
            for cause in [name for name, one in held.items() if one.found.client_id is not None]:
                del held[cause]
        for finding in found:
            held[finding.cause] = Held(tick_us, finding)
        by_cause = {
            cause: one
            for cause, one in held.items()
            if cause in causes or tick_us - one.held_us < self._window_us
        }
        self._of("held")[key] = by_cause
        if len(by_cause) == 1:
            return [_as_of(one, tick_us) for one in by_cause.values()]
        passed_over = {NEARER.get(cause) for cause in by_cause} | {"UNKNOWN"}
        order = sorted(by_cause.keys() - passed_over, key=CAUSES.index)
        return [_as_of(by_cause[cause], tick_us) for cause in order]

    def was_behind(self, key: GroupKey, tick_us: int) -> bool:
        """Was the group behind within the window before the tick?"""
        held = self._of("held").get(key, {})
        return any(tick_us - one.held_us < self._window_us for one in held.values())

    def forget_held(self, key: GroupKey) -> None:
        """The group is no longer behind, or nothing is known of it."""
        self._of("held").pop(key, None)

    def _forget_held(self, key: GroupKey, *, client_id: str) -> None:
        """A member is gone, and with it what it was named for."""
        held = self._of("held").get(key, {})
        for cause in [name for name, one in held.items() if one.found.client_id == client_id]:
            del held[cause]

    def was_hot(self, key: GroupKey, tick_us: int) -> tuple[str, int] | None:
        """The queue of the group that was reported to be hot within the window before the tick."""
        hot = self._of("held").get(key, {}).get("HOT_QUEUE")
        if hot is None or tick_us - hot.held_us > self._window_us:
            return None
        return hot.found.topic, hot.found.queue_id

    def of_group(self, key: GroupKey, tick_us: int) -> dict[str, list[Row]]:
        """All that is reported on a group, the old left out; nothing of kinds that were not
        reported.
        """
        rows: dict[str, list[Row]] = {}
        for name in ("stats", "keys", "rests", "changes", "cold"):
            known = self._of(name).get(key)
            if known:
                span_us = {"changes": self._flap_us, "cold": COLD_US}.get(name)
                rows[name] = [
                    row
                    for row in known.values()
                    if span_us is None or tick_us - row["event_us"] <= span_us
                ]
        return rows

    def state(self, horizons_us: Mapping[str, int]) -> dict[str, pa.Table]:
        """The carried state: of what was read, what may still matter."""
        carried = {}
        for name, groups in self._read.items():
            if name == "held":
                rows = [
                    _held_row(key, one) for key, held in groups.items() for one in held.values()
                ]
            else:
                rows = [row for of_group in groups.values() for row in of_group.values()]
            if name in _AGE:
                span_us = {"changes": self._flap_us, "held": self._window_us}.get(name, COLD_US)
                rows = [
                    row
                    for row in rows
                    if row[_AGE[name]] >= horizons_us.get(row["emitter"], 0) - span_us
                ]
            carried[name] = pa.Table.from_pylist(rows, SCHEMAS[name])
        return carried

    def _of(self, name: str) -> dict[GroupKey, dict[Any, Any]]:
        """Per group the rows of a kind, by their places; of causes, what is held."""
        if name not in self._read:
            known: dict[GroupKey, dict[Any, Any]] = {}
            for number, row in enumerate(self._state[name].to_pylist()):
                report = _held(row) if name == "held" else row
                known.setdefault(_group(row), {})[_place(name, row, number)] = report
            self._read[name] = known
        return self._read[name]


def _place(name: str, row: Row, number: int) -> Any:
    match name:
        case "stats":
            return row["client_id"], row["topic"]
        case "keys" | "rests":
            return row["client_id"], row["topic"], row["queue_id"]
        case "changes":
            return -1 - number  # Any number that no row has yet.
        case "cold":
            return row["topic"]
        case "held":
            return row["cause"]
        case _:
            return ""


def _group(row: Row) -> GroupKey:
    return row["emitter"], row["group"]


def _held_row(key: GroupKey, held: Held) -> dict[str, Any]:
    figures = dict(zip(_FINDING, _figures_of(held.found), strict=True))
    figures["evidence"] = said(held.found.evidence)
    return {"emitter": key[0], "group": key[1], "held_us": held.held_us, **figures}


def _held(row: Row) -> Held:
    return Held(row["held_us"], Finding(**{name: row[name] for name in _FINDING}))


def _as_of(held: Held, tick_us: int) -> Finding:
    """What is reported on it at a tick."""
    if held.held_us >= tick_us:
        return held.found
    return held.found._replace(evidence=held_at(said(held.found.evidence), held.held_us))


def _towards(calm_us: int | None, now_us: int) -> int:
    if calm_us is None:
        return now_us
    step_us = now_us - calm_us
    return calm_us + step_us // (CALM_WEIGHT if step_us > 0 else FASTER_WEIGHT)


def rest_of(window: Row) -> dict[str, Any] | None:
    """The remembered part of a window; None when its pulls do not rest for SPAN."""
    if window["resting"] != "SPAN" or window["first_held"] is None or window["dropped"]:
        return None
    since_us, seen_us = window["head_since_us"], window["last_pull_us"]
    age_us = None if since_us is None or seen_us is None else max(0, seen_us - since_us)
    return {name: window.get(name) for name in RESTS.names} | {"head_age_us": age_us}


def worst_rest(rests: Sequence[Row], *, tick_us: int) -> tuple[int | None, str]:
    """The queue with the most messages behind its head, and the sentence about it; nothing of
    none.
    """
    if not rests:
        return None, ""
    row = max(rests, key=lambda row: (_behind(row), -row["queue_id"]))
    age_us = row["head_age_us"]
    if age_us is not None:
        age_us = max(0, age_us + tick_us - row["event_us"]) // SECOND_US * SECOND_US
    return row["queue_id"], not_pulled(
        row, age_us=age_us, behind=_behind(row), others=len(rests) - 1
    )


def _behind(row: Row) -> int:
    return int((row["finished_count"] or 0) + row["held_count"] - 1)
