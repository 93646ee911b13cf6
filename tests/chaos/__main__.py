"""Breaks copies of a broker for a while, checks what clients were promised, and reports.

    unshare -Urnm python -m tests.chaos [--seconds S] [--seed N] [--at FOLDER] [--report FILE]

`make chaos` runs it. Ends with 1 when brokers did what they may not.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from engine.foundation.units import MIB
from tests.chaos.control import play_control
from tests.chaos.foundings import all_founded
from tests.chaos.network import network
from tests.chaos.page import DLEDGER, RAFT, page
from tests.chaos.pairs import play_pair
from tests.chaos.run import Outcome, play
from tests.chaos.site import Site, small_disk

HOSTS = 5
SHARES = {RAFT: 0.7, "SYNC_MASTER": 0.15, "ASYNC_MASTER": 0.15, DLEDGER: 0.0}
"""Of the time; the control is played when it is asked for alone."""
DISK_BYTES = 800 * MIB
"""For what one broker stores in more than an hour."""
FOUNDINGS = 5
LONG_S = 600
"""A run of so many seconds founds so many groups for each point."""


async def play_all(site: Site, options: argparse.Namespace) -> dict[str, Outcome]:
    """Foundings, then a group under faults, then pairs; or the control."""
    outcomes: dict[str, Outcome] = {}
    total = sum(SHARES[mode] for mode in options.modes)
    for mode in options.modes:
        seconds = options.seconds * (SHARES[mode] / total if total else 1.0)
        if mode == RAFT:
            rounds = FOUNDINGS if options.seconds >= LONG_S else 1
            chance = random.Random(options.seed)
            foundings = {} if options.only else await all_founded(site, rounds, chance)
            outcomes[mode] = await play(site, seconds, options.seed, options.only)
            outcomes[mode].foundings = foundings
        elif mode == DLEDGER:
            outcomes[mode] = await play_control(site, seconds, options.seed)
        else:
            outcomes[mode] = await play_pair(site, mode, seconds, options.seed)
    return outcomes


def main() -> None:
    """Play, print the page, and write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=list(SHARES), default=[*SHARES][:3])
    parser.add_argument("--only", default="", help="faults of a group whose names begin so")
    parser.add_argument("--at", help="folder on the disk to use")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s")
    logging.getLogger("chaos").setLevel(logging.INFO)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-chaos-", dir=options.at))
    with network(HOSTS) as hosts, small_disk(folder / "disk", DISK_BYTES) as disk:
        outcomes = asyncio.run(play_all(Site(folder, hosts, disk), options))
        is_broken = any(one.faults for mode, one in outcomes.items() if mode != DLEDGER)
        if is_broken:
            shutil.copytree(disk.path, folder / "copy-of-disk")
    is_control = list(outcomes) == [DLEDGER]
    target = "chaos-control" if is_control else "chaos"
    written = page(
        outcomes,
        title="The control of `make chaos`" if is_control else "Copies of a broker under faults",
        command=f"make {target} CHAOS_S={options.seconds:g} SEED={options.seed}",
    )
    sys.stdout.write(written)
    if options.report is not None:
        options.report.write_text(written)
    if is_broken:
        sys.exit(f"the stores and logs are left in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
