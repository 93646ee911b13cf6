"""Changes a broker's role while it is running.

Place in the walk: whoever elects a master calls `become`; the node's role is asked everywhere
else, in the step in which it counts.

Invariant: a change is one step of the loop. A node is the master of a term once: after it stepped
down it leads again in a greater term only. From that step on it puts nothing and acknowledges no
put of before; whoever waited is answered that the outcome is unknown. Absent on purpose: elections,
and what a new master has to read before it serves.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.groups.readers import Readers
from engine.broker.identity import BrokerNode, Role
from engine.broker.pulling.long_poll import WakeUps
from engine.broker.sending.safety import Safety
from engine.broker.table_changes import TableChanges
from engine.foundation.observing import LifecycleEvent, Observer, report
from engine.runtime.clock import Clock
from engine.telemetry import Telemetry

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class RoleChanges:
    """The one place that sets the role."""

    changes: TableChanges
    clock: Clock
    locks: QueueLocks
    node: BrokerNode
    observer: Observer
    readers: Readers
    safety: Safety
    telemetry: Telemetry | None
    wake_ups: WakeUps

    def become(self, role: Role, term: int) -> None:
        """Take this role in `term`, at once; name servers hear of it next."""
        node = self.node
        leads_anew = role is Role.MASTER and node.role is not Role.MASTER
        step = f"{role.name} of term {term} after {node.role.name} of term {node.term}"
        assert term >= node.term, step
        assert not leads_anew or term > node.led_term, step
        if (role, term) == (node.role, node.term):
            return
        was = f"was {node.role.name} of {node.term}"
        node.take_role(role, term)
        self.safety.end_term()
        if leads_anew:
            self.readers.begin_leadership()
        self.locks.begin_term(term, now_ms=self.clock.steady_ms())
        self.wake_ups.wake_all()
        self.changes.of_role()
        self._report(was)

    def begin(self, role: Role, term: int) -> None:
        """Start in this role; one without a term has never had another, and needs no word."""
        self.node.take_role(role, term)
        if term or role is not Role.MASTER:
            self._report("at its start")

    def _report(self, before: str) -> None:
        """Who leads reports on the broker from this row on, whoever does not up to it. Who knows no
        leader may lead again: what it reported has ended when it follows another one.
        """
        node, telemetry = self.node, self.telemetry
        if telemetry is not None and node.is_master:
            telemetry.lead()
        detail = f"{node.role.name} of term {node.term}, {before}"
        event = LifecycleEvent("ROLE_CHANGE", detail, term=node.term, role=node.role.name)
        report(self.observer, _log, event)
        if telemetry is not None and node.role is Role.NONE:
            telemetry.await_role()
        elif telemetry is not None and node.role is Role.SLAVE:
            telemetry.follow()
