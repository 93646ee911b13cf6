"""One life of a broker: the configuration in force, its address, the versions of its tables.

Place in the walk: made first, read by whoever works by a setting, writes a table, registers or
answers with the broker's address. Absent on purpose: changing settings (dynamic_config).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.config import BrokerConfig
from engine.protocol.bodies import DataVersion


@dataclass(slots=True)
class BrokerNode:
    """Who a broker is."""

    config: BrokerConfig
    """In force now; tools may have another put in force while the broker runs."""
    boot_ms: int
    """Wall-clock time at which this life of the broker began."""
    address: str = ""
    """`ip:port` under which clients know it; empty until its port is open."""

    def data_version(self, counter: int) -> DataVersion:
        """The version of one of the broker's tables, which has changed so many times."""
        return DataVersion(state_version=0, timestamp=self.boot_ms, counter=counter)
