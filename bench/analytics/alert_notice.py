"""Benchmark `alert-notice`: times the path from a stall to its notice and to its gold row.

Engine, shipper, pipeline, `tidemark alerts run` and a webhook, as a user starts them. Thirty groups
report offsets of ten queues each second; then one group after the other reports no more, while
messages go on. The figures are the seconds from a group's last answered report to its row in
stalled_windows, and to the webhook. Neither the rule nor the route waits, so the figures are those
of the path alone. Scaled, there are fewer groups.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.analytics.cost import Clock, cpu_seconds
from bench.analytics.figures import Figure
from bench.analytics.live import START_PATIENCE_S, cluster, percentile
from bench.analytics.moving import QUEUES, Movers
from bench.bars import NOTICE_AFTER_GOLD
from bench.turns import Client
from demo.processes import Actor, stop_all, tidemark
from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.tail import Place, read_tail
from tests.integration.alerting.receiving_server import OK, Answer, receiving

GROUPS = 30
FIRST_ROUND = 50
"""When the first group stops: by then gold has seen all of them move."""
EACH_ROUNDS = 1
AFTER_S = 45.0
LOOK_S = 0.1
RULES = """
[[rule]]
name = "QueueStands"
table = "stalled_windows"
when = "state = 'OPEN'"
labels = ["cluster", "group"]
severity = "error"
no_data = "keep"
[rule.annotations]
summary = "{{ labels.group }}: {{ evidence }}"
"""
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_by = ["group"]
group_wait = "0"
inhibit = []
"""


class Stopping(Movers):
    """Groups that move, and stop one after the other."""

    def __init__(self, groups: int) -> None:
        super().__init__(groups * QUEUES)
        self.stopped_s: dict[str, float] = {}
        """Wall clock of the last answered report of each that has stopped."""

    @property
    def keys(self) -> list[tuple[str, str, int]]:
        """Of those that go on."""
        return [key for key in super().keys if key[0] not in self.stopped_s]

    async def _round(self, client: Client, number: int) -> None:
        await super()._round(client, number)
        place, is_off = divmod(number - FIRST_ROUND, EACH_ROUNDS)
        if not is_off and 0 <= place < len(self.groups):
            self.stopped_s[self.groups[place]] = time.time()


@dataclass(slots=True)
class Seen:
    """When something was first notified of a group, wall clock."""

    in_gold_s: dict[str, float] = field(default_factory=dict)
    at_hook_s: dict[str, float] = field(default_factory=dict)
    _place: Place = field(default_factory=Place.start)

    def look(self, lake: Lake) -> None:
        """Read what was committed to stalled_windows since the last look."""
        address = lake.gold("stalled_windows")
        try:
            tail = read_tail(lake, address, self._place)
        except LakeError:  # There is no table yet.
            return
        now_s = time.time()
        for file in tail.files:
            rows = pq.read_table(f"{address}/{file.path}", columns=["group"], partitioning=None)
            for group in rows["group"].to_pylist():
                self.in_gold_s.setdefault(group, now_s)
        self._place = tail.end

    def hear(self, _path: str, body: bytes) -> Answer:
        """A notice has come."""
        now_s = time.time()
        for alert in json.loads(body)["alerts"]:
            self.at_hook_s.setdefault(alert["labels"].get("group", ""), now_s)
        return OK


def measure(folder: Path, scale: float) -> list[Figure]:
    """Both ways, and how much longer the second one is."""
    movers, seen = Stopping(max(5, round(GROUPS * scale))), Seen()
    clock = Clock()
    with receiving(seen.hear) as ledger, cluster(folder, with_page=False) as seats:
        rules, telling = folder / "rules.toml", folder / "telling.toml"
        rules.write_text(RULES, encoding="utf-8")
        telling.write_text(TELLING.format(url=ledger.url), encoding="utf-8")
        words = ("--lake", seats.lake.root, "--rules", str(rules), "--receivers", str(telling))
        home = ("--database", f"sqlite:///{folder / 'tidemark.db'}")
        alerts = Actor("alerts", tidemark("alerts", "run", *words, *home), folder / "logs")
        alerts.start()
        try:
            asyncio.run(_play(movers, seats.broker_port, seen, seats.lake))
            spent_s = cpu_seconds(alerts.pid)
        finally:
            stop_all([alerts])
    spent = clock.spent()
    to_gold = delays_s(movers.stopped_s, seen.in_gold_s)
    to_hook = delays_s(movers.stopped_s, seen.at_hook_s)
    gold_p95, hook_p95 = (percentile(np.array(one), 0.95) for one in (to_gold, to_hook))
    unseen = len(movers.stopped_s) - sum(one in seen.at_hook_s for one in movers.stopped_s)
    what = f"{len(movers.stopped_s)} groups that stop: last report"
    more = None if gold_p95 is None or hook_p95 is None else hook_p95 - gold_p95
    return [
        Figure(f"{what} → gold, p95", gold_p95, "s", wall_s=spent.wall_s, cpu_s=spent.cpu_s),
        Figure(f"{what} → webhook, p95", hook_p95, "s", note=f"{unseen} never notified"),
        Figure(
            "webhook's p95 less gold's",
            more,
            "s",
            NOTICE_AFTER_GOLD,
            cpu_s=spent_s,
            note="without `for`, `group_wait` 0; CPU of the alerting process alone",
        ),
    ]


def delays_s(stopped_s: Mapping[str, float], seen_s: Mapping[str, float]) -> Sequence[float]:
    """Seconds from each stop until it was seen; until now when it never was."""
    now_s = time.time()
    return [seen_s.get(group, now_s) - at_s for group, at_s in stopped_s.items()]


async def _play(movers: Stopping, port: int, seen: Seen, lake: Lake) -> None:
    ended = asyncio.Event()
    moving = asyncio.create_task(movers.run("127.0.0.1", port, ended))
    lasts_s = FIRST_ROUND + EACH_ROUNDS * len(movers.groups) + AFTER_S
    deadline_s = time.monotonic() + lasts_s + START_PATIENCE_S
    try:
        while time.monotonic() < deadline_s and not moving.done():
            await asyncio.to_thread(seen.look, lake)
            if len(movers.stopped_s) == len(movers.groups) <= len(seen.at_hook_s):
                break
            await asyncio.sleep(LOOK_S)
    finally:
        ended.set()
        await moving
