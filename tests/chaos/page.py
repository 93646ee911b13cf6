"""Writes what runs found as a page."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from textwrap import fill
from typing import Any, Final

from tests.chaos import faults, pairs
from tests.chaos.clients import JAVAS
from tests.chaos.control import KINDS
from tests.chaos.kill_points import AT_FOUNDING
from tests.chaos.run import Outcome, Played

RAFT: Final = "RAFT"
DLEDGER: Final = "DLEDGER"
FAULTS_SHOWN_MAX: Final = 100
HEAD: Final = """# {title}

Written by `{command}` on {date}. Brokers and two name servers are each on a host (network
namespace) of their own. Eight senders, each with a queue of its own, send a message until it is
acknowledged, then the next one; two groups of a push consumer each read all. Six senders and a
group are ours, at their defaults; two senders and a group are RocketMQ's unmodified Java client,
which polls routes each second. The machine has {processors} processors, and other work beside:
its load was {load:.1f} at the end.

RTO: the longest time without an acknowledgement to any sender of ours, or of Java's, from the begin
of a fault until all is whole again; a fault holds for 2 to 7 s if nothing else is said, and a
broker that was killed starts after that. RPO: messages that were acknowledged meanwhile and are
lost.
"""
SUMMARY: Final = """
| what happens | Raft group of three | SYNC_MASTER, one slave | ASYNC_MASTER, one slave |
|---|---|---|---|
"""
SUMMARY_NOTE: Final = """
RTO of our senders in s, median (longest), and RPO in messages.
"""
CLASSES: Final = {
    "who leads dies": ("leader killed", "master killed, slave promoted"),
    "who leads dies, and comes back": ("", "master killed"),
    "who leads hangs": ("leader stopped", "master stopped, slave promoted"),
    "who leads is cut off from its copies": ("leader apart", "apart"),
    "who leads is cut off, then dies": ("", "master alone, then killed, slave promoted"),
    "a copy dies": ("follower killed", "slave killed"),
    "a copy hangs": ("follower stopped", "slave stopped"),
    "all die": ("all killed", "both killed"),
}
"""Class of fault → its names in a Raft group and in a pair."""
TABLE: Final = """
| fault | what | count | RTO of ours, median s | longest s | of Java's, median s | longest s | RPO |
|---|---|---|---|---|---|---|---|
"""
GROUP: Final = """## A Raft group of three

{faults} faults: {sends}. Members and clients show certificates. A reader sends, reports and asks
for offsets, and both groups of consumers are asked for theirs: {answers} answers.
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
PAIR: Final = """## {mode} and a slave

{faults} faults: {sends}. Where the slave is promoted, that is done as by `replica promote --yes`,
at once; a former master whose log is another one is cut as by `replica rebuild --yes`.{waits}
"""
WAITS: Final = " A send is acknowledged by both: nobody is answered while one is away."
SYNC_HELD: Final = """
Held in the end: as above of messages. A slave copies offsets each 5 s: they were not asked for, and
logs not compared.
"""
ASYNC_HELD: Final = """
Lost in all: {lost} messages; the rebuilds reported {cut} that they cut, unacknowledged ones among
them. Held in the end: no message has more copies than it was sent, and nobody else sent any.
"""

CONTROL: Final = """## Apache RocketMQ 5.5, three brokers in a DLedger group

{faults} faults: {sends}. Without certificates and accounts; offsets are not asked for, and logs not
compared.
"""
CONTROL_HELD: Final = """
Held in the end: as of our group, but for offsets, logs and name servers.
"""

Faults = Mapping[str, tuple[str, Callable[..., Any]]]


def page(outcomes: Mapping[str, Outcome], *, title: str, command: str) -> str:
    """All of it; `outcomes` by mode."""
    head = HEAD.format(
        title=title,
        command=command,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        processors=os.cpu_count(),
        load=os.getloadavg()[1],
    )
    written = "\n\n".join(_filled(one) for one in head.split("\n\n")) + "\n"
    if len(outcomes) > 1:
        written += SUMMARY + "".join(_class(outcomes, name) for name in CLASSES) + SUMMARY_NOTE
    for mode, outcome in outcomes.items():
        match mode:
            case "RAFT":
                written += _group(outcome)
            case "DLEDGER":
                written += _control(outcome)
            case _:
                written += _pair(mode, outcome)
        if outcome.faults:
            shown = outcome.faults[:FAULTS_SHOWN_MAX]
            written += "\nBroken:\n\n" + "".join(f"- {one}\n" for one in shown)
    return written


def _class(outcomes: Mapping[str, Outcome], name: str) -> str:
    in_group, in_pair = CLASSES[name]
    cells = [
        _cell(outcomes.get(mode), in_group if mode == RAFT else in_pair)
        for mode in (RAFT, "SYNC_MASTER", "ASYNC_MASTER")
    ]
    return f"| {name} | {' | '.join(cells)} |\n"


def _cell(outcome: Outcome | None, name: str) -> str:
    of_it = [] if outcome is None else [one for one in outcome.played if one.name == name]
    if outcome is None or not of_it:
        return "–"
    gaps = [one.ours_s for one in of_it]
    return f"{median(gaps):.2f} ({max(gaps):.2f}), {_lost(outcome, of_it)}"


def _lost(outcome: Outcome, of_it: Sequence[Played]) -> int:
    return sum(one.begin_s <= moment_s <= one.end_s for one in of_it for moment_s in outcome.lost)


def _section(text: str, outcome: Outcome, **words: object) -> str:
    """A heading, and a paragraph."""
    words |= {"faults": len(outcome.played), "sends": _sends(outcome)}
    heading, paragraph = text.format(**words).split("\n\n")
    return f"\n{heading}\n\n{_filled(paragraph)}\n"


def _filled(paragraph: str) -> str:
    return fill(paragraph, 100, break_on_hyphens=False)


def _group(outcome: Outcome) -> str:
    written = _section(GROUP, outcome, answers=outcome.offsets_answered)
    written += _table(outcome, faults.FAULTS) + KILLED + _table(outcome, faults.KILL_POINTS)
    for name, gaps in outcome.foundings.items():
        figures = f"{median(gaps):.2f} | {max(gaps):.2f}"
        written += (
            f"| killed: {name} | {AT_FOUNDING[name].what} | {len(gaps)} | {figures} | | | |\n"
        )
    return written if outcome.faults else written + GROUP_HELD


def _pair(mode: str, outcome: Outcome) -> str:
    waits = WAITS if mode == "SYNC_MASTER" else ""
    written = _section(PAIR, outcome, mode=mode, waits=waits)
    written += _table(outcome, pairs.FAULTS)
    if outcome.faults:
        return written
    held = SYNC_HELD if mode == "SYNC_MASTER" else ASYNC_HELD
    return written + held.format(lost=len(outcome.lost), cut=outcome.cut)


def _control(outcome: Outcome) -> str:
    written = _section(CONTROL, outcome)
    written += _table(outcome, {name: faults.FAULTS[name] for name in KINDS})
    return written if outcome.faults else written + CONTROL_HELD


def _sends(outcome: Outcome) -> str:
    record = outcome.record
    of_java = sum(key in JAVAS for _, key in record.acknowledged)
    tries = sum(put.tries for puts in record.puts.values() for put in puts)
    return (
        f"{len(record.acknowledged)} sends acknowledged, {of_java} of them to Java's senders "
        f"({tries} tries), {record.redelivered} deliveries repeated"
    )


def _table(outcome: Outcome, kinds: Faults) -> str:
    return TABLE + "".join(_row(outcome, name, what) for name, (what, _) in kinds.items())


def _row(outcome: Outcome, name: str, what: str) -> str:
    of_it = [one for one in outcome.played if one.name == name]
    if not of_it:
        return f"| {name} | {what} | 0 | | | | | |\n"
    ours, javas = [one.ours_s for one in of_it], [one.javas_s for one in of_it]
    figures = [f"{function(gaps):.2f}" for gaps in (ours, javas) for function in (median, max)]
    return f"| {name} | {what} | {len(of_it)} | {' | '.join(figures)} | {_lost(outcome, of_it)} |\n"
