"""Topic administration: settings, queues, routes and subscribed groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.admin.api.requests import AdminRequests
from engine.foundation.errors import ConnectFailed, RemoteProtocolError, RequestRefused
from engine.foundation.limits import TOPICS_MAX
from engine.protocol.bodies import (
    DataVersion,
    GroupList,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from engine.protocol.bodies_admin import ConsumeQueueUnits, TopicConfigs
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    AllTopicConfigRequestHeader,
    AllTopicConfigResponseHeader,
    CreateTopicRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryDataVersionRequestHeader,
)
from engine.protocol.message import MessageQueue
from engine.protocol.names import AUTO_CREATE_TOPIC, MASTER_ID, Perm

TOPICS_A_PAGE: Final = 2000
NO_VERSION: Final = DataVersion(counter=-1)
"""Equals the version of no broker: a name server takes an equal one for a sign of life."""


class TopicAdmin:
    """Questions and orders about topics."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def names(self) -> list[str]:
        """All topics the name server knows, sorted."""
        answer = await self._requests.ask_namesrv(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
        )
        return sorted(TopicList.decode(answer.body).topic_list)

    async def system_names(self, broker_address: str) -> list[str]:
        """Topics that a broker has for itself, sorted."""
        answer = await self._requests.ask(
            broker_address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}
        )
        return sorted(TopicList.decode(answer.body).topic_list)

    async def route(self, topic: str) -> TopicRouteData | None:
        """Brokers and queues of a topic; None when no broker has it."""
        answer = await self._requests.routes.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return TopicRouteData.decode(answer.body)

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """A topic's settings on each broker that has it, by broker name, sorted."""
        found: dict[str, TopicConfig] = {}
        for name, address in (await self._requests.masters()).items():
            config = await self.config_at(address, topic)
            if config is not None:
                found[name] = config
        return found

    async def config_at(self, broker_address: str, topic: str) -> TopicConfig | None:
        """A topic's settings on one broker; None when it has none of that name."""
        try:
            answer = await self._requests.ask(
                broker_address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}
            )
        except RequestRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return TopicConfig.decode(answer.body)

    async def configs_at(self, broker_address: str) -> dict[str, TopicConfig]:
        """Settings of every topic of one broker, by topic, sorted. A broker that returns them in
        pages (RocketMQ 5.4 and later) is asked for each. Raises RemoteProtocolError when that does
        not end.
        """
        found: dict[str, TopicConfig] = {}
        while True:
            header = AllTopicConfigRequestHeader(topic_seq=len(found), max_topic_num=TOPICS_A_PAGE)
            answer = await self._requests.ask(
                broker_address, RequestCode.GET_ALL_TOPIC_CONFIG, header.encode()
            )
            page = TopicConfigTable.decode(answer.body).topic_config_table
            found |= page
            total = AllTopicConfigResponseHeader.decode(answer.fields).total_topic_num
            if total is None or len(found) >= total or not page:
                return dict(sorted(found.items()))
            if len(found) >= TOPICS_MAX:
                raise RemoteProtocolError(
                    f"{broker_address} returned {len(found)} topics and has more: {TOPICS_MAX} are "
                    "read"
                )

    async def status(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The ends of each queue a producer may write, sorted. RequestRefused for no topic."""
        addresses = await self._requests.brokers_of(topic)
        if not addresses:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
        found: dict[MessageQueue, TopicOffset] = {}
        for address in addresses:
            found |= await self.status_at(address, topic)
        return dict(sorted(found.items()))

    async def status_at(self, broker_address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The ends of each queue of a topic on one broker. RequestRefused when it has none."""
        answer = await self._requests.ask(
            broker_address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}
        )
        return TopicStatsTable.decode(answer.body).offset_table

    async def groups(self, topic: str) -> list[str]:
        """Groups that subscribe to a topic or have offsets on it, sorted."""
        found: dict[str, None] = {}
        for address in await self._requests.brokers_of(topic):
            answer = await self._requests.ask(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}
            )
            found |= dict.fromkeys(GroupList.decode(answer.body).group_list)
        return sorted(found)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted; empty when no broker has it."""
        await self._requests.routes.refresh(topic)
        return await self._requests.routes.readable_queues(topic) or []

    async def table_version(
        self, cluster: str, broker_name: str, broker_address: str
    ) -> DataVersion | None:
        """Version of the topic table with which a broker registered last at the name server; None
        when the name server knows no such broker. It moves when a topic is made, changed or
        deleted.
        """
        fields = QueryDataVersionRequestHeader(
            broker_name=broker_name,
            broker_addr=broker_address,
            cluster_name=cluster,
            broker_id=MASTER_ID,
        ).encode()
        answer = await self._requests.ask_namesrv(
            RequestCode.QUERY_DATA_VERSION, fields, NO_VERSION.encode()
        )
        return DataVersion.decode(answer.body) if answer.body else None

    async def create(
        self,
        broker_address: str,
        topic: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: int = Perm.READ | Perm.WRITE,
        order: bool = False,
        sys_flag: int = 0,
        attributes: str = "",
        force: bool = False,
    ) -> str:
        """Create a topic on one broker, or change it; `attributes` as `+key=value,-key`.

        Fewer queues to read are refused while that strands messages; `force` takes them all the
        same, and what it stranded is returned in words.
        """
        fields = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=int(perm),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=sys_flag,
            order=order,
            attributes=attributes,
            force=force or None,
        ).encode()
        answer = await self._requests.ask(
            broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields
        )
        return answer.remark or ""

    async def put(self, broker_address: str, configs: Sequence[TopicConfig]) -> None:
        """Create or change topics on one broker: none of them when one is refused."""
        body = TopicConfigs(list(configs)).encode()
        await self._requests.ask(broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)

    async def delete(self, topic: str) -> None:
        """Delete a topic on all its brokers, then in all name servers."""
        await self._requests.routes.refresh(topic)
        for address in self._requests.routes.broker_addresses(masters_only=True):
            await self._requests.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        request_code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        for address in self._requests.connection.config.namesrv_addresses:
            await self._requests.ask(address, request_code, {"topic": topic})

    async def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer may write, sorted. RequestRefused for no topic."""
        route = await self.route(topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no route leads to topic {topic}; create it first (tidemark admin topic create)",
            )
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & Perm.WRITE
            for queue_id in range(data.write_queue_nums)
        )

    async def queue_units(
        self, queue: MessageQueue, offset: int, *, count: int, group: str | None = None
    ) -> ConsumeQueueUnits:
        """What the consume queue says of its messages from an offset on; with what `group`
        subscribes to. RequestRefused for a queue its broker does not have.
        """
        fields = QueryConsumeQueueRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=offset,
            count=count,
            consumer_group=group,
        ).encode()
        address = (await self._requests.masters()).get(queue.broker_name)
        if address is None:
            raise ConnectFailed(f"the name server knows no master of {queue.broker_name}")
        answer = await self._requests.ask(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
        return ConsumeQueueUnits.decode(answer.body)
