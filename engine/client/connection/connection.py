"""A client's connection to its cluster: identity, routes and heartbeats.

Place in the walk: before every walk. Brokers know a client by its heartbeats, and forget it 120 s
after the last one. `describe` is asked each time, so a changed subscription travels with the next.
A broker that took this fingerprint of the subscriptions in full gets the short form (version 2):

    full ──▶ IS_SUPPORT_HEART_BEAT_V2, not IS_SUB_CHANGE ──▶ short ──▶ IS_SUB_CHANGE ──▶ full

A broker that cannot be reached, or that says that it is no master, makes the routes doubtful: a new
one is asked for at once, beside whatever its caller does.

Invariant: the client id never changes while the client lives; every request to a broker goes out
here. The short form goes only to a broker on a connection that has lasted since the full one.
Absent on purpose: sending and consuming; they use `invoke`, `ask` and `routes` from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from engine.client.config import DEFAULT_INSTANCE, ClientConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.connection.route_cache import RouteCache
from engine.foundation.errors import RequestRefused, TidemarkError, Unreachable
from engine.protocol.bodies import HeartbeatData
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.hashes import java_hash
from engine.protocol.headers import HeartbeatResponseHeader
from engine.remoting import Handler, RpcClient
from engine.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat in both forms."""

    fingerprint: int
    """0: version 1, which has no short form."""
    full: bytes
    short: bytes


def first_version(data: HeartbeatData) -> Beat:
    """The form of clients that know no other."""
    full = data.encode()
    return Beat(0, full, full)


def second_version(data: HeartbeatData) -> Beat:
    """With the fingerprint; versions of subscriptions and the client's own id are not part of it,
    so that members that subscribe alike have the same.
    """
    consumers = data.consumer_data_set
    alike = [
        replace(
            consumer,
            subscription_data_set=[
                replace(subscription, sub_version=0)
                for subscription in consumer.subscription_data_set
            ],
        )
        for consumer in consumers
    ]
    text = replace(data, client_id="", consumer_data_set=alike).encode().decode()
    fingerprint = java_hash(text) or 1  # 0 would be version 1.
    bare = [replace(consumer, subscription_data_set=[]) for consumer in consumers]
    short = replace(
        data, consumer_data_set=bare, heartbeat_fingerprint=fingerprint, without_sub=True
    )
    return Beat(
        fingerprint, replace(data, heartbeat_fingerprint=fingerprint).encode(), short.encode()
    )


class SentSubscriptions:
    """What each broker has taken of this client's subscriptions."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def form_for(self, address: str, beat: Beat) -> bytes:
        """The form of `beat` that this broker needs."""
        return beat.short if self._taken.get(address) == beat.fingerprint else beat.full

    def answered(self, address: str, beat: Beat, answer: HeartbeatResponseHeader) -> None:
        """The broker has taken it."""
        if beat.fingerprint and answer.heartbeat_v2 and not answer.subscription_changed:
            self._taken[address] = beat.fingerprint
        else:
            self.forget(address)

    def forget(self, address: str) -> None:
        """It is not certain what this broker knows."""
        self._taken.pop(address, None)

    def forget_all(self) -> None:
        """Everybody is to hear everything."""
        self._taken.clear()


_log = logging.getLogger(__name__)

_PUTTING = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)


def is_from_no_master(request_code: int, answer_code: int) -> bool:
    """May it be the answer of a broker that is no master (any more)? A slave takes nothing (14),
    ends no transaction (11), has no master to pass a send-back to (1); a former master does not
    know what became of a send (1).
    """
    if answer_code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return True
    if answer_code == ResponseCode.SLAVE_NOT_AVAILABLE:  # To a send it says: stored.
        return request_code == RequestCode.END_TRANSACTION
    return answer_code == ResponseCode.SYSTEM_ERROR and request_code in _PUTTING


class ClusterConnection:
    """What a producer, a consumer or an admin shares with nobody else: one RPC client and what it
    learned.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        *,
        describe: Callable[[], HeartbeatData] | None = None,
        handlers: Mapping[int, Handler] | None = None,
        keeps_default_instance: bool = False,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.ip = config.client_ip or runtime.network.local_ip()
        self.client_id = f"{self.ip}@{self._instance_name(keeps_default_instance)}"
        self._subscriptions = SentSubscriptions()
        self.rpc = RpcClient(
            runtime,
            handlers or {},
            on_lost=self._subscriptions.forget,
            credentials=config.credentials,
            tls=config.tls,
        )
        self._new_broker = asyncio.Event()
        self.routes = RouteCache(runtime, config, self.rpc, on_new_broker=self._new_broker.set)
        self._describe = describe
        self._tasks = OwnedTasks(f"client {self.client_id}")

    async def start(self) -> None:
        """Begin heartbeats and route refreshes."""
        self._tasks.start(self._heartbeats(), "heartbeats")
        self._tasks.start(self._refresh_routes(), "routes")

    async def stop(self) -> None:
        """End them and close all connections."""
        self.routes.close()
        await self._tasks.close()
        await self.rpc.close()

    async def invoke(
        self, address: str, request: RemotingCommand, *, timeout_ms: int
    ) -> RemotingCommand:
        """As `RpcClient.invoke`, of a broker. Hot."""
        try:
            answer = await self.rpc.invoke(address, request, timeout_ms=timeout_ms)
        except Unreachable:
            self.routes.doubt(address)
            raise
        if answer.code != ResponseCode.SUCCESS and is_from_no_master(request.code, answer.code):
            self.routes.doubt(address)
        return answer

    async def invoke_oneway(self, address: str, request: RemotingCommand) -> None:
        """As `RpcClient.invoke_oneway`, to a broker."""
        try:
            await self.rpc.invoke_oneway(address, request)
        except Unreachable:
            self.routes.doubt(address)
            raise

    async def ask(
        self, address: str, request: RemotingCommand, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """A request whose answer must be SUCCESS.

        Raises RequestRefused otherwise, Unreachable without an answer.
        """
        answer = await self.invoke(
            address, request, timeout_ms=timeout_ms or self.config.request_timeout_ms
        )
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return answer

    async def heartbeat(self, *, in_full: bool = False) -> None:
        """Send a heartbeat to all known brokers; those that do not answer hear the next
        one. `in_full`: subscriptions as well, whoever knows them.
        """
        if self._describe is None:
            return
        body = self._describe()
        if not body.producer_data_set and not body.consumer_data_set:
            return
        addresses = self.routes.broker_addresses(masters_only=not body.consumer_data_set)
        if in_full:
            self._subscriptions.forget_all()
        beat = second_version(body) if self.config.use_heartbeat_v2 else first_version(body)
        forms = [(address, self._subscriptions.form_for(address, beat)) for address in addresses]
        await asyncio.gather(*(self._heartbeat_to(address, beat, form) for address, form in forms))

    async def take_leave(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Unregister a group of this client from all known brokers, within `stop_timeout_ms`.

        Heartbeats end first: one that overtook the farewell would register the group again.
        """
        await self._tasks.close()
        fields = {"clientID": self.client_id}
        if producer_group is not None:
            fields["producerGroup"] = producer_group
        if consumer_group is not None:
            fields["consumerGroup"] = consumer_group
        addresses = self.routes.broker_addresses(masters_only=False)
        await asyncio.gather(*(self._take_leave_from(address, fields) for address in addresses))

    def _instance_name(self, keeps_default: bool) -> str:
        """DEFAULT would be the same for all clients of a host: brokers would take them for one."""
        name = self.config.instance_name
        if name != DEFAULT_INSTANCE or keeps_default:
            return name
        entropy = self.runtime.entropy
        return f"{entropy.process_id()}#{entropy.below(1 << 53)}"

    async def _heartbeats(self) -> None:
        """On a timer, and at once when a route has a broker that does not know us yet."""
        wait_ms = self.config.heartbeat_first_ms
        while True:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._new_broker.wait()
            except TimeoutError:
                pass  # The regular one.
            self._new_broker.clear()
            await self.heartbeat()
            wait_ms = self.config.heartbeat_ms

    async def _heartbeat_to(self, address: str, beat: Beat, form: bytes) -> None:
        try:
            answer = await self.ask(
                address, RemotingCommand.request(RequestCode.HEART_BEAT, {}, form)
            )
            self._subscriptions.answered(
                address, beat, HeartbeatResponseHeader.decode(answer.fields)
            )
            said = "all" if form is beat.full else "no subscriptions, which it knows"
            _log.debug("heartbeat to %s said %s", address, said)
        except TidemarkError as error:
            self._subscriptions.forget(address)
            _log.warning("heartbeat to %s failed, the next one tries again: %s", address, error)

    async def _take_leave_from(self, address: str, fields: dict[str, str]) -> None:
        request = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, dict(fields))
        try:
            await self.ask(address, request, timeout_ms=self.config.stop_timeout_ms)
        except TidemarkError as error:
            _log.warning("no farewell reached %s, it will notice: %s", address, error)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.config.route_poll_ms / 1000)
            for topic in self.routes.known_topics():
                try:
                    await self.routes.refresh(topic)
                except TidemarkError as error:
                    _log.warning("route of %s not refreshed: %s", topic, error)
