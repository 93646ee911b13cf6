"""Registers the broker and its topics with every name server.

Place in the walk: on start, at once after a topic changed, and each 30 s; clients then find the
broker by its topics.

A round after a change sends what changed, all others send every topic: otherwise making ten
thousand topics one by one would send fifty million.

A slave registers under an id of its own, and a node that is neither says farewell. The term of a
master is in its tables' version, by which name servers pass over a former master.

Invariant: at most one round is under way, and a change during a round starts another one; a change
of the role does not wait for the round's end. Name servers take over the topics of a registration
whose data version is new to them, so a whole table that follows a partial one gets a new version:
one that missed the part, or began anew since, takes it all. A table of very many topics is sent in
parts. A name server that is away is tried again, soon and then less often; the broker serves all
the same. Absent on purpose: routes (engine/namesrv).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import islice

from engine.broker.identity import BrokerNode, Role
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import DEDUPLICATION, READ_WRITE, Topics, is_on
from engine.foundation.errors import TidemarkError
from engine.foundation.limits import REGISTRATION_TOPICS_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.hashes import body_crc
from engine.protocol.headers_admin import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from engine.protocol.names import DEDUPLICATION_FLAG
from engine.remoting import RpcClient

REGISTER_TIMEOUT_MS = 6 * SECOND_MS
FAREWELL_TIMEOUT_MS = SECOND_MS
TOLD_WAIT_MS = 3 * SECOND_MS
"""How long the answer to a tool that made a topic waits for the name servers (RocketMQ)."""
RETRY_MS = SECOND_MS
"""A name server that did not hear is sent it again so soon, then after twice as long, and so on."""
DOUBLINGS_MAX = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownMaster:
    """The master of this slave, as a name server knows it."""

    address: str
    ha_address: str


@dataclass(slots=True, kw_only=True, eq=False)
class Registration:
    """Keeps the name servers informed."""

    changes: TableChanges
    node: BrokerNode
    topics: Topics
    client: RpcClient
    master: KnownMaster | None = field(default=None, init=False)
    """Named to a slave by the last name server that knew one."""
    _failed_rounds: int = field(default=0, init=False)
    """Rounds since all name servers heard."""
    _registered_id: int | None = field(default=None, init=False)
    """The broker id under which name servers may know it; None: they do not."""
    _reported_in_part: bool = field(default=False, init=False)
    """Was anything reported since the last whole table?"""
    _begun: int = field(default=0, init=False)
    """Number of the newest round; `_ended`: of the newest that is over."""
    _ended: int = field(default=0, init=False)
    _turned: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)

    async def registered(self) -> None:
        """Wait until the name servers have heard of the topics as they are now, TOLD_WAIT_MS at
        most: whoever made one may look it up there at once.
        """
        if not self.node.config.namesrv_addresses:
            return
        # A change that no round has taken yet goes with the next one.
        due = self._begun + self.changes.to_register.is_set()
        try:
            async with asyncio.timeout(TOLD_WAIT_MS / SECOND_MS), self._turned:
                await self._turned.wait_for(lambda: self._ended >= due)
        except TimeoutError:
            _log.warning("the name servers are slow to hear of a topic; it is registered again")

    async def run(self) -> None:
        """Register when wanted, and the whole table each `register_interval_ms` whatever was
        reported between, until cancelled: what a name server has lost of it comes back.
        """
        interval_ms, loop = self.node.config.register_interval_ms, asyncio.get_running_loop()
        whole_due = loop.time() + interval_ms / SECOND_MS
        while True:
            due = whole_due
            if self._failed_rounds:
                due = min(due, loop.time() + (RETRY_MS << self._failed_rounds - 1) / SECOND_MS)
            try:
                async with asyncio.timeout_at(due):
                    await self.changes.to_register.wait()
            except TimeoutError:
                pass
            whole = self._failed_rounds > 0 or loop.time() >= due
            await self._round(whole=whole)
            if whole:
                whole_due = loop.time() + interval_ms / SECOND_MS

    async def _round(self, *, whole: bool) -> None:
        """One round, given up when the role changes: one name server that does not answer would
        keep the others from hearing who leads.
        """
        loop = asyncio.get_running_loop()
        self.changes.role_to_register.clear()
        work = loop.create_task(self.register(whole=whole))
        changed = loop.create_task(self.changes.role_to_register.wait())
        try:
            await asyncio.wait((work, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            is_given_up = work.cancel()
            outcomes = await asyncio.gather(work, return_exceptions=True)
        if not is_given_up and outcomes[0] is not None:
            raise outcomes[0]

    async def register(self, *, whole: bool = True) -> None:
        """One round over all name servers, side by side: every topic, or if not `whole` those that
        changed since the last round and the role is as it was.
        """
        self.changes.to_register.clear()
        self._begun += 1
        number, node, heard = self._begun, self.node, False
        try:
            if node.role is Role.NONE:
                heard = await self.unregister()
            else:
                whole = whole or self._registered_id != node.broker_id
                self._registered_id = node.broker_id
                heard = await self._register_all(whole=whole)
        except asyncio.CancelledError:
            number = self._ended  # Given up: whoever waits for it hears of the next round.
            raise
        finally:
            self._failed_rounds = 0 if heard else min(self._failed_rounds + 1, DOUBLINGS_MAX)
            async with self._turned:
                self._ended = number
                self._turned.notify_all()

    async def _register_all(self, *, whole: bool) -> bool:
        """Did all name servers hear?"""
        requests = []
        for part in self._registrations(self._due_topics(whole=whole)):
            requests.append(part)
            await asyncio.sleep(0)
        heard = await asyncio.gather(
            *(
                self._send_all(address, requests, whole=whole)
                for address in self.node.config.namesrv_addresses
            )
        )
        return all(heard)

    async def unregister(self) -> bool:
        """Say farewell to all name servers; did all hear, as far as they have to?"""
        config, broker_id = self.node.config, self._registered_id
        if broker_id is None:
            return True
        fields = UnregisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.node.address,
            cluster_name=config.cluster_name,
            broker_id=broker_id,
        ).encode()
        command = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, fields)
        heard = await asyncio.gather(
            *(
                self._send(address, command, FAREWELL_TIMEOUT_MS)
                for address in config.namesrv_addresses
            )
        )
        if all(heard):
            self._registered_id = None
        return all(heard)

    def _due_topics(self, *, whole: bool) -> dict[str, TopicConfig]:
        topics = self.topics
        if whole and self._reported_in_part:
            topics.touch()
        changed = topics.take_untold()
        self._reported_in_part = changed is not None and not whole
        if changed is None or whole:
            return topics.table()
        return {config.topic_name: config for config in changed}

    def _registrations(self, topics: dict[str, TopicConfig]) -> Iterator[RemotingCommand]:
        """One registration, or several of REGISTRATION_TOPICS_MAX topics each. Their versions
        differ, so that a name server takes over each; the last one has the table's.
        """
        permission = self.node.config.broker_permission
        version = self.node.data_version(self.topics.counter)
        waiting, to_come = iter(topics.items()), max(0, len(topics) - 1) // REGISTRATION_TOPICS_MAX
        for later in range(to_come, -1, -1):
            table = _permitted(dict(islice(waiting, REGISTRATION_TOPICS_MAX)), permission)
            yield self._registration(
                table,
                DataVersion(version.state_version, version.timestamp - later, version.counter),
            )

    def _registration(
        self, topics: dict[str, TopicConfig], version: DataVersion
    ) -> RemotingCommand:
        config = self.node.config
        body = RegisterBrokerBody(data_version=version, topic_config_table=topics).encode()
        fields = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.node.address,
            cluster_name=config.cluster_name,
            ha_server_addr=self.node.ha_address or self.node.address,
            broker_id=self.node.broker_id,
            compressed=False,
            body_crc32=body_crc(body),
        ).encode()
        return RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, body)

    async def _send_all(
        self, address: str, requests: list[RemotingCommand], *, whole: bool
    ) -> bool:
        """Was all of it heard? A whole table of several parts is reported only to who has another:
        their versions would else be news each time, and undo what was wiped there.
        """
        if whole and len(requests) > 1 and await self._is_known(address):
            return True
        for part in requests:
            if not await self._send(address, part, REGISTER_TIMEOUT_MS):
                return False
        return True

    async def _is_known(self, address: str) -> bool:
        """Has the name server this very table? Then it has heard that the broker lives, too."""
        config, version = self.node.config, self.node.data_version(self.topics.counter)
        fields = QueryDataVersionRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.node.address,
            cluster_name=config.cluster_name,
            broker_id=self.node.broker_id,
        ).encode()
        request = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, fields, version.encode())
        try:
            answer = await self.client.invoke(address, request, timeout_ms=REGISTER_TIMEOUT_MS)
            changed = QueryDataVersionResponseHeader.decode(answer.fields).changed
        except TidemarkError:
            return False  # Telling it all says why.
        return answer.code == ResponseCode.SUCCESS and not changed

    async def _send(self, address: str, command: RemotingCommand, timeout_ms: int) -> bool:
        """Was it heard?"""
        request = RemotingCommand.request(command.code, command.fields, command.body)
        try:
            response = await self.client.invoke(address, request, timeout_ms=timeout_ms)
        except TidemarkError as error:
            _log.warning("name server %s: %s", address, error)
            return False
        if command.code == RequestCode.REGISTER_BROKER and not self.node.is_master:
            named = RegisterBrokerResponseHeader.decode(response.fields)
            is_other = named.master_addr != self.node.address
            if named.master_addr and named.ha_server_addr and is_other:
                self.master = KnownMaster(named.master_addr, named.ha_server_addr)
        if response.code != ResponseCode.SUCCESS:
            _log.warning("name server %s refused: %d %s", address, response.code, response.remark)
        return response.code == ResponseCode.SUCCESS


def _permitted(topics: dict[str, TopicConfig], broker_permission: int) -> dict[str, TopicConfig]:
    """The topics with no more permission than the broker gives, and with the bit that producers go
    by; other bits stay.
    """
    table = {}
    for name, topic in topics.items():
        table[name] = topic
        is_once = bool(topic.attributes) and is_on(topic.attributes, DEDUPLICATION)
        if is_once or broker_permission != READ_WRITE:
            table[name] = copy(topic)
            table[name].perm = topic.perm & (~READ_WRITE | broker_permission)
            table[name].topic_sys_flag |= DEDUPLICATION_FLAG if is_once else 0
    return table
