"""Sentences of `tm`: what was asked, known and unknown, and how far the answer goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from pipelines.sentences import alert_reasons, answers, checks, emitters, events, recent_changes
from pipelines.sentences import answers_on_groups as on_groups
from pipelines.sentences.groups import CameBack, acknowledges_none
from pipelines.sentences.losses import unaccounted

AT = datetime(2026, 3, 1, 19, 10, 3, tzinfo=UTC)
BROKER = "prod/broker-a/0"
CLIENT = "192.0.2.2@4711#1234567890123"
FAILED = checks.failed("offsets_known", AT, "3 of 40 break it: shipping (lag=9)")
WINDOW: dict[str, Any] = {
    "cluster": "prod",
    "broker": "broker-a",
    "group": "shipping",
    "topic": "orders",
    "queue_id": 2,
    "client_id": CLIENT,
    "window_id": "w1",
    "state": "OPEN",
    "began_at": AT,
    "closed_at": None,
    "rule": "STALLED",
    "unknown_reason": None,
    "stood_ms": 61_000,
    "lag_messages": 99,
    "outcome": "CONFIRMED",
    "redelivered_messages": 12,
    "redelivered_unknown_reason": None,
    "headline": "Group shipping stands on queue 2 of orders on broker-a.",
    "evidence": "Group shipping stands on queue 2 of orders on broker-a. Offset 451 has not moved "
    "for 30 s.",
}
CLOSED = {"closed_at": AT, "state": "CLOSED"}
GROUP: dict[str, Any] = {
    "group": "shipping",
    "broker": "broker-a",
    "state": "STALLED",
    "reason": "Group shipping stands on queue 2 of orders on broker-a; 99 messages wait.",
    "lag_messages": 99,
    "lag_at_least_messages": 99,
    "time_lag_ms": 40_000,
    "time_lag_at_least_ms": 40_000,
}
NAMES = [f"pops{number}" for number in range(7)]
WELL = {
    "group": "billing",
    "state": "OK",
    "reason": "Group billing is 0 messages behind on 4 queues.",
    **dict.fromkeys(("lag_messages", "lag_at_least_messages"), 0),
    **dict.fromkeys(("time_lag_ms", "time_lag_at_least_ms"), 0),
}
NOTHING = dict.fromkeys(
    ("lag_messages", "lag_at_least_messages", "time_lag_ms", "time_lag_at_least_ms")
)
LEAST = {"lag_messages": None, "time_lag_ms": None}
SILENT = emitters.silent_since(BROKER, AT)
UNKNOWN = {
    **NOTHING,
    "state": "UNKNOWN",
    "reason": f"Nothing is known of group shipping on broker-a: {SILENT}.",
}
CAUSE = {
    "group": "shipping",
    "broker": "broker-a",
    "observed_at": AT,
    "cause": "NO_MEMBERS",
    "evidence": "Nobody consumes group shipping: it has no member on broker-a.",
}
STANDS = {
    "cause": "STANDING_QUEUES",
    "evidence": "Group shipping stands on queue 2 of orders on broker-a; 90 messages wait.",
}
SUMS: dict[str, Any] = {
    **{name: GROUP[name] for name in NOTHING},
    "queues": 4,
    "queues_known": 4,
    "queues_behind": 2,
    "unknown_reason": None,
}
NOT_KNOWN = {**NOTHING, "queues_known": 0, "unknown_reason": "NO_OFFSET"}
ROLLBACK: dict[str, Any] = {
    "broker": "broker-a",
    "began_at": AT,
    "queues": 8,
    "groups": 2,
    "group_names": ["billing", "shipping"],
    "causes": ["BROKER_CRASH", "REWIND"],
    "at_risk_messages": 40,
    "redelivered_messages": 12,
    "redelivered_unknown_reason": None,
}
OBSERVED = {"redelivered_messages": None, "redelivered_unknown_reason": "OBSERVED"}
RATES = {
    "group": "shipping",
    "failed_5m": 120,
    "failed_hour": 12,
    "usual_5m": 1,
    "came_back_5m": 0,
    "came_back_hour": 0,
    "usual_came_back_5m": 0,
}
POP_RATES = {"came_back_5m": 1, "came_back_hour": 24, "usual_came_back_5m": 2}


@dataclass(frozen=True)
class Asked:
    """A question, as `tm` asks it."""

    group: str | None = None
    words: str = ""
    since: datetime | None = None
    until: datetime | None = None


ALL = Asked()
ONE = Asked("shipping", " of shipping")
QUEUE = Asked("shipping", " of shipping on queue 2 of orders")
RANGE = Asked("shipping", " of shipping", AT, AT)


def rows(*of_each: dict[str, Any], like: dict[str, Any]) -> pl.DataFrame:
    """Rows that differ from one; without any, none with its columns."""
    made = pl.DataFrame([{**like, **one} for one in of_each or ({},)])
    return made if of_each else made.clear()


def of_answers() -> Iterator[tuple[str, str]]:
    """(what of, sentence): verdicts of `tm`."""
    yield from _of_states()
    yield from _of_lag()
    yield from _of_causes()
    yield from _of_windows()
    yield from _of_rollbacks()
    yield from _of_events()


def of_judging() -> Iterator[tuple[str, str]]:
    """How far an answer goes, and what is withheld of it."""
    silent = [(BROKER, AT)]
    yield "judged", answers.judged(AT)
    yield "judged, an emitter is silent", answers.judged(AT, silent=silent)
    yield "judged, all are silent", answers.judged(AT, silent=silent, is_silent=True)
    ahead = emitters.clock_ahead(BROKER, 3_600)
    yield "judged, a clock is ahead", answers.judged(AT, beside=[ahead])
    yield "judged, watched", answers.judged(AT, watched=emitters.polled([10_000]))
    yield "judged, watched by two", answers.judged(AT, watched=emitters.polled([10_000, 2_000]))
    yield "judged, watched, how often unknown", answers.judged(AT, watched=emitters.polled([None]))
    yield "judged, nothing", answers.NOT_JUDGED
    yield "judged, too old", answers.nothing_since(90_000)
    yield "a range that begins before all", answers.known_from(AT)
    for name, shown in (("the first answer", 7), ("the later answer", 9)):
        yield f"revised, {name}", answers.revised(7, 9, (BROKER,), shown=shown)
    yield "revised, by two", answers.revised(7, 9, (BROKER, "prod/broker-b/0"), shown=9)
    yield "revised, the first not kept", answers.revised(None, None, (), shown=9, kept_from=3)
    yield "withheld, all", checks.withheld(FAILED, None)
    yield "withheld, a group", checks.withheld(FAILED, "shipping")
    named = [("billing", FAILED), ("all of prod/broker-b/0", FAILED)]
    yield "withheld, some", checks.some_withheld(checks.of_whom(1, 1), named)
    yield "withheld, many", checks.some_withheld(checks.of_whom(7, 0), named[:1] * 7)
    yield "found since, all", checks.found_since(FAILED, None)
    yield "found since, some", checks.some_found_since(named)
    known = {"emitter": BROKER, "state": "OK", "reason": None, "clock_skew_ms": 0}
    frame = rows({}, {}, like=known)
    yield "emitters", emitters.of_emitters(frame)
    for name, why in (
        ("silent", SILENT),
        ("rows lost", emitters.rows_lost(AT)),
        ("clock set back", emitters.clock_set_back(90_000, AT)),
    ):
        lost = {"state": "UNKNOWN", "reason": why}
        yield f"emitters, {name}", emitters.of_emitters(rows({}, lost, like=known))
    skews = ({"clock_skew_ms": 90_000}, {"emitter": "prod/broker-b/0", "clock_skew_ms": -90_000})
    yield "emitters, clocks off", emitters.of_emitters(rows(*skews, like=known))


def of_rates() -> Iterator[tuple[str, str]]:
    """Rates that alerts look at."""
    yield "failures", alert_reasons.retries(RATES)
    none = dict.fromkeys(("failed_5m", "failed_hour", "usual_5m"), 0)
    yield "one failure", alert_reasons.retries({**RATES, **none, "failed_5m": 1})
    yield "invisible times", alert_reasons.retries({**RATES, **none, **POP_RATES})
    yield "both", alert_reasons.retries({**RATES, **POP_RATES})
    yield "failures without a next step", unaccounted(3)
    yield "next steps without a failure", unaccounted(-3)
    spent = {"behind_1h_ms": 600_000, "behind_6h_ms": 600_000}
    yield (
        "an objective",
        alert_reasons.objective("shipping", lag_ms=60_000, share_percent=99.5, **spent),
    )


def _of_states() -> Iterator[tuple[str, str]]:
    frame = rows({}, WELL, like=GROUP)
    yield "groups, none", on_groups.of_groups(rows(like=GROUP))
    yield "groups, well", on_groups.of_groups(rows(WELL, like=GROUP))
    yield "groups, one stalled", on_groups.of_groups(frame)
    yield "groups, one known in part", on_groups.of_groups(rows(LEAST, like=GROUP))
    yield "groups, one unknown", on_groups.of_groups(rows(UNKNOWN, WELL, like=GROUP))
    held = {"state": "WITHHELD", "reason": checks.is_withheld(FAILED)}
    yield "groups, one withheld", on_groups.of_groups(rows(held, WELL, like=GROUP))
    yield "groups, one not judged", on_groups.of_groups(rows(WELL, like=GROUP), ["new"])
    yield "groups, two not judged", on_groups.of_groups(rows(WELL, like=GROUP), ["new", "newer"])
    yield "groups of a state", on_groups.of_state(frame, "STALLED")
    yield "groups of a state, none", on_groups.of_state(frame, "SLOW")


def _of_lag() -> Iterator[tuple[str, str]]:
    one = {"queues": 1, "queues_known": 1, "queues_behind": 1}
    part = {**LEAST, "queues_known": 3}
    for name, asked, sums in (
        ("lag", ONE, SUMS),
        ("lag, one queue", QUEUE, {**SUMS, **one}),
        ("lag, known in part", ONE, {**SUMS, **part}),
        (
            "lag, since when unknown",
            ONE,
            {**SUMS, "time_lag_ms": None, "time_lag_at_least_ms": None},
        ),
        ("lag, unknown", ONE, {**SUMS, **NOT_KNOWN}),
        ("lag, one queue unknown", QUEUE, {**SUMS, **one, **NOT_KNOWN}),
        ("lag, not reported", QUEUE, None),
    ):
        yield name, on_groups.of_lag(asked, sums, AT)


def _of_causes() -> Iterator[tuple[str, str]]:
    bad, well = rows({}, like=GROUP), rows(WELL, like=GROUP)
    none = rows(like=CAUSE)
    yield "why", on_groups.of_causes(ONE, rows({}, like=CAUSE), bad)
    yield "why, queues stand", on_groups.of_causes(ONE, rows(STANDS, like=CAUSE), bad)
    unknown = rows(UNKNOWN, like=GROUP)
    yield "why, by how much unknown", on_groups.of_causes(ONE, rows({}, like=CAUSE), unknown)
    yield "why, no cause", on_groups.of_causes(ONE, none, bad)
    yield "why, not behind", on_groups.of_causes(Asked("billing", " of billing"), none, well)
    yield "why, nobody behind", on_groups.of_causes(ALL, none, well)
    yield "why, nothing judged", on_groups.of_causes(ONE, none, rows(like=GROUP))


def _of_windows() -> Iterator[tuple[str, str]]:
    nothing, still, over = (rows(*one, like=WINDOW) for one in ((), ({},), (CLOSED,)))
    since = {"cluster": "prod", "unacknowledged_since": AT}
    stands, well = rows(like={**GROUP, **since}), rows(WELL, like={**GROUP, **since})
    pops = [
        {"group": name, "reason": acknowledges_none(name, CameBack(many, AT))}
        for many, name in enumerate(NAMES, 320)
    ]
    yield "stalls, none", on_groups.of_stalls(ONE, nothing, well)
    yield "stalls, none in a range", on_groups.of_stalls(RANGE, nothing, well)
    yield "stalls, open", on_groups.of_stalls(ONE, still, rows({}, like={**GROUP, **since}))
    yield "stalls, over", on_groups.of_stalls(ONE, over, well)
    paused = {"rule": "PAUSED", **CLOSED}
    yield "stalls, paused", on_groups.of_stalls(ONE, rows(paused, {}, like=WINDOW), stands)
    for name, groups in (("a group", pops[:1]), ("each of many groups", pops)):
        whole = rows(*groups, like={**GROUP, **since})
        yield f"stalls, {name} acknowledges none", on_groups.of_stalls(ONE, nothing, whole)
    together = rows(like=ROLLBACK)
    for name, frame, at_risk in (("open", still, 40), ("over", over, 0)):
        said = on_groups.of_duplicates(ONE, frame, together, at_risk=at_risk)
        yield f"duplicates, {name}", said
    observed = rows({**OBSERVED, **CLOSED}, like=WINDOW)
    yield "duplicates, unknown", on_groups.of_duplicates(ONE, observed, together, at_risk=0)
    yield "duplicates, none", on_groups.of_duplicates(ONE, nothing, together, at_risk=0)
    yield "ownership", events.of_ownership(ONE, still)
    yield "ownership, over", events.of_ownership(ONE, over)
    yield "ownership, of a range", events.of_ownership(RANGE, still)
    yield "ownership, none", events.of_ownership(ONE, nothing)
    parts = rows({}, {}, like={"source": "consumer_lag"})
    yield "a window", events.of_window("stalled_windows", WINDOW, parts)
    yield "a window, over", events.of_window("stalled_windows", {**WINDOW, **CLOSED}, parts)
    yield (
        "a window of risk",
        events.of_window("duplicate_risk_windows", {**WINDOW, **CLOSED}, parts),
    )


def _of_rollbacks() -> Iterator[tuple[str, str]]:
    yield "rollbacks, none", recent_changes.of_rollbacks(rows(like=ROLLBACK))
    none = {"redelivered_messages": 0, "causes": ["BROKER_CRASH"], "at_risk_messages": 1}
    many = {"group_names": [f"g{number}" for number in range(8)], "groups": 8}
    for name, given in (
        ("came again", {}),
        ("none came again", none),
        ("unknown", OBSERVED),
        ("of many", many),
    ):
        yield f"rollbacks, {name}", recent_changes.of_rollbacks(rows(given, like=ROLLBACK))


def _of_events() -> Iterator[tuple[str, str]]:
    change = rows({}, {}, like={"kind": "JOINED"})
    yield "rebalances", events.of_rebalances(ONE, change)
    letter = {"origin_topic": "orders"}
    yield "dead letters", events.of_dead_letters(ONE, rows({}, like=letter))
    yield (
        "dead letters, topic unknown",
        events.of_dead_letters(ONE, rows({}, {"origin_topic": None}, like=letter)),
    )
    check = {"expectation": "offsets_known", "checked_rows": 40, "success": True, "started_at": AT}
    idle = {"checked_rows": 0}
    yield "checks", events.of_checks(rows({}, {"success": False}, idle, like=check))
    yield "checks, none", events.of_checks(rows(like=check))
    yield "checks, none by then", events.of_checks(rows(like=check), by_then=True)
    alert = {"rule": "LagGrows", "state": "FIRING", "active_at": AT, "fingerprint": "f"}
    alert |= {"muted": None, "acked_by": None}
    muted = {"muted": "by a silence"}
    yield "alerts", events.of_alerts(ONE, rows({}, muted, {"state": "PENDING"}, like=alert))
    yield "alerts, none", events.of_alerts(ONE, rows(like=alert))
    yield "alerts, nobody watches", events.NO_ALERTS
    fact = rows({}, {"what": "handed out again"}, like={"what": "sent back after 2 failures"})
    yield "a message", events.of_message("7F00A1", fact)
    yield "a message, unknown", events.of_message("7F00A1", fact.clear())
    empty = rows(like=WINDOW)
    yield "no rebalance", events.of_rebalances(ONE, empty)
    yield "no dead letter", events.of_dead_letters(ONE, empty)
    yield "no loss", events.of_lost(ONE, empty)
    yield "no message replaced", events.of_replaced(ONE, empty)
    yield "no new life", events.of_passed_over(ALL, empty, lives=empty)
