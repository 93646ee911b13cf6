"""Pure functions that assemble a message's path from the lake and the cluster.

    stored -> pulled or consumed -> sent back, next try, ... -> dead-lettered

Each source speaks for itself: the lake, the store, and clients by their own clocks. Invariant: a
step names its source. Steps are in the order of their times; one without a time comes last and says
so. No body is among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from dashboards.formatting import clock, duration, plural, spoken
from dashboards.models.lag_overview import origin_text
from dashboards.reads.cluster import ClusterStory, StoredCopy, moment_of
from dashboards.reads.topic_data import Place
from dashboards.url_state import QUERY_MAX, Span
from engine.admin import TracedStep
from pipelines.sentences.stories import ending, step_words

AROUND: Final = timedelta(days=1)
"""Searched before and after the range: sixteen tries at the default levels take 4 h 46 min."""
PLACES_MAX: Final = 4
"""Copies of one message whose queues are looked at."""

NOT_ASKED: Final = (
    "The lake knows failed messages alone, by their unique id. Where a message is stored, its keys "
    "and what clients traced is known to the cluster, which this dashboard may not ask: start it "
    "with `--namesrv HOST:PORT`."
)
NO_TRACE_TOPIC: Final = (
    "No broker has the topic RMQ_SYS_TRACE_TOPIC: no client has traced anything yet "
    "(`enableMsgTrace=true` in producers and consumers), or Apache brokers run without "
    "`traceTopicEnable=true`."
)
NOT_TRACED: Final = (
    "No client traced it: traces are off (`enableMsgTrace=true` in producers and consumers writes "
    "them), older than the brokers keep, or up to 5 s under way."
)
FLOW: Final = "retry_dlq_flow"
_EXPIRED: Final = "INVISIBLE_TIME_EXPIRED"
STORE, CLIENT = "the broker's store", "a client's trace, by its clock"
TONES: Final = {
    **dict.fromkeys(("DEAD_LETTERED", "EXPIRED", "DISCARDED"), "dead"),
    **dict.fromkeys(("SENT_BACK", "LOCAL_RETRY", "SENT_AGAIN", _EXPIRED), "risk"),
}
OF_PRODUCERS: Final = ("sent", "transaction ended")
_ORDER: Final = ("sent", "stored", "pulled", "consuming", "consumed")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to a message."""

    at: datetime | None
    what: str
    tone: str
    """event, risk, dead or ok."""
    group: str | None
    text: str
    source: str


def fault_of(text: str) -> str | None:
    """Why a text can be no id and no key; None when it can."""
    if len(text) > QUERY_MAX:
        return f"Too long: an id or key has at most {QUERY_MAX} characters."
    if any(character.isspace() for character in text):
        return "One id or one key at a time: there are no blanks within one."
    if not text.isprintable():
        return "Characters that cannot be printed are part of no id and no key; copy it again."
    return None


def searched(span: Span) -> tuple[datetime, datetime]:
    """The moments between which the lake is searched."""
    return span.start - AROUND, span.end + AROUND


def places(flow: pl.DataFrame, copies: Sequence[StoredCopy]) -> list[Place]:
    """Where the message lies, as far as it is known."""
    others = [
        Place(row["broker"], row["origin_topic"], row["origin_queue_id"], row["origin_offset"])
        for row in flow.drop_nulls(["origin_topic", "origin_queue_id", "origin_offset"]).iter_rows(
            named=True
        )
    ]
    stored = [
        Place(copy.broker, copy.topic, copy.queue_id, copy.offset)
        for copy in copies
        if copy.broker is not None
    ]
    return list(dict.fromkeys([*stored, *others]))[:PLACES_MAX]


def in_order(steps: Iterable[Step]) -> list[Step]:
    """By time; at one moment as a message goes; without a time last."""

    def order(step: Step) -> tuple[bool, float, int]:
        rank = _ORDER.index(step.what) if step.what in _ORDER else len(_ORDER)
        return step.at is None, step.at.timestamp() if step.at else 0.0, rank

    return sorted(steps, key=order)


def endings(flow: pl.DataFrame) -> list[str]:
    """Where each group that failed on the message stands with it, in a sentence each."""
    if flow.is_empty():
        return []
    newest = flow.sort("event_time", "seq").unique("group", keep="last").sort("group")
    return [ending(row) for row in newest.iter_rows(named=True)]


def _tries(number: int, kind: str) -> str:
    return plural(number, f"{kind} try").replace("trys", "tries")


def flow_steps(flow: pl.DataFrame) -> Iterator[Step]:
    """Failures and retries, as brokers reported them."""
    for row in flow.iter_rows(named=True):
        said = [_tries(row["reconsume_times"], "failed")]
        if row["delay_ms"] is not None and row["step"] == "SCHEDULED":
            said.append(f"next try in {duration(row['delay_ms'])}")
        if row["origin_queue_id"] is not None and row["origin_offset"] is not None:
            said.append(f"{origin_text(row)} on {row['broker']}")
        if row["reason"]:
            said.append(row["reason"])
        yield Step(
            row["event_time"],
            step_words(row["step"]),
            TONES.get(row["step"], "event"),
            row["group"],
            "; ".join(said),
            FLOW,
        )


def repeat_steps(again: pl.DataFrame) -> Iterator[Step]:
    """Pulls that brought the message a second time."""
    for row in again.iter_rows(named=True):
        to, before = row["client_id"] or "a client", row["previous_client_id"] or "another one"
        yield Step(
            row["event_time"],
            "pulled again",
            "risk",
            row["group"],
            f"{row['topic']} queue {row['queue_id']}: offsets {row['from_offset']} to "
            f"{row['to_offset'] - 1} handed to {to}; before, to {before}",
            "redeliveries",
        )


def stored_steps(stored: pl.DataFrame, place: Place, others: Sequence[Step]) -> Iterator[Step]:
    """The report that first counted the message in, where no store was asked.

    Reports come each second at best: what is reported of the message before that came later than
    it was stored.
    """
    for row in stored.drop_nulls("stored_at").iter_rows(named=True):
        earliest = min(
            [step.at for step in others if step.at is not None], default=row["stored_at"]
        )
        text = (
            f"{place.topic}, {place.broker} queue {place.queue_id} offset {place.offset}: by then, "
            f"and not yet at {clock(row['stored_after'])} UTC"
        )
        at = min(row["stored_at"], earliest)
        yield Step(at, "stored", "event", None, text, "queue_watermarks")


def passed_steps(passed: pl.DataFrame, place: Place, others: Sequence[Step]) -> Iterator[Step]:
    """Marks of groups that went beyond the message, at the report that showed it first.

    A group of which another step shows earlier that it had the message gets no pulled mark: the
    report is up to half a minute late, and would stand behind what came of the pull.
    """
    where = f"{place.topic}, {place.broker} queue {place.queue_id}"
    failing = {step.group for step in others if step.source == FLOW}
    for row in passed.iter_rows(named=True):
        had = [step.at for step in others if step.group == row["group"] and step.at is not None]
        pulled_at, committed_at = row["pulled_at"], row["committed_at"]
        if pulled_at is not None and not any(at <= pulled_at for at in had):
            text = f"{where}: pulled beyond offset {place.offset}{_since(row['pulled_after'])}"
            yield Step(pulled_at, "pulled", "event", row["group"], text, "consumer_lag")
        if committed_at is not None:
            failed = row["group"] in failing
            means = (
                "its next try is a copy" if failed else "consumed: no failure was reported before"
            )
            text = f"{where}: committed beyond it{_since(row['committed_after'])}; {means}"
            tone = "event" if failed else "ok"
            yield Step(committed_at, "committed", tone, row["group"], text, "consumer_lag")


def _since(before: datetime) -> str:
    return f" by this report, not yet at {clock(before)} UTC"


def copy_steps(copies: Sequence[StoredCopy]) -> Iterator[Step]:
    """Where brokers store the message."""
    for copy in copies:
        where = f"{copy.topic}, {copy.broker or 'a broker'} queue {copy.queue_id}"
        keys = f", keys {copy.keys}" if copy.keys else ""
        text = (
            f"{where} offset {copy.offset}; {copy.size_bytes:,} bytes, born "
            f"{clock(copy.born_at, day=True)} UTC on {copy.born_host}{keys}"
        )
        yield Step(copy.stored_at, "stored", "event", None, text, STORE)


def traced_steps(traces: Sequence[TracedStep]) -> Iterator[Step]:
    """What clients wrote of the message."""
    for one in traces:
        # Producer groups have no page: they consume nothing.
        group = None if one.step in OF_PRODUCERS else one.group
        yield Step(moment_of(one.time_ms), one.step, _tone(one), group, _trace_text(one), CLIENT)


def _tone(one: TracedStep) -> str:
    if one.success is None:
        return "event"
    return "ok" if one.success else "risk"


def _trace_text(one: TracedStep) -> str:
    said = []
    if one.step in OF_PRODUCERS:
        said.append(f"by producer group {one.group or 'unknown'}")
    if one.topic:
        said.append(f"to {one.topic} at {one.store_host or 'a broker'}")
    if one.retry_times is not None:
        tries = _tries(one.retry_times, "earlier") if one.retry_times else "for the first time"
        said.append(f"a listener was given it, {tries}")
    if one.outcome:
        said.append(f"ended as {spoken(one.outcome)}")
    elif one.success is not None:
        said.append("answered well" if one.success else "not stored as wished")
    if one.cost_ms is not None:
        said.append(f"took {duration(one.cost_ms) if one.cost_ms else 'less than 1 ms'}")
    return "; ".join(said)


def advice(story: ClusterStory, *, found: bool) -> list[str]:
    """What is missing from the answer, and what to do about it."""
    if not story.asked:
        return [NOT_ASKED]
    if story.fault:
        return [f"The cluster did not answer ({story.fault}): its part of the way is missing."]
    said = []
    if not found:
        said.append(
            "The cluster stores no such message of this topic: mistyped, of another topic, or "
            "older than the brokers keep."
        )
    if not story.has_trace_topic:
        said.append(NO_TRACE_TOPIC)
    elif not story.traces:
        said.append(NOT_TRACED)
    return said
