"""Cluster administration: settings, statistics and clean-up of brokers and name servers.

Each name server keeps settings and values of its own: an order goes to all of them, a question to
one.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.foundation.java_properties import written
from engine.protocol.bodies import BrokerStatsData, ClusterInfo, KVTable
from engine.protocol.bodies_admin import HaRuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    KvConfigRequestHeader,
    KvConfigResponseHeader,
    KvNamespaceRequestHeader,
    PutKvConfigRequestHeader,
    ViewBrokerStatsRequestHeader,
    WipeWritePermResponseHeader,
)


class NameServerAdmin:
    """Questions and orders about name servers."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of all of them."""
        return self._requests.connection.config.namesrv_addresses

    async def config(self, address: str) -> dict[str, str]:
        """Settings of a name server, sorted."""
        answer = await self._requests.ask(address, RequestCode.GET_NAMESRV_CONFIG, {})
        return settings_of(answer.body)

    async def update_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running name server. RequestRefused for one that it keeps."""
        body = settings_body(settings)
        await self._requests.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, {}, body)

    async def key_value(
        self, namespace: str, key: str, *, address: str | None = None
    ) -> str | None:
        """A value that a name server keeps for tools, one that answers or the one at `address`;
        None when there is none.
        """
        fields = KvConfigRequestHeader(namespace=namespace, key=key).encode()
        try:
            if address is None:
                answer = await self._requests.ask_namesrv(RequestCode.GET_KV_CONFIG, fields)
            else:
                answer = await self._requests.ask(address, RequestCode.GET_KV_CONFIG, fields)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return KvConfigResponseHeader.decode(answer.fields).value

    async def key_values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace, by key, sorted; empty when there is none."""
        try:
            answer = await self._requests.ask_namesrv(
                RequestCode.GET_KVLIST_BY_NAMESPACE,
                KvNamespaceRequestHeader(namespace=namespace).encode(),
            )
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return dict(sorted(KVTable.decode(answer.body).table.items()))

    async def put_key_value(self, namespace: str, key: str, value: str) -> None:
        """Keep a value in all name servers."""
        fields = PutKvConfigRequestHeader(namespace=namespace, key=key, value=value).encode()
        for address in self.addresses:
            await self._requests.ask(address, RequestCode.PUT_KV_CONFIG, fields)

    async def delete_key_value(self, namespace: str, key: str) -> None:
        """Let all name servers forget a value. RequestRefused when none of them has it."""
        had = [await self.key_value(namespace, key, address=address) for address in self.addresses]
        if not any(value is not None for value in had):
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND, f"no name server has {key} in {namespace}"
            )
        fields = KvConfigRequestHeader(namespace=namespace, key=key).encode()
        for address in self.addresses:
            await self._requests.ask(address, RequestCode.DELETE_KV_CONFIG, fields)


def settings_body(settings: Mapping[str, str]) -> bytes:
    """Settings as the lines of a .properties text that reads back as given."""
    return "".join(written(key, value) for key, value in settings.items()).encode()


def settings_of(body: bytes | bytearray | memoryview) -> dict[str, str]:
    """`key=value` lines as RocketMQ answers them, which escapes nothing; sorted by key. Raises
    RemoteProtocolError when they are no text.
    """
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"settings that are no UTF-8: {error}") from error
    lines = [line.partition("=") for line in text.splitlines() if "=" in line]
    return {key.strip(): value.strip() for key, _, value in sorted(lines)}


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
