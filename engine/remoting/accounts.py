"""Accounts and permissions as in RocketMQ's plain_acl.yml, reloaded when they change.

Place in the walk: behind the signature, before the handler. An account may publish to topics, and
read topics on behalf of groups; each is a list of permissions by name with a default for the rest:

    DENY   nothing, whatever else is said     PUB   send     SUB   read, and report offsets

A topic of a group (%RETRY%group, %DLQ%group) is decided by the group: SUB, to read and to send
back. Topics and groups of the system are decided only by their own names: no default reaches them.
Nor does it let anybody read the replies that a cluster keeps: they are everybody's.

Invariant: what is not allowed is refused; an administrator's account has no lists and may do
everything. Accounts are replaced together or not at all, between two requests; a file that makes no
sense changes nothing. Absent on purpose: trust in addresses (an address is no proof), certificates,
and the step from a party without accounts to one with them or back: those are for a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag
from typing import Final, Protocol

from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.dead_letters import DISCARDS_TOPIC
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_reply_topic, is_system_topic
from engine.remoting.signing import ACCESS_KEY, SIGNATURE, Credentials, is_genuine

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
NOT_SIGNED: Final = "authentication is required here: the request is not signed"
NOT_GENUINE: Final = "authentication failed: access key or signature is wrong"
_NOBODYS_SECRET: Final = b"no account has this secret"


class Permission(Flag):
    """What an account may do with a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2


class Resource(Enum):
    """What permissions are about."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class ClientId:
    """A client id a request speaks for: no other account may hold it. That is no permission, so
    administrators have no more of it than others.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Demand:
    """One permission a request needs."""

    resource: Resource
    name: str
    permission: Permission


def topic_demand(topic: str, permission: Permission) -> Demand:
    """The permission needed for a topic; those of a group are the group's."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return group_demand(topic.removeprefix(prefix))
    return Demand(Resource.TOPIC, topic, permission)


def group_demand(group: str) -> Demand:
    """The permission needed to act for a consumer group."""
    return Demand(Resource.GROUP, group, Permission.SUB)


@dataclass(frozen=True, slots=True)
class Account:
    """One access key and its permissions. Raises ConfigError for what makes no sense."""

    credentials: Credentials
    admin: bool = False
    watcher: bool = False
    """May it ask how all topics and groups stand? Messages it reads by its permissions alone."""
    default_topic_perm: Permission = Permission.DENY
    default_group_perm: Permission = Permission.DENY
    topic_perms: Mapping[str, Permission] = field(default_factory=dict)
    group_perms: Mapping[str, Permission] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lists = (self.topic_perms, self.group_perms)
        defaults = (self.default_topic_perm, self.default_group_perm)
        if self.admin and (any(lists) or any(defaults) or self.watcher):
            raise ConfigError(
                "admin",
                self.credentials.access_key,
                "an administrator may do everything: leave its permissions out",
            )

    def may(self, demand: Demand) -> bool:
        """Is this allowed?"""
        if self.admin:
            return True
        name = demand.name
        if demand.resource is Resource.GROUP:
            listed, default = self.group_perms.get(name), self.default_group_perm
            is_ours = name.startswith(SYSTEM_GROUP_PREFIX)
        else:
            listed, default = self.topic_perms.get(name), self.default_topic_perm
            reads_replies = is_reply_topic(name) and demand.permission is Permission.SUB
            is_ours = is_system_topic(name) or name == DISCARDS_TOPIC or reads_replies
        if listed is not None:
            return bool(listed & demand.permission)
        return not is_ours and bool(default & demand.permission)

    def check(self, demands: Iterable[Demand]) -> None:
        """Raise RequestRefused with NO_PERMISSION for the first that is not allowed."""
        for demand in demands:
            if not self.may(demand):
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"account {self.credentials.access_key} has no {demand.permission.name} "
                    f"permission for {demand.resource.value} {demand.name}",
                )


class Accounts:
    """All accounts of a party, by access key."""

    def __init__(self, accounts: Iterable[Account], own: Credentials | None = None) -> None:
        """`own`: what the party itself signs with; None: its first administrator's. Raises
        ConfigError when two have the same access key, or none is an administrator.
        """
        self._by_key: dict[str, Account] = {}
        for account in accounts:
            key = account.credentials.access_key
            if key in self._by_key:
                raise ConfigError("accessKey", key, "each access key once")
            self._by_key[key] = account
        admins = [account for account in self._by_key.values() if account.admin]
        if not admins:
            raise ConfigError(
                "accounts", list(self._by_key), "at least one with admin = true: brokers sign as it"
            )
        self.own: Final = own or admins[0].credentials
        """What the party itself signs with."""

    def all(self) -> tuple[Account, ...]:
        """Every account."""
        return tuple(self._by_key.values())

    def find(self, access_key: str) -> Account | None:
        """The account with this access key; None when nobody has it."""
        return self._by_key.get(access_key)

    def authenticated(self, request: RemotingCommand) -> Account:
        """Whose request it is.

        Raises RequestRefused with NO_PERMISSION. A key that nobody has and a wrong signature are
        one answer, and take as long.
        """
        if SIGNATURE not in request.fields or ACCESS_KEY not in request.fields:
            raise RequestRefused(ResponseCode.NO_PERMISSION, NOT_SIGNED)
        account = self._by_key.get(request.fields[ACCESS_KEY])
        secret = _NOBODYS_SECRET if account is None else account.credentials.secret_key.encode()
        if not is_genuine(request, secret) or account is None:
            raise RequestRefused(ResponseCode.NO_PERMISSION, NOT_GENUINE)
        return account


LOOK_MS: Final = SECOND_MS
"""How often a party looks whether its accounts have changed."""

_log = logging.getLogger(__name__)


class AccountsSource(Protocol):
    """A file with accounts."""

    name: str

    def stamp(self) -> object:
        """Something that is another when the file was changed, removed or replaced."""
        ...

    def accounts(self) -> tuple[Account, ...]:
        """What the file says now. Raises ConfigError."""
        ...


@dataclass(slots=True, eq=False)
class AccountsWatch:
    """The accounts in force of one party, and where they came from.

    `take` puts accounts in force.
    """

    source: AccountsSource
    in_force: tuple[Account, ...]
    take: Callable[[Accounts], None]
    _stamp: object = field(default=None, init=False)

    def look(self) -> None:
        """Take up the accounts when the file is another than at the last look."""
        stamp = self.source.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            accounts = self.source.accounts()
            changes = changes_between(self.in_force, accounts)
            if changes:
                self.take(Accounts(accounts))
        except ConfigError as error:
            _log.error("accounts stay as they were, for their file is refused: %s", error)
            return
        self.in_force = accounts
        if changes:
            _log.info(
                "%d accounts of %s are in force: %s", len(accounts), self.source.name, changes
            )


def changes_between(before: tuple[Account, ...], after: tuple[Account, ...]) -> str:
    """What changes, by access key. Raises ConfigError for what takes a restart."""
    if before == after:
        return ""
    if not before or not after:
        allowed = "some accounts" if before else "no accounts"
        raise ConfigError("accounts", len(after), f"{allowed} as at the start, or a restart")
    old = {account.credentials.access_key: account for account in before}
    new = {account.credentials.access_key: account for account in after}
    kinds = (
        ("added", [key for key in new if key not in old]),
        ("removed", [key for key in old if key not in new]),
        ("changed", [key for key in new if key in old and new[key] != old[key]]),
    )
    texts = [f"{kind} {', '.join(keys)}" for kind, keys in kinds if keys]
    return "; ".join(texts) or "another order"
