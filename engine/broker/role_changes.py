"""Changes the role of a broker while it runs.

Place in the walk: whoever elects a master calls `become`; the node's role is asked everywhere
else, in the step in which it counts.

Invariant: a change is one step of the loop. A node is the master of a term once: after it stepped
down it leads again in a greater term only. From that step on it puts nothing and acknowledges no
put of before; whoever waited is answered that the outcome is unknown. Absent on purpose: elections,
and what a new master has to read before it serves.
"""

from __future__ import annotations

import logging

from engine.broker.groups.queue_locks import QueueLocks
from engine.broker.identity import BrokerNode, Role
from engine.broker.pulling.long_poll import WakeUps
from engine.broker.sending.durability import Safety
from engine.broker.table_changes import TableChanges
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)


class RoleChanges:
    """The one place that sets the role."""

    def __init__(
        self,
        *,
        changes: TableChanges,
        clock: Clock,
        locks: QueueLocks,
        node: BrokerNode,
        safety: Safety,
        wake_ups: WakeUps,
    ) -> None:
        self._changes = changes
        self._clock = clock
        self._locks = locks
        self._node = node
        self._safety = safety
        self._wake_ups = wake_ups

    def become(self, role: Role, term: int) -> None:
        """Take this role in `term`, at once; name servers hear of it next."""
        node = self._node
        leads_anew = role is Role.MASTER and node.role is not Role.MASTER
        assert term > node.term or (term == node.term and not leads_anew), (
            f"{role.name} of term {term} after {node.role.name} of term {node.term}"
        )
        if (role, term) == (node.role, node.term):
            return
        _log.warning("%s of term %d, was %s of %d", role.name, term, node.role.name, node.term)
        node.take_role(role, term)
        self._safety.end_term()
        self._locks.begin_term(term, now_ms=self._clock.steady_ms())
        self._wake_ups.wake_all()
        self._changes.of_role()
