"""Custom headers for administration and name-server requests.

Place in the walk: beside it: brokers registering, clients asking for routes, RocketMQ's tools and
our admin client.

Invariant and source as in `headers_client`.
"""

from __future__ import annotations

from engine.protocol.header_fields import Int32, Int64, RequestHeader, ResponseHeader, wire_name

# ---- topics and groups of a broker ---------------------------------------------------------


class CreateTopicRequestHeader(RequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicRequestHeader(RequestHeader, kw_only=True):
    """Whatever is about one topic.

    GET_TOPIC_STATS_INFO (202), DELETE_TOPIC_IN_BROKER (215), DELETE_TOPIC_IN_NAMESRV (216),
    QUERY_TOPIC_CONSUME_BY_WHO (300), GET_TOPIC_CONFIG (351).
    """

    topic: str
    cluster_name: str | None = None
    broker_name: str | None = wire_name("bname", None)


class AllTopicConfigRequestHeader(RequestHeader, kw_only=True):
    """GET_ALL_TOPIC_CONFIG (21), page by page since 5.4."""

    topic_seq: Int32 | None = None
    max_topic_num: Int32 | None = None
    data_version: str | None = None


class AllTopicConfigResponseHeader(ResponseHeader, kw_only=True):
    """How many topics there are in all."""

    total_topic_num: Int32 | None = None


class AllGroupConfigResponseHeader(ResponseHeader, kw_only=True):
    """How many groups there are in all."""

    total_group_num: Int32 | None = None


class SubscriptionGroupRequestHeader(RequestHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RequestHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


class BrokerConfigResponseHeader(ResponseHeader, kw_only=True):
    """GET_BROKER_CONFIG (26): the version is a DataVersion as JSON text."""

    version: str


# ---- looking at a broker -------------------------------------------------------------------


class ConsumeStatsRequestHeader(RequestHeader, kw_only=True):
    """GET_CONSUME_STATS (208)."""

    consumer_group: str
    topic: str | None = None
    """None: every topic of the group."""
    topic_list: str | None = None
    broker_name: str | None = wire_name("bname", None)


class BrokerConsumeStatsRequestHeader(RequestHeader, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = False


class ProducerConnectionRequestHeader(RequestHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class ConsumeTimeSpanRequestHeader(RequestHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryConsumeQueueRequestHeader(RequestHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: Int32
    index: Int64
    """Queue offset of the first entry."""
    count: Int32
    consumer_group: str | None = None


class QueryGroupsTopicsRequestHeader(RequestHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


class QuerySubscriptionRequestHeader(RequestHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


class ViewBrokerStatsRequestHeader(RequestHeader, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class CloneGroupOffsetRequestHeader(RequestHeader, kw_only=True):
    """CLONE_GROUP_OFFSET (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class DeleteConsumerOffsetsRequestHeader(RequestHeader, kw_only=True):
    """DELETE_CONSUMER_OFFSETS (720207)."""

    group: str
    topic: str
    dry_run: bool = False
    """Only say what would be deleted, or why not."""


class QueryCorrectionOffsetRequestHeader(RequestHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308)."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


# ---- name server ---------------------------------------------------------------------------


class ChangeReplicaRequestHeader(RequestHeader, kw_only=True):
    """CHANGE_REPLICA (720209)."""

    action: str
    """HOLD, COPY, PROMOTE, DEMOTE, PREVIEW or REBUILD; of a Raft group ADD, REMOVE or TRANSFER."""
    epoch: Int64 = 0
    broker_role: str = ""
    in_sync_replicas: Int64 = 1
    broker_id: Int64 = 1
    """Which it goes by as a slave."""
    log_end: Int64 = -1
    """Where a log is to be cut."""
    member: str = ""
    """Of a Raft group: the name of a node, `n3-127.0.0.1:40914`."""


class RegisterBrokerRequestHeader(RequestHeader, kw_only=True):
    """REGISTER_BROKER (103); topics are in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_ms: Int64 | None = wire_name("heartbeatTimeoutMillis", None)
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0
    """CRC-32 of the body as sent, without its highest bit; 0: not reported."""


class RegisterBrokerResponseHeader(ResponseHeader, kw_only=True):
    """What a slave has to know of its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(RequestHeader, kw_only=True):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(RequestHeader, kw_only=True):
    """QUERY_DATA_VERSION (322); the version is the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(ResponseHeader, kw_only=True):
    """Whether the table that the broker has described is older than the one asked about."""

    changed: bool


class BrokerHeartbeatRequestHeader(RequestHeader, kw_only=True):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_ms: Int64 | None = wire_name("heartbeatTimeoutMills", None)
    election_priority: Int32 | None = None


class BrokerNameRequestHeader(RequestHeader, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipeWritePermResponseHeader(ResponseHeader, kw_only=True):
    """How many topics lost the permission."""

    wipe_topic_count: Int32


class AddWritePermResponseHeader(ResponseHeader, kw_only=True):
    """How many topics got the permission."""

    add_topic_count: Int32


class ClusterRequestHeader(RequestHeader, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class PutKvConfigRequestHeader(RequestHeader, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class KvConfigRequestHeader(RequestHeader, kw_only=True):
    """GET_KV_CONFIG (101), DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class KvNamespaceRequestHeader(RequestHeader, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class KvConfigResponseHeader(ResponseHeader, kw_only=True):
    """GET_KV_CONFIG (101)."""

    value: str | None = None


# ---- users and their rules -----------------------------------------------------------------


class UserRequestHeader(RequestHeader, kw_only=True):
    """AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003), AUTH_GET_USER."""

    username: str


class ListUsersRequestHeader(RequestHeader, kw_only=True):
    """AUTH_LIST_USER (3005): those whose names have this in them."""

    filter: str | None = None


class AclRequestHeader(RequestHeader, kw_only=True):
    """AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007), AUTH_DELETE_ACL (3008), AUTH_GET_ACL (3009).

    A deletion names a resource, or means all.
    """

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(RequestHeader, kw_only=True):
    """AUTH_LIST_ACL (3010): of users, and with resources, whose names have this in them."""

    subject_filter: str | None = None
    resource_filter: str | None = None
