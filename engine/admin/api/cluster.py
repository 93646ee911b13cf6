"""Cluster administration: lists brokers, reads their figures and changes their settings."""

from __future__ import annotations

from engine.admin.api.name_servers import settings_body, settings_of
from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import BrokerStatsData, ClusterInfo, KVTable
from engine.protocol.bodies_admin import HaRuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    ViewBrokerStatsRequestHeader,
    WipeWritePermResponseHeader,
)


class ClusterAdmin:
    """Questions and orders about brokers."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def info(self) -> ClusterInfo:
        """All clusters and brokers the name server knows."""
        return await self._requests.cluster_info()

    async def masters(self) -> dict[str, str]:
        """Address of each broker's master, by broker name, sorted."""
        return await self._requests.masters()

    async def figures(self, broker_address: str) -> dict[str, str]:
        """Figures of a broker's run, under RocketMQ's names, sorted."""
        answer = await self._requests.ask(broker_address, RequestCode.GET_BROKER_RUNTIME_INFO, {})
        return dict(sorted(KVTable.decode(answer.body).table.items()))

    async def config(self, broker_address: str) -> dict[str, str]:
        """Settings of a broker, under RocketMQ's names, sorted."""
        answer = await self._requests.ask(broker_address, RequestCode.GET_BROKER_CONFIG, {})
        return settings_of(answer.body)

    async def update_config(self, broker_address: str, settings: dict[str, str]) -> None:
        """Change settings of a running broker. RequestRefused for one that it keeps as it is."""
        body = settings_body(settings)
        await self._requests.ask(broker_address, RequestCode.UPDATE_BROKER_CONFIG, {}, body)

    async def set_writable(self, broker_name: str, *, writable: bool) -> dict[str, int]:
        """Give or take the write permission of a broker's topics in all name servers; how many
        topics each of them changed.
        """
        fields = BrokerNameRequestHeader(broker_name=broker_name).encode()
        changed: dict[str, int] = {}
        for address in self._requests.connection.config.namesrv_addresses:
            if writable:
                code = RequestCode.ADD_WRITE_PERM_OF_BROKER
                answer = await self._requests.ask(address, code, fields)
                count = AddWritePermResponseHeader.decode(answer.fields).add_topic_count
            else:
                code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
                answer = await self._requests.ask(address, code, fields)
                count = WipeWritePermResponseHeader.decode(answer.fields).wipe_topic_count
            changed[address] = count
        return changed

    async def statistic(self, broker_address: str, name: str, key: str) -> BrokerStatsData | None:
        """A broker's statistic, such as TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of
        `topic@group`; None when it has counted nothing yet.
        """
        fields = ViewBrokerStatsRequestHeader(stats_name=name, stats_key=key).encode()
        try:
            answer = await self._requests.ask(
                broker_address, RequestCode.VIEW_BROKER_STATS_DATA, fields
            )
        except RequestRefused as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise
        return BrokerStatsData.decode(answer.body)

    async def ha_status(self, broker_address: str) -> HaRuntimeInfo:
        """The end of a master's log, and the slaves that copy it."""
        answer = await self._requests.ask(broker_address, RequestCode.GET_BROKER_HA_STATUS, {})
        return HaRuntimeInfo.decode(answer.body)

    async def clean(self, broker_address: str) -> None:
        """Let a broker delete what has expired and what no topic owns, now."""
        for code in (
            RequestCode.DELETE_EXPIRED_COMMITLOG,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.CLEAN_UNUSED_TOPIC,
        ):
            await self._requests.ask(broker_address, code, {})
