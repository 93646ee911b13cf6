"""The broker as tools see it: figures of its run, and its offset tables as a whole.

Invariant: figures are read, never kept here; what this broker does not measure is left out rather
than told as zero. Absent on purpose: changing settings while running.
"""

from __future__ import annotations

from engine.broker.parts import BrokerParts
from engine.broker.state.offsets import to_document
from engine.delay import DelayService
from engine.foundation.units import MIB
from engine.protocol import fastjson
from engine.protocol.bodies import KVTable
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import SCHEDULE_TOPIC
from engine.remoting import Handler, Peer

VERSION_NAME = "V5_5_0"
"""The RocketMQ whose wire this broker speaks."""


class BrokerHandlers:
    """Requests of tools about the broker itself."""

    def __init__(self, parts: BrokerParts, delay: DelayService) -> None:
        self._parts = parts
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
        return request.respond(ResponseCode.SUCCESS, body=KVTable(self._figures()).encode())

    def all_consumer_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET (43): the table as consumerOffset.json would have it now."""
        offsets = self._parts.offsets
        version = self._parts.data_version(offsets.counter).to_json()
        body = fastjson.dumps(to_document(offsets.table(), version=version))
        return request.respond(ResponseCode.SUCCESS, body=body)

    def all_delay_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET (45): the cursor of each delay level."""
        cursors = {str(level): offset for level, offset in sorted(self._delay.cursors().items())}
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps({"offsetTable": cursors}))

    def _figures(self) -> dict[str, str]:
        parts = self._parts
        store, config = parts.store, parts.config
        now_ms = parts.now_ms()
        used = parts.runtime.disk.used_ratio(config.store.root)
        figures = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true",
            "bootTimestamp": str(parts.boot_ms),
            "runtime": f"[ {(now_ms - parts.boot_ms) // 1000} seconds ]",
            "commitLogMinOffset": str(store.physical_min),
            "commitLogMaxOffset": str(store.physical_max),
            "commitLogDiskRatio": f"{used:.4f}",
            "consumeQueueDiskRatio": f"{used:.4f}",
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "remainHowManyDataToFlush": (
                f"{(store.physical_max - store.physical_flushed) / MIB:.1f} MiB"
            ),
            "pullRequestHoldCount": str(parts.holds.count),
            "resendsAnsweredCount": str(parts.resends_answered),
            "resendsRefusedCount": str(parts.resends_refused),
        }
        for level, cursor in sorted(self._delay.cursors().items()):
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            figures[f"scheduleMessageOffset_{level}"] = f"{cursor},{end}"
        return figures
