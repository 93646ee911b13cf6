"""Config requests of tools: read and change a name server's settings.

Invariant: a change is kept in the file that a restart reads, or refused when there is none; paths,
addresses and ports never change over the wire. Absent on purpose: who may ask (access).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from engine.foundation.config import ANY_WORD, LiveKey, check_changes, redacted
from engine.foundation.config_layers import Origin, text_of
from engine.foundation.errors import ConfigError, NotChangeable, RequestRefused
from engine.foundation.java_properties import parse, written
from engine.foundation.units import MINUTE_MS
from engine.namesrv.config import NameServerConfig
from engine.namesrv.rocketmq_settings import rocketmq_values, with_rocketmq_settings
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer
from engine.runtime import Runtime
from engine.store.table_file import SettingsFile

LIVE = {
    "orderMessageEnable": ANY_WORD,
    "scanNotActiveBrokerInterval": LiveKey(100, 2 * MINUTE_MS),
}
"""The allow-list. Whatever is not here stays until a restart."""


class ConfigHandlers:
    """GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG; `in_force` takes over what was changed."""

    def __init__(
        self,
        runtime: Runtime,
        config: NameServerConfig,
        origin: Origin,
        *,
        in_force: Callable[[NameServerConfig], None],
    ) -> None:
        self._config = config
        self._origin = origin
        self._in_force = in_force
        self._file = SettingsFile(runtime, origin.path) if origin.path else None
        self._changing = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_NAMESRV_CONFIG: self.config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.change,
        }

    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG (319): every key with the value in force, as a .properties text."""
        values = redacted(rocketmq_values(self._config))
        body = "".join(written(key, value) for key, value in sorted(values.items())).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    async def change(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG (318): a .properties text of the keys to change."""
        try:
            settings = parse(text_of(bytes(request.body)))
            await self._change({one.key: one.value.strip() for one in settings})
        except NotChangeable as error:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Can not update config: {error}"
            ) from error
        except ConfigError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return request.respond(ResponseCode.SUCCESS)

    async def _change(self, changes: Mapping[str, str]) -> None:
        async with self._changing:
            if not changes:
                raise ConfigError("body", "", "at least one key=value")
            check_changes(changes, allowed=LIVE, pinned=self._origin.pinned)
            if self._file is None:
                key, value = next(iter(changes.items()))
                raise NotChangeable(
                    key, value, "this name server has no file to keep it in: --config or --store"
                )
            config = with_rocketmq_settings(self._config, changes)
            await self._file.change(changes)
            self._config = config
            self._in_force(config)
