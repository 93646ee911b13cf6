"""Row E3: what waits is reported by the hour, when it changed, and by a master alone."""

from __future__ import annotations

from pathlib import Path

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode, Role
from engine.broker.reporting.timer_marks import AT_REST_MS, EACH_MS, TimerMarks
from engine.foundation.observing import FlushDone
from engine.foundation.units import HOUR_MS
from engine.store import StoreConfig
from tests.store_support import START_MS
from tests.unit.delay.wheel_bench import WheelBench, wheel_bench


def marks_of(bench: WheelBench, node: BrokerNode) -> TimerMarks:
    return TimerMarks(node=node, observer=bench.listener, wheel=bench.wheel, clock=bench.clock)


def reported(bench: WheelBench) -> list[tuple[int | None, int, int]]:
    """(all that wait, those due in 48 hours, how many persists they count as)."""
    found = [fact for fact in bench.listener.facts if isinstance(fact, FlushDone)]
    return [
        (fact.written, sum(fact.due_by_hour or ()), fact.ended)
        for fact in found
        if (fact.component, fact.action) == ("TIMER", "WAIT")
    ]


async def test_what_waits_is_reported_when_it_changed_and_each_ten_seconds_at_most(
    tmp_path: Path,
) -> None:
    node = BrokerNode(BrokerConfig(store=StoreConfig("/nowhere")), boot_ms=0)
    async with wheel_bench(tmp_path) as bench:
        marks = marks_of(bench, node)
        marks.sample()
        assert reported(bench) == [(0, 0, 0)], "that nothing waits is known"
        bench.put(b"soon", START_MS + HOUR_MS)
        bench.put(b"in a month", START_MS + 700 * HOUR_MS)
        await bench.turn()
        marks.sample()
        assert len(reported(bench)) == 1, "ten seconds are not over"
        for _ in range(3):
            bench.clock.value_ms += EACH_MS
            marks.sample()
        assert reported(bench)[1:] == [(2, 1, 0)]
        bench.clock.value_ms += AT_REST_MS
        marks.sample()
        assert reported(bench)[1:] == [(2, 1, 0)] * 2, "what holds is said again"


async def test_a_slave_reports_none(tmp_path: Path) -> None:
    node = BrokerNode(BrokerConfig(store=StoreConfig("/nowhere")), boot_ms=0)
    node.take_role(Role.SLAVE, 1)
    async with wheel_bench(tmp_path) as bench:
        marks_of(bench, node).sample()
        assert reported(bench) == []
