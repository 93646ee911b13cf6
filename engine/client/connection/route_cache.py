"""Caches and refreshes the topic routes returned by name servers.

Place in the walk: before the first step.

A broker that does not answer, or is no master, makes the routes to it doubtful: a new one is asked
for at once, and not only when its turn comes; of the next name server, because the one that was
asked may have missed a fail-over.

Invariant: a route that was known stays in use while no name server answers; only an answer changes
it. Concurrent wishes for one topic share one request. Absent on purpose: choosing a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.client.config import ClientConfig
from engine.foundation.errors import ConnectFailed, RequestRefused, Unreachable
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import TopicRouteData
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageQueue
from engine.protocol.names import AUTO_CREATE_TOPIC, DEDUPLICATION_FLAG, MASTER_ID, Perm
from engine.remoting import RpcClient
from engine.runtime import Runtime

DOUBT_EACH_MS = SECOND_MS
"""How often at most a new route to one broker is requested because it fails."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicRoute:
    """A topic's queues, sorted."""

    readable: list[MessageQueue] = field(default_factory=list)
    writable: list[MessageQueue] = field(default_factory=list)
    brokers: list[str] = field(default_factory=list)
    storing_once: frozenset[str] = frozenset()
    """Names of those that store each message once, however often it is sent to them."""


class RouteCache:
    """Routes and broker addresses one client knows."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        rpc: RpcClient,
        *,
        on_new_broker: Callable[[], None],
    ) -> None:
        """`on_new_broker` is called when a route has an address that was not known."""
        self._on_new_broker = on_new_broker
        self._config = config
        self._rpc = rpc
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._namesrv = runtime.entropy.below(len(config.namesrv_addresses))
        self._routes: dict[str, TopicRoute] = {}
        self._new_topics: dict[str, TopicRoute] = {}  # What the broker would make of unknown ones.
        self._addresses: dict[str, dict[int, str]] = {}
        self._template_asked: asyncio.Task[TopicRouteData | None] | None = None
        self._refreshes: dict[str, asyncio.Task[bool]] = {}
        self._doubted_ms: dict[str, int] = {}
        """When a broker's routes were doubted last, by its name."""
        self._closed = False

    def known_topics(self) -> list[str]:
        """Topics somebody asked for, with or without a route."""
        return list(self._routes)

    async def writable_queues(self, topic: str, *, default_queue_count: int) -> list[MessageQueue]:
        """Queues that take messages; for an unknown topic those the broker would make, if it makes
        topics by itself.
        """
        route = self._routes.get(topic)
        if route is None or not route.writable:
            await self.refresh(topic)
            route = self._routes.get(topic)
        if route is None or not route.writable:
            template = await self._template()
            if template is None:
                return []
            route = _route_of(topic, template, queue_count_max=default_queue_count)
            self._new_topics[topic] = route
            self._take_addresses(template)
        return route.writable

    async def readable_queues(self, topic: str) -> list[MessageQueue] | None:
        """Queues that can be read; None while no route is known."""
        route = self._routes.get(topic)
        if route is None or not route.readable:
            await self.refresh(topic)
            route = self._routes.get(topic)
        return route.readable if route is not None and route.brokers else None

    async def refresh(self, topic: str) -> bool:
        """Ask a name server for the route; True when there is one.

        Raises Unreachable when none answers.
        """
        return await asyncio.shield(self.begin_refresh(topic))

    def begin_refresh(self, topic: str) -> asyncio.Future[bool]:
        """As `refresh`, for who leaves a callback instead of waiting. All who want the same topic
        at the same time share what is answered: do not cancel it.
        """
        task = self._refreshes.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topic))
            self._refreshes[topic] = task
            task.add_done_callback(lambda done: self._refreshed(topic, done))
        return task

    def doubt(self, address: str) -> None:
        """A broker there did not answer, or is no master (any more): ask for a new route, unless
        one was asked for a moment ago. The route of one topic has the addresses for all.
        """
        names = [name for name, known in self._addresses.items() if address in known.values()]
        if self._closed or not names:  # A name server, or a broker that no route leads to any more.
            return
        name, now_ms = names[0], self._clock.steady_ms()
        if now_ms - self._doubted_ms.get(name, now_ms - DOUBT_EACH_MS) < DOUBT_EACH_MS:
            return
        self._doubted_ms[name] = now_ms
        topic = next((topic for topic, one in self._routes.items() if name in one.brokers), None)
        if topic is not None:
            self._namesrv += 1
            self.begin_refresh(topic)

    def close(self) -> None:
        """Doubt nothing any more: the client stops."""
        self._closed = True

    async def _refresh(self, topic: str) -> bool:
        data = await self._fetch(topic)
        if data is None:
            self._routes.setdefault(topic, TopicRoute())
            return False
        if any(MASTER_ID not in one.broker_addrs for one in data.broker_datas):
            self._namesrv += 1
        self._routes[topic] = _route_of(topic, data)
        self._new_topics.pop(topic, None)
        self._take_addresses(data)
        return True

    def master_address(self, broker_name: str) -> str | None:
        """Address of the broker's master; None when it has none."""
        return self._addresses.get(broker_name, {}).get(MASTER_ID)

    async def find_master(self, queue: MessageQueue) -> str:
        """Address of the master of a queue; when no route leads there, each name server is asked.

        Raises ConnectFailed when none does then, Unreachable when no name server answers.
        """
        address = self.master_address(queue.broker_name)
        for _ in self._config.namesrv_addresses:
            if address is not None:
                break
            await self.refresh(queue.topic)
            address = self.master_address(queue.broker_name)
        if address is None:
            raise ConnectFailed(f"no route leads to a master of {queue.broker_name} for {queue}")
        return address

    def address_for_reading(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Address of the asked instance of a broker, or of any other when that one is away."""
        instances = self._addresses.get(broker_name, {})
        if broker_id in instances:
            return instances[broker_id]
        return instances[min(instances)] if instances else None

    def stores_once(self, topic: str, broker_name: str) -> bool:
        """Does this broker know a message of the topic again, by its latest route?"""
        route = self._routes.get(topic)
        return route is not None and broker_name in route.storing_once

    async def any_broker_of(self, topic: str) -> str | None:
        """Address of one broker of `topic`, chosen at random."""
        await self.readable_queues(topic)
        route = self._routes.get(topic)
        brokers = [] if route is None else [b for b in route.brokers if self._addresses.get(b)]
        if not brokers:
            return None
        return self.address_for_reading(brokers[self._entropy.below(len(brokers))])

    def broker_addresses(self, *, masters_only: bool) -> list[str]:
        """Addresses of all brokers known from any route."""
        return [
            address
            for instances in self._addresses.values()
            for broker_id, address in sorted(instances.items())
            if broker_id == MASTER_ID or not masters_only
        ]

    async def ask_namesrv(
        self, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Ask one name server, then the next. Raises Unreachable when none answers."""
        addresses = self._config.namesrv_addresses
        failure: Unreachable = ConnectFailed("no name server was asked")
        for _ in addresses:
            address = addresses[self._namesrv % len(addresses)]
            try:
                return await self._rpc.invoke(
                    address,
                    RemotingCommand.request(code, dict(fields), body),
                    timeout_ms=self._config.request_timeout_ms,
                )
            except Unreachable as error:
                failure = error
                self._namesrv += 1
        raise failure

    async def _template(self) -> TopicRouteData | None:
        """What new topics are made like; callers at the same time share one request."""
        task = self._template_asked
        if task is None:
            task = self._template_asked = asyncio.get_running_loop().create_task(
                self._fetch(AUTO_CREATE_TOPIC)
            )
            task.add_done_callback(self._template_answered)
        return await asyncio.shield(task)

    def _template_answered(self, task: asyncio.Task[TopicRouteData | None]) -> None:
        self._template_asked = None
        _take_note(task)

    def _refreshed(self, topic: str, task: asyncio.Task[bool]) -> None:
        del self._refreshes[topic]
        _take_note(task)

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        """The route as the name server returns it; None when it knows none."""
        answer = await self.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "no remark")
        return TopicRouteData.decode(answer.body)

    def _take_addresses(self, data: TopicRouteData) -> None:
        known = self.broker_addresses(masters_only=False)
        for broker in data.broker_datas:
            self._addresses[broker.broker_name] = dict(broker.broker_addrs)
        in_use = [*self._routes.values(), *self._new_topics.values()]
        for name in list(self._addresses):
            if not any(name in route.brokers for route in in_use):
                del self._addresses[name]  # No route leads there any more.
                self._doubted_ms.pop(name, None)
        if any(address not in known for address in self.broker_addresses(masters_only=False)):
            self._on_new_broker()


def _take_note(task: asyncio.Task[Any]) -> None:
    """Of its error, even when all who waited for it were cancelled."""
    if not task.cancelled():
        task.exception()


def _route_of(
    topic: str, data: TopicRouteData, *, queue_count_max: int | None = None
) -> TopicRoute:
    """Queues of the route; only brokers with a master take messages.

    A limit is for the template of new topics.
    """
    with_master = {b.broker_name for b in data.broker_datas if MASTER_ID in b.broker_addrs}
    route = TopicRoute(brokers=sorted(broker.broker_name for broker in data.broker_datas))
    route.storing_once = frozenset(
        queues.broker_name
        for queues in data.queue_datas
        if queues.topic_sys_flag & DEDUPLICATION_FLAG
    )
    for queues in data.queue_datas:
        name = queues.broker_name
        read_count, write_count = queues.read_queue_nums, queues.write_queue_nums
        if queue_count_max is not None:
            read_count = write_count = min(queue_count_max, read_count)
        if queues.perm & Perm.READ:
            route.readable += [MessageQueue(topic, name, number) for number in range(read_count)]
        if queues.perm & Perm.WRITE and name in with_master:
            route.writable += [MessageQueue(topic, name, number) for number in range(write_count)]
    route.readable.sort()
    route.writable.sort()
    return route
