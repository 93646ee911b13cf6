"""Measures freshness: how many seconds a commit takes to reach gold and the page.

A real cluster with a lake, the pipeline and the dashboard is started as a user would; one producer
and one consumer work. A commit counts as in gold when consumer_lag holds an offset of that queue at
or above it, and as on the page when the page's own data time has reached it. After the last commit
that counts, those under way are waited for; one that is never seen counts at its age, or a gold
that stands still would look fast.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median

import polars as pl
from deltalake import DeltaTable
from playwright.async_api import Page, async_playwright
from rich.table import Table

from bench.bars import COMMIT_TO_GOLD_P95
from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, stop_all, tidemark
from engine.client.config import ClientConfig, ConsumerConfig
from engine.client.consuming.listeners import ConsumeConcurrentlyStatus, ConsumeContext
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.producer import Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.runtime import system_runtime
from pipelines.lake.lake import GOLD_FOLDER
from provision import chromium

TOPIC, GROUP = "freshness", "watcher"
MESSAGES_PER_S = 50
POLL_S = 0.2
START_PATIENCE_S = 120.0
LATE_S = 2 * COMMIT_TO_GOLD_P95.limit
"""How long commits under way at the end are waited for: past the bar, so that they miss it."""
CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(slots=True)
class Commits:
    """Answered commits that are not yet seen, and how long the others took, in seconds."""

    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    """Wall clock, queue id, offset."""
    off_page: list[float] = field(default_factory=list)
    """Wall clocks of commits the page has not reached."""
    to_gold_s: list[float] = field(default_factory=list)
    to_page_s: list[float] = field(default_factory=list)
    unseen_in_gold: int = 0
    unseen_on_page: int = 0
    closed: bool = False
    """No more commits count."""

    def answered(self, queue: MessageQueue, offset: int) -> None:
        """A broker has answered for an offset."""
        if queue.topic == TOPIC and not self.closed:
            now = time.time()
            self.waiting.append((now, queue.queue_id, offset))
            self.off_page.append(now)

    def in_gold(self, committed: dict[int, int]) -> None:
        """Gold now holds these offsets per queue."""
        now = time.time()
        seen = [c for c in self.waiting if committed.get(c[1], -1) >= c[2]]
        self.waiting = [c for c in self.waiting if committed.get(c[1], -1) < c[2]]
        self.to_gold_s += [now - commit[0] for commit in seen]

    def on_page(self, observed_s: float) -> None:
        """The page now shows data up to this moment."""
        now = time.time()
        self.to_page_s += [now - moment for moment in self.off_page if moment <= observed_s]
        self.off_page = [moment for moment in self.off_page if moment > observed_s]

    def give_up(self) -> None:
        """Those not seen by now count at their age."""
        now = time.time()
        self.unseen_in_gold, self.unseen_on_page = len(self.waiting), len(self.off_page)
        self.to_gold_s += [now - commit[0] for commit in self.waiting]
        self.to_page_s += [now - moment for moment in self.off_page]


def measure_freshness(home: Path, *, seconds: float) -> Table:
    """Run the cluster below `home` for `seconds` of measuring and return the percentiles."""
    if chromium.find() is None:
        raise SystemExit(chromium.MISSING)
    logs = home / "logs"
    logs.mkdir(parents=True)
    lake, store = home / "lake", home / "store"
    namesrv_port, dash_port = free_port_block(1), free_port_block(1)
    engine = Actor(
        "engine",
        tidemark(
            *("engine", "--store", str(store), "--lake", str(lake)),
            *("--namesrv-port", str(namesrv_port), "--broker-port", str(free_broker_port())),
        ),
        logs,
    )
    pipeline = Actor("pipeline", tidemark("pipeline", "run", "--lake", str(lake)), logs)
    dash = Actor("dash", tidemark("dash", "--lake", str(lake), "--port", str(dash_port)), logs)
    actors = [dash, pipeline, engine]
    try:
        for actor in reversed(actors):
            actor.start()
        engine.wait_for_line("ready", within_s=START_PATIENCE_S)
        dash.wait_for_line("dash ", within_s=START_PATIENCE_S)
        commits = asyncio.run(
            _observe(f"127.0.0.1:{namesrv_port}", lake, f"http://127.0.0.1:{dash_port}/", seconds)
        )
    finally:
        stop_all(actors)
    table = Table(title=f"freshness over {seconds:.0f} s, {MESSAGES_PER_S} messages/s")
    headings = ("commits", "unseen", "p50 s", "p95 s", "bar of p95", "max s")
    for heading in ("from an answered commit", *headings):
        table.add_column(heading, justify="left" if heading.startswith("from") else "right")
    to_gold = _percentiles(commits.to_gold_s, commits.unseen_in_gold, str(COMMIT_TO_GOLD_P95))
    table.add_row("to its gold row", *to_gold)
    table.add_row("to the page", *_percentiles(commits.to_page_s, commits.unseen_on_page, ""))
    return table


def _percentiles(values: Sequence[float], unseen: int, bar: str) -> list[str]:
    if not values:
        return ["0", "0", "", "", bar, ""]
    ordered = sorted(values)
    p50, p95 = median(ordered), ordered[int(len(ordered) * 0.95)]
    counts = [str(len(ordered)), str(unseen)]
    return [*counts, f"{p50:.1f}", f"{p95:.1f}", bar, f"{ordered[-1]:.1f}"]


async def _observe(namesrv: str, lake: Path, url: str, seconds: float) -> Commits:
    """Load the cluster, wait for the first gold row, then look at gold and page for `seconds`."""
    commits = Commits()
    config = ClientConfig(namesrv_addresses=(namesrv,), heartbeat_ms=3_000, route_poll_ms=5_000)
    producer = Producer(system_runtime(), config, "freshness-producers")
    consumer = PushConsumer(
        system_runtime(),
        config,
        GROUP,
        consumer=ConsumerConfig(commit_acknowledged=True, persist_first_ms=1_000, persist_ms=1_000),
        on_commit_answered=commits.answered,
    )
    consumer.subscribe(TOPIC, "*", _succeed)
    await producer.start()
    sending = asyncio.create_task(_send_steadily(producer))
    try:
        await asyncio.sleep(2)
        await consumer.start()
        deadline_s = time.monotonic() + START_PATIENCE_S
        while not _committed_in_gold(lake):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"no gold row of {GROUP} within {START_PATIENCE_S:.0f} s")
            await asyncio.sleep(POLL_S)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium.find(), args=list(CHROMIUM_ARGUMENTS)
            )
            page = await browser.new_page()
            await page.goto(url)
            commits.waiting.clear()
            commits.off_page.clear()
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s + LATE_S:
                commits.closed = time.monotonic() >= end_s
                commits.in_gold(_committed_in_gold(lake))
                commits.on_page(await observed_s(page))
                if commits.closed and not commits.waiting and not commits.off_page:
                    break
                await asyncio.sleep(POLL_S)
            commits.give_up()
            await browser.close()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await consumer.stop()
        await producer.stop()
    return commits


async def _send_steadily(producer: Producer) -> None:
    number = 0
    while True:
        number += 1
        with suppress(TidemarkError):
            await producer.send(Message(TOPIC, b"%d" % number))
        await asyncio.sleep(1 / MESSAGES_PER_S)


async def _succeed(
    messages: Sequence[MessageExt], context: ConsumeContext
) -> ConsumeConcurrentlyStatus:
    del messages, context
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def _committed_in_gold(lake: Path) -> dict[int, int]:
    """The highest committed offset per queue that gold holds; empty before its first row."""
    path = str(lake / GOLD_FOLDER / "consumer_lag")
    if not DeltaTable.is_deltatable(path):
        return {}
    rows = (
        pl.scan_delta(path)
        .filter((pl.col("topic") == TOPIC) & pl.col("committed").is_not_null())
        .group_by("queue_id")
        .agg(pl.col("committed").max())
        .collect()
    )
    return dict(rows.iter_rows())


async def observed_s(page: Page) -> float:
    """The moment of data time the page says it shows; 0 when it shows none."""
    text = await page.evaluate(
        "document.querySelector('[data-observed-at]')?.getAttribute('data-observed-at') || ''"
    )
    if not text:
        return 0.0
    return datetime.fromisoformat(str(text)).timestamp()
