"""Connects a broker to the other members of its Raft group over a separate port.

Place in the walk: `raft_group` posts the letters of its node here and gets those of others; what a
node needs that the log no longer holds is asked for here as well.

A member's name says where it listens: `n0-127.0.0.1:40911` (an entry of RocketMQ's dLegerPeers).

Invariant: a letter leaves at once, waits for a connection that is being made, or is lost: whoever
needs it sends it again. A connection through which nothing comes back is made anew. Whoever reaches
the port could lead the group: off loopback it takes only nodes that prove who they are by mutual
TLS. Absent on purpose: what letters say.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from engine.foundation.errors import ClusterError, ConfigError, TidemarkError
from engine.foundation.limits import RAFT_LETTERS_WAITING_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.raft.frames import REQUEST_CODE
from engine.raft.members import NodeId, name_of
from engine.remoting import Peer, RpcClient, RpcServer
from engine.remoting.access import Access
from engine.runtime import Runtime

WHO_CODE: Final = 52_002
"""Asks a node who it is, and who founded its group."""
TABLES_CODE: Final = 52_003
"""Asks a leader for the snapshot of its tables."""
SILENCE_MS: Final = 3 * SECOND_MS
"""A connection through which nothing was heard for so long is made anew."""
CONNECT_TIMEOUT_MS: Final = SECOND_MS
ASK_TIMEOUT_MS: Final = 3 * SECOND_MS
TABLES_TIMEOUT_MS: Final = 60 * SECOND_MS

_log = logging.getLogger(__name__)


class Who(msgspec.Struct, frozen=True):
    """What a node says of itself."""

    node: NodeId
    founders: tuple[NodeId, ...] = ()
    """Who founded its group; none: it was not founded yet, as far as this node knows."""
    peers: tuple[str, ...] = ()
    """With whom it is to found one, itself among them."""


def address_of(name: str) -> str:
    """Where a member listens."""
    return name.partition("-")[2]


class RaftPeers:
    """The others of one broker's group."""

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        *,
        receive: Callable[[bytes], NodeId | None],
        who: Callable[[], Who],
        tables: Callable[[], Awaitable[bytes]],
    ) -> None:
        """`receive` takes a letter, and says who sent it, once the node has started; `tables` gives
        the leader's snapshot. Both may raise TidemarkError.
        """
        self._clock = runtime.clock
        self._access = access
        self._receive = receive
        self._who = who
        self._tables = tables
        self._waiting: dict[str, deque[RemotingCommand]] = {}
        """Address → letters for which a connection is being made."""
        self._heard_ms: dict[str, int] = {}
        """Address → when something was heard from there, or its connection was made anew."""
        self._server = RpcServer(
            runtime,
            {
                REQUEST_CODE: self._take,
                WHO_CODE: self._say_who,
                TABLES_CODE: self._give_tables,
            },
            tls=access.server_tls,
        )
        self._client = RpcClient(
            runtime, connect_timeout_ms=CONNECT_TIMEOUT_MS, tls=access.client_tls
        )

    async def start(self, name: str) -> None:
        """Listen where this node's name says. Raises ConfigError when that cannot be, or would be
        open to strangers.
        """
        host, _, port = address_of(name).rpartition(":")
        if not self._access.keeps_strangers_off(host):
            raise ConfigError(
                "dLegerPeers",
                name,
                "loopback addresses: off loopback the nodes of a group have to prove who they are, "
                "by strict TLS with certificates of clients (--access FILE)",
            )
        await self._server.start(host, int(port))

    async def stop(self) -> None:
        """Say and hear nothing any more."""
        await self._server.stop()
        await self._client.close()

    async def failed(self) -> None:
        """See `RpcServer.failed`."""
        await self._server.failed()

    # ---- letters ----------------------------------------------------------------------------

    def post(self, node: NodeId, body: bytes) -> None:
        """Have a letter sent, or lost. Hot."""
        address, now_ms = address_of(name_of(node)), self._clock.steady_ms()
        if now_ms - self._heard_ms.setdefault(address, now_ms) > SILENCE_MS:
            self._client.drop(address)
            self._heard_ms[address] = now_ms
        letter = RemotingCommand.request(REQUEST_CODE, body=body)
        waiting = self._waiting.get(address)
        if waiting is None and self._client.post(address, letter):
            return
        if waiting is None:
            waiting = self._waiting[address] = deque(maxlen=RAFT_LETTERS_WAITING_MAX)
            self._client.when_connected(address, lambda: self._post_waiting(address))
        waiting.append(letter)

    def _post_waiting(self, address: str) -> None:
        """The attempt to connect has ended, one way or the other."""
        for letter in self._waiting.pop(address, ()):
            if not self._client.post(address, letter):
                return

    def _take(self, peer: Peer, request: RemotingCommand) -> None:
        """52001: a letter."""
        try:
            sender = self._receive(bytes(request.body))
        except TidemarkError as error:
            _log.warning("a letter of %s is refused: %s", peer.address, error)
            peer.close("it sends what is no letter")
            return
        if sender is not None:
            self._heard_ms[address_of(name_of(sender))] = self._clock.steady_ms()

    # ---- questions --------------------------------------------------------------------------

    async def who(self, name: str) -> Who:
        """Who listens where this name says. Raises Unreachable, ClusterError."""
        body = await self._ask(name, WHO_CODE, ASK_TIMEOUT_MS)
        try:
            return msgspec.json.decode(body, type=Who)
        except msgspec.DecodeError as error:
            raise ClusterError(f"{name} is no node of a group: {error}") from error

    async def tables(self, name: str) -> bytes:
        """The leader's snapshot. Raises Unreachable, ClusterError."""
        return await self._ask(name, TABLES_CODE, TABLES_TIMEOUT_MS)

    async def _ask(self, name: str, code: int, timeout_ms: int) -> bytes:
        request = RemotingCommand.request(code)
        answer = await self._client.invoke(address_of(name), request, timeout_ms=timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"{name} refused {code}: {answer.code} {answer.remark}")
        return bytes(answer.body)

    def _say_who(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """52002."""
        return request.respond(ResponseCode.SUCCESS, body=msgspec.json.encode(self._who()))

    async def _give_tables(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """52003."""
        return request.respond(ResponseCode.SUCCESS, body=await self._tables())
