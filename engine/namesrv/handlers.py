"""Name-server request handlers for registration, routes, key-value entries and settings.

Place in the walk: brokers register here, clients look routes up here. Each handler reads its
header, asks the tables and answers.

Invariant: a change of a setting is kept in the file that a restart reads, or refused when there is
none; paths, addresses and ports never change over the wire. Absent on purpose: the tables' rules
(routes), expiry and lost connections (namesrv), who may ask (access).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice

from engine.foundation.config import ANY_WORD, LiveKey, check_changes, redacted
from engine.foundation.config_layers import Origin, text_of
from engine.foundation.errors import ConfigError, NotChangeable, RemoteProtocolError, RequestRefused
from engine.foundation.java_properties import parse, written
from engine.foundation.limits import BROKER_ADDRESS_CHARS_MAX, BROKER_EXPIRY_MS, REGISTERED_AT_ONCE
from engine.foundation.units import MINUTE_MS, Buffer
from engine.namesrv.config import NameServerConfig, rocketmq_values, with_rocketmq_settings
from engine.namesrv.key_values import ORDER_NAMESPACE, KeyValues
from engine.namesrv.routes import LiveBroker, Names, Registration, Routes
from engine.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicList,
    TopicRouteData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.hashes import body_crc
from engine.protocol.headers_admin import (
    AddWritePermResponseHeader,
    BrokerHeartbeatRequestHeader,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    KvConfigRequestHeader,
    KvConfigResponseHeader,
    KvNamespaceRequestHeader,
    PutKvConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    TopicRequestHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermResponseHeader,
)
from engine.protocol.names import MASTER_ID, check_broker_word, check_topic, is_legal_topic
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.runtime import Runtime
from engine.store.table_file import SettingsFile

LIVE = {
    "orderMessageEnable": ANY_WORD,
    "scanNotActiveBrokerInterval": LiveKey(100, 2 * MINUTE_MS),
}
"""The allow-list. Whatever is not here stays until a restart."""


class ConfigHandlers(Handlers):
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

    @serves(RequestCode.GET_NAMESRV_CONFIG)
    def config(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG (319): every key with the value in force, as a .properties text."""
        values = redacted(rocketmq_values(self._config))
        body = "".join(written(key, value) for key, value in sorted(values.items())).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG)
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


_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class NameServerHandlers(Handlers):
    """Requests of brokers, clients and tools.

    `orders_in_routes`: do routes show ORDER_TOPIC_CONFIG (orderMessageEnable)?
    """

    routes: Routes
    key_values: KeyValues
    _: KW_ONLY
    now_ms: Callable[[], int]
    key_values_changed: Callable[[], None]
    orders_in_routes: Callable[[], bool] = lambda: False
    _registering: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _registering_count: int = field(default=0, init=False)
    """Registrations that are taken over in pieces, and those that wait for them."""

    @serves(RequestCode.REGISTER_BROKER)
    def register_broker(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """REGISTER_BROKER (103), plain or compressed. A large table is taken over in pieces, and
        others have their turn between two of them; registrations count in the order they came.
        """
        header = RegisterBrokerRequestHeader.decode(request.fields)
        if header.body_crc32 and body_crc(request.body) != header.body_crc32:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"crc32 not match: the body has {body_crc(request.body)}, "
                f"the header says {header.body_crc32}",
            )
        check_broker_word("brokerName", header.broker_name)
        check_broker_word("clusterName", header.cluster_name)
        _check_addresses(header)
        steps = self._take_over(peer, header, request.body)
        if not self._registering_count:
            try:
                next(steps)
            except StopIteration as end:
                return self._registered(request, end.value)
        self._registering_count += 1
        return self._register_in_steps(request, steps)

    async def _register_in_steps(
        self, request: RemotingCommand, steps: Generator[None, None, LiveBroker | None]
    ) -> RemotingCommand:
        try:
            async with self._registering:
                while True:
                    await asyncio.sleep(0)
                    try:
                        next(steps)
                    except StopIteration as end:
                        return self._registered(request, end.value)
        finally:
            self._registering_count -= 1

    def _take_over(
        self, peer: Peer, header: RegisterBrokerRequestHeader, body: Buffer
    ) -> Generator[None, None, LiveBroker | None]:
        """The steps of a registration; what `Routes.register` does. Raises RequestRefused."""
        registration = Registration(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            expiry_ms=header.heartbeat_timeout_ms or BROKER_EXPIRY_MS,
        )
        try:
            topics = yield from RegisterBrokerBody.decode_in_steps(
                body, compressed=header.compressed
            )
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if peer.closed:  # Between two pieces: nobody would hear of its end any more.
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{peer.address} has gone meanwhile")
        if self.routes.is_outdated(registration, topics.data_version):
            _log.warning(
                "%s at %s is passed over: its broker id %d has another broker, of a greater term "
                "than %d",
                *(header.broker_name, header.broker_addr, header.broker_id),
                topics.data_version.state_version,
            )
            return None
        self.routes.check_room(registration.address)
        has_news = self.routes.has_news(registration, topics.data_version)
        master = self.routes.register(
            registration, {}, topics.data_version, connection=peer, now_ms=self.now_ms()
        )
        configs, illegal = iter(topics.topic_config_table.items()), []
        is_master = registration.broker_id == MASTER_ID
        while (
            is_master and not peer.closed and (piece := list(islice(configs, REGISTERED_AT_ONCE)))
        ):
            legal = {name: config for name, config in piece if is_legal_topic(name)}
            illegal += [name for name, _ in piece if name not in legal]
            self.routes.put_topics(
                header.broker_name,
                [
                    config
                    for name, config in legal.items()
                    if has_news or not self.routes.serves(header.broker_name, name)
                ],
            )
            if len(piece) == REGISTERED_AT_ONCE:
                yield
        if illegal:  # The rest of the broker is none the worse for it.
            _log.warning(
                "%d topics of %s have no legal name: %r ...",
                *(len(illegal), header.broker_name, illegal[0]),
            )
        return master

    def _registered(self, request: RemotingCommand, master: LiveBroker | None) -> RemotingCommand:
        fields = RegisterBrokerResponseHeader(
            ha_server_addr=None if master is None else master.registration.ha_address,
            master_addr=None if master is None else master.registration.address,
        ).encode()
        orders = KVTable(self.key_values.namespace(ORDER_NAMESPACE)).encode()
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=orders)

    @serves(RequestCode.UNREGISTER_BROKER)
    def unregister_broker(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_BROKER (104)."""
        header = UnregisterBrokerRequestHeader.decode(request.fields)
        self.routes.unregister(header.broker_name, header.broker_id, header.broker_addr)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.QUERY_DATA_VERSION)
    def query_data_version(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """QUERY_DATA_VERSION (322): has the broker's topic table changed since it registered?"""
        address = QueryDataVersionRequestHeader.decode(request.fields).broker_addr
        known, theirs = self.routes.data_version(address), DataVersion.decode(request.body)
        if known == theirs:
            self.routes.touch(address, self.now_ms(), by=peer)
        return request.respond(
            ResponseCode.SUCCESS,
            fields=QueryDataVersionResponseHeader(changed=known != theirs).encode(),
            body=b"" if known is None else known.encode(),
        )

    @serves(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def route(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC (105)."""
        topic = TopicRequestHeader.decode(request.fields).topic
        route = self.routes.route(topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        if self.orders_in_routes():
            route.order_topic_conf = self.key_values.get(ORDER_NAMESPACE, topic)
        return request.respond(ResponseCode.SUCCESS, body=route.encode())

    @serves(RequestCode.GET_BROKER_CLUSTER_INFO)
    def cluster_info(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO (106)."""
        return request.respond(ResponseCode.SUCCESS, body=self.routes.cluster_info().encode())

    @serves(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def topics(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        return _names(request, self.routes.topics())

    @serves(RequestCode.GET_TOPICS_BY_CLUSTER)
    def topics_of_cluster(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """GET_TOPICS_BY_CLUSTER (224)."""
        cluster = ClusterRequestHeader.decode(request.fields).cluster
        return _names(request, self.routes.topics_of_cluster(cluster))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def system_topics(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): the topics that clusters and brokers are."""
        names, address = self.routes.system_topics()
        return request.respond(ResponseCode.SUCCESS, body=TopicList(names, address).encode())

    @serves(RequestCode.GET_UNIT_TOPIC_LIST)
    def unit_topics(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """GET_UNIT_TOPIC_LIST (311)."""
        return self._with_marks(request, unit=True, unit_sub=None)

    @serves(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def unit_sub_topics(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """GET_HAS_UNIT_SUB_TOPIC_LIST (312)."""
        return self._with_marks(request, unit=None, unit_sub=True)

    @serves(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def unit_sub_of_no_unit_topics(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""
        return self._with_marks(request, unit=False, unit_sub=True)

    def _with_marks(
        self, request: RemotingCommand, *, unit: bool | None, unit_sub: bool | None
    ) -> HandlerResult:
        return _names(request, self.routes.topics_with(unit=unit, unit_sub=unit_sub))

    @serves(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    def register_topic(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """REGISTER_TOPIC_IN_NAMESRV (217): a broker made one topic, and reports that one alone."""
        topic = TopicRequestHeader.decode(request.fields).topic
        check_topic(topic)
        try:
            route = TopicRouteData.decode(request.body)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self.routes.add_queues(topic, route.queue_datas)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.BROKER_HEARTBEAT)
    def broker_heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT (904): a broker lives, and has nothing new to report."""
        address = BrokerHeartbeatRequestHeader.decode(request.fields).broker_addr
        self.routes.touch(address, self.now_ms())
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def delete_topic(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV (216)."""
        self.routes.delete_topic(TopicRequestHeader.decode(request.fields).topic)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write_perm(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER (205): producers leave the broker, consumers drain it."""
        broker_name = BrokerNameRequestHeader.decode(request.fields).broker_name
        count = self.routes.set_writable(broker_name, writable=False)
        return request.respond(
            ResponseCode.SUCCESS,
            fields=WipeWritePermResponseHeader(wipe_topic_count=count).encode(),
        )

    @serves(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def add_write_perm(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER (327)."""
        broker_name = BrokerNameRequestHeader.decode(request.fields).broker_name
        count = self.routes.set_writable(broker_name, writable=True)
        return request.respond(
            ResponseCode.SUCCESS, fields=AddWritePermResponseHeader(add_topic_count=count).encode()
        )

    @serves(RequestCode.PUT_KV_CONFIG)
    def put_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG (100)."""
        header = PutKvConfigRequestHeader.decode(request.fields)
        self.key_values.put(header.namespace, header.key, header.value)
        self.key_values_changed()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_KV_CONFIG)
    def get_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG (101)."""
        header = KvConfigRequestHeader.decode(request.fields)
        value = self.key_values.get(header.namespace, header.key)
        if value is None:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.respond(
            ResponseCode.SUCCESS, fields=KvConfigResponseHeader(value=value).encode()
        )

    @serves(RequestCode.DELETE_KV_CONFIG)
    def delete_kv(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG (102)."""
        header = KvConfigRequestHeader.decode(request.fields)
        self.key_values.delete(header.namespace, header.key)
        self.key_values_changed()
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def kv_namespace(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE (219)."""
        namespace = KvNamespaceRequestHeader.decode(request.fields).namespace
        table = self.key_values.namespace(namespace)
        if not table:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return request.respond(ResponseCode.SUCCESS, body=KVTable(table).encode())


async def _names(request: RemotingCommand, steps: Names) -> RemotingCommand:
    """The answer with names that are found in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return request.respond(ResponseCode.SUCCESS, body=TopicList(end.value).encode())
        await asyncio.sleep(0)


def _check_addresses(header: RegisterBrokerRequestHeader) -> None:
    """Raise RequestRefused for an address that no broker has."""
    for name, address in (
        ("brokerAddr", header.broker_addr),
        ("haServerAddr", header.ha_server_addr),
    ):
        if len(address) > BROKER_ADDRESS_CHARS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{name} {address[:40]!r}… has {len(address)} characters: "
                f"{BROKER_ADDRESS_CHARS_MAX} at most",
            )
