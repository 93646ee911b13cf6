"""Assembles the admin client from one part per resource type, all sharing one connection.

async with admin_at("127.0.0.1:9876") as admin:
    for topic in await admin.topics.names():
        print(topic, await admin.topics.configs(topic))
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from engine.admin.api.cluster import ClusterAdmin, NameServerAdmin
from engine.admin.api.dead_letters import DeadLetterAdmin
from engine.admin.api.groups import GroupAdmin
from engine.admin.api.messages import MessageAdmin
from engine.admin.api.offsets import OffsetAdmin
from engine.admin.api.replicas import ReplicaAdmin
from engine.admin.api.requests import AdminRequests
from engine.admin.api.timers import TimerAdmin
from engine.admin.api.topics import TopicAdmin
from engine.client.config import ClientConfig, with_credentials
from engine.runtime import Runtime, SystemDisk, system_runtime


class Admin:
    """One connection for questions and orders; use it as `async with Admin(...) as admin`."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self._requests = AdminRequests(runtime, config)
        self.cluster = ClusterAdmin(self._requests)
        self.name_servers = NameServerAdmin(self._requests)
        self.replicas = ReplicaAdmin(self._requests)
        self.topics = TopicAdmin(self._requests)
        self.groups = GroupAdmin(self._requests)
        self.offsets = OffsetAdmin(self._requests)
        self.messages = MessageAdmin(self._requests)
        self.dead_letters = DeadLetterAdmin(
            self._requests, topics=self.topics, offsets=self.offsets, messages=self.messages
        )
        self.timers = TimerAdmin(self._requests, topics=self.topics, messages=self.messages)

    async def __aenter__(self) -> Self:
        """Connections are made when the first question needs them."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.connection.stop()


def admin_at(namesrv: str, *, credentials: str | None = None) -> Admin:
    """An admin that asks the name servers `host:port;host:port`, for those who know neither clocks
    nor sockets; `credentials` is a file's path.

    Raises ConfigError when the addresses or the file are none.
    """
    addresses = tuple(part.strip() for part in namesrv.split(";") if part.strip())
    config = ClientConfig(namesrv_addresses=addresses, instance_name="admin")
    return Admin(system_runtime(), with_credentials(config, SystemDisk(), credentials))
