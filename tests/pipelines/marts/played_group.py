"""A group whose work is played: what it finishes, and how often it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.base.settings import Evaluation
from pipelines.marts.computing import compute
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import facts_between, horizons_of, run

FIRST = 1000
"""Offset of the first message of a story."""
EVERY_S = 5
"""Rows and samples come each so many seconds."""
Gold = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Work:
    """Offsets by seconds of the story; commits come at multiples of commit_s."""

    end: Callable[[float], int]
    finished: Callable[[float], int]
    commit_s: float
    seconds: int
    stored: Callable[[int], float]
    """When a message was stored, in seconds of the story; may be below 0."""
    held_max: int = 1000
    reports: bool = True
    """Does its client say what it holds?"""
    holds_nothing: bool = False
    """Does it answer that it holds nothing, whatever it does, as Go clients do?"""
    min_offset: int = 500
    first_kept: Callable[[float], int] | None = None
    """In place of min_offset, where messages are deleted meanwhile."""
    asks_again: bool = False
    """Does a client ask again and again that has got all there is?"""
    dies_at: float | None = None
    expires_after_s: float = 30


def steady(*, produced: float, consumed: float, behind: int = 0, **options: Any) -> Work:
    """So many messages a second come, and so many are finished as soon as they are there."""

    def end(at: float) -> int:
        return FIRST + behind + int(produced * at)

    def finished(at: float) -> int:
        return min(FIRST + int(consumed * at), end(max(0.0, at - 1)))

    def stored(offset: int) -> float:
        return (offset - FIRST - behind) / produced

    return Work(end, finished, stored=stored, **options)


def played(work: Work, evaluation: Evaluation | None = None) -> Gold:
    """Gold of the judges."""
    return run(JUDGES, bronze(rows_of(work)), evaluation or Evaluation())


def played_beside(works: Sequence[Work], *, every_s: int = EVERY_S) -> list[Gold]:
    """Gold of the judges for each of several groups on one broker, up to where its story ends.

    A tick costs as much for twenty queues as for one.
    """
    gold = run(JUDGES, bronze(rows_of(*works, every_s=every_s)), Evaluation())
    return [
        {
            mart: [
                row
                for row in rows
                if row.get("group") == _group(number) and second(row["observed_at"]) <= work.seconds
            ]
            for mart, rows in gold.items()
        }
        for number, work in enumerate(works)
    ]


def exposed(work: Work) -> list[tuple[int, int]]:
    """Ranges that a crash would repeat at the end of a story."""
    facts = bronze(rows_of(work))
    cut = facts_between(facts, {}, horizons_of(facts)[-1])
    carried = compute(JUDGES, cut, {}, Evaluation()).state.get("exposures", {})
    ranges = carried["open"].to_pylist() if carried else []
    return [(one["from_offset"], one["to_offset"]) for one in ranges]


def rows_of(*works: Work, every_s: int = EVERY_S) -> Rows:
    """The rows of a story, or of several that happen beside each other, each so many seconds."""
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    seconds = max(work.seconds for work in works)
    for at in range(1, seconds, every_s):
        broker.at(at)
        for number, work in enumerate(works):
            if at < work.seconds:
                _report(broker, work, at, group=_group(number), every_s=every_s)
        broker.at(min(at + every_s - 0.001, seconds))
        broker.ship()
    broker.at(seconds)
    broker.ship()
    return rows


def _group(number: int) -> str:
    return f"g{number}"


def _report(broker: Emitter, work: Work, at: int, *, group: str, every_s: int) -> None:
    alive_at = at if work.dies_at is None else min(at, work.dies_at)
    committed_at = alive_at // work.commit_s * work.commit_s
    committed = work.finished(committed_at) if committed_at > 0 else FIRST
    end, finished = work.end(at), work.finished(alive_at)
    pulled = min(work.end(alive_at), finished + work.held_max)
    is_member = work.dies_at is None or at < work.dies_at + work.expires_after_s
    asks = work.asks_again or pulled > work.finished(alive_at - 1)
    pulls_at = alive_at if asks else 0
    waits = committed < end
    broker.watermark(
        group=group,
        topic=f"topic of {group}",
        committed=committed,
        pulled=pulled,
        max_offset=end,
        min_offset=work.min_offset if work.first_kept is None else work.first_kept(at),
        committed_state="EXACT" if waits else "AT_END",
        store_time_at_committed=_moment(work.stored(committed)) if waits else None,
        last_store_time=_moment(work.stored(end - 1)),
        last_commit_time=_moment(committed_at),
        last_pull_time=_moment(pulls_at),
        reports=int(alive_at == at and at % max(every_s, work.commit_s) < every_s),
        members=int(is_member),
    )
    if work.holds_nothing:
        broker.sample(group=group, topic=f"topic of {group}", last_pull_time=_moment(pulls_at))
    elif work.reports and alive_at == at:
        holds = pulled > finished
        broker.sample(
            group=group,
            topic=f"topic of {group}",
            held_count=pulled - finished,
            first_held=finished if holds else None,
            last_held=pulled - 1 if holds else None,
            client_committed=finished,
            head_message_id=f"M{finished}" if holds else None,
            head_since=_moment(at),
            last_pull_time=_moment(pulls_at),
        )


def _moment(at: float) -> int:
    return START_US + int(at * SECOND)


def states(gold: Gold) -> list[tuple[float, str]]:
    """The states of the group, with the seconds from which each is reported."""
    found: list[tuple[float, str]] = []
    for row in sorted(gold["group_state"], key=lambda one: one["observed_at"]):
        if not found or found[-1][1] != row["state"]:
            found.append((second(row["observed_at"]), row["state"]))
    return found


def windows(gold: Gold) -> list[tuple[float, str, str, str]]:
    """Revisions of windows: when, rule, kind and state."""
    return [
        (second(row["observed_at"]), row["rule"], row["kind"], row["state"])
        for row in sorted(gold["stalled_windows"], key=lambda one: one["observed_at"])
    ]
