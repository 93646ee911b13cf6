"""Name-server administration: settings, and the values that name servers keep for tools.

Each name server keeps its own: an order goes to all of them, a question to one.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.foundation.java_properties import written
from engine.protocol.bodies import KVTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    KvConfigRequestHeader,
    KvConfigResponseHeader,
    KvNamespaceRequestHeader,
    PutKvConfigRequestHeader,
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
