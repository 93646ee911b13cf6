"""All brokers of the watched clusters: who is there is asked again and again, and each is watched
by itself.

Place in the walk: name server → a `BrokerWatch` for each master.

Invariant: a broker that hangs or is gone holds up no other. One that the name server names no more
is watched on where it was: whether it is there is its own answer. Absent on purpose: questions to
brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.client.admin import Admin
from engine.client.route_cache import MASTER_ID
from engine.foundation.errors import TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer.broker_watch import BrokerWatch, Watched
from engine.protocol.bodies import ClusterInfo
from engine.runtime import Runtime

BROKERS_LISTED_EACH_MS: Final = 10 * SECOND_MS

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
        self._watches: dict[tuple[str, str], BrokerWatch] = {}
        self._addresses: dict[tuple[str, str], str] = {}
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_answered = True

    async def wait(self) -> None:
        """Watch, until cancelled. Raises what ended the watch of a broker."""
        async with asyncio.TaskGroup() as watching:
            while True:
                for key, address in (await self._masters()).items():
                    self._watch(watching, key, address)
                await asyncio.sleep(BROKERS_LISTED_EACH_MS / SECOND_MS)

    async def stop(self) -> None:
        """Write what was told, and close the connections."""
        for watch in self._watches.values():
            await watch.close()
        await self._admin.close()

    async def _masters(self) -> dict[tuple[str, str], str]:
        try:
            info = await self._admin.cluster.info()
        except TidemarkError as error:
            if self._is_answered:
                _log.warning("no name server answers; brokers are asked where they were: %s", error)
            self._is_answered = False
            return {}
        self._is_answered = True
        return masters_of(info, self._observation.clusters)

    def _watch(self, watching: asyncio.TaskGroup, key: tuple[str, str], address: str) -> None:
        if self._addresses.get(key) == address:
            return
        self._addresses[key] = address
        if key not in self._watches:
            cluster, broker = key
            told = self._observation
            home = f"{told.home}/{cluster}/{broker}"
            watched = Watched(cluster, broker, told.observer, home, told.period_ms)
            self._on_new(watched)
            self._watches[key] = BrokerWatch(self._runtime, self._admin, watched)
        else:
            _log.warning("%s/%s is at %s now", *key, address)
            self._running.pop(key).cancel()
        self._running[key] = watching.create_task(
            self._watches[key].run(address), name=f"watch {key[0]}/{key[1]}"
        )


def masters_of(info: ClusterInfo, clusters: frozenset[str]) -> dict[tuple[str, str], str]:
    """Addresses of the masters by (cluster, broker); of these clusters, of all if none is named."""
    return {
        (cluster, name): info.broker_addr_table[name].broker_addrs[MASTER_ID]
        for cluster, names in sorted(info.cluster_addr_table.items())
        if not clusters or cluster in clusters
        for name in sorted(names)
        if name in info.broker_addr_table and MASTER_ID in info.broker_addr_table[name].broker_addrs
    }
