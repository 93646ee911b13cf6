"""Finds a cluster's proxies and the group members connected through them.

Place in the walk: `polling` asks a broker for the connected members of a group, and then the
proxies. Clients of a gRPC SDK are connected with a proxy alone; their broker says that nobody is
there.

A proxy is seen by its membership in the group by which proxies share heartbeats. What it says there
is not the port at which it may be asked, so that port is given (`--proxy`). Proxies exchange their
clients, so one that answers speaks for all.

Invariant: as long as a proxy serves the cluster and none answers, the members that are not
connected with the broker are unknown, with the reason, and never none. One that does not answer is
asked no more in that look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import ConfigError, RequestRefused, TidemarkError
from engine.observer.believable import is_address, is_client
from engine.observer.question_turns import PROXIES, Questions, said_names
from engine.protocol.bodies import ConsumerConnection
from engine.protocol.bodies_admin import ClientConnection
from engine.protocol.codes import ResponseCode

HEARTBEAT_GROUP: Final = "CID_DefaultHeartBeatSyncerTopic"
"""Group in which each proxy of a cluster is, at every broker of it."""
PROXIES_MAX: Final = 16
"""How many proxies are asked; one that answers is enough."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The clients of a group that are connected with its broker or a proxy."""

    connection: ConsumerConnection | None
    """None: nobody, or nobody is known."""
    proxy_of: dict[str, str] = field(default_factory=dict)
    """By client id, the proxy that named it."""
    unknown_reason: str | None = None
    """Why it is not known who is there; None: it is."""


def check_proxies(addresses: Sequence[str]) -> tuple[str, ...]:
    """The addresses, each once. Raises ConfigError for one that is none, or for too many."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        is_port = port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
        if not host or not is_port or not is_address(address):
            raise ConfigError("proxy", address, "the remoting port of a proxy, as proxy-1:8080")
    once = tuple(dict.fromkeys(addresses))
    if len(once) > PROXIES_MAX:
        raise ConfigError("proxy", str(len(once)), f"{PROXIES_MAX} proxies at most: one is enough")
    return once


def hosts_of(heartbeats: ConsumerConnection | None) -> tuple[str, ...]:
    """Where the proxies are that a broker sees in the group of their heartbeats."""
    connections = [] if heartbeats is None else heartbeats.connection_set
    hosts = (
        one.client_addr.rpartition(":")[0] for one in connections if is_address(one.client_addr)
    )
    return tuple(sorted({host for host in hosts if host}))


def merged(
    at_broker: ConsumerConnection | None, at_proxies: Sequence[tuple[str, ConsumerConnection]]
) -> GroupMembers:
    """All that are connected; a client that both name is the broker's."""
    if at_broker is None and not at_proxies:
        return GroupMembers(None)
    answers = [] if at_broker is None else [at_broker]
    answers += [answer for _, answer in at_proxies]
    whole = ConsumerConnection(
        consume_type=answers[0].consume_type,
        message_model=answers[0].message_model,
        consume_from_where=answers[0].consume_from_where,
    )
    seen: set[str] = set()
    if at_broker is not None:
        whole.connection_set += at_broker.connection_set
        seen = {one.client_id for one in at_broker.connection_set}
    proxy_of: dict[str, str] = {}
    for proxy, answer in at_proxies:
        new = [one for one in _believed(answer.connection_set) if one.client_id not in seen]
        whole.connection_set += new
        seen |= {one.client_id for one in new}
        proxy_of |= {one.client_id: proxy for one in new}
    for one in answers:
        whole.subscription_table |= one.subscription_table
    return GroupMembers(whole, proxy_of)


def unreached(hosts: Sequence[str], asked: Sequence[str]) -> str | None:
    """Why nobody knows who is connected with proxies; None: no proxy is there."""
    if asked:
        return f"no proxy answers: {said_names(asked)}"
    if not hosts:
        return None
    if len(hosts) == 1:
        return f"a proxy at {hosts[0]} serves this cluster; give its port with --proxy"
    return f"proxies at {said_names(hosts)} serve this cluster; give a port of one with --proxy"


def _believed(connections: Iterable[ClientConnection]) -> list[ClientConnection]:
    return [one for one in connections if is_client(one.client_id) and is_address(one.client_addr)]


class ProxiesAsked:
    """The proxies, as they answer in this look."""

    def __init__(self, admin: Admin, questions: Questions, addresses: Sequence[str]) -> None:
        self._admin = admin
        self._questions = questions
        self._addresses = addresses
        self._silent: dict[str, None] = {}
        self._answered: dict[str, None] = {}

    @property
    def is_answered(self) -> bool:
        """Has one of them answered, and is it still not silent?"""
        return any(one not in self._silent for one in self._answered)

    async def connected(self, group: str) -> list[tuple[str, ConsumerConnection]]:
        """By proxy, who is connected of the group."""
        found: list[tuple[str, ConsumerConnection]] = []
        for address in self._addresses:
            if address in self._silent:
                continue
            try:
                connections = await self._admin.groups.connections(address, group)
            except RequestRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    self._fail(address, error)
                    continue
            except TidemarkError as error:
                self._fail(address, error)
                continue
            else:
                found.append((address, connections))
            self._answered[address] = None
        return found

    def _fail(self, address: str, error: TidemarkError) -> None:
        self._silent[address] = None
        self._questions.failed(PROXIES, address, error)
