"""Compares the send rate of three brokers in a Raft group with one broker and with DLedger.

    python -m bench.groups [--rounds N] [--seconds S] [--warm S] [--no-rival] [--at FOLDER]

Our group answers when two of three disks have a message; the single broker of ours is SYNC_FLUSH;
Apache RocketMQ's DLedger group answers when two of three nodes have it in memory. All live for the
whole run, are warmed, and are loaded in turn by one Java client, 1 KiB a message.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import GROUP_RATE_RATIO
from bench.brokers import LOG_FILE_BYTES, RIVAL_SETTINGS, Side, tidemark_side
from bench.java_load import Figure, Pace, compile_load, shortcomings
from demo.ports import free_broker_port, free_port_block
from demo.rocketmq import BROKER, NAME_SERVER, Installation, broker_properties, configure
from provision import java
from provision.places import rocketmq_jars
from tests.integration.broker.broker_group import BrokerGroup
from tests.interop.real_rocketmq import jvm, wait_for_line

NAMES: Final = ("our group", "ours alone, SYNC_FLUSH", "DLedger")


@contextmanager
def our_group(folder: Path) -> Iterator[Side]:
    """Three brokers of ours; its CPU is the leader's."""
    with asyncio.Runner() as runner:

        async def made() -> BrokerGroup:
            return BrokerGroup(folder, f"mappedFileSizeCommitLog={LOG_FILE_BYTES}")

        group = runner.run(made())
        try:
            runner.run(group.start())
            leader = runner.run(group.leader())
            yield Side(group.namesrvs[0], leader.pid, leader.address)
        finally:
            runner.run(group.close())


@contextmanager
def dledger_group(folder: Path) -> Iterator[Side]:
    """Three brokers of RocketMQ that elect their master."""
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    installation = Installation(java_home, rocketmq_jars())
    name_server_port = free_port_block(1)
    name_server = f"127.0.0.1:{name_server_port}"
    first_peer = free_port_block(3)
    peers = ";".join(f"n{one}-127.0.0.1:{first_peer + one}" for one in range(3))
    with ExitStack() as stack:
        configure(folder, NAME_SERVER, {"listenPort": str(name_server_port)})
        process = stack.enter_context(jvm(installation, folder, NAME_SERVER))
        wait_for_line(process, folder / "namesrv.out", "boot success")
        brokers = []
        for number in range(3):
            home = folder / f"n{number}"
            own = {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "broker-a",
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}",
                "sendMessageThreadPoolNums": "4",
            }
            properties = broker_properties(name_server, free_broker_port(), home / "store")
            configure(home, BROKER, properties | RIVAL_SETTINGS | own)
            brokers.append(stack.enter_context(jvm(installation, home, BROKER)))
        for number, broker in enumerate(brokers):
            wait_for_line(broker, folder / f"n{number}" / "broker.out", "boot success")
        yield Side(name_server, brokers[0].pid)


def as_table(
    figures: list[Figure], names: Sequence[str], ratios: Sequence[tuple[int, int]], how: str
) -> Table:
    """A row for each number of senders; `ratios`: of which side over which other."""
    caption = "\n".join(shortcomings(figures))
    table = Table(title=f"sends a second, 1 KiB, Java client, {how}", caption=caption)
    headings = [*names, *(f"{names[of]} ÷ {names[over]}" for of, over in ratios)]
    for heading in ("in flight", *headings, "broker's CPU µs"):
        table.add_column(heading, justify="right")
    for threads in sorted({one["threads"] for one in figures}):
        runs = [
            [one for one in figures if one["side"] == side and one["threads"] == threads]
            for side in range(len(names))
        ]
        rates = [[one["msgs_per_s"] for one in side] for side in runs]
        found = [
            sorted(one / other for one, other in zip(rates[of], rates[over], strict=True))
            for of, over in ratios
        ]
        costs = [f"{median(one.get('broker_cpu_us', 0.0) for one in side):.0f}" for side in runs]
        table.add_row(
            str(threads),
            *(f"{median(side):,.0f}" for side in rates),
            *(f"{median(one):.2f} ({one[0]:.2f}-{one[-1]:.2f})" for one in found),
            " ".join(costs),
        )
    return table


def main() -> None:
    """Measure below a folder that goes afterwards, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.groups")
    least = Pace()
    parser.add_argument("--rounds", type=int, default=least.rounds)
    parser.add_argument("--seconds", type=float, default=least.seconds)
    parser.add_argument("--warm", type=float, default=least.warm_seconds)
    parser.add_argument("--no-rival", action="store_true", help="leave DLedger out")
    parser.add_argument("--at", help="folder on the disk to measure")
    options = parser.parse_args()
    pace = Pace(options.rounds, options.seconds, options.warm)
    with tempfile.TemporaryDirectory(prefix="tidemark-groups-", dir=options.at) as text:
        folder = Path(text)
        load = compile_load(folder)
        with ExitStack() as stack:
            (folder / "ours").mkdir()
            sides = [stack.enter_context(our_group(folder / "ours"))]
            sides.append(stack.enter_context(tidemark_side("sync", "--no-telemetry")))
            if not options.no_rival:
                sides.append(stack.enter_context(dledger_group(folder / "dledger")))
            figures = load.run_groups(sides, pace)
    console = Console(width=160)
    ratios = [(0, other) for other in range(1, len(sides))]
    console.print(as_table(figures, NAMES[: len(sides)], ratios, str(pace)))
    console.print(f"bar, beside DLedger: {GROUP_RATE_RATIO}")


if __name__ == "__main__":
    main()
