"""All brokers of the watched clusters: who is there is asked again and again, and each is watched
by itself.

Place in the walk: name server → a `BrokerWatch` for each master.

Invariant: a broker that hangs or is gone holds up no other. One that the name server names no more
is watched on where it was: whether it is there is its own answer. A name from outside that is none
is told once and left alone: it would be a folder's, and part of an emitter's. Absent on purpose:
questions to brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.client.admin import Admin
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer.broker_watch import BrokerWatch, Watched
from engine.observer.questions import BROKERS, why
from engine.protocol.bodies import ClusterInfo
from engine.protocol.names import check_broker_word
from engine.runtime import Runtime

BROKERS_LISTED_EACH_MS: Final = 10 * SECOND_MS
"""Or each period, when that is shorter."""
BROKERS_WATCHED_MAX: Final = 256
"""Each has a spool and a shipper, which is a process; those beyond are told once and not watched.
"""
REFUSALS_TOLD_MAX: Final = 256
"""Brokers that were told to be not watched; beyond that nothing is told."""

BrokerKey = tuple[str, str]
"""(cluster, broker)"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Observation:
    """What is observed, by whom."""

    clusters: frozenset[str]
    """Names; none: all that the name servers know."""
    observer: str
    home: str
    """Folder with a folder for each broker's spool."""
    period_ms: int


class ClusterWatch:
    """Watches until it is stopped."""

    def __init__(
        self,
        runtime: Runtime,
        admin: Admin,
        observation: Observation,
        *,
        on_new: Callable[[Watched], None],
    ) -> None:
        """`on_new` hears of each broker before it is asked first."""
        self._runtime = runtime
        self._admin = admin
        self._observation = observation
        self._on_new = on_new
        self._watches: dict[BrokerKey, BrokerWatch] = {}
        self._refused: dict[BrokerKey, None] = {}
        """Those that were told to be not watched."""
        self._is_answered = True

    async def wait(self) -> None:
        """Watch, until cancelled. Raises what ended the watch of a broker."""
        rest_ms = min(self._observation.period_ms, BROKERS_LISTED_EACH_MS)
        async with asyncio.TaskGroup() as watching:
            while True:
                for key, address in (await self._masters()).items():
                    self._watch(watching, key, address)
                await asyncio.sleep(rest_ms / SECOND_MS)

    async def stop(self) -> None:
        """Write what was told, and close the connections."""
        for watch in self._watches.values():
            await watch.close()
        await self._admin.close()

    async def _masters(self) -> dict[BrokerKey, str]:
        try:
            info = await self._admin.cluster.info()
        except TidemarkError as error:
            if self._is_answered:
                _log.warning(
                    "no name server tells %s; they are asked where they were: %s",
                    *(BROKERS.words, why(BROKERS, error)),
                )
            self._is_answered = False
            return {}
        self._is_answered = True
        return masters_of(info, self._observation.clusters)

    def _watch(self, watching: asyncio.TaskGroup, key: BrokerKey, address: str) -> None:
        watch = self._watches.get(key)
        if watch is not None:
            if watch.address != address:
                _log.warning("%s/%s is at %s now", *key, address)
            watch.address = address
            return
        reason = self._refusal(key)
        if reason is not None:
            self._tell_refusal(key, reason)
            return
        cluster, broker = key
        told = self._observation
        home = f"{told.home}/{cluster}/{broker}"
        watched = Watched(cluster, broker, told.observer, home, told.period_ms)
        self._on_new(watched)
        self._watches[key] = BrokerWatch(self._runtime, self._admin, watched, address)
        watching.create_task(self._watches[key].run(), name=f"watch {cluster}/{broker}")

    def _refusal(self, key: BrokerKey) -> str | None:
        """Why a broker is not watched; None: it is."""
        try:
            for kind, name in zip(("cluster", "broker"), key, strict=True):
                check_broker_word(kind, name)
        except RequestRefused as error:
            return error.remark
        if len(self._watches) >= BROKERS_WATCHED_MAX:
            return f"{BROKERS_WATCHED_MAX} brokers are watched, which is as many as may be"
        return None

    def _tell_refusal(self, key: BrokerKey, reason: str) -> None:
        if key not in self._refused and len(self._refused) < REFUSALS_TOLD_MAX:
            self._refused[key] = None
            _log.warning("a broker is not watched: %s", reason)


def masters_of(info: ClusterInfo, clusters: frozenset[str]) -> dict[BrokerKey, str]:
    """Addresses of the masters by (cluster, broker); of these clusters, of all if none is named."""
    masters = info.masters()
    return {
        (cluster, name): masters[name]
        for cluster, names in sorted(info.cluster_addr_table.items())
        if not clusters or cluster in clusters
        for name in sorted(names)
        if name in masters
    }
