"""What every page callback needs: the lake, the clock, the cluster where one may be asked, and one
way to answer or to say why not.

Invariant: a callback's work runs in a thread beside the event loop, so that a slow question of
one reader does not hold up another. A lake that cannot be read becomes a notice on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from dashboards.cluster import Cluster
from dashboards.data import LakeData, Pulse
from dashboards.view import Span, View, parse, resolve

Answer = TypeVar("Answer")
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the lake: what there is, what the URL asks for, and the range it comes to."""

    pulse: Pulse
    view: View
    span: Span


@dataclass(frozen=True, slots=True)
class Desk:
    """The lake, the clock and the cluster, as pages use them."""

    data: LakeData
    clock: Clock
    cluster: Cluster = field(default_factory=Cluster)

    def look(self, search: str | None) -> Look:
        """Resolve a URL's query against the lake of this moment. Raises LakeError."""
        pulse, view = self.data.pulse(), parse(search)
        return Look(pulse, view, resolve(view, now=self.clock(), data_end=pulse.data_end))


async def beside(work: Callable[..., Answer], *arguments: Any) -> Answer:
    """Run `work` in a thread; the event loop goes on."""
    return await asyncio.to_thread(work, *arguments)
