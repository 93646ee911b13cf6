"""Row E3: random lives of a time wheel against a model.

Whatever is killed, lost, cut or set back, each timer that is neither cancelled nor replaced is
delivered once, in the order of (due time, put).
"""

from __future__ import annotations

import asyncio
import shutil
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.units import HOUR_MS
from tests.store_support import START_MS, HandClock, bodies_of
from tests.unit.delay.wheel_bench import WheelBench, wheel_bench

DUE_IN_MS = st.one_of(
    st.integers(1, 3000), st.sampled_from([1000, 2000, 60_000, HOUR_MS, 2 * HOUR_MS + 7])
)
STEPS = st.one_of(
    st.tuples(st.just("put"), DUE_IN_MS),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("replace"), st.integers(0, 30), DUE_IN_MS),
    st.tuples(st.just("pass"), st.sampled_from([1, 500, 999, 1000, 4000, HOUR_MS])),
    st.tuples(st.just("set back"), st.sampled_from([1, 1500, HOUR_MS])),
    st.just(("turn",)),
    st.just(("save",)),
    st.tuples(st.just("cut"), st.integers(0, 30)),
    st.tuples(st.just("next life"), st.sampled_from(["nothing", "logs", "snapshot"])),
)


@dataclass
class Model:
    """What a reader of the laws expects."""

    due_ms: dict[bytes, int] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)
    """In the order of their puts."""
    delivered: list[bytes] = field(default_factory=list)

    def put(self, body: bytes, due_ms: int, place: int) -> None:
        self.due_ms[body], self.places[body] = due_ms, place
        self.waiting.append(body)

    def pass_to(self, now_ms: int) -> None:
        due = [body for body in self.waiting if self.due_ms[body] <= now_ms]
        self.delivered += sorted(due, key=self.due_ms.__getitem__)  # Stable: puts in order.
        self.waiting = [body for body in self.waiting if body not in due]


class Life:
    """A wheel and its model, over one life of the process after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.model, self.names = HandClock(), Model(), 0
        self.ends: list[tuple[int, Model]] = []

    async def play(self, steps: list[tuple[object, ...]]) -> None:
        left = list(steps)
        while left:
            async with wheel_bench(self.folder, self.clock) as bench:
                lost: object = None
                while left and lost is None:
                    name, *arguments = left.pop(0)
                    if name == "next life":
                        (lost,) = arguments
                    else:
                        await getattr(self, str(name).replace(" ", "_"))(bench, *arguments)
                await bench.turn()
                self.check(bench)
            if lost == "logs":
                shutil.rmtree(bench.folder)
            elif lost == "snapshot":
                shutil.rmtree(bench.snapshot.parent, ignore_errors=True)
        async with wheel_bench(self.folder, self.clock) as bench:
            await self.pass_(bench, 4 * HOUR_MS)
            assert not self.model.waiting

    def check(self, bench: WheelBench) -> None:
        assert bodies_of(bench.store) == self.model.delivered

    def name(self) -> bytes:
        self.names += 1
        return b"%d" % self.names

    def some(self, number: int) -> bytes | None:
        bodies = list(self.model.due_ms)
        return bodies[number % len(bodies)] if bodies else None

    def note_end(self, bench: WheelBench) -> None:
        self.ends.append((bench.store.physical_max, deepcopy(self.model)))

    async def put(self, bench: WheelBench, due_in_ms: int) -> None:
        body, due_ms = self.name(), self.clock.now_ms() + due_in_ms
        self.model.put(body, due_ms, bench.put(body, due_ms).physical_offset)
        self.note_end(bench)

    async def cancel(self, bench: WheelBench, number: int) -> None:
        body = self.some(number)
        if body is not None:
            bench.cancel(body, self.model.due_ms[body])
            if body in self.model.waiting:
                self.model.waiting.remove(body)
            self.note_end(bench)

    async def replace(self, bench: WheelBench, number: int, due_in_ms: int) -> None:
        old = self.some(number)
        if old is None:
            return
        new, due_ms = self.name(), self.clock.now_ms() + due_in_ms
        of_old = f"{self.model.due_ms[old]},{self.model.places[old]}"
        place = bench.put(new, due_ms, TIMER_REPLACES=of_old).physical_offset
        self.model.due_ms[new], self.model.places[new] = due_ms, place
        if old in self.model.delivered:
            self.note_end(bench)
            return
        if old in self.model.waiting:
            self.model.waiting.remove(old)
        self.model.waiting.append(new)
        self.note_end(bench)

    async def pass_(self, bench: WheelBench, by_ms: int) -> None:
        self.clock.value_ms += by_ms
        await bench.pass_to(self.clock.value_ms)
        self.model.pass_to(self.clock.value_ms)
        self.check(bench)
        self.note_end(bench)

    async def set_back(self, _bench: WheelBench, by_ms: int) -> None:
        self.clock.value_ms = max(self.clock.value_ms - by_ms, START_MS)

    async def turn(self, bench: WheelBench) -> None:
        await bench.turn()

    async def save(self, bench: WheelBench) -> None:
        await bench.wheel.persist("TIMER")

    async def cut(self, bench: WheelBench, number: int) -> None:
        await bench.turn()
        if self.ends:
            end, model = self.ends[number % len(self.ends)]
            self.ends = self.ends[: number % len(self.ends) + 1]
            await bench.store.truncate(end)
            self.model = deepcopy(model)


@given(st.lists(STEPS, max_size=25))
def test_each_timer_is_delivered_once_whatever_happens(steps: list[tuple[object, ...]]) -> None:
    renamed = [("pass_", *rest) if name == "pass" else (name, *rest) for name, *rest in steps]
    with TemporaryDirectory() as folder:
        asyncio.run(Life(Path(folder)).play(renamed))
