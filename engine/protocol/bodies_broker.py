"""Request and response bodies for topics, routes and broker registration.

Place in the walk: brokers register their topics with name servers, clients ask for routes to them.

    compressed registration, inflated: | length 4, DataVersion as JSON | topic count 4 |
    length 4, topic as text (repeated) | length 4, filter servers as JSON | mapping count 4, ... |

Invariant: names are RocketMQ's, in snake case; integer keys are written quoted. Absent on purpose:
static topics' queue mappings, which this engine has none of.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, Final, Self

import msgspec

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import BODY_REGISTRATION_BYTES_MAX, REGISTERED_AT_ONCE, TOPICS_MAX
from engine.foundation.units import MIB, Buffer
from engine.protocol import fastjson
from engine.protocol.body_codec import TOPIC_FILTER_TYPES, Body, EnumName, Part, convert, enum_name
from engine.protocol.header_fields import Int64
from engine.protocol.names import MASTER_ID

_INT: Final = Struct(">i")
INFLATED_BYTES_MAX: Final = BODY_REGISTRATION_BYTES_MAX
"""A registration that inflates beyond this is refused."""


class DataVersion(Body):
    """Version of a table; of a greater term, or of the same with a greater counter, is newer."""

    state_version: Int64 = 0
    """The term of the master that wrote it; 0 where nobody is elected."""
    timestamp: Int64 = 0
    counter: Int64 = 0

    def is_newer_than(self, other: DataVersion) -> bool:
        """As RocketMQ compares."""
        return (self.state_version, self.counter, self.timestamp) > (
            *(other.state_version, other.counter, other.timestamp),
        )


class TopicConfig(Body):
    """A topic on one broker."""

    topic_name: str
    read_queue_nums: Int64 = 16
    write_queue_nums: Int64 = 16
    perm: Int64 = 6
    topic_filter_type: EnumName = "SINGLE_TAG"
    topic_sys_flag: Int64 = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Names for places. Raises ValueError."""
        if self.topic_filter_type != "SINGLE_TAG":  # Most are.
            self.topic_filter_type = enum_name(
                self.topic_filter_type, TOPIC_FILTER_TYPES, "topicFilterType"
            )

    def encode_text(self) -> str:
        """`name read write perm filterType {attributes}`, one blank between."""
        attributes = fastjson.dumps(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} "
            f"{int(self.perm)} {self.topic_filter_type} {attributes}"
        )

    @classmethod
    def decode_text(cls, text: str) -> Self:
        """The reverse; the attributes may be missing. Raises RemoteProtocolError."""
        words = text.split(" ", 5)
        try:
            name, read, write, perm, filter_type = words[:5]
            config = cls(name, int(read), int(write), int(perm), filter_type)
        except ValueError as error:
            raise RemoteProtocolError(f"{text[:80]!r} is no topic: {error}") from error
        if len(words) > 5 and words[5].strip() not in ("", "{}"):
            config.attributes = convert(fastjson.loads(words[5]), dict[str, str])
        return config


class QueueData(Part):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_nums: Int64
    write_queue_nums: Int64
    perm: Int64
    topic_sys_flag: Int64 = 0


class BrokerData(Part):
    """A master and its slaves: addresses by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str]
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None


class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO (106)."""

    loose_bytes_max: ClassVar[Int64] = BODY_REGISTRATION_BYTES_MAX

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def masters(self) -> dict[str, str]:
        """Address of each broker's master, by broker name, sorted; none where it has none."""
        return {
            name: data.broker_addrs[MASTER_ID]
            for name, data in sorted(self.broker_addr_table.items())
            if MASTER_ID in data.broker_addrs
        }


class TopicConfigTable(Body):
    """GET_ALL_TOPIC_CONFIG (21): every topic of a broker."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]


class TopicList(Body):
    """Names of topics (206, 224, 304, 305)."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class GroupList(Body):
    """Names of groups (300)."""

    group_list: list[str] = msgspec.field(default_factory=list)


class KVTable(Body):
    """Names and values: order topics (103), a namespace (219), figures of a broker (28)."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class BrokerStatsItem(Part):
    """A statistic over one span: its sum, per second, and per call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class _Wrapper(Part):
    """A registration's topics; those of static topics stay empty."""

    data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] | None = None
    mapping_data_version: DataVersion | None = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] | None = msgspec.field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] | None = msgspec.field(default_factory=dict)


class _Registration(Body):
    """REGISTER_BROKER as JSON."""

    loose_bytes_max: ClassVar[Int64] = MIB
    """Static topics have integers as keys."""

    topic_config_serialize_wrapper: _Wrapper | None = None
    filter_server_list: list[str] | None = None


class _WrapperApart(Part):
    """A registration's topics, which are not read yet."""

    data_version: DataVersion | None = None
    topic_config_table: dict[str, msgspec.Raw] | None = None


class _RegistrationApart(Part):
    """As `_Registration`, its topics to be read in pieces."""

    topic_config_serialize_wrapper: _WrapperApart | None = None
    filter_server_list: list[str] | None = None


@dataclass(slots=True)
class RegisterBrokerBody:
    """REGISTER_BROKER (103): a broker's topics."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]
    filter_server_list: list[str] = field(default_factory=list)

    def encode(self, *, compressed: bool = False) -> bytes:
        """As bytes; what is sent must say which form it is."""
        if compressed:
            return self._encode_compressed()
        wrapper = _Wrapper(self.data_version, self.topic_config_table)
        return _Registration(wrapper, self.filter_server_list).encode()

    def _encode_compressed(self) -> bytes:
        # In the order of RocketMQ's own writer; readers go by name.
        version = msgspec.json.encode(dict(sorted(self.data_version.to_json().items())))
        parts = [_INT.pack(len(version)), version, _INT.pack(len(self.topic_config_table))]
        try:
            for config in self.topic_config_table.values():
                text = config.encode_text().encode()
                parts += (_INT.pack(len(text)), text)
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"a topic's name is no text: {error}") from error
        filters = fastjson.dumps(self.filter_server_list)
        parts += (_INT.pack(len(filters)), filters, _INT.pack(0))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode(cls, body: Buffer, *, compressed: bool = False) -> Self:
        """From bytes in the given form. Raises RemoteProtocolError."""
        steps = cls.decode_in_steps(body, compressed=compressed)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                decoded: Self = end.value
                return decoded

    @classmethod
    def decode_in_steps(cls, body: Buffer, *, compressed: bool) -> Generator[None, None, Self]:
        """As `decode`, with a pause now and then where others may have their turn."""
        if compressed:
            return (yield from cls._decode_compressed(_Pieces(_inflate(body))))
        try:
            apart = msgspec.json.decode(body, type=_RegistrationApart)
            wrapped = apart.topic_config_serialize_wrapper or _WrapperApart()
            topics: dict[str, TopicConfig] = {}
            for number, (name, config) in enumerate((wrapped.topic_config_table or {}).items()):
                if number % REGISTERED_AT_ONCE == 0:
                    yield
                topics[name] = msgspec.json.decode(config, type=TopicConfig)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return cls._decode_whole(body)
        version = wrapped.data_version or DataVersion()
        return cls(version, topics, apart.filter_server_list or [])

    @classmethod
    def _decode_whole(cls, body: Buffer) -> Self:
        """Of JSON that is not strict, or wrong: then this says where."""
        body_read = _Registration.decode(body)
        wrapper = body_read.topic_config_serialize_wrapper or _Wrapper()
        return cls(
            wrapper.data_version or DataVersion(),
            wrapper.topic_config_table or {},
            body_read.filter_server_list or [],
        )

    @classmethod
    def _decode_compressed(cls, pieces: _Pieces) -> Generator[None, None, Self]:
        version = convert(fastjson.loads(pieces.next()), DataVersion)
        count = pieces.number()
        if not 0 <= count <= TOPICS_MAX:
            raise RemoteProtocolError(f"a registration of {count} topics, at most {TOPICS_MAX}")
        topics: dict[str, TopicConfig] = {}
        for number in range(1, count + 1):
            config = TopicConfig.decode_text(pieces.text())
            topics[config.topic_name] = config
            if number % REGISTERED_AT_ONCE == 0:
                yield
        return cls(version, topics, convert(fastjson.loads(pieces.next()), list[str]))


class _Pieces:
    """Pieces with their lengths before them, one after the other."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        if self._at + _INT.size > len(self._data):
            raise RemoteProtocolError(f"a registration that ends at byte {len(self._data)}")
        (number,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        return int(number)

    def next(self) -> bytes:
        length, begin = self.number(), self._at
        if not 0 <= length <= len(self._data) - begin:
            raise RemoteProtocolError(f"a piece of {length} bytes at {begin} of {len(self._data)}")
        self._at = begin + length
        return self._data[begin : self._at]

    def text(self) -> str:
        try:
            return self.next().decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"a topic that is no text: {error}") from error


def _inflate(body: Buffer) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"a compressed registration that is none: {error}") from error
    if not inflater.eof:
        raise RemoteProtocolError(
            f"a compressed registration cut off, or beyond {INFLATED_BYTES_MAX} bytes inflated"
        )
    return data
