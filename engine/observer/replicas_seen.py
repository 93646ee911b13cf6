"""Reports how far the slaves of a watched master are, from what it says of its connections.

Place in the walk: the answer to GET_BROKER_HA_STATUS → `Look.replicas` → here → flush_checkpoints
(REPLICA) and lifecycle, as a broker reports them that reports on itself. Pure.

Invariant: a slave is known by the address of its connection; what it has is what its master says
that it has acknowledged, and unknown before the first acknowledgement. Absent on purpose: messages:
a master counts bytes, and which queue a byte is of nobody says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.foundation.observing import FlushDone, LifecycleEvent
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.observer.believable import OFFSET_MAX, is_address
from engine.protocol.bodies_admin import HaRuntimeInfo

REPLICAS_MAX: Final = 64
"""More slaves of one master are not believed."""
SYNC_MASTER: Final = "SYNC_MASTER"
ROLES: Final = ("ASYNC_MASTER", SYNC_MASTER)
AGAIN_MS: Final = 10 * SECOND_MS
AT_REST_MS: Final = 10 * MINUTE_MS
"""What lacks something is reported again after the one, what has everything after the other."""


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """What a master says of its slaves."""

    role: str
    written: int
    slaves: Mapping[str, int | None]
    """Address → up to where it has acknowledged the log; None: it has not yet."""


def replica_figures(status: HaRuntimeInfo, role: str | None) -> ReplicaFigures | None:
    """As far as it can be believed; `role`: by the settings of the broker. None: it is no master,
    or it is not known what kind of one.
    """
    written = status.master_commit_log_max_offset
    if not status.master or role not in ROLES or not 0 <= written <= OFFSET_MAX:
        return None
    slaves = {
        one.addr: one.slave_ack_offset if 0 <= one.slave_ack_offset <= OFFSET_MAX else None
        for one in status.ha_connection_info[:REPLICAS_MAX]
        if is_address(one.addr)
    }
    return ReplicaFigures(role, written, slaves)


class ReplicasSeen:
    """What was reported of the slaves of one broker in its life."""

    def __init__(self) -> None:
        self._emitted: dict[str | None, tuple[tuple[int, int | None], int]] = {}
        """Slave → the ends of its master and of itself, and from when on they are reported again.
        None: there is none."""

    def of(self, figures: ReplicaFigures, at_ms: int) -> Iterator[FlushDone | LifecycleEvent]:
        """The facts of a look."""
        slaves = figures.slaves
        for lost in [one for one in self._emitted if one is not None and one not in slaves]:
            del self._emitted[lost]
            yield _change("REPLICA_LOST", lost, figures.role)
        for joined in [one for one in slaves if one not in self._emitted]:
            yield _change("REPLICA_JOINED", joined, figures.role)
        if slaves:
            self._emitted.pop(None, None)
        ends: list[tuple[str | None, int | None]] = [*slaves.items()]
        if not slaves and figures.role == SYNC_MASTER:
            ends = [(None, None)]
        for replica, end in ends:
            marks = figures.written, end
            before, again_ms = self._emitted.get(replica, (None, 0))
            if marks == before and at_ms < again_ms:
                continue
            rest_ms = AT_REST_MS if end == figures.written else AGAIN_MS
            self._emitted[replica] = marks, at_ms + rest_ms
            yield _mark(replica, figures.role, marks)


def _change(kind: str, replica: str, role: str) -> LifecycleEvent:
    return LifecycleEvent(kind, f"slave {replica} of a {role}", address=replica)


def _mark(replica: str | None, role: str, marks: tuple[int, int | None]) -> FlushDone:
    written, end = marks
    return FlushDone(
        "REPLICA",
        "REPLICATE",
        role,
        written,
        end,
        store_time_ms=None,
        duration_us=0,
        at_risk_bytes=None if end is None else max(0, written - end),
        ended=0,
        replica=replica,
    )
