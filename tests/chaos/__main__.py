"""Breaks a Raft group of brokers for a while, checks what its clients were promised, and reports.

    unshare -Urn python -m tests.chaos [--seconds S] [--seed N] [--at FOLDER] [--report FILE]

`make chaos` runs it. Ends with 1 when the group did what it may not.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.chaos.clients import JAVAS
from tests.chaos.faults import FAULTS
from tests.chaos.network import network
from tests.chaos.run import Outcome, play

HOSTS = 5
HEAD = """# A Raft group under faults

Written by `make chaos`. Three brokers and two name servers, each on a host (network namespace) of
its own; members and clients show certificates. Eight senders, each with a queue of its own, send a
message until it is acknowledged, then the next one; a reader sends, reports and asks for offsets;
two groups of a push consumer each read all, and are asked for their offsets. Six senders and a
group are ours, at their defaults; two senders and a group are RocketMQ's unmodified Java client,
which polls routes each second.

{date}, `make chaos CHAOS_S={seconds:g} SEED={seed}`, {faults} faults: {acknowledged} sends
acknowledged, {of_java} of them to Java's senders ({tries} tries), {answers} questions for offsets
answered, {redelivered} deliveries repeated.

RTO: the longest time without an acknowledgement to any sender of ours, or of Java's, from the begin
of the fault until the group is whole again; a fault holds for 2 to 7 s, and a killed broker starts
after that. RPO: messages that were acknowledged meanwhile and are lost.

| fault | what | count | RTO of ours, median s | longest s | of Java's, median s | longest s | RPO |
|---|---|---|---|---|---|---|---|
"""
HELD = """
Held in the end: every acknowledged message is where its acknowledgement said, under its id; what
was delivered is there; no message has more copies than it was sent; the first copies of a key lie
in their order, without a gap; no offset that was answered or acknowledged fell, none of a group of
consumers either; all was delivered to both groups; the three logs are equal byte for byte; both
name servers name one leader.
"""


def report(outcome: Outcome, *, seconds: float, seed: int) -> str:
    """The page."""
    record = outcome.record
    puts = [put for puts in record.puts.values() for put in puts]
    page = HEAD.format(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=seconds,
        seed=seed,
        faults=len(outcome.played),
        acknowledged=len(record.acknowledged),
        of_java=sum(key in JAVAS for _, key in record.acknowledged),
        tries=sum(put.tries for put in puts),
        answers=outcome.offsets_answered,
        redelivered=record.redelivered,
    )
    page += "".join(_row(outcome, name, what) for name, (what, _) in FAULTS.items())
    if not outcome.faults:
        return page + HELD
    return page + "\nBroken:\n\n" + "".join(f"- {one}\n" for one in outcome.faults[:100])


def _row(outcome: Outcome, name: str, what: str) -> str:
    of_it = [one for one in outcome.played if one.name == name]
    if not of_it:
        return f"| {name} | {what} | 0 | | | | | |\n"
    ours, javas = [one.ours_s for one in of_it], [one.javas_s for one in of_it]
    lost = sum(one.begin_s <= moment_s <= one.end_s for one in of_it for moment_s in outcome.lost)
    figures = [f"{function(gaps):.2f}" for gaps in (ours, javas) for function in (median, max)]
    return f"| {name} | {what} | {len(of_it)} | {' | '.join(figures)} | {lost} |\n"


def main() -> None:
    """Play, print the page, and write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", help="folder on the disk to use")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s")
    logging.getLogger("chaos").setLevel(logging.INFO)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-chaos-", dir=options.at))
    with network(HOSTS) as hosts:
        outcome = asyncio.run(play(folder, hosts, options.seconds, options.seed))
    page = report(outcome, seconds=options.seconds, seed=options.seed)
    sys.stdout.write(page)
    if options.report is not None:
        options.report.write_text(page)
    if outcome.faults:
        sys.exit(f"the stores and logs are left in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
