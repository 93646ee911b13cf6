"""Centres and executors as processes that cost no start of an interpreter: one process has imported
all, and forks whoever is asked for. To be run as `python -m tests.integration.scheduler.nursery`.

On standard input comes a line of JSON each. `{"name": …, "database": …, "port": …}` begins a
centre, `{"name": …, "home": …, "admins": […], "port": …}` an executor, `{"name": …, "holds": …}`
somebody who takes the schedule lock of that database and stops. On standard output come `begun NAME
PID` from the nursery, `ready NAME` from its children, and `kept NAME` or `lost NAME` from one who
went on and has, or has not, the lock still. When the input ends, all children are killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pipelines.database.database import Database, StoreUnavailable
from pipelines.scheduler.centre.serving import serve as serve_centre
from pipelines.scheduler.executor.serving import Settings
from pipelines.scheduler.executor.serving import serve as serve_executor
from pipelines.scheduler.store.tables import schedule_locks
from tests.integration.scheduler.parties import MODULE, TOKEN
from tests.integration.scheduler.stores import APP


def say(*words: object) -> None:
    """One line, in one write: several processes share the output."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


async def be(given: dict[str, Any]) -> None:
    """A centre or an executor, until it is killed."""
    name = given["name"]
    if "holds" in given:
        stop_with_the_lock(name, Database.at(given["holds"]))
    elif "database" in given:
        await serve_centre(
            Database.at(given["database"]),
            host="127.0.0.1",
            port=given["port"],
            token=TOKEN,
            on_ready=lambda _: say("ready", name),
        )
    else:
        settings = Settings(
            app=APP,
            module=MODULE,
            admins=tuple(given["admins"]),
            home=Path(given["home"]),
            port=given["port"],
            token=TOKEN,
            processes=4,
        )
        await serve_executor(settings, asyncio.Event(), lambda _: say("ready", name))


def stop_with_the_lock(name: str, database: Database) -> None:
    """Take it, and stop until SIGCONT."""
    its_row = sa.select(schedule_locks).with_for_update()
    try:
        with database.writing() as connection:
            connection.execute(its_row)
            say("ready", name)
            os.kill(os.getpid(), signal.SIGSTOP)
            connection.execute(its_row)
    except StoreUnavailable:
        say("lost", name)
    else:
        say("kept", name)


def main() -> None:
    """Fork whoever is asked for."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    children: list[int] = []
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            os.close(0)
            asyncio.run(be(order))
            os._exit(0)
        # None is waited for before the end: until then its number is nobody else's, and a kill that
        # comes too late meets no stranger.
        children.append(pid)
        say("begun", order["name"], pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
