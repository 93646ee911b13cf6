"""A name server's routing tables, which map topics to brokers and their addresses.

Place in the walk: brokers register on start, on topic changes and each 30 s; clients ask for the
route of a topic before they send or pull.

Invariant: a broker is in the tables exactly while its registration is fresh and its connection is
not known to be gone; a topic without a broker is not in them. Of two brokers that go by one id the
one of the greater term counts. Name servers know nothing of each
other. Absent on purpose: time (arrives as now_ms), connections (arrive as opaque keys), bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.foundation.chunked_work import sorted_in_steps
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import BROKER_EXPIRY_MS, BROKERS_MAX, TOPICS_MAX
from engine.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.names import MASTER_ID, Perm

Names = Generator[None, None, list[str]]
"""Names of topics, found in steps between which others have their turn."""

TOPICS_LOOKED_AT = 4096
"""Topics that one step of a question for names looks at (some 2 ms)."""

UNIT_FLAG = 1
"""Bit of a topic's sysFlag: it belongs to one unit of a system that is cut into units."""
UNIT_SUB_FLAG = 2
"""Bit of a topic's sysFlag: groups of other units subscribe to it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker reports about itself."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    expiry_ms: int = BROKER_EXPIRY_MS


@dataclass(slots=True)
class LiveBroker:
    """A registered broker address, and since when it has been silent."""

    registration: Registration
    connection: object
    data_version: DataVersion
    last_seen_ms: int


@dataclass(slots=True)
class BrokerSet:
    """A master and its slaves: one broker name, addresses by broker id."""

    cluster_name: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict)


class Routes:
    """The tables of one name server."""

    def __init__(self, brokers_max: int = BROKERS_MAX) -> None:
        self._brokers_max = brokers_max
        self._sets: dict[str, BrokerSet] = {}
        self._live: dict[str, LiveBroker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}

    def register(
        self,
        claim: Registration,
        topics: Mapping[str, TopicConfig],
        data_version: DataVersion,
        *,
        connection: object,
        now_ms: int,
    ) -> LiveBroker | None:
        """Take a broker's word for itself and, from a master, for its topics.

        Returns the master as known when the broker is a slave, else None.
        """
        known = self._live.get(claim.address)
        if known is not None and known.registration.broker_name != claim.broker_name:
            former = known.registration  # One address is one broker's: it has another name now.
            self.unregister(former.broker_name, former.broker_id, former.address)
        broker_set = self._sets.get(claim.broker_name)
        if broker_set is None:
            broker_set = BrokerSet(claim.cluster_name, claim.broker_name)
            self._sets[claim.broker_name] = broker_set
        broker_set.cluster_name = claim.cluster_name
        for broker_id, address in list(broker_set.addresses.items()):
            if address == claim.address and broker_id != claim.broker_id:
                del broker_set.addresses[broker_id]  # Master and slave have changed places.
        previous = broker_set.addresses.get(claim.broker_id)
        if previous is not None and previous != claim.address:
            self._live.pop(previous, None)  # The same broker came back at another address.
        broker_set.addresses[claim.broker_id] = claim.address
        has_news = self.has_news(claim, data_version)
        self._live[claim.address] = LiveBroker(claim, connection, data_version, now_ms)
        if has_news:
            self.put_topics(claim.broker_name, topics.values())
        if claim.broker_id == MASTER_ID:
            return None
        return self._live.get(broker_set.addresses.get(MASTER_ID, ""))

    def is_outdated(self, claim: Registration, data_version: DataVersion) -> bool:
        """Goes another broker by this id in a greater term? Then a former master has woken: it is
        passed over, as RocketMQ does, and leaves the routes.
        """
        broker_set = self._sets.get(claim.broker_name)
        address = None if broker_set is None else broker_set.addresses.get(claim.broker_id)
        holder = None if address in (None, claim.address) else self._live.get(address or "")
        if holder is None or holder.data_version.state_version <= data_version.state_version:
            return False
        former = self._live.get(claim.address)
        if former is not None:
            one = former.registration
            self.unregister(one.broker_name, one.broker_id, one.address)
        return True

    def check_room(self, address: str) -> None:
        """Raise RequestRefused when a broker at this address is one too many."""
        if address not in self._live and len(self._live) >= self._brokers_max:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"broker {address} is one too many: this name server knows {self._brokers_max}",
            )

    def has_news(self, claim: Registration, data_version: DataVersion) -> bool:
        """Do the topics of this registration count? Those of an unchanged table do not: a
        permission wiped here stays wiped. Topics that are not known here count all the same: a tool
        that deletes a topic asks the brokers first, and it may have been made again meanwhile.
        """
        known = self._live.get(claim.address)
        was_master = known is not None and known.registration.broker_id == MASTER_ID
        return claim.broker_id == MASTER_ID and (
            known is None or not was_master or known.data_version != data_version
        )

    def serves(self, broker_name: str, topic: str) -> bool:
        """Is the topic known to be the broker's?"""
        return broker_name in self._topics.get(topic, {})

    def put_topics(self, broker_name: str, configs: Iterable[TopicConfig]) -> None:
        """Take over topics of a registered broker; nothing, when it is gone by now."""
        if broker_name in self._sets:
            for config in configs:
                self._put_queues(broker_name, config)

    def unregister(self, broker_name: str, broker_id: int, address: str) -> None:
        """A broker says farewell."""
        self._live.pop(address, None)
        broker_set = self._sets.get(broker_name)
        if broker_set is None or broker_set.addresses.get(broker_id) != address:
            return
        del broker_set.addresses[broker_id]
        if broker_set.addresses:
            return
        del self._sets[broker_name]
        for topic in list(self._topics):
            self._topics[topic].pop(broker_name, None)
            if not self._topics[topic]:
                del self._topics[topic]

    def lost(self, connection: object) -> list[str]:
        """A connection ended; the addresses of the brokers that registered on it, now removed."""
        return self._remove([live for live in self._live.values() if live.connection is connection])

    def expire(self, now_ms: int) -> list[str]:
        """Remove brokers that have been silent for longer than they said; their addresses."""
        return self._remove(
            [
                live
                for live in self._live.values()
                if now_ms - live.last_seen_ms > live.registration.expiry_ms
            ]
        )

    def route(self, topic: str) -> TopicRouteData | None:
        """Queues and brokers of a topic; None when nobody serves it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        return TopicRouteData(
            queue_datas=[queues[name] for name in sorted(queues)],
            broker_datas=[
                self._broker_data(self._sets[name]) for name in sorted(queues) if name in self._sets
            ],
        )

    def cluster_info(self) -> ClusterInfo:
        """Every broker of every cluster."""
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._sets):
            clusters.setdefault(self._sets[name].cluster_name, []).append(name)
        return ClusterInfo(
            broker_addr_table={
                name: self._broker_data(self._sets[name]) for name in sorted(self._sets)
            },
            cluster_addr_table=clusters,
        )

    def topics(self) -> Names:
        """Every topic somebody serves, sorted."""
        return self._topics_that(bool)

    def topics_of_cluster(self, cluster_name: str) -> Names:
        """Topics served by a cluster's brokers, sorted."""
        own = {name for name, one in self._sets.items() if one.cluster_name == cluster_name}
        return self._topics_that(lambda queues: not own.isdisjoint(queues))

    def topics_with(self, *, unit: bool | None, unit_sub: bool | None) -> Names:
        """Topics whose unit marks on the first of their brokers are as asked; None: either way."""

        def is_wanted(queues: dict[str, QueueData]) -> bool:
            flag = queues[min(queues)].topic_sys_flag
            is_unit, has_unit_sub = bool(flag & UNIT_FLAG), bool(flag & UNIT_SUB_FLAG)
            return unit in (None, is_unit) and unit_sub in (None, has_unit_sub)

        return self._topics_that(is_wanted)

    def _topics_that(self, is_wanted: Callable[[dict[str, QueueData]], bool]) -> Names:
        found = []
        for number, topic in enumerate(list(self._topics), 1):
            queues = self._topics.get(topic)
            if queues and is_wanted(queues):
                found.append(topic)
            if not number % TOPICS_LOOKED_AT:
                yield
        return (yield from sorted_in_steps(found))

    def system_topics(self) -> tuple[list[str], str | None]:
        """Clusters and broker names, which are topics as well; the address of one broker."""
        info = self.cluster_info()
        names = [
            name
            for cluster, brokers in info.cluster_addr_table.items()
            for name in (cluster, *brokers)
        ]
        for broker in info.broker_addr_table.values():
            for address in broker.broker_addrs.values():
                return names, address
        return names, None

    def add_queues(self, topic: str, queues: Sequence[QueueData]) -> None:
        """A broker reports one topic by itself, between its registrations."""
        if topic not in self._topics and len(self._topics) >= TOPICS_MAX:
            return
        for data in queues:
            if data.broker_name in self._sets:
                self._topics.setdefault(topic, {})[data.broker_name] = data

    def data_version(self, address: str) -> DataVersion | None:
        """The topic table's version that a broker registered last; None for a stranger."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def touch(self, address: str, now_ms: int, *, by: object | None = None) -> None:
        """A broker showed that it lives; by a question that others may ask as well on its own
        connection alone.
        """
        live = self._live.get(address)
        if live is not None and by in (None, live.connection):
            live.last_seen_ms = now_ms

    def delete_topic(self, topic: str) -> None:
        """Forget a topic until a broker registers it again."""
        self._topics.pop(topic, None)

    def set_writable(self, broker_name: str, *, writable: bool) -> int:
        """Give or take the write permission of all topics of a broker; how many there are."""
        changed_count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                data.perm = (
                    data.perm | int(Perm.WRITE) if writable else data.perm & ~int(Perm.WRITE)
                )
                changed_count += 1
        return changed_count

    def _remove(self, gone: list[LiveBroker]) -> list[str]:
        for live in gone:
            registration = live.registration
            self.unregister(registration.broker_name, registration.broker_id, registration.address)
        return [live.registration.address for live in gone]

    def _put_queues(self, broker_name: str, config: TopicConfig) -> None:
        if config.topic_name not in self._topics and len(self._topics) >= TOPICS_MAX:
            return
        self._topics.setdefault(config.topic_name, {})[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def _broker_data(self, broker_set: BrokerSet) -> BrokerData:
        return BrokerData(
            cluster=broker_set.cluster_name,
            broker_name=broker_set.broker_name,
            broker_addrs=dict(sorted(broker_set.addresses.items())),
        )
