"""Watches one broker by polling it periodically and writing the resulting facts to a spool.

Place in the walk: `cluster_watch` has one for each broker it hears of.

A spool that cannot be opened or written costs this broker: it is logged as not reported, and tried
again after a while that doubles.

Invariant: looks never overlap, and the horizon of the emitter moves with each look that was
answered and with no other: between two looks nothing is said to be unchanged. A life of the broker
is a life of the emitter, whenever the observer was started. Absent on purpose: other brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import ConnectFailed, TidemarkError
from engine.foundation.observing import EmittedUpTo, LifecycleEvent
from engine.foundation.units import MILLISECOND_US, MINUTE_MS, SECOND_MS
from engine.observer.facts import QUEUES_WATCHED_MAX, SNAPSHOT_EACH_MS, Facts, Key
from engine.observer.poll_metrics import LookTimes
from engine.observer.poll_result import Look
from engine.observer.polling import BrokerPoll
from engine.observer.question_turns import why
from engine.observer.topics_seen import TopicsSeen
from engine.protocol.names import MASTER_ID
from engine.runtime import Runtime
from engine.telemetry.segments import emitter_of
from engine.telemetry.telemetry import LAST_LIFE, SPOOL_DIRECTORY, EmitterIdentity, Telemetry

PATIENCE_MS_MIN: Final = 10 * SECOND_MS
"""A look may take so long, or a period."""
UNREPORTED_REST_MS_MAX: Final = MINUTE_MS
"""A spool that could not be opened is tried again after a period, then after twice as long, and so
on up to this."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """A broker, where it is, and who watches it."""

    cluster: str
    """As the lake calls it."""
    broker: str
    observer: str
    home: str
    """Folder of this broker's spool."""
    period_ms: int
    name_servers: str | None = None
    """Those that reported it."""
    proxies: tuple[str, ...] = ()
    """The proxies of its cluster, which are asked for the clients connected with them."""
    real_cluster: str | None = None
    """As its name servers call it; None: as the lake does."""

    @property
    def identity(self) -> EmitterIdentity:
        """The emitter of the rows."""
        return EmitterIdentity(self.cluster, self.broker, self.observer)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One that has begun."""

    look: int
    """The last look before it."""
    at: EmittedUpTo
    began_ms: int


class BrokerWatch:
    """Watches one broker until it is closed."""

    def __init__(
        self,
        runtime: Runtime,
        admin: Admin,
        watched: Watched,
        address: str,
        *,
        master_before: str | None = None,
    ) -> None:
        """`master_before`: where its master was when an earlier run of the observer saw it last."""
        self.watched = watched
        self.address = address
        """Where it is asked, from the next look on."""
        self.roles: Mapping[str, int] = {}
        """Broker ids by address, as the name servers listed them last."""
        self._runtime = runtime
        self._patience_ms = max(watched.period_ms, PATIENCE_MS_MIN)
        self._poll = BrokerPoll(
            *(admin, watched.broker, runtime.clock),
            cluster=watched.real_cluster or watched.cluster,
            patience_ms=self._patience_ms,
            proxies=watched.proxies,
        )
        self._telemetry: Telemetry | None = None
        roles = {} if master_before is None else {master_before: MASTER_ID}
        self._facts = self._new_facts({}, roles)
        self._snapshot: _Snapshot | None = None
        """The one under way."""
        self._losses = 0
        self._next_snapshot_ms: int | None = None
        self._is_answered = True
        self.is_refused = False
        """Could no connection be made at the last look?"""
        self.unreported_rest_ms = 0
        """How long the spool rests, since it could not be opened; 0: it could."""
        self.times = LookTimes(watched.period_ms)
        self._answered_ms: int | None = None
        """When it answered a look last, in the life it is in."""
        self._unsaid: LifecycleEvent | None = None
        """To be reported with the next look."""
        self._is_full = False
        """Was it reported that not all queues are watched?"""

    async def run(self) -> None:
        """A look each period, until cancelled; that looks take longer is reported when it begins
        and when it ends.
        """
        clock, period_ms = self._runtime.clock, self.watched.period_ms
        while True:
            began_ms = clock.steady_ms()
            counts = await self.look()
            took_ms = clock.steady_ms() - began_ms
            changed = self.times.note(took_ms, counts=counts)
            if changed is not None:
                self._unsaid = changed
                _log.warning("%s: %s", self._name, changed.detail)
            # Until all is known no time is lost, but half of it is left to others.
            rest_ms = period_ms - took_ms
            if self._poll.is_catching_up:
                rest_ms = min(rest_ms, took_ms)
            rest_ms = max(rest_ms, self.unreported_rest_ms)
            await asyncio.sleep(max(0, rest_ms) / SECOND_MS)

    async def look(self) -> bool:
        """Ask, and write what is new; was the broker's answer whole enough to count?"""
        # As they are now: a change of roles comes with the answers of whoever is asked behind it.
        address, roles = self.address, self.roles
        try:
            async with asyncio.timeout(self._patience_ms / SECOND_MS):
                stacks_of = self._facts.wanted_stacks(self._runtime.clock.now_ms())
                look = await self._poll.look(address, stacks_of=stacks_of)
                look.roles = roles
        except (TidemarkError, TimeoutError) as error:
            self.is_refused = isinstance(error, ConnectFailed)
            self._report_silence(error)
            return False
        self.is_refused = False
        if not self._is_answered:
            _log.warning("%s answers again", self._name)
        self._is_answered = True
        try:
            telemetry = await self._telemetry_of(look)
        except TidemarkError as error:
            self._report_unreported(error)
            return False
        self._report_reported()
        await self._emit(telemetry, look)
        await telemetry.sync()
        return True

    async def report_gone(self, why_gone: str) -> bool:
        """Report that the broker is gone for good, and close; False when nothing was ever reported
        of it. Raises StorageError.
        """
        telemetry, spool = self._telemetry, f"{self.watched.home}/{SPOOL_DIRECTORY}"
        if telemetry is None:
            if emitter_of(self._runtime.disk, spool) is None:
                return False
            telemetry = Telemetry.open(
                self._runtime, spool, self.watched.identity, broker_epoch=LAST_LIFE
            )
        now_ms = self._runtime.clock.now_ms()
        at = telemetry.emitted_up_to()
        nothing = LifecycleEvent(
            "SNAPSHOT",
            "nothing is there",
            seq_from=telemetry.next_seq if at is None else at.seq,
            time_from_ms=now_ms,
        )
        gone = LifecycleEvent("BROKER_GONE", why_gone, observed_by=self.watched.observer)
        telemetry.last_words([*self._facts.ends(now_ms), nothing, gone])
        self._telemetry = None
        await telemetry.close()
        return True

    async def close(self) -> None:
        """Write and sync what was reported. Raises StorageError."""
        telemetry, self._telemetry = self._telemetry, None
        if telemetry is not None:
            await telemetry.close()

    @property
    def _name(self) -> str:
        return f"{self.watched.cluster}/{self.watched.broker}"

    def _new_facts(
        self,
        earlier: Mapping[Key, int],
        roles: Mapping[str, int],
        lives: TopicsSeen | None = None,
    ) -> Facts:
        watched = self.watched
        return Facts(
            *(watched.observer, watched.period_ms, watched.broker),
            earlier=earlier,
            roles=roles,
            name_servers=watched.name_servers,
            lives=lives,
        )

    def _report_unreported(self, error: TidemarkError) -> None:
        if not self.unreported_rest_ms:
            _log.error("%s is not reported: %s; others are; it is tried again", self._name, error)
        doubled_ms = max(2 * self.unreported_rest_ms, self.watched.period_ms)
        self.unreported_rest_ms = min(doubled_ms, UNREPORTED_REST_MS_MAX)

    def _report_reported(self) -> None:
        if self.unreported_rest_ms:
            _log.warning("%s is reported again", self._name)
        self.unreported_rest_ms = 0

    def _report_silence(self, error: BaseException) -> None:
        kind = self._poll.last_kind
        if self._is_answered:
            _log.warning(
                "%s does not answer, and is unknown meanwhile; asked for %s: %s",
                *(self._name, kind.words, why(kind, error)),
            )
        self._is_answered = False

    async def _telemetry_of(self, look: Look) -> Telemetry:
        """The spool's writer for the life that the look saw."""
        epoch = look.boot_ms * MILLISECOND_US
        if self._telemetry is not None:
            if self._telemetry.broker_epoch == epoch:
                return self._telemetry
            await self.close()
        before = self._facts
        self._facts = self._new_facts(before.offsets(), before.roles.known, before.lives())
        self._snapshot = None
        self._next_snapshot_ms = None
        self._telemetry = Telemetry.open(
            self._runtime,
            f"{self.watched.home}/{SPOOL_DIRECTORY}",
            self.watched.identity,
            broker_epoch=epoch,
        )
        self._answered_ms = None
        earlier = self._telemetry.earlier_epoch
        if earlier == epoch:  # An observer before this one saw it.
            self._answered_ms = self._telemetry.earlier_until_us // MILLISECOND_US
        else:
            boot = LifecycleEvent("BOOT", "seen from outside", first_seen=earlier == 0)
            self._telemetry.observe(boot)
        return self._telemetry

    async def _emit(self, telemetry: Telemetry, look: Look) -> None:
        if self._answered_ms is not None:
            missed = self.times.missed(self._answered_ms, look.at_ms)
            if missed is not None:
                telemetry.observe(missed)
        self._answered_ms = look.at_ms
        if self._unsaid is not None:
            telemetry.observe(self._unsaid)
            self._unsaid = None
        self._begin_snapshot_if_due(telemetry, look.at_ms)
        began_ms = None if self._snapshot is None else self._snapshot.began_ms
        at = telemetry.emitted_up_to()
        losses = -1 if at is None else at.losses  # What is reported now is lost.
        for fact in self._facts.of(look, snapshot_from_ms=began_ms, losses=losses):
            if fact is None:
                await asyncio.sleep(0)
            else:
                telemetry.observe(fact)
        self._poll.forget_topics(self._facts.made_again)
        if self._facts.is_full and not self._is_full:
            _log.warning(
                "%s has more than %d queues: those beyond are not watched",
                *(self._name, QUEUES_WATCHED_MAX),
            )
        self._is_full = self._facts.is_full
        self._end_snapshot_if_complete(telemetry)
        telemetry.tick()

    def _begin_snapshot_if_due(self, telemetry: Telemetry, now_ms: int) -> None:
        at, due_ms = telemetry.emitted_up_to(), self._next_snapshot_ms
        is_due = at is not None and at.losses != self._losses
        is_due = is_due or due_ms is None or now_ms >= due_ms
        if at is None or not is_due or self._snapshot is not None:
            return
        # This look's answers count: they are reported after this.
        self._snapshot = _Snapshot(self._poll.topic_turns.look - 1, at, now_ms)
        self._losses = at.losses
        self._next_snapshot_ms = now_ms + SNAPSHOT_EACH_MS

    def _end_snapshot_if_complete(self, telemetry: Telemetry) -> None:
        snapshot, at = self._snapshot, telemetry.emitted_up_to()
        if snapshot is None or at is None:
            return
        if at.losses != snapshot.at.losses:
            self._snapshot = None  # The next one begins because of the loss.
        elif self._poll.topic_turns.were_all_asked_since(snapshot.look, self._poll.topics):
            self._snapshot = None
            telemetry.observe(
                LifecycleEvent(
                    "SNAPSHOT",
                    f"{len(self._poll.topics)} topics, each asked since it began",
                    seq_from=snapshot.at.seq,
                    time_from_ms=snapshot.began_ms,
                )
            )
