"""The admin client: all nouns in one object, with one connection."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from engine.client.admin.cluster import ClusterAdmin
from engine.client.admin.dead_letters import DeadLetterAdmin
from engine.client.admin.groups import GroupAdmin
from engine.client.admin.name_servers import NameServerAdmin
from engine.client.admin.offsets import OffsetAdmin
from engine.client.admin.sending import SendingAdmin


class Admin(ClusterAdmin, NameServerAdmin, GroupAdmin, OffsetAdmin, SendingAdmin, DeadLetterAdmin):
    """One connection for questions and orders; use it as `async with Admin(...) as admin`."""

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
        await self._connection.stop()
