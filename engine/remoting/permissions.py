"""Pure functions that determine the permissions required by each request.

Place in the walk: in `gate`, between the signature and the handler. The names are taken from the
fields and bodies by the same decoders that the handlers use, so that what is checked is what is
done.

    ADMIN        an administrator's account; without accounts, a peer on this machine
    WATCHER      the same, or an account that may watch: it reads how all stand, and changes nothing
    ANY_ACCOUNT  whoever has signed
    a function   the permissions that follow from the request itself

Invariant: a code that is not listed demands an administrator. A request whose names cannot be read
is refused before its handler. Absent on purpose: whether a code is served at all (handler tables).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import HeartbeatData, LockBatchRequest
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.dead_letters import DISCARDS_TOPIC, PROPERTY_DEAD_GROUP
from engine.protocol.header_fields import RequestHeader
from engine.protocol.headers import (
    ConsumerSendMessageBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    ViewMessageRequestHeader,
)
from engine.protocol.properties import decode_properties
from engine.remoting.accounts import ClientId, Demand, Permission, group_demand, topic_demand


@dataclass(frozen=True, slots=True)
class MessageAt:
    """A permission needed for the topic of a stored message, whichever that is."""

    physical_offset: int
    permission: Permission


Asked = Demand | MessageAt | ClientId
"""What a request needs of its account."""

DemandsOf = Callable[[RemotingCommand], list[Asked]]


class Need(Enum):
    """Demands that do not depend on what the request says."""

    ADMIN = "admin"
    WATCHER = "watcher"
    ANY_ACCOUNT = "account"


def _publish(request: RemotingCommand) -> list[Asked]:
    topic = _field(request, "topic")
    return [
        topic_demand(topic, Permission.PUB),
        *_decided(topic, request.fields.get("properties")),
    ]


def _publish_v2(request: RemotingCommand) -> list[Asked]:
    header = SendMessageRequestHeader.decode_v2(request.fields)
    return [
        topic_demand(header.topic, Permission.PUB),
        *_decided(header.topic, header.properties),
    ]


def _publish_batch(request: RemotingCommand) -> list[Asked]:
    demands = _publish_v2(request)
    if SendMessageRequestHeader.decode_v2(request.fields).topic == DISCARDS_TOPIC:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"a batch to {DISCARDS_TOPIC} is for administrators: send each decision alone",
        )
    return demands


def _decided(topic: str, properties: str | None) -> list[Asked]:
    """A message of DISCARDS_TOPIC decides about the dead letters of the group that it names."""
    if topic != DISCARDS_TOPIC:
        return []
    group = decode_properties(properties or "").get(PROPERTY_DEAD_GROUP)
    return [group_demand(group)] if group else []


def _read(request: RemotingCommand) -> list[Asked]:
    return [topic_demand(_field(request, "topic"), Permission.SUB)]


def _read_as_group(request: RemotingCommand) -> list[Asked]:
    return [group_demand(_field(request, "consumerGroup")), *_read(request)]


def _group(request: RemotingCommand) -> list[Asked]:
    return [group_demand(_field(request, "consumerGroup"))]


def _leave(request: RemotingCommand) -> list[Asked]:
    group = request.fields.get("consumerGroup")
    own: list[Asked] = [ClientId(request.fields.get("clientID", ""))]
    return [*own, group_demand(group)] if group else own


def _send_back(request: RemotingCommand) -> list[Asked]:
    header = ConsumerSendMessageBackRequestHeader.decode(request.fields)
    return [group_demand(header.group), MessageAt(header.offset, Permission.SUB)]


def _end_transaction(request: RemotingCommand) -> list[Asked]:
    """The half message says what its topic is. Its producer may not know better than the question
    it answers, where the topic is that of all half messages.
    """
    header = EndTransactionRequestHeader.decode(request.fields)
    return [MessageAt(header.commit_log_offset, Permission.PUB)]


def _view(request: RemotingCommand) -> list[Asked]:
    header = ViewMessageRequestHeader.decode(request.fields)
    return [MessageAt(header.offset, Permission.SUB)]


def _heartbeat(request: RemotingCommand) -> list[Asked]:
    heartbeat = HeartbeatData.decode(request.body)
    demands: list[Asked] = [ClientId(heartbeat.client_id)]
    for consumer in heartbeat.consumer_data_set:
        demands.append(group_demand(consumer.group_name))
        demands += [
            topic_demand(subscription.topic, Permission.SUB)
            for subscription in consumer.subscription_data_set
        ]
    return demands


def _lock(request: RemotingCommand) -> list[Asked]:
    batch = LockBatchRequest.decode(request.body)
    topics = dict.fromkeys(queue.topic for queue in batch.mq_set)
    return [
        ClientId(batch.client_id),
        group_demand(batch.consumer_group),
        *(topic_demand(topic, Permission.SUB) for topic in topics),
    ]


class _GroupAndTopic(RequestHeader, kw_only=True):
    consumer_group: str
    topic: str


def _assignment(request: RemotingCommand) -> list[Asked]:
    try:
        wanted = msgspec.json.decode(request.body, type=_GroupAndTopic)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"it names no group: {error}") from error
    return [group_demand(wanted.consumer_group), topic_demand(wanted.topic, Permission.SUB)]


def _field(request: RemotingCommand, name: str) -> str:
    value = request.fields.get(name)
    if not value:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"the request names no {name}")
    return value


DEMANDS: Final[Mapping[int, Need | DemandsOf]] = {
    # Producers.
    Code.SEND_MESSAGE: _publish,
    Code.SEND_MESSAGE_V2: _publish_v2,
    Code.SEND_BATCH_MESSAGE: _publish_batch,
    Code.SEND_REPLY_MESSAGE: _publish,
    Code.SEND_REPLY_MESSAGE_V2: _publish_v2,
    Code.END_TRANSACTION: _end_transaction,
    Code.RECALL_MESSAGE: _publish,
    # Consumers.
    Code.PULL_MESSAGE: _read_as_group,
    Code.LITE_PULL_MESSAGE: _read_as_group,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.QUERY_CONSUMER_OFFSET: _read_as_group,
    Code.UPDATE_CONSUMER_OFFSET: _read_as_group,
    Code.GET_CONSUMER_LIST_BY_GROUP: _group,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.POP_MESSAGE: _read_as_group,
    Code.PEEK_MESSAGE: _read_as_group,
    Code.ACK_MESSAGE: _read_as_group,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _read_as_group,
    Code.NOTIFICATION: _read_as_group,
    Code.POLLING_INFO: _read_as_group,
    Code.POP_ROLLBACK: _read_as_group,
    # Either.
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _leave,
    Code.CHECK_CLIENT_CONFIG: Need.ANY_ACCOUNT,
    Code.GET_ROUTEINFO_BY_TOPIC: Need.ANY_ACCOUNT,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _read,
    Code.GET_MAX_OFFSET: _read,
    Code.GET_MIN_OFFSET: _read,
    Code.GET_EARLIEST_MSG_STORETIME: _read,
    Code.QUERY_MESSAGE: _read,
    Code.VIEW_MESSAGE_BY_ID: _view,
    # Who watches the cluster from outside.
    Code.GET_BROKER_CLUSTER_INFO: Need.WATCHER,
    Code.QUERY_DATA_VERSION: Need.WATCHER,
    Code.GET_BROKER_RUNTIME_INFO: Need.WATCHER,
    Code.GET_BROKER_CONFIG: Need.WATCHER,
    Code.GET_BROKER_HA_STATUS: Need.WATCHER,
    Code.GET_BROKER_CONSUME_STATS: Need.WATCHER,
    Code.GET_ALL_TOPIC_CONFIG: Need.WATCHER,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Need.WATCHER,
    Code.GET_TOPIC_STATS_INFO: Need.WATCHER,
    Code.GET_CONSUMER_CONNECTION_LIST: Need.WATCHER,
    Code.GET_CONSUMER_RUNNING_INFO: Need.WATCHER,
    Code.QUERY_CONSUME_TIME_SPAN: Need.WATCHER,
}
"""Codes that more than administrators may use. Whatever is not here is theirs alone: settings,
topics, groups and what others store there, registration of brokers, replication.
"""

SPEAK_FOR: Final = frozenset(
    (Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ)
)
"""Codes whose requests speak for a client id."""


def demands_of(code: int) -> Need | DemandsOf:
    """What a request with this code demands; what is not listed (settings, DELETE_TOPIC_IN_BROKER
    and the like) is for administrators.
    """
    return DEMANDS.get(code, Need.ADMIN)
