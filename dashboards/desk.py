"""What every page callback needs: the lake, the clock, the cluster where one may be asked, and one
way to answer or to say why not.

Invariant: a callback's work runs in a thread beside the event loop, so that a slow question of
one reader does not hold up another. A lake that cannot be read becomes a notice on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dashboards.alerts import AlertSource
from dashboards.cache import PageCache
from dashboards.cluster import Cluster
from dashboards.data import LakeData, Pulse, Seen
from dashboards.reports import ReportShelf, Sending
from dashboards.view import Span, View, parse, resolve
from dashboards.visits import STRANGER, Visitor, Visitors, this_visit
from pipelines.microseconds import micros

if TYPE_CHECKING:
    from pipelines.alerting.board import Board

Answer = TypeVar("Answer")
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the lake: what there is, what the URL asks for, and the range it comes to."""

    pulse: Pulse
    view: View
    span: Span
    seen: Seen
    """The lake at the pulse's moment; of one cluster, when the URL asks for it."""

    @property
    def data(self) -> Seen:
        """The lake at the end of the range."""
        return self.seen.at(self.span.end) if self.view.closed else self.seen

    @property
    def names_clusters(self) -> bool:
        """Does the lake hold several clusters, so that what is shown says of which it is?"""
        return len(self.seen.clusters) > 1

    def of_cluster(self, cluster: str) -> Look:
        """The same look at one cluster; links from it stay there."""
        view = self.view.of_cluster(cluster)
        return replace(self, view=view, seen=self.seen.of_cluster(cluster))

    def among(self, has: Callable[[Look], bool]) -> Look | tuple[str, ...]:
        """The look at the one cluster for which `has` holds; when it holds for several, their
        names: a page of one thing never shows two. The lake as it is, when it holds for none."""
        if self.view.cluster or not self.names_clusters:
            return self
        looks = [self.of_cluster(name) for name in self.seen.clusters]
        found = [look for look in looks if has(look)]
        if len(found) > 1:
            return tuple(look.view.cluster for look in found)
        return found[0] if found else self

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything that a page's content depends on, beside the page itself."""
        return self.pulse.token, self.span.start, self.span.end, self.view


@dataclass(frozen=True, slots=True)
class Desk:
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
