"""Reports how far each slave has replicated its master's log.

Place in the walk: once a second, before the marks of queues → flush_checkpoints (REPLICA), and
lifecycle for slaves that come and go. `watermarks` says what of each queue is on a slave.

Invariant: what is reported of a slave is what it has itself reported on its present connection; of
one that has reported nothing yet nothing is known. A master that waits for slaves and has none
reports that. Absent on purpose: what slaves say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.broker.identity import BrokerNode
from engine.foundation.observing import FlushDone, LifecycleEvent, Observer
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.replication import Replica
from engine.runtime.clock import Clock
from engine.store import MessageStore

COMPONENT = "REPLICA"
ACTION = "REPLICATE"
JOINED = "REPLICA_JOINED"
LOST = "REPLICA_LOST"
AGAIN_MS = 10 * SECOND_MS
"""A slave that lacks something is reported so often, though it stands."""
AT_REST_MS = 10 * MINUTE_MS
"""One that has everything."""


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaMarks:
    """What was reported of the slaves of one broker.

    `needed`: slaves that a put waits for; `mode`: the brokerRole, or RAFT.
    """

    node: BrokerNode
    observer: Observer
    store: MessageStore
    clock: Clock
    replicas: Callable[[], Iterable[Replica]]
    needed: Callable[[], int]
    mode: Callable[[], str]
    _emitted: dict[str | None, tuple[tuple[int, int | None], int]] = field(
        default_factory=dict, init=False
    )
    """Slave → the master's end and its own, as reported last; steady time from which on the
    same is reported again. None: there is no slave."""

    def sample(self) -> None:
        """Report the slaves that came, went, or have other ends than a second before."""
        written = self.store.physical_max
        ends = {one.address: one.end for one in self.replicas()} if self.node.is_master else {}
        for lost in [one for one in self._emitted if one is not None and one not in ends]:
            del self._emitted[lost]
            self._note(LOST, lost)
        for joined in [one for one in ends if one not in self._emitted]:
            self._note(JOINED, joined)
        if ends:
            self._emitted.pop(None, None)
        elif self._waits_for_slaves:
            self._emit(None, (written, None))
        for replica, end in ends.items():
            self._emit(replica, (written, end))

    @property
    def _waits_for_slaves(self) -> bool:
        return self.node.is_master and self.needed() > 0

    def _note(self, kind: str, replica: str) -> None:
        detail = f"slave {replica} of a {self.mode()}"
        self.observer.observe(LifecycleEvent(kind, detail, address=replica))

    def _emit(self, replica: str | None, marks: tuple[int, int | None]) -> None:
        written, end = marks
        now_ms = self.clock.steady_ms()
        before, again_ms = self._emitted.get(replica, (None, 0))
        if before == marks and now_ms < again_ms:
            return
        self._emitted[replica] = marks, now_ms + (AT_REST_MS if written == end else AGAIN_MS)
        self.observer.observe(
            FlushDone(
                COMPONENT,
                ACTION,
                self.mode(),
                written,
                end,
                store_time_ms=None,
                duration_us=0,
                at_risk_bytes=None if end is None else written - end,
                ended=0,
                replica=replica,
            )
        )
