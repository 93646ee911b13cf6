"""Processes that write, read and tend one bronze table at the same time.

    python -m tests.integration.pipelines.fire write LAKE EMITTER
    python -m tests.integration.pipelines.fire read LAKE
    python -m tests.integration.pipelines.fire tend LAKE [vacuum]

The writer appends as the shipper does and prints the seq up to which its rows are safe. The reader
follows the table's log and prints every row that it finds: `EMITTER SEQ`. Both print the rest
and end when a line comes in; the one that tends goes on until it is killed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from datetime import UTC, datetime

import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.tables import LIFECYCLE
from pipelines.lake.lake import Lake
from pipelines.lake.read_places import note_places
from pipelines.lake.tail import AddedFile, LogTruncated, Place, read_tail, snapshot
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from pipelines.upkeep.work import vacuum

TABLE = f"bronze/{LIFECYCLE.name}"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def end_requested() -> threading.Event:
    """Set when a line comes in, or nobody is there any more to send one."""
    end = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        end.set()

    threading.Thread(target=wait, daemon=True).start()
    return end


def write(lake: Lake, emitter: str) -> None:
    end = end_requested()
    address = lake.bronze(LIFECYCLE.name)
    table = BronzeTable(LIFECYCLE, address, lake.storage_options, compact_commits=20)
    choice = random.Random(emitter)
    seq = 0
    while not end.is_set():
        count = choice.randint(1, 5)
        now_us = time.time_ns() // 1000
        values = ("ROLE_CHANGE", True, None, None, None, f"row of {emitter}")
        rows = [SpooledRow(seq + 1 + n, 1, now_us, values) for n in range(count)]
        # Again, as after an unknown outcome: nothing may be in twice.
        for _ in range(choice.randint(1, 2)):
            table.append(Speaker("c", "b", emitter), rows)
        table.tidy()
        seq += count
        say(str(seq))
        time.sleep(0.01)


def read(lake: Lake) -> None:
    end = end_requested()
    address = lake.bronze(LIFECYCLE.name)
    place, seen = Place.start(), dict[str, int]()
    while True:
        is_last = end.is_set()
        try:
            tail = read_tail(lake, address, place, entries_max=50)
            accept(address, tail.files, seen)
            is_last = is_last and tail.end == place
            place = tail.end
        except (LogTruncated, FileNotFoundError):
            say("detour")
            time.sleep(0.1)
            files, place = snapshot(lake, address, seen)
            try:
                accept(address, files, seen)
            except FileNotFoundError:
                place = Place(0, "replaced and gone while it was read: once more")
            continue
        note_places(lake, "pipeline", {TABLE: max(place.version, 0)})
        if is_last:
            return
        time.sleep(0.02)


def accept(address: str, files: tuple[AddedFile, ...], seen: dict[str, int]) -> None:
    """Tell the rows beyond what was seen of each emitter."""
    found: list[tuple[str, int]] = []
    for file in files:
        path = f"{address}/{file.path}"
        if not os.path.exists(path):  # noqa: PTH110
            raise FileNotFoundError(path)
        rows = ds.dataset(path).to_table(columns=["emitter", "seq"]).to_pylist()
        found.extend((row["emitter"], row["seq"]) for row in rows)
    fresh = [(emitter, seq) for emitter, seq in found if seq > seen.get(emitter, 0)]
    for emitter, seq in fresh:
        say(f"{emitter} {seq}")
    if len(fresh) < len(found):
        say(f"again {len(found) - len(fresh)}")
    for emitter, seq in found:
        seen[emitter] = max(seen.get(emitter, 0), seq)


def tend(lake: Lake, *, hostile: bool) -> None:
    say("tending")
    maintainer = Maintainer(lake, Upkeep(reader_hours=1, settle_s=0), say)
    while True:
        maintainer.round(datetime.now(UTC))
        if hostile:
            try:
                vacuum(lake.table(f"{lake.root}/{TABLE}"), 0, full=False)
            except DeltaError as error:
                say(str(error))
        time.sleep(0.05)


if __name__ == "__main__":
    home = Lake.at(sys.argv[2])
    if sys.argv[1] == "write":
        write(home, sys.argv[3])
    elif sys.argv[1] == "read":
        read(home)
    else:
        tend(home, hostile=sys.argv[3:] == ["vacuum"])
