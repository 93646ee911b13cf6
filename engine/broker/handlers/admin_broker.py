"""Handles broker-wide admin requests: runtime statistics, offset tables and settings.

Place in the walk: beside it. A change of a setting is answered when it is on disk and in force.

Invariant: what this broker does not measure is left out rather than shown as zero; secrets are
never shown, and nothing outside the allow-list of `dynamic_config` is taken. Absent on purpose: who
may ask (access).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.broker.dynamic_config import ConfigChanges
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, Table, encoded_table
from engine.broker.rocketmq_settings import rocketmq_values
from engine.broker.stats.runtime_info import RuntimeInfo
from engine.delay import DelayLevels
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.config import redacted
from engine.foundation.config_layers import text_of
from engine.foundation.errors import ConfigError, NotChangeable, RequestRefused
from engine.foundation.java_properties import parse, written
from engine.protocol import fastjson
from engine.protocol.bodies import KVTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import BrokerConfigResponseHeader
from engine.remoting import Handlers, Peer, serves


@dataclass(slots=True, kw_only=True, eq=False)
class BrokerHandlers(Handlers):
    """Requests of tools about the broker itself."""

    node: BrokerNode
    offsets: ConsumerOffsets
    runtime_info: RuntimeInfo
    delay: DelayLevels

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO)
    def own_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO (28)."""
        return request.respond(
            ResponseCode.SUCCESS, body=KVTable(self.runtime_info.with_delay(self.delay)).encode()
        )

    @serves(RequestCode.GET_ALL_CONSUMER_OFFSET)
    async def all_consumer_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET (43): the table as consumerOffset.json would have it now."""
        offsets = self.offsets
        version = self.node.data_version(offsets.counter).to_json()
        table: Table = {}
        pieces: list[bytes] = []
        await in_steps(stepped(offsets.copied(table)))
        await in_steps(encoded_table(pieces, table, {"dataVersion": version}))
        return request.respond(ResponseCode.SUCCESS, body=b"".join(pieces))

    @serves(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_delay_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET (45): the cursor of each delay level."""
        cursors = {str(level): offset for level, offset in sorted(self.delay.cursors().items())}
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps({"offsetTable": cursors}))

    @serves(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_request_modes(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_MESSAGE_REQUEST_MODE (402), for slaves: no group is set to pop here."""
        return request.respond(ResponseCode.SUCCESS, body=b'{"messageRequestModeMap":{}}')


@dataclass(slots=True, kw_only=True, eq=False)
class ConfigHandlers(Handlers):
    """GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG."""

    node: BrokerNode
    config_changes: ConfigChanges

    @serves(RequestCode.GET_BROKER_CONFIG)
    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONFIG (26): every key with the value in force, as a .properties text."""
        values = redacted(rocketmq_values(self.node.config))
        body = "".join(written(key, value) for key, value in values.items()).encode()
        version = self.node.data_version(self.config_changes.counter).encode().decode()
        fields = BrokerConfigResponseHeader(version=version).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=body)

    @serves(RequestCode.UPDATE_BROKER_CONFIG)
    async def change(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG (25): a .properties text of the keys to change."""
        try:
            settings = parse(text_of(bytes(request.body)))
            await self.config_changes.change({one.key: one.value for one in settings})
        except NotChangeable as error:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Can not update config: {error}"
            ) from error
        except ConfigError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return request.respond(ResponseCode.SUCCESS)
