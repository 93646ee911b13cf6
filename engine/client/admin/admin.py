"""The admin client: one object with one connection, and a part for each noun.

async with admin_at("127.0.0.1:9876") as admin:
    for topic in await admin.topics.names():
        print(topic, await admin.topics.configs(topic))
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from engine.client.admin.asking import Asking
from engine.client.admin.cluster import ClusterAdmin
from engine.client.admin.dead_letters import DeadLetterAdmin
from engine.client.admin.groups import GroupAdmin
from engine.client.admin.messages import MessageAdmin
from engine.client.admin.name_servers import NameServerAdmin
from engine.client.admin.offsets import OffsetAdmin
from engine.client.admin.topics import TopicAdmin
from engine.client.config import ClientConfig
from engine.client.credentials_file import with_credentials
from engine.runtime import Runtime, SystemDisk, system_runtime


class Admin:
    """One connection for questions and orders; use it as `async with Admin(...) as admin`."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self._asking = Asking(runtime, config)
        self.cluster = ClusterAdmin(self._asking)
        self.name_servers = NameServerAdmin(self._asking)
        self.topics = TopicAdmin(self._asking)
        self.groups = GroupAdmin(self._asking)
        self.offsets = OffsetAdmin(self._asking)
        self.messages = MessageAdmin(self._asking)
        self.dead_letters = DeadLetterAdmin(
            self._asking, topics=self.topics, offsets=self.offsets, messages=self.messages
        )

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
        await self._asking.connection.stop()


def admin_at(namesrv: str, *, credentials: str | None = None) -> Admin:
    """An admin that asks the name servers `host:port;host:port`, for those who know neither clocks
    nor sockets; `credentials` is a file's path.

    Raises ConfigError when the addresses or the file are none.
    """
    addresses = tuple(part.strip() for part in namesrv.split(";") if part.strip())
    config = ClientConfig(namesrv_addresses=addresses, instance_name="admin")
    return Admin(system_runtime(), with_credentials(config, SystemDisk(), credentials))
