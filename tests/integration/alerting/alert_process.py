"""A process that decides a script and sends it, as the real one does: store, lead, outbox.

    python -m tests.integration.alerting.alert_process DATABASE RECEIVERS CYCLES

Which notices a cycle has follows from its number alone. It prints `done` when all is sent.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.alerting.alerts import Notice, State
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import read_receivers
from pipelines.alerting.outbox.claims import is_empty
from pipelines.alerting.outbox.courier import Chances, Courier
from pipelines.alerting.store.steps import Cursor, GroupAt, Step, load, take
from pipelines.database import leads
from pipelines.database.database import Database, LeadHeld, LeadLost, StoreUnavailable
from pipelines.database.leads import Lead, Sight
from tests.integration.alerting.stores import LAKE, NOW_US, a_notice, an_alert

RECEIVERS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
GROUPS = 3
LEASE_US = 600_000
SETTLING_S = 0.5
"""Short, so that who is started next has something to send, and to be killed over."""


def now_us() -> int:
    return time.time_ns() // 1_000


def notices_of(cycle: int) -> list[Notice]:
    """What is to be sent after this cycle."""
    choice = random.Random(cycle)
    notices = []
    for receiver in RECEIVERS:
        for group in choice.sample(range(GROUPS), choice.randint(0, 1)):
            alert = an_alert(group, state=choice.choice((State.FIRING, State.RESOLVED)))
            name = f"{cycle:05d}-{receiver}-{group}"
            notices.append(
                a_notice(name, receiver=receiver, group_key=f"group {group}", alerts=(alert,))
            )
    return notices


def decide(database: Database, lead: Lead, cycles: int) -> bool:
    """Take the next cycle; False when there is none."""
    held = load(database, LAKE)
    cycle = 1 if held.cursor is None else held.cursor.cycle + 1
    if cycle > cycles:
        return False
    step = Step(
        alerts=[an_alert(cycle % 7, last_true_us=NOW_US + cycle)],
        groups={GroupAt(RECEIVERS[0], "group 0"): str(cycle)},
        notices=notices_of(cycle),
        cursor=Cursor("run", cycle),
    )
    take(database, LAKE, step, lead=lead, now_us=now_us())
    return True


async def lead_of(database: Database) -> Lead:
    watched: Sight | None = None
    while True:
        try:
            return leads.acquire(
                database,
                "alerts",
                f"process {os.getpid()}",
                now_us=now_us(),
                lasts_us=LEASE_US,
                watched=watched,
            )
        except LeadHeld as held:
            watched = held.sight
        except StoreUnavailable:
            pass
        await asyncio.sleep(0.05)


async def main(address: str, receivers: Path, cycles: int) -> None:
    database = Database.at(address)
    with ThreadPoolExecutor(10) as threads:
        channels = channels_of(read_receivers(receivers), os.environ, threads)
        chances = Chances(now_us, lambda: random.random() / 50, lambda: secrets.token_hex(16))
        until = asyncio.Event()
        courier = Courier(database, LAKE, channels, chances, settling_s=SETTLING_S)
        carrying = asyncio.create_task(courier.run(until))
        lead = await lead_of(database)
        while True:
            try:
                is_more = decide(database, lead, cycles)
                is_done = not is_more and is_empty(database, LAKE)
            except LeadLost:
                lead = await lead_of(database)
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            else:
                courier.wake()
                if is_done:
                    break
                await asyncio.sleep(0.01 if is_more else 0.05)
        until.set()
        await carrying
    leads.release(database, lead)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
