"""Discovers brokers through name servers and watches each one separately.

Place in the walk: name server → a `BrokerWatch` for each master.

Invariant: a broker that hangs or is gone, and one whose spool cannot be written, holds up no other.
One that the name servers name no more is watched on where it was: whether it is there is its own
answer. When they have not named it for GONE_AFTER_MS while they answered, and nobody listens there,
it is reported gone; if it comes back, it is watched again. An illegal name from outside is reported
once and left alone: it would be a folder's, and part of an emitter's. Absent on purpose: questions
to brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.observer.believable import is_address
from engine.observer.broker_watch import BrokerWatch, Watched
from engine.observer.home_folder import Noted, folder_of, known_brokers, note, take_retirement
from engine.observer.observation import Observation
from engine.observer.poll_metrics import LookTimes
from engine.observer.poll_result import BrokerKey
from engine.observer.question_turns import BROKERS, why
from engine.observer.roles_seen import ADDRESSES_KEPT_MAX
from engine.protocol.bodies import ClusterInfo
from engine.protocol.names import check_broker_word
from engine.runtime import Runtime

BROKERS_LISTED_EACH_MS: Final = 10 * SECOND_MS
"""Or each period, when that is shorter."""
GONE_AFTER_MS: Final = 10 * MINUTE_MS
"""Name servers forget a broker that is silent after two; it may be in repair for longer."""
BROKERS_WATCHED_MAX: Final = 256
"""Each has a spool and a shipper, which is a process; those beyond are reported once and not
watched.
"""
REFUSALS_TOLD_MAX: Final = 256
"""Brokers that were reported to be not watched; beyond that nothing is reported."""

OnGone = Callable[[Watched], Coroutine[None, None, None]]

_log = logging.getLogger(__name__)


async def _nobody_hears(_watched: Watched) -> None:
    """Of a broker that is gone."""


@dataclass(slots=True, eq=False)
class ClusterWatch:
    """Watches until it is stopped.

    `on_new` hears of each broker before its first look, `on_gone` of each reported gone.
    """

    runtime: Runtime
    admin: Admin
    observation: Observation
    _: KW_ONLY
    on_new: Callable[[Watched], None]
    on_gone: OnGone = _nobody_hears
    gone_after_ms: int = GONE_AFTER_MS
    _watches: dict[BrokerKey, BrokerWatch] = field(default_factory=dict, init=False)
    _looking: dict[BrokerKey, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _unlisted_since_ms: dict[BrokerKey, int] = field(default_factory=dict, init=False)
    """In steady time: name servers that answer have named these no more since then."""
    _refused: dict[BrokerKey, None] = field(default_factory=dict, init=False)
    """Those that were reported to be not watched."""
    _missing: tuple[str, ...] = field(default=(), init=False)
    """Clusters that are wanted, and were reported not to be there."""
    _is_answered: bool = field(default=True, init=False)

    async def wait(self) -> None:
        """Watch, until cancelled. Raises what ended the watch of a broker."""
        try:
            async with asyncio.TaskGroup() as watching:
                await self._watch_all(watching)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    @property
    def times(self) -> dict[BrokerKey, LookTimes]:
        """How the looks at each broker go."""
        return {key: watch.times for key, watch in self._watches.items()}

    async def stop(self) -> None:
        """Write what was reported, and close the connections."""
        for watch in self._watches.values():
            try:
                await watch.close()
            except TidemarkError as error:
                _log.error("%s/%s: %s", watch.watched.cluster, watch.watched.broker, error)
        await self.admin.close()

    async def _watch_all(self, watching: asyncio.TaskGroup) -> None:
        rest_ms = min(self.observation.period_ms, BROKERS_LISTED_EACH_MS)
        earlier = self._of_earlier_runs()
        while True:
            retired = self._retired()  # Before the list is asked for: an older one may have them.
            info = await self._listed()
            listed = None if info is None else masters_of(info, self.observation)
            for key, address in {**earlier, **(listed or {})}.items():
                self._watch(watching, key, address, master_before=earlier.get(key))
            for key, roles in ({} if info is None else roles_of(info, self.observation)).items():
                if key in self._watches:
                    self._watches[key].roles = roles
            earlier = {}
            self._note_listed(listed)
            for key in list(self._watches):
                is_listed, is_retired = key in (listed or {}), key in retired
                await self._end_if_gone(watching, key, is_listed=is_listed, is_retired=is_retired)
            await asyncio.sleep(rest_ms / SECOND_MS)

    def _retired(self) -> set[BrokerKey]:
        """Those that somebody has retired since the last call."""
        disk = self.runtime.disk
        return {
            key for key, watch in self._watches.items() if take_retirement(disk, watch.watched.home)
        }

    def _of_earlier_runs(self) -> dict[BrokerKey, str]:
        """Where those brokers were that nobody reported to be gone: they may be, meanwhile."""
        observation = self.observation
        try:
            return {
                (one.cluster, one.broker): one.noted.address
                for one in known_brokers(self.runtime.disk, observation.home, observation.observer)
                if one.noted.is_watched
                and one.noted.address
                and one.noted.name_servers == observation.name_servers
                and observation.is_wanted(one.noted.cluster)
                and observation.name_in_lake(one.noted.cluster) == one.cluster
            }
        except TidemarkError as error:
            _log.error("brokers of earlier runs are not known: %s", error)
            return {}

    async def _listed(self) -> ClusterInfo | None:
        """None: no name server answers."""
        try:
            info = await self.admin.cluster.info()
        except TidemarkError as error:
            if self._is_answered:
                _log.warning(
                    "no name server answers for %s; they are asked where they were: %s",
                    *(BROKERS.words, why(BROKERS, error)),
                )
            self._is_answered = False
            return None
        self._is_answered = True
        self._report_missing(self.observation.missing_in(info))
        return info

    def _report_missing(self, missing: Mapping[str, str]) -> None:
        if tuple(missing) != self._missing:
            for sentence in missing.values():
                _log.warning("%s", sentence)
        self._missing = tuple(missing)

    def _note_listed(self, listed: Mapping[BrokerKey, str] | None) -> None:
        """Time counts as long as name servers answer: one that has just begun knows nobody."""
        now_ms = self.runtime.clock.steady_ms()
        unlisted = () if listed is None else [key for key in self._watches if key not in listed]
        self._unlisted_since_ms = {
            key: self._unlisted_since_ms.get(key, now_ms) for key in unlisted
        }

    def _watch(
        self,
        watching: asyncio.TaskGroup,
        key: BrokerKey,
        address: str,
        *,
        master_before: str | None,
    ) -> None:
        watch = self._watches.get(key)
        if watch is not None and watch.address == address:
            return
        if watch is not None:
            _log.warning("%s/%s is at %s now", *key, address)
            watch.address = address
            self._note(watch, is_watched=True)
            return
        reason = self._refusal(key)
        if reason is not None:
            self._report_refusal(key, reason)
            return
        observation = self.observation
        try:
            home = folder_of(self.runtime.disk, observation.home, (*key, observation.observer))
        except TidemarkError as error:  # It is asked for again.
            self._report_refusal(key, str(error))
            return
        watched = Watched(
            *(*key, observation.observer, home, observation.period_ms, observation.name_servers),
            proxies=observation.proxies,
            real_cluster=observation.real_name(key[0]),
        )
        self.on_new(watched)
        watch = BrokerWatch(
            *(self.runtime, self.admin, watched, address), master_before=master_before
        )
        self._watches[key] = watch
        self._note(watch, is_watched=True)
        task = watching.create_task(watch.run(), name=f"watch {'/'.join(key)}")
        self._looking[key] = task

    async def _end_if_gone(
        self, watching: asyncio.TaskGroup, key: BrokerKey, *, is_listed: bool, is_retired: bool
    ) -> None:
        watch = self._watches[key]
        if is_listed:
            if is_retired:
                _log.warning("%s/%s is not retired: the name servers list it", *key)
            return
        since_ms = self._unlisted_since_ms.get(key)
        waited_ms = 0 if since_ms is None else self.runtime.clock.steady_ms() - since_ms
        is_over = since_ms is not None and waited_ms >= self.gone_after_ms
        if is_retired:
            words = "it was retired by hand"
        elif is_over and watch.is_refused:
            words = (
                f"the name servers have not listed it for {waited_ms // SECOND_MS} s, and nobody "
                f"listens at {watch.address}"
            )
        else:
            return
        await self._end(key, words)
        watching.create_task(self.on_gone(watch.watched))

    async def _end(self, key: BrokerKey, words: str) -> None:
        watch, task = self._watches[key], self._looking[key]
        task.cancel()
        await asyncio.wait([task])
        try:
            await watch.report_gone(words)
        except TidemarkError as error:
            _log.error("that %s/%s is gone cannot be reported: %s", *key, error)
        _log.warning("%s/%s is gone, and is asked no more: %s", *key, words)
        self._note(watch, is_watched=False)
        del self._watches[key], self._looking[key]

    def _note(self, watch: BrokerWatch, *, is_watched: bool) -> None:
        observation, watched = self.observation, watch.watched
        noted = Noted(
            watch.address,
            observation.real_name(watched.cluster),
            observation.name_servers,
            is_watched,
        )
        try:
            note(self.runtime.disk, watched.home, noted)
        except TidemarkError as error:
            _log.error("%s/%s is not noted: %s", watched.cluster, watched.broker, error)

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

    def _report_refusal(self, key: BrokerKey, reason: str) -> None:
        if key not in self._refused and len(self._refused) < REFUSALS_TOLD_MAX:
            self._refused[key] = None
            _log.warning("a broker is not watched: %s", reason)


def masters_of(info: ClusterInfo, observation: Observation) -> dict[BrokerKey, str]:
    """Addresses of the masters of the wanted clusters; keys are as the lake calls them."""
    masters = info.masters()
    return {key: masters[key[1]] for key in _wanted(info, observation) if key[1] in masters}


def roles_of(info: ClusterInfo, observation: Observation) -> dict[BrokerKey, dict[str, int]]:
    """Broker ids by address, of the brokers of the wanted clusters; keys are as the lake's."""
    return {
        key: {
            address: broker_id
            for broker_id, address in islice(listed.broker_addrs.items(), ADDRESSES_KEPT_MAX)
            if is_address(address)
        }
        for key in _wanted(info, observation)
        if (listed := info.broker_addr_table.get(key[1])) is not None
    }


def _wanted(info: ClusterInfo, observation: Observation) -> list[BrokerKey]:
    return [
        (observation.name_in_lake(cluster), name)
        for cluster, names in sorted(info.cluster_addr_table.items())
        if observation.is_wanted(cluster)
        for name in sorted(names)
    ]
