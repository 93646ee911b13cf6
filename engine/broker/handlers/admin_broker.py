"""Broker-wide requests of tools: run-time figures and whole offset tables.

Invariant: figures are read, never kept here; what this broker does not measure is left out rather
than shown as zero. Absent on purpose: changing settings while running.
"""

from __future__ import annotations

from engine.broker.bounded_work import in_steps, stepped
from engine.broker.node import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, Table, encoded_table
from engine.broker.stats.runtime_info import RuntimeInfo
from engine.delay import DelayLevels
from engine.protocol import fastjson
from engine.protocol.bodies import KVTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer


class BrokerHandlers:
    """Requests of tools about the broker itself."""

    def __init__(
        self,
        *,
        node: BrokerNode,
        offsets: ConsumerOffsets,
        runtime_info: RuntimeInfo,
        delay: DelayLevels,
    ) -> None:
        self._node = node
        self._offsets = offsets
        self._runtime_info = runtime_info
        self._delay = delay

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delay_offsets,
        }

    def runtime_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO (28)."""
        return request.respond(
            ResponseCode.SUCCESS, body=KVTable(self._runtime_info.with_delay(self._delay)).encode()
        )

    async def all_consumer_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET (43): the table as consumerOffset.json would have it now."""
        offsets = self._offsets
        version = self._node.data_version(offsets.counter).to_json()
        table: Table = {}
        pieces: list[bytes] = []
        await in_steps(stepped(offsets.copied(table)))
        await in_steps(encoded_table(pieces, table, {"dataVersion": version}))
        return request.respond(ResponseCode.SUCCESS, body=b"".join(pieces))

    def all_delay_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET (45): the cursor of each delay level."""
        cursors = {str(level): offset for level, offset in sorted(self._delay.cursors().items())}
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps({"offsetTable": cursors}))
