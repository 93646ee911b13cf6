"""Saves the broker role assigned by an operator, so that it survives restarts (role.json).

Place in the walk: read before anything of a broker is made; `leadership` writes it.

Invariant: an order counts as long as the configuration says what it said when it was given; whoever
changes brokerRole there has the last word. Absent on purpose: carrying an order out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from engine.broker.config import BrokerConfig, BrokerRole
from engine.foundation.errors import CorruptRecord
from engine.foundation.observing import SilentObserver
from engine.runtime import Runtime
from engine.store.table_file import TableFile

FILE_NAME = "role.json"

_log = logging.getLogger(__name__)


class OrderedRole:
    """That of one broker."""

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        """Raises CorruptRecord for a file that nobody can read."""
        self._configured = config.broker_role
        self._file = TableFile(runtime, f"{config.config_folder}/{FILE_NAME}")
        self.config = config
        """With the role that is in force."""
        self._file.load(SilentObserver(), self._accept)

    def _accept(self, document: Mapping[str, object]) -> None:
        try:
            instead_of = BrokerRole(document.get("insteadOf"))
            role = BrokerRole(document.get("brokerRole"))
        except ValueError as error:
            raise CorruptRecord(f"{self._file.path} names no role: {error}") from error
        broker_id, copies = document.get("brokerId"), document.get("inSyncReplicas")
        if type(broker_id) is not int or type(copies) is not int:
            raise CorruptRecord(f"{self._file.path} holds no brokerId and inSyncReplicas")
        if instead_of is not self._configured:
            _log.warning("brokerRole=%s was configured anew: it counts", self._configured.value)
            return
        self.config = with_role(self.config, role, broker_id=broker_id, in_sync_replicas=copies)

    async def order(self, config: BrokerConfig) -> None:
        """The role of `config` is in force from the next start on. Raises StorageError."""
        await self._file.write(
            {
                "insteadOf": self._configured.value,
                "brokerRole": config.broker_role.value,
                "brokerId": config.broker_id,
                "inSyncReplicas": config.in_sync_replicas,
            },
            both=True,
        )


def with_role(
    config: BrokerConfig, role: BrokerRole, *, broker_id: int, in_sync_replicas: int
) -> BrokerConfig:
    """The settings of a broker in another role. Raises ConfigError when they do not fit it."""
    return replace(config, broker_role=role, broker_id=broker_id, in_sync_replicas=in_sync_replicas)
