"""The broker's identity: its role, current settings, address and table versions.

Place in the walk: made first, read by whoever works by a setting, writes a table, registers or
answers with the broker's address. `role_changes` alone sets the role. Absent on purpose: changing
settings (dynamic_config), who decides the role (replication).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.broker.config import BrokerConfig
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import DataVersion
from engine.protocol.codes import ResponseCode
from engine.protocol.names import MASTER_ID


class Role(Enum):
    """A role that may change while the broker runs. A single node is MASTER for ever."""

    MASTER = "MASTER"
    """It alone puts."""
    SLAVE = "SLAVE"
    """It follows a master, under a broker id of its own."""
    NONE = "NONE"
    """It knows no master and is none: name servers do not know it."""


@dataclass(slots=True)
class BrokerNode:
    """The identity of a broker."""

    config: BrokerConfig
    """In force now; tools may have another put in force while the broker runs."""
    boot_ms: int
    """Wall-clock time at which this life of the broker began."""
    address: str = ""
    """`ip:port` under which clients know it; empty until its port is open."""
    ha_address: str = ""
    """`ip:port` under which slaves know it; empty while it serves none."""

    role: Role = Role.MASTER
    term: int = 0
    """The term of its role: of two that call themselves master, that of the greater term is it."""
    is_master: bool = True
    """Is its role MASTER? Read with each message, where a comparison of roles takes thrice as long.
    """
    led_term: int = 0
    """The term in which it was the master last."""
    slave_id: int = 1
    """The broker id it goes by while it is no master."""

    @property
    def broker_id(self) -> int:
        """The broker id it goes by now."""
        return MASTER_ID if self.is_master else self.slave_id

    def take_role(self, role: Role, term: int) -> None:
        """This is its role from now on. `RoleChanges` alone calls it."""
        self.role, self.term, self.is_master = role, term, role is Role.MASTER
        if self.is_master:
            self.led_term = term

    def leads(self, term: int) -> bool:
        """Is it still the master that it was in `term`?"""
        return self.is_master and self.term == term

    def check_master(self) -> None:
        """Raise RequestRefused, as RocketMQ's slaves do, unless it is the master."""
        if not self.is_master:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: the broker[{self.config.host}] is no master, its "
                f"role is {self.role.name}; a name server knows who is",
            )

    def data_version(self, counter: int) -> DataVersion:
        """The version of one of the broker's tables, which has changed so many times: a greater
        term is newer, as name servers judge it.
        """
        return DataVersion(state_version=self.term, timestamp=self.boot_ms, counter=counter)
