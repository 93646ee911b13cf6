"""Compares the send rate of a master that has a slave with one alone, and times a new slave.

    python -m bench.masters [--rounds N] [--seconds S] [--warm S] [--gib G] [--at FOLDER]

With each flush type three masters: alone, a SYNC_MASTER and an ASYNC_MASTER with a slave each. All
live for the whole run, are warmed, and are loaded in turn by one Java client, 1 KiB a message. A
slave's work is on the same cores as its master's. Then a master that has G GiB of messages of 1 KiB
in its log, in the machine's memory, gets a slave with an empty disk.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import ASYNC_MASTER_RATIO, CATCH_UP_RATE, SYNC_MASTER_RATIO
from bench.brokers import LOG_FILE_BYTES, NO_LAKE, Side, cpu_seconds, tidemark_side
from bench.groups import as_table
from bench.java_load import Pace, compile_load
from bench.store_paths import message
from demo.ports import free_broker_port, free_port_block
from engine.admin.api.admin import admin_at
from engine.foundation.observing import SilentObserver
from engine.foundation.units import GIB
from engine.runtime import system_runtime
from engine.store import MessageStore, StoreConfig
from tests.integration.broker.processes import party
from tests.interop.our_engine import our_engine

NAMES: Final = ("alone", "SYNC_MASTER", "ASYNC_MASTER")
PER_TURN: Final = 256
LOOK_S: Final = 0.02
PATIENCE_S: Final = 600


@contextmanager
def slave_of(namesrv: str, folder: Path) -> Iterator[tuple[str, int]]:
    """A slave with an empty store: its address, and the number of its process."""
    options = ("brokerRole=SLAVE", "brokerId=1", f"mappedFileSizeCommitLog={LOG_FILE_BYTES}")
    with party(
        folder / "slave.txt",
        *("broker", "--store", str(folder / "slave"), "--lake", NO_LAKE, "--no-telemetry"),
        *("--namesrv", namesrv, "--port", str(free_broker_port())),
        *(word for option in options for word in ("--set", option)),
    ) as slave:
        yield slave.address, slave.process.pid


@contextmanager
def master_side(role: str, flush: str, folder: Path) -> Iterator[Side]:
    """A master with a slave that follows it."""
    folder.mkdir()
    options = (f"brokerRole={role}", f"haListenPort={free_port_block(1)}")
    words = [word for option in options for word in ("--set", option)]
    with (
        tidemark_side(flush, "--no-telemetry", *words) as side,
        slave_of(side.name_server, folder) as (address, _),
    ):
        asyncio.run(_followed(side.name_server, address, least=0))
        yield side


async def _followed(namesrv: str, address: str, *, least: int) -> float:
    """Wait until a slave follows and has so many bytes; the moment, as `time.monotonic`."""
    deadline_s = time.monotonic() + PATIENCE_S
    async with admin_at(namesrv) as admin:
        while time.monotonic() < deadline_s:
            state = await admin.replicas.state(address)
            if state.following == "FOLLOWING" and state.log_end >= least:
                return time.monotonic()
            await asyncio.sleep(LOOK_S)
    raise SystemExit(f"the slave at {address} did not follow within {PATIENCE_S} s")


async def _fill(store_folder: Path, size_bytes: int) -> int:
    """Put messages until so many bytes are in the log; its end."""
    config = StoreConfig(str(store_folder), mapped_file_size_commit_log_bytes=LOG_FILE_BYTES)
    store = await MessageStore.open(system_runtime(), config, SilentObserver())
    store.start()
    number = 0
    while store.physical_max < size_bytes:
        for _ in range(PER_TURN):
            store.put(message(number))
            number += 1
        await asyncio.sleep(0)
    end = store.physical_max
    await store.close()
    return end


def catch_up(folder: Path, gib: float) -> Table:
    """How fast a slave with an empty disk copies the log of its master."""
    end = asyncio.run(_fill(folder / "store", round(gib * GIB)))
    for path in (folder / "store" / "commitlog").iterdir():
        path.read_bytes()  # Now it is in the machine's memory.
    log_file = f"mappedFileSizeCommitLog={LOG_FILE_BYTES}"
    options = ("brokerRole=ASYNC_MASTER", f"haListenPort={free_port_block(1)}", log_file)
    words = [word for option in options for word in ("--set", option)]
    with our_engine(folder, *words, "--no-telemetry") as master:
        before_s = cpu_seconds(master.process.pid)
        with slave_of(master.name_server, folder) as (address, pid):
            began_s, start_s = time.monotonic(), cpu_seconds(pid)
            ended_s = asyncio.run(_followed(master.name_server, address, least=end))
            slave_s, master_s = cpu_seconds(pid) - start_s, cpu_seconds(master.process.pid)
    took_s, megabytes = ended_s - began_s, end / 1e6
    table = Table(title=f"a slave with an empty disk, {megabytes:,.0f} MB of log, once it is up")
    for heading in ("MB/s", "bar", "s", "slave's CPU s", "master's CPU s"):
        table.add_column(heading, justify="right")
    figures = (f"{took_s:.1f}", f"{slave_s:.1f}", f"{master_s - before_s:.1f}")
    table.add_row(f"{megabytes / took_s:,.0f}", str(CATCH_UP_RATE), *figures)
    return table


def main() -> None:
    """Measure below a folder that goes afterwards, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.masters")
    least = Pace()
    parser.add_argument("--rounds", type=int, default=least.rounds)
    parser.add_argument("--seconds", type=float, default=least.seconds)
    parser.add_argument("--warm", type=float, default=least.warm_seconds)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--at", help="folder on the disk to measure")
    options = parser.parse_args()
    pace = Pace(options.rounds, options.seconds, options.warm)
    console = Console(width=160)
    with tempfile.TemporaryDirectory(prefix="tidemark-masters-", dir=options.at) as text:
        folder = Path(text)
        console.print(catch_up(folder, options.gib))
        load = compile_load(folder)
        for flush in ("sync", "async"):
            with ExitStack() as stack:
                sides = [stack.enter_context(tidemark_side(flush, "--no-telemetry"))]
                for role in NAMES[1:]:
                    home = folder / f"{flush}-{role}"
                    sides.append(stack.enter_context(master_side(role, flush, home)))
                figures = load.run_groups(sides, pace)
            console.print(
                as_table(figures, NAMES, ((1, 0), (2, 0)), f"{pace}, {flush.upper()}_FLUSH")
            )
    console.print(f"bars, beside one alone: {SYNC_MASTER_RATIO}, {ASYNC_MASTER_RATIO}")


if __name__ == "__main__":
    main()
