"""The spool from both ends: a broker that writes, rolls, dies and reboots, and a shipper that reads
and drops.

The model is a plain list. Whatever the order of their doings, the shipper reads every written row
once, in order, and marks survive whatever is dropped.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.foundation.observing import LifecycleEvent
from engine.runtime import system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.segments import ShippedMark, write_shipped_mark
from engine.telemetry.shipper.spool_reader import SpoolReader
from tests.unit.telemetry.lives import DETAIL
from tests.unit.telemetry.mortal_disk import MortalDisk

MASTER = EmitterIdentity("cluster-1", "broker-a", 0)


class SpoolFromBothEnds(RuleBasedStateMachine):
    """`written` is what the broker has written, `read` what the shipper was handed."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.disk = MortalDisk()
        self.written: list[str] = []
        self.waiting: list[str] = []
        self.read: list[str] = []
        self.reported = self.read_to = 0
        self.pulled: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        self.boot()
        self.new_shipper()

    def boot(self) -> None:
        runtime = replace(system_runtime(), disk=self.disk)
        self.telemetry = Telemetry.open(runtime, str(self.folder), MASTER, segment_bytes=400)
        restored = {key[2]: mark.offset for key, mark in self.telemetry.pulled_marks().items()}
        assert restored == self.pulled

    def note_written(self) -> None:
        self.written += self.waiting
        self.waiting.clear()
        self.pulled |= self.moved
        self.moved.clear()

    @rule(count=st.integers(1, 5))
    def report(self, count: int) -> None:
        for _ in range(count):
            self.reported += 1
            self.waiting.append(f"fact {self.reported}")
            self.telemetry.observe(LifecycleEvent("BOOT", self.waiting[-1]))

    @rule(queue_id=st.integers(0, 3), offset=st.integers(0, 99))
    def pull(self, queue_id: int, offset: int) -> None:
        self.telemetry.pulled("g", "t", queue_id, offset, "c")
        self.moved[queue_id] = offset

    @rule()
    def end_turn(self) -> None:
        self.telemetry.write_turn()
        self.note_written()

    @rule()
    def tick(self) -> None:
        self.telemetry.tick()
        self.note_written()

    @rule()
    def kill_and_reboot(self) -> None:
        self.disk.die()
        self.waiting.clear()
        self.moved.clear()
        self.boot()

    @rule(rows_max=st.sampled_from([1, 3, 1000]))
    def ship(self, rows_max: int) -> None:
        run = self.reader.read(rows_max)
        if run is None:
            return
        rows = [row for found in run.rows.values() for row in found]
        assert [row.seq for row in rows] == list(range(run.seq_from, run.seq_to + 1))
        assert run.seq_from == self.read_to + 1 + run.skipped
        self.read_to = run.seq_to
        assert all(row.event_time <= run.as_of for row in rows)
        self.read += [str(row.values[DETAIL]) for row in rows]

    @rule()
    def drop(self) -> None:
        mark = ShippedMark(MASTER.emitter, self.read_to, 0, "/lake")
        write_shipped_mark(system_runtime().disk, str(self.folder), mark)
        self.reader.drop_shipped(self.read_to)

    @rule()
    def new_shipper(self) -> None:
        self.reader = SpoolReader(system_runtime().disk, str(self.folder))
        self.reader.seek(self.read_to + 1)

    @invariant()
    def nothing_is_read_that_was_not_written_and_nothing_is_skipped(self) -> None:
        if hasattr(self, "folder"):
            assert self.read == self.written[: len(self.read)]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            while len(self.read) < len(self.written):
                before = len(self.read)
                self.ship(1000)
                assert len(self.read) > before, "what was written can be read"
            self.disk.die()
            shutil.rmtree(self.folder)


SpoolFromBothEnds.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestSpoolFromBothEnds = SpoolFromBothEnds.TestCase
