"""Headers of name servers, brokers among themselves, and administration (spec: wire, section 1).

Invariant: a Python name says kind and unit, the wire name is RocketMQ's. Absent on purpose: what
fields mean beyond that; the handlers know.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.protocol.header_codec import Header, wire


@dataclass(slots=True, kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER; body_crc32 is over the body as sent."""

    broker_name: str = wire("brokerName", str)
    broker_addr: str = wire("brokerAddr", str)
    cluster_name: str = wire("clusterName", str)
    ha_server_addr: str = wire("haServerAddr", str)
    broker_id: int = wire("brokerId", int)
    heartbeat_timeout_ms: int | None = wire("heartbeatTimeoutMillis", int, default=None)
    enable_acting_master: bool | None = wire("enableActingMaster", bool, default=None)
    compressed: bool = wire("compressed", bool, default=False)
    body_crc32: int = wire("bodyCrc32", int, default=0)


@dataclass(slots=True, kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """Addresses of the master, for slaves."""

    ha_server_addr: str | None = wire("haServerAddr", str, default=None)
    master_addr: str | None = wire("masterAddr", str, default=None)


@dataclass(slots=True, kw_only=True)
class UnregisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER."""

    broker_name: str = wire("brokerName", str)
    broker_addr: str = wire("brokerAddr", str)
    cluster_name: str = wire("clusterName", str)
    broker_id: int = wire("brokerId", int)


@dataclass(slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT."""

    cluster_name: str = wire("clusterName", str)
    broker_addr: str = wire("brokerAddr", str)
    broker_name: str = wire("brokerName", str)
    broker_id: int | None = wire("brokerId", int, default=None)
    epoch: int | None = wire("epoch", int, default=None)
    max_offset: int | None = wire("maxOffset", int, default=None)
    confirm_offset: int | None = wire("confirmOffset", int, default=None)
    heartbeat_timeout_ms: int | None = wire("heartbeatTimeoutMills", int, default=None)
    election_priority: int | None = wire("electionPriority", int, default=None)


@dataclass(slots=True, kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """QUERY_DATA_VERSION."""

    broker_name: str = wire("brokerName", str)
    broker_addr: str = wire("brokerAddr", str)
    cluster_name: str = wire("clusterName", str)
    broker_id: int = wire("brokerId", int)


@dataclass(slots=True, kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Has the version changed?"""

    changed: bool = wire("changed", bool)


@dataclass(slots=True, kw_only=True)
class GetRouteInfoRequestHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str = wire("topic", str)
    accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", bool, default=None)


@dataclass(slots=True, kw_only=True)
class BrokerNameRequestHeader(Header):
    """Requests about one broker: write permission taken or given back."""

    broker_name: str = wire("brokerName", str)


@dataclass(slots=True, kw_only=True)
class WipeWritePermResponseHeader(Header):
    """How many topics were concerned (answer to WIPE_WRITE_PERM_OF_BROKER)."""

    wipe_topic_count: int = wire("wipeTopicCount", int)


@dataclass(slots=True, kw_only=True)
class AddWritePermResponseHeader(Header):
    """How many topics were concerned (answer to ADD_WRITE_PERM_OF_BROKER)."""

    add_topic_count: int = wire("addTopicCount", int)


@dataclass(slots=True, kw_only=True)
class KVConfigRequestHeader(Header):
    """PUT_KV_CONFIG, GET_KV_CONFIG and DELETE_KV_CONFIG; value for the first only."""

    namespace: str = wire("namespace", str)
    key: str = wire("key", str)
    value: str | None = wire("value", str, default=None)


@dataclass(slots=True, kw_only=True)
class KVConfigResponseHeader(Header):
    """A value of the name server."""

    value: str | None = wire("value", str, default=None)


@dataclass(slots=True, kw_only=True)
class KVNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str = wire("namespace", str)


@dataclass(slots=True, kw_only=True)
class ClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str = wire("cluster", str)


@dataclass(slots=True, kw_only=True)
class CreateTopicRequestHeader(Header):
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str = wire("topic", str)
    default_topic: str = wire("defaultTopic", str)
    read_queue_nums: int = wire("readQueueNums", int)
    write_queue_nums: int = wire("writeQueueNums", int)
    perm: int = wire("perm", int)
    topic_filter_type: str = wire("topicFilterType", str)
    topic_sys_flag: int = wire("topicSysFlag", int, default=0)
    order: bool = wire("order", bool, default=False)
    attributes: str | None = wire("attributes", str, default=None)
    force: bool | None = wire("force", bool, default=None)


@dataclass(slots=True, kw_only=True)
class TopicRequestHeader(Header):
    """Requests about one topic: its configuration, its figures, its groups, its end."""

    topic: str = wire("topic", str)
    cluster_name: str | None = wire("clusterName", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str = wire("groupName", str)
    clean_offset: bool = wire("cleanOffset", bool, default=False)


@dataclass(slots=True, kw_only=True)
class SubscriptionGroupRequestHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str = wire("group", str)


@dataclass(slots=True, kw_only=True)
class ConsumeStatsRequestHeader(Header):
    """GET_CONSUME_STATS; without topic over all topics of the group."""

    consumer_group: str = wire("consumerGroup", str)
    topic: str | None = wire("topic", str, default=None)
    topic_list: str | None = wire("topicList", str, default=None)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class ProducerConnectionRequestHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str = wire("producerGroup", str)


@dataclass(slots=True, kw_only=True)
class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET and RESET_CONSUMER_CLIENT_OFFSET; queue_id -1 is every queue,
    timestamp -1 the end.
    """

    topic: str = wire("topic", str)
    group: str = wire("group", str)
    queue_id: int = wire("queueId", int, default=-1)
    offset: int | None = wire("offset", int, default=None)
    timestamp_ms: int = wire("timestamp", int)
    is_force: bool = wire("isForce", bool, default=True)
    broker_name: str | None = wire("bname", str, default=None)


@dataclass(slots=True, kw_only=True)
class ConsumerStatusRequestHeader(Header):
    """GET_CONSUMER_STATUS_FROM_CLIENT."""

    topic: str = wire("topic", str)
    group: str = wire("group", str)
    client_addr: str | None = wire("clientAddr", str, default=None)


@dataclass(slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE."""

    topic: str = wire("topic", str)
    queue_id: int = wire("queueId", int)
    index: int = wire("index", int)
    count: int = wire("count", int)
    consumer_group: str | None = wire("consumerGroup", str, default=None)


@dataclass(slots=True, kw_only=True)
class ConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str = wire("topic", str)
    group: str = wire("group", str)
