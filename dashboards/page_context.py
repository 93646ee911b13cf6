"""Gives page callbacks the lake, clock and cluster, and runs their work in threads.

The cluster is there only when its name server was named at the start.

Invariant: a callback's work runs in a thread beside the event loop, so that a slow question of
one reader does not hold up another. A lake that cannot be read becomes a notice on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dashboards.access.visitors import STRANGER, Visitor, Visitors, this_visit
from dashboards.models.alert_lines import AlertSource
from dashboards.reads.cache import PageCache
from dashboards.reads.cluster import Cluster
from dashboards.reads.lake_data import LakeData, Look
from dashboards.reads.report_shelf import ReportShelf, Sending
from dashboards.url_state import parse, resolve
from pipelines.base.time_units import micros

if TYPE_CHECKING:
    from pipelines.alerting.board import Board

Answer = TypeVar("Answer")
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class PageContext:
    """The lake, the clock and the cluster, as pages use them."""

    data: LakeData
    clock: Clock
    cluster: Cluster = field(default_factory=Cluster)
    pages: PageCache = field(default_factory=PageCache)
    alerts: AlertSource | None = None
    """None: this dashboard knows no database of alerts."""
    visitors: Visitors | None = None
    """None: this dashboard knows nobody, and has no pages of jobs."""
    executor_token: str | None = field(default=None, repr=False)
    """The common one, by which executors are asked for logs, and to end runs."""
    shelf: ReportShelf | None = None
    """None: the reports are where the lake keeps them."""
    sending: Sending = field(default_factory=Sending)
    """How reports are sent."""

    @property
    def reports(self) -> ReportShelf:
        """The reports of the lake."""
        return self.shelf or ReportShelf(self.data.lake)

    @property
    def now_us(self) -> int:
        """Now, µs."""
        return micros(self.clock())

    def board(self) -> Board | None:
        """What is known of alerts now."""
        return None if self.alerts is None else self.alerts.look(self.now_us)

    def visitor(self) -> Visitor:
        """Who asks, by the request that is answered. Raises StorageError or ConfigError when the
        database of users cannot be asked."""
        return STRANGER if self.visitors is None else self.visitors.visitor(this_visit())

    def look(self, search: str | None, pulse: Any = None) -> Look:
        """Resolve a URL's query against the lake, at the moment of `pulse`: what a page's parts
        were given, so that they are all of one moment; else of now. Raises LakeError."""
        token = pulse.get("token") if isinstance(pulse, dict) else None
        found = self.data.pulse_of(token) if isinstance(token, str) else self.data.pulse()
        view = parse(search)
        span = resolve(view, now=self.clock(), data_end=found.data_end)
        look = Look(found, view, span, self.data.seen(found))
        return look.of_cluster(view.cluster) if view.cluster else look


async def beside(work: Callable[..., Answer], *arguments: Any) -> Answer:
    """Run `work` in a thread; the event loop goes on."""
    return await asyncio.to_thread(work, *arguments)
