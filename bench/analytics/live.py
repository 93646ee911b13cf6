"""Measures how long a commit takes to reach gold and the page in a live run under load.

Engine, shipper, pipeline and page run as a user starts them.

Place in the walk: the parts `live-1k` and `live-10k`. The warm-up does not count: measuring begins
WARM_S after the first gold row of the load.

Invariant: the time counts from a commit's answer, not from its row's event time: it includes the
second until the broker samples. Absent on purpose: bars.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from playwright.async_api import Error as BrowserError
from playwright.async_api import Page, async_playwright

from bench.analytics.cost import Clock, Spent
from bench.analytics.figures import Figure
from bench.analytics.moving import Movers
from bench.analytics.sightings import Sightings
from bench.bars import Bar
from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, stop_all, tidemark
from pipelines.lake.lake import Lake
from provision import chromium

CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LOOK_S = 0.1
START_PATIENCE_S = 90.0
FIRST_ROW_PATIENCE_S = 90.0
WARM_S = 15.0
AFTER_S = 12.0
"""How long commits under way at the end are waited for."""


@dataclass(slots=True)
class Observed:
    """What a run has shown."""

    to_gold_s: np.ndarray
    unseen: int
    falls_behind_s: float
    """Median of the last third of commits less that of the first."""
    to_page_s: np.ndarray
    spent: Spent
    gold_rows: int
    failures: list[str] = field(default_factory=list)
    """Of the page."""

    def to_gold(self, what: str, bar: Bar) -> Figure:
        """How long an answered commit takes to gold."""
        p50, count = percentile(self.to_gold_s, 0.5), len(self.to_gold_s)
        return Figure(
            f"{what} → gold, p95",
            percentile(self.to_gold_s, 0.95),
            "s",
            bar,
            wall_s=self.spent.wall_s,
            cpu_s=self.spent.cpu_s,
            note="" if p50 is None else f"p50 {p50:.1f}; {self.unseen} of {count:,} unseen",
        )


@dataclass(slots=True)
class Seats:
    """Where the processes listen, and what is looked at."""

    lake: Lake
    broker_port: int
    url: str | None


@contextmanager
def cluster(home: Path, *, with_page: bool) -> Iterator[Seats]:
    """Engine with its shipper, pipeline, and dashboard if wanted; all ended afterwards."""
    logs, lake = home / "logs", home / "lake"
    logs.mkdir(parents=True)
    namesrv_port, broker_port = free_port_block(1), free_broker_port()
    ports = ("--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port))
    places = ("--store", str(home / "store"), "--lake", str(lake))
    engine = Actor("engine", tidemark("engine", *places, *ports), logs)
    pipeline = Actor("pipeline", tidemark("pipeline", "run", "--lake", str(lake)), logs)
    actors, url = [pipeline, engine], None
    if with_page:
        dash_port = free_port_block(1)
        url = f"http://127.0.0.1:{dash_port}/"
        dash = Actor("dash", tidemark("dash", "--lake", str(lake), "--port", str(dash_port)), logs)
        actors.insert(0, dash)
    try:
        for actor in reversed(actors):
            actor.start()
        engine.wait_for_line("ready", within_s=START_PATIENCE_S)
        pipeline.wait_for_line("ready", within_s=START_PATIENCE_S)
        if with_page:
            dash.wait_for_line("dash ", within_s=START_PATIENCE_S)
        yield Seats(Lake.at(str(lake)), broker_port, url)
    finally:
        stop_all(actors)


async def observe(seats: Seats, movers: Movers, *, seconds: float) -> Observed:
    """Load it, wait until gold has some of it, and measure for so long."""
    ended = asyncio.Event()
    moving = asyncio.create_task(movers.run("127.0.0.1", seats.broker_port, ended))
    gold = Sightings(seats.lake, movers.keys)
    try:
        await _first_row(gold, moving)
        await _look_for(gold, WARM_S)
        clock, since_s = Clock(), time.time()
        looking = asyncio.create_task(_look_for(gold, seconds + AFTER_S))
        seen, failures = await _watch_page(seats.url, seconds + AFTER_S)
        await looking
        spent, until_s = clock.spent(), since_s + seconds
    finally:
        ended.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await moving
    delays, unseen = gold.delays_s(movers.rounds, since_s=since_s, until_s=until_s)
    third = seconds / 3
    parts = [
        gold.delays_s(movers.rounds, since_s=begin, until_s=begin + third)[0]
        for begin in (since_s, until_s - third)
    ]
    moments = [when for one in movers.rounds.values() for when in one.values()]
    return Observed(
        to_gold_s=delays,
        unseen=unseen,
        falls_behind_s=float(np.median(parts[1]) - np.median(parts[0])),
        to_page_s=page_delays_s(
            [when for when in moments if since_s <= when < until_s], seen, now_s=time.time()
        ),
        spent=spent,
        gold_rows=gold.rows,
        failures=failures,
    )


async def _first_row(gold: Sightings, moving: asyncio.Task[None]) -> None:
    deadline_s = time.monotonic() + FIRST_ROW_PATIENCE_S
    while not await asyncio.to_thread(gold.look):
        if moving.done():
            await moving
        if time.monotonic() > deadline_s:
            raise SystemExit(f"no gold row within {FIRST_ROW_PATIENCE_S:.0f} s")
        await asyncio.sleep(LOOK_S)


async def _look_for(gold: Sightings, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        await asyncio.to_thread(gold.look)
        await asyncio.sleep(LOOK_S)


async def _watch_page(
    url: str | None, seconds: float
) -> tuple[list[tuple[float, float]], list[str]]:
    """Pairs of wall clock and the moment that the page said it shows, and what went wrong."""
    seen: list[tuple[float, float]] = []
    end_s = time.monotonic() + seconds
    if url is None:
        return seen, []
    executable = chromium.find()
    if executable is None:
        return seen, [chromium.MISSING]
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=executable, args=list(CHROMIUM_ARGUMENTS)
            )
            page: Page = await browser.new_page()
            await page.goto(url)
            while time.monotonic() < end_s:
                seen.append((time.time(), await observed_s(page)))
                await asyncio.sleep(LOOK_S)
            await browser.close()
    except BrowserError as error:
        return seen, [str(error).splitlines()[0]]
    return seen, []


def page_delays_s(
    moments: Sequence[float], seen: Sequence[tuple[float, float]], *, now_s: float
) -> np.ndarray:
    """Seconds from each moment until the page showed it; its age when it never did."""
    if not seen:
        return np.empty(0)
    shown = np.maximum.accumulate([observed for _, observed in seen])
    when_s = np.array([at for at, _ in seen] + [now_s])
    return np.array([when_s[np.searchsorted(shown, moment)] - moment for moment in moments])


def percentile(values: np.ndarray, part: float) -> float | None:
    """None of nothing."""
    return float(np.quantile(values, part)) if len(values) else None


async def observed_s(page: Page) -> float:
    """The moment of data time the page says it shows; 0 when it shows none."""
    text = await page.evaluate(
        "document.querySelector('[data-observed-at]')?.getAttribute('data-observed-at') || ''"
    )
    return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
