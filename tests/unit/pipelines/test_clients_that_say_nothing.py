"""Clients that answer with nothing are noted with their emitter, and on the page of their group."""

from __future__ import annotations

from pathlib import Path

from pipelines.base.time_units import moment_at
from pipelines.lake.lake import Lake
from pipelines.reading.emitters import emitters_at, silent_clients
from pipelines.reading.moment import Moment, Reached
from pipelines.reading.reading import OpenTables, Reading, equals
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter

WORDS = "a client in GO 317 says nothing of what it holds"


def test_an_emitter_notes_which_kinds_of_clients_say_nothing_and_of_which_groups(
    tmp_path: Path,
) -> None:
    writer = BronzeWriter(tmp_path)
    writer.at(0)
    writer.report("lifecycle", kind="BOOT")
    for group in ("b", "a", "a"):
        writer.report("lifecycle", kind="SAYS_NOTHING", group=group, detail=WORDS)
    writer.at(60)
    writer.ship()
    reached = Reached(writer.emitter, moment_at(START_US + 60 * SECOND), writer.seq)
    reading = Reading(OpenTables(Lake.at(str(tmp_path))), Moment("run", 1, (reached,)))
    assert emitters_at(reading)["notes"].to_list() == [f"{WORDS} (group a, b)"]
    assert silent_clients(reading, equals("group", "b"))["words"].to_list() == [WORDS]
    assert silent_clients(reading, equals("group", "other")).is_empty()
