"""Generates docs/sentences.md, the catalogue of all sentences, from given facts.

    python -m tests.sentences        # write the page anew

Invariant: the page has what the templates of `pipelines/sentences` make of the facts below, each
once with all figures known and once with those unknown that may be. Absent on purpose: rules of
what makes a sentence (`test_catalogue_of_sentences`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.new_life_cases import PASSED_OVER, READ, SET, UNKNOWN, Verdict
from pipelines.sentences import duplicates, groups, new_lives, stalls, stories
from pipelines.sentences.events import lag_text
from pipelines.sentences.figures import whole
from pipelines.sentences.losses import left_text, lost_unread, replaced
from tests.sentences_of_alerts import of_alerts, of_prometheus
from tests.sentences_of_answers import of_answers, of_judging, of_rates
from tests.sentences_of_causes import of_causes
from tests.sentences_of_changes import of_alert_states, of_changes, of_jobs, of_periods, of_pictures

PAGE = Path(__file__).parents[1] / "docs" / "sentences.md"
HEAD = """# Sentences

Written by `python -m tests.sentences`: what a page, a notebook, an alert or a report says of facts
that are given, known and unknown.
"""
AT = datetime(2026, 3, 1, 19, 10, 3, tzinfo=UTC)
AT_US = int(AT.timestamp()) * 1_000_000
CLIENT = "192.0.2.2@4711#1234567890123"
PLACE: dict[str, Any] = {
    "cluster": "prod",
    "broker": "broker-a",
    "group": "shipping",
    "topic": "orders",
    "queue_id": 2,
}
STALL: dict[str, Any] = {
    **PLACE,
    "client_id": CLIENT,
    "head_message_id": "7F00A1",
    "head_offset": 451,
    "head_since": AT,
    "stands_since": AT,
    "committed_to": 451,
    "lag_messages": 99,
    "max_offset_to": 550,
    "min_offset": 100,
    "patience_us": 30_000_000,
    "passed": None,
    "usual_us": None,
    "head_age_us": None,
    "reached": 451,
    "is_told": True,
    "is_silent": False,
    "high": 500,
    "pulled_from": 460,
    "pulled_to": 480,
    "growth": None,
    "growth_per_hour": None,
    "open": 99,
    "open_before": 99,
    "retained": None,
    "waited_ms": 40_000,
    "usual_report_ms": None,
    "unknown_reason": None,
    "stood_ms": 61_000,
}
UNKNOWN_FIGURES = dict.fromkeys(
    (
        *("client_id", "head_message_id", "head_offset", "head_since", "stands_since"),
        *("lag_messages", "pulled_from", "pulled_to", "waited_ms", "high", "open", "reached"),
    )
)
KINDS: dict[str, tuple[str, ...]] = {
    "STALLED": (
        *("FROZEN_HEAD", "BLOCKED_ORDERLY", "DEAD_QUEUE", "DEAD_CONSUMER", "UNDETERMINED"),
    ),
    "STOPPED": ("DEAD_QUEUE", "DEAD_CONSUMER", "UNDETERMINED"),
    "SLOW": ("UNDETERMINED",),
    "REWOUND": ("UNDETERMINED",),
    "DATA_LOST": ("UNDETERMINED",),
    "NO_OFFSET": ("DEAD_CONSUMER", "UNDETERMINED"),
    "PAUSED": ("PAUSED",),
}
OTHERS: dict[str, dict[str, Any]] = {
    "a head that others pass": {
        "rule": "STALLED",
        "kind": "FROZEN_HEAD",
        "passed": 12,
        "usual_us": 200_000,
        "head_age_us": 41_000_000,
    },
    "finished beyond the offset": {"rule": "STALLED", "kind": "FROZEN_HEAD", "reached": 470},
    "a client that says nothing": {
        "rule": "STALLED",
        "kind": "UNDETERMINED",
        "is_told": False,
        "is_silent": True,
        "usual_report_ms": 5_000,
    },
    "one message": {
        "rule": "STALLED",
        "kind": "DEAD_CONSUMER",
        "lag_messages": 1,
        "open": 1,
    },
    "moves again": {"rule": "STALLED", "kind": "FROZEN_HEAD", "stands": False},
    "a lag that grows": {
        "rule": "SLOW",
        "kind": "UNDETERMINED",
        "growth": 36_000,
        "growth_per_hour": 36_000,
        "retained": 72_000,
    },
    "a lag that grows, and nothing was deleted yet": {
        "rule": "SLOW",
        "kind": "UNDETERMINED",
        "growth": 90,
        "growth_per_hour": 90,
    },
    "a lag that stays": {"rule": "SLOW", "kind": "UNDETERMINED", "growth": 0},
    "a lag that only grew": {"rule": "SLOW", "kind": "UNDETERMINED", "open_before": 40},
    "deleted unread, and reads on": {"rule": "DATA_LOST", "kind": "UNDETERMINED"},
    "an offset beyond the end": {
        "rule": "DATA_LOST",
        "kind": "UNDETERMINED",
        "committed_to": 600,
    },
}


def of_stalls() -> Iterator[tuple[str, str]]:
    """(what of, sentence): revisions of stalled windows."""
    for rule, kinds in KINDS.items():
        for kind, is_known in product(kinds, (True, False)):
            figures = {} if is_known else UNKNOWN_FIGURES
            row = {**STALL, **figures, "rule": rule, "kind": kind}
            if rule == "DATA_LOST":
                row["committed_to"] = 51
            name = f"{rule}, {kind}" + ("" if is_known else ", figures unknown")
            yield name, stalls.evidence(row)
    for name, given in OTHERS.items():
        yield name, stalls.evidence({**STALL, **given})
    row = {**STALL, "rule": "STALLED", "kind": "FROZEN_HEAD"}
    headline = whole(stalls.headline(row))
    yield "an open window at a moment", stalls.stands_now({**row, "headline": headline})
    yield "over", stalls.over({**row, "lag_messages": 0}, catches_up=False)
    yield "over, by catching up", stalls.over(row, catches_up=True)
    yield "gone", stalls.gone(row)
    for why, words in WORDS.items():
        yield f"unknown: {why}", stalls.unknown(row, words)


SUMS: dict[str, dict[str, Any]] = {
    "4 of 4 queues known": {},
    "one message": {"lag_messages": 1, "lag_at_least_messages": 1, "queues_behind": 1},
    "much finished": {"lag_messages": 12_345, "unfinished_messages": 1_000},
    "all read": {"lag_messages": 0, "lag_at_least_messages": 0, "queues_behind": 0},
    "one queue": {"queues": 1, "queues_known": 1, "queues_behind": 1},
    "1 of 4 queues known": {
        "lag_messages": None,
        "lag_at_least_messages": 0,
        "queues_known": 1,
        "queues_behind": 0,
    },
    "3 of 4 queues known": {"lag_messages": None, "queues_known": 3},
    "no queue known": {
        "lag_messages": None,
        "lag_at_least_messages": None,
        "queues_known": 0,
        "queues_behind": 0,
    },
}
"""What is summed up of a group, beside what is usual."""


def of_groups() -> Iterator[tuple[str, str]]:
    """Reasons of groups' states."""
    for name, given in SUMS.items():
        sums = {
            "lag_messages": 99,
            "lag_at_least_messages": 99,
            "unfinished_messages": 99,
            "queues": 4,
            "queues_known": 4,
            "queues_behind": 2,
            **given,
        }
        yield f"OK, {name}", groups.well("shipping", groups.how_far(sums))
    known = {"lag": 99, "open": 99, "growth": None, "retained": None, "is_beyond": False}
    nothing = {**known, "lag": None, "open": None}
    falls = {"growth": 36_000, "retained": 72_000}
    for state in ("STALLED", "STOPPED", "SLOW", "REWOUND", "DATA_LOST", "NO_OFFSET", "PAUSED"):
        yield state, _why_not_ok(state, known, not_ok=2)
        yield f"{state}, figures unknown", _why_not_ok(state, nothing, not_ok=1)
    yield "SLOW, and falls behind", _why_not_ok("SLOW", {**known, **falls}, not_ok=1)
    yield "SLOW, of one message", _why_not_ok("SLOW", {**known, "lag": 1}, not_ok=1)
    yield "DATA_LOST, beyond the end", _why_not_ok("DATA_LOST", {**known, "is_beyond": True}, 1)
    yield "BROADCAST", _why_not_ok("BROADCAST", known)
    yield "CATCHING_UP", _why_not_ok("CATCHING_UP", known)
    yield "CATCHING_UP, until when unknown", _why_not_ok("CATCHING_UP", known, drain_ms=None)
    yield "UNKNOWN, a silent client", _why_not_ok("UNKNOWN", {**known, "silent_ms": 45_000})
    one = {**known, "lag": 1, "silent_ms": 45_000}
    yield "UNKNOWN, a silent client, one message", _why_not_ok("UNKNOWN", one)
    yield "UNKNOWN, too early", _why_not_ok("UNKNOWN", known)
    yield "UNKNOWN, about to leave", _why_not_ok("UNKNOWN", {**known, "is_unnamed": True})
    yield "UNKNOWN, beyond the end", _why_not_ok("UNKNOWN", {**nothing, "is_beyond": True})
    yield "UNKNOWN, no offset", _why_not_ok("UNKNOWN", nothing)
    yield "GONE", groups.gone("shipping", "broker-a")
    yield "STALLED, reads by POP", groups.acknowledges_none("shipping", groups.CameBack(12, AT))
    unknown = groups.CameBack(360, AT, "its broker keeps checkpoints in a store nobody can ask")
    yield "UNKNOWN, reads by POP", groups.acknowledges_none("shipping", unknown)
    for why, words in WORDS.items():
        (said,) = groups.nothing_known([("shipping", "broker-a")], words)
        yield f"UNKNOWN: {why}", said


def _why_not_ok(
    state: str, queue: dict[str, Any], not_ok: int = 0, drain_ms: int | None = 90_000
) -> str:
    sums = {"state": state, "queues_not_ok": not_ok, "queues": 4, "drain_time_ms": drain_ms}
    return groups.why_not_ok(
        {name: pa.array([value]) for name, value in sums.items()},
        *(0, groups.WorstQueue("orders", 2, **queue)),
        group="shipping",
        broker="broker-a",
        far="99 messages behind on 2 of 4 queues",
    )


RISK: dict[str, Any] = {
    **PLACE,
    "opened_us": AT_US,
    "client_id": CLIENT,
    "from_offset": 451,
    "next_client_id": "192.0.2.3@12",
    "to_offset": 480,
    "message_id": "7F00A1",
    "redelivered": 0,
    "redelivered_from": None,
    "redelivered_to": None,
    "state": "OPEN",
    "told_by": "OPENED",
    "emitter": "prod/broker-a/0",
}
RISKS: dict[str, tuple[str, ...]] = {
    "DEPARTURE": ("CONSUMER_CRASH", "HAND_OVER", "DOUBLE_OWNER"),
    "RESTART": ("BROKER_CRASH", "OFFSET_STORE_LOST", "REPLAY_AFTER_TRUNCATION"),
    "OFFSET_FALL": ("RESET", "REWIND"),
    "OFFSET_ANSWER": ("HAND_OVER",),
    "EXPOSURE": ("CONSUMER_CRASH",),
    "SEND_BACK": ("SEND_BACK",),
    "INVISIBLE_TIME_EXPIRED": ("INVISIBLE_TIME_EXPIRED",),
    "SEND_RETRY": ("SEND_RETRY",),
    "REDELIVERY": ("REWIND",),
}
OTHER_RISKS: dict[str, dict[str, Any]] = {
    "one message at risk": {"to_offset": 452},
    "nothing at risk": {"basis": "RESTART", "cause": "BROKER_CRASH", "to_offset": 451},
    "a client unknown": {"client_id": None},
    "a message unknown": {"basis": "SEND_BACK", "cause": "SEND_BACK", "message_id": None},
    "has gone on since": {"basis": "RESTART", "cause": "BROKER_CRASH", "all_from_offset": 470},
    "read by two": {"cause": "DOUBLE_OWNER", "all_from_offset": 470},
    "more came again": {"redelivered": 40, "redelivered_from": 451, "redelivered_to": 491},
    "watched from outside": {"state": "CLOSED", "told_by": "PASSED", "emitter": "prod/b/observer"},
    **{f"ended: {end}": {"state": "CLOSED", "told_by": end} for end in duplicates.ENDS},
}


def of_risks() -> Iterator[tuple[str, str]]:
    """Windows of duplicate risk."""
    for basis, causes in RISKS.items():
        for cause in causes:
            row = {**RISK, "basis": basis, "cause": cause}
            if basis in duplicates.OF_ONE_MESSAGE:
                yield f"{basis}, {cause}", duplicates.evidence({**row, "redelivered": 1})
                continue
            if basis != "REDELIVERY":
                yield f"{basis}, {cause}", duplicates.evidence(row)
            over = {**row, "state": "CLOSED", "told_by": "PASSED", "redelivered_from": 451}
            for again in (1, 12) if basis == "REDELIVERY" else (0, 1, 12):
                seen = {"redelivered": again, "redelivered_to": 451 + again}
                yield f"{basis}, {cause}, {again} came again", duplicates.evidence({**over, **seen})
    for name, given in OTHER_RISKS.items():
        row = {**RISK, "basis": "DEPARTURE", "cause": "CONSUMER_CRASH", **given}
        yield name, duplicates.evidence(row)


def of_lives() -> Iterator[tuple[str, str]]:
    """Topics that were made again, and messages that were deleted unread."""
    for verdict in (
        Verdict(READ, 0, 0, 0, None, "it began at 0"),
        Verdict(PASSED_OVER, 0, 1, 1, None, "its first pull began at offset 1"),
        Verdict(PASSED_OVER, 0, 10, 10, None, "its first pull began at offset 10"),
        Verdict(UNKNOWN, 0, 6, None, None, "nobody saw where it went on"),
        Verdict(SET, 0, 6, None, None, "it was set to offset 6"),
    ):
        row = {**PLACE, "made_again_at": AT_US, **verdict._asdict()}
        yield verdict.outcome, new_lives.evidence(row, verdict.how)
    life = new_lives.NewLife(
        AT, AT, "prod", "orders", passed={"shipping": 10}, perhaps={"billing": 6}
    )
    yield "a topic and its groups", life.text
    for count, unread in ((1, 1), (20, 20), (20, 15), (20, 0)):
        row = {**PLACE, "from_offset": 10, "to_offset": 10 + count, "messages": count}
        fields = {**row, "observed_at": AT, "error_messages": count - unread}
        yield "deleted unread, a group's", lost_unread("shipping", [fields])
    yield "deleted unread, in many ranges", lost_unread("shipping", [fields] * 5)
    ids = {"message_id_before": "7F00A1", "message_id": "7F00B2"}
    lost = {**PLACE, **ids, "client_id": CLIENT, "offset": 41, "queue_end": 40}
    for outcome in ("LOST", "SENT_AGAIN"):
        yield f"replaced, {outcome}", replaced({**lost, "outcome": outcome})
    nothing = dict.fromkeys((*ids, "client_id"))
    yield "replaced, UNKNOWN", replaced({**lost, **nothing, "outcome": "UNKNOWN"})
    left = {"group": "shipping", "topic": "orders", "event_time": AT}
    yield "a topic that was left", left_text({**left, "detail": "2,410 messages unread"})


STEP: dict[str, Any] = {
    **PLACE,
    "step": "SENT_BACK",
    "kind": "ASSIGNED",
    "reason": "TIMEOUT",
    "reconsume_times": 2,
    "client_id": CLIENT,
    "previous_client_id": "192.0.2.3@12",
    "from_offset": 451,
    "to_offset": 480,
    "committed": 451,
    "pulled": 480,
    "max_offset": 550,
    "lag_messages": 99,
    "time_lag_ms": 40_000,
    "unknown_reason": None,
}


def of_rows() -> Iterator[tuple[str, str]]:
    """Lines of a story: what was reported of a message or a window."""
    said = {**RISK, "basis": "DEPARTURE", "cause": "CONSUMER_CRASH", "redelivered": 12}
    said |= {"redelivered_from": 451, "redelivered_to": 463, "outcome": "CONFIRMED"}
    again = {"redelivered_messages": 12, "redelivered_unknown_reason": None}
    yield "a risk", stories.risk({**said, **again, "evidence": duplicates.evidence(said)})
    stall = {**STALL, "rule": "STALLED", "kind": "FROZEN_HEAD"}
    found = {**stall, "evidence": stalls.evidence(stall), "revision": 3, "state": "OPEN"}
    yield "a head", stories.head({**found, "closed_at": None})
    yield "a head, over", stories.head({**found, "closed_at": AT})
    yield "a revision", stories.revision(found)
    unknown = dict.fromkeys(("reason", "client_id", "previous_client_id", "reconsume_times"))
    for step in (*stories.STEP_WORDS, "A_LATER_STEP"):
        yield f"a message, {step}", stories.ending({**STEP, "step": step, "event_time": AT})
    yield "a message, 1 try", stories.ending({**STEP, "event_time": AT, "reconsume_times": 1})
    for name, row in (("", STEP), (", figures unknown", {**STEP, **unknown})):
        yield f"a failure{name}", stories.step(row)
        yield f"a dead letter{name}", stories.dead_letter(row)
        yield f"a redelivery{name}", stories.redelivery(row)
        yield f"a change of members{name}", stories.change(row)
    yield "lag", lag_text(STEP)
    yield "lag, unknown", lag_text({**STEP, "lag_messages": None, "unknown_reason": "NO_OFFSET"})


SUBJECTS = {
    "Queues that are not well": of_stalls,
    "Groups": of_groups,
    "Why a group is behind": of_causes,
    "Risk of a second delivery": of_risks,
    "Lives of topics, and what was deleted unread": of_lives,
    "Lines of a story": of_rows,
    "Answers of a notebook": of_answers,
    "How far an answer goes": of_judging,
    "Changes": of_changes,
    "Figures": of_pictures,
    "Reports": of_periods,
    "Alerts": of_alerts,
    "States of alerts": of_alert_states,
    "Runs of jobs": of_jobs,
    "Rates behind alerts": of_rates,
    "Rules of Prometheus": of_prometheus,
}


def page() -> str:
    """The whole document."""
    lines = [HEAD]
    for subject, sentences in SUBJECTS.items():
        lines += [f"## {subject}", "", "| of | sentence |", "|---|---|"]
        lines += [f"| {name} | {said} |" for name, said in sentences()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
