"""Writes what runs found as a page."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

from tests.chaos import faults, pairs
from tests.chaos.clients import JAVAS
from tests.chaos.kill_points import AT_FOUNDING
from tests.chaos.run import Outcome

RAFT: Final = "RAFT"
FAULTS_SHOWN_MAX: Final = 100
HEAD: Final = """# Copies of a broker under faults

Written by `make chaos`. Brokers and two name servers are each on a host (network namespace) of
their own, and show certificates. Eight senders, each with a queue of its own, send a message until
it is acknowledged, then the next one; two groups of a push consumer each read all. Six senders and
a group are ours, at their defaults; two senders and a group are RocketMQ's unmodified Java client,
which polls routes each second.

{date}, `make chaos CHAOS_S={seconds:g} SEED={seed}`, {processors} processors, which other work used
as well: load {load:.1f} at the end.

RTO: the longest time without an acknowledgement to any sender of ours, or of Java's, from the begin
of a fault until all is whole again; a fault holds for 2 to 7 s if nothing else is said, and a
broker that was killed starts after that. RPO: messages that were acknowledged meanwhile and are
lost.
"""
TABLE: Final = """
| fault | what | count | RTO of ours, median s | longest s | of Java's, median s | longest s | RPO |
|---|---|---|---|---|---|---|---|
"""
GROUP: Final = """
## A Raft group of three

{faults} faults: {sends}. A reader sends, reports and asks for offsets, and both groups are asked
for theirs: {answers} answers.
"""
KILLED: Final = """
A broker that kills itself at a named point of its code, and begins again after 0.5 to 2 s. Without
figures for Java: a member of a group that is being founded; the figures say how long after the kill
one leads.
"""
GROUP_HELD: Final = """
Held in the end: every acknowledged message is where its acknowledgement said, under its id; what
was delivered is there; no message has more copies than it was sent; the first copies of a key lie
in their order, without a gap; no offset that was answered or acknowledged fell, none of a group of
consumers either; all was delivered to both groups; the three logs are equal byte for byte; both
name servers name one leader.
"""
PAIR: Final = """
## {mode} and a slave

{faults} faults: {sends}. Where it is promoted, that is done as by
`tidemark admin replica promote --yes`, at once; a former master whose log is another one is cut as
by `replica rebuild --yes`.{waits}
"""
WAITS: Final = """ A send is acknowledged by both: whoever is away, nobody is answered
until both are there."""
SYNC_HELD: Final = """
Held in the end: as above, but for offsets, which a slave copies each 5 s.
"""
ASYNC_HELD: Final = """
Lost in all: {lost} messages; the rebuilds reported {cut} that they cut, unacknowledged ones among
them. Held in the end: no message has more copies than it was sent, and nobody else sent any.
"""

Faults = Mapping[str, tuple[str, Callable[..., Any]]]


def page(outcomes: Mapping[str, Outcome], *, seconds: float, seed: int) -> str:
    """All of it; `outcomes` by mode."""
    written = HEAD.format(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=seconds,
        seed=seed,
        processors=os.cpu_count(),
        load=os.getloadavg()[1],
    )
    for mode, outcome in outcomes.items():
        written += _group(outcome) if mode == RAFT else _pair(mode, outcome)
        if outcome.faults:
            shown = outcome.faults[:FAULTS_SHOWN_MAX]
            written += "\nBroken:\n\n" + "".join(f"- {one}\n" for one in shown)
    return written


def _group(outcome: Outcome) -> str:
    written = GROUP.format(
        faults=len(outcome.played), sends=_sends(outcome), answers=outcome.offsets_answered
    )
    written += _table(outcome, faults.FAULTS) + KILLED + _table(outcome, faults.KILL_POINTS)
    for name, gaps in outcome.foundings.items():
        figures = f"{median(gaps):.2f} | {max(gaps):.2f}"
        written += (
            f"| killed: {name} | {AT_FOUNDING[name].what} | {len(gaps)} | {figures} | | | |\n"
        )
    return written if outcome.faults else written + GROUP_HELD


def _pair(mode: str, outcome: Outcome) -> str:
    waits = WAITS if mode == "SYNC_MASTER" else ""
    written = PAIR.format(mode=mode, faults=len(outcome.played), sends=_sends(outcome), waits=waits)
    written += _table(outcome, pairs.FAULTS)
    if outcome.faults:
        return written
    held = SYNC_HELD if mode == "SYNC_MASTER" else ASYNC_HELD
    return written + held.format(lost=len(outcome.lost), cut=outcome.cut)


def _sends(outcome: Outcome) -> str:
    record = outcome.record
    of_java = sum(key in JAVAS for _, key in record.acknowledged)
    tries = sum(put.tries for puts in record.puts.values() for put in puts)
    return (
        f"{len(record.acknowledged)} sends acknowledged, {of_java} of them to Java's senders\n"
        f"({tries} tries), {record.redelivered} deliveries repeated"
    )


def _table(outcome: Outcome, kinds: Faults) -> str:
    return TABLE + "".join(_row(outcome, name, what) for name, (what, _) in kinds.items())


def _row(outcome: Outcome, name: str, what: str) -> str:
    of_it = [one for one in outcome.played if one.name == name]
    if not of_it:
        return f"| {name} | {what} | 0 | | | | | |\n"
    ours, javas = [one.ours_s for one in of_it], [one.javas_s for one in of_it]
    lost = sum(one.begin_s <= moment_s <= one.end_s for one in of_it for moment_s in outcome.lost)
    figures = [f"{function(gaps):.2f}" for gaps in (ours, javas) for function in (median, max)]
    return f"| {name} | {what} | {len(of_it)} | {' | '.join(figures)} | {lost} |\n"
