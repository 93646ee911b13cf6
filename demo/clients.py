"""Client configuration and topic creation for demo and experiment clusters.

Place in the walk: the producers and consumers of the demo and of `tidemark experiment`. Absent on
purpose: listeners, and what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.admin import Admin
from engine.client.config import ClientConfig, with_credentials
from engine.runtime import SystemDisk, system_runtime

REBALANCE_MS: Final = 5_000
HEARTBEAT_MS: Final = 3_000
_MASTER_ID: Final = 0


def client_config(namesrv: str, instance_name: str, credentials: str | None = None) -> ClientConfig:
    """Short periods, so that a played cluster notices changes and deaths within seconds; and the
    account in the file `credentials`, if there is one.
    """
    config = ClientConfig(
        namesrv_addresses=(namesrv,),
        instance_name=instance_name,
        heartbeat_ms=HEARTBEAT_MS,
        route_poll_ms=REBALANCE_MS,
    )
    return with_credentials(config, SystemDisk(), credentials)


async def make_topics(
    config: ClientConfig, broker_name: str, topics: Iterable[str], *, queues: int
) -> None:
    """Create the topics on the master of that name, each with so many queues to read and write."""
    async with Admin(system_runtime(), config) as admin:
        cluster = await admin.cluster.info()
        address = cluster.broker_addr_table[broker_name].broker_addrs[_MASTER_ID]
        for topic in topics:
            await admin.topics.create(address, topic, read_queues=queues, write_queues=queues)
