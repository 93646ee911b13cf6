"""Config requests of tools: read and change a broker's settings.

Place in the walk: beside it. A change is answered when it is on disk and in force.

Invariant: secrets are never shown, and nothing outside the allow-list of `dynamic_config` is taken.
Absent on purpose: who may ask (access).
"""

from __future__ import annotations

from engine.broker.dynamic_config import ConfigChanges
from engine.broker.node import BrokerNode
from engine.broker.rocketmq_settings import rocketmq_values
from engine.foundation.config_layers import text_of
from engine.foundation.errors import ConfigError, NotChangeable, RequestRefused
from engine.foundation.java_properties import parse, written
from engine.foundation.live_settings import redacted
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import BrokerConfigResponseHeader
from engine.remoting import Handler, Peer


class ConfigHandlers:
    """GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        config_changes: ConfigChanges,
    ) -> None:
        self._node = node
        self._config_changes = config_changes

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.UPDATE_BROKER_CONFIG: self.change,
        }

    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONFIG (26): every key with the value in force, as a .properties text."""
        values = redacted(rocketmq_values(self._node.config))
        body = "".join(written(key, value) for key, value in values.items()).encode()
        version = self._node.data_version(self._config_changes.counter).encode().decode()
        fields = BrokerConfigResponseHeader(version=version).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=body)

    async def change(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG (25): a .properties text of the keys to change."""
        try:
            settings = parse(text_of(bytes(request.body)))
            await self._config_changes.change({one.key: one.value for one in settings})
        except NotChangeable as error:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Can not update config: {error}"
            ) from error
        except ConfigError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return request.respond(ResponseCode.SUCCESS)
