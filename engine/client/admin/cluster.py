"""The cluster as a whole: its name servers and brokers."""

from __future__ import annotations

from engine.client.admin.asking import Asking
from engine.protocol.bodies import ClusterInfo
from engine.protocol.codes import RequestCode


class ClusterAdmin(Asking):
    """Questions and orders about name servers and brokers."""

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers the name server knows."""
        answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return ClusterInfo.decode(answer.body)
