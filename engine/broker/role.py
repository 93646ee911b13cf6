"""What a broker is to its peers now: master, slave or neither.

Place in the walk: `node` holds it; puts, pulls, order locks, background writers and registration
ask for it, `role_changes` alone sets it. Absent on purpose: who decides it (replication).
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """A role that may change while the broker runs. A single node is MASTER for ever."""

    MASTER = "MASTER"
    """It alone puts."""
    SLAVE = "SLAVE"
    """It follows a master, under a broker id of its own."""
    NONE = "NONE"
    """It knows no master and is none: name servers do not know it."""
