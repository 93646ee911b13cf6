"""Access settings read from a single file: accounts and TLS.

Place in the walk: read by the command line, then passed down in the configurations of name server
and broker; changed accounts are taken up while they run (accounts_watch). The file is TOML, its
keys are those of RocketMQ's plain_acl.yml:

    [tls]                             # optional; paths are relative to this file
    certificate = "server.pem"
    key = "server.key"
    mode = "strict"                   # or "permissive": unencrypted connections are served, too
    clientAuthorities = "ca.pem"      # optional: clients must show a certificate signed by it
    authorities = "ca.pem"            # whom this party trusts when it connects to name servers

    [[accounts]]
    accessKey = "shop"
    secretKey = "..."
    admin = false
    watcher = false                   # may it ask how all stand, as tidemark observe does?
    defaultTopicPerm = "DENY"         # DENY, PUB, SUB or PUB|SUB
    defaultGroupPerm = "DENY"
    topicPerms = ["orders=PUB|SUB", "RMQ_SYS_TRACE_TOPIC=PUB"]
    groupPerms = ["orders-group=SUB"]

A client's file has accessKey, secretKey and securityToken at its top, and of [tls] the authorities
and, where servers ask for one, the client's own certificate and key.

Invariant: an unknown key is refused, so that a misspelt permission is no permission. Absent on
purpose: addresses that need no signature, which RocketMQ has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, cast

import msgspec

from engine.foundation.errors import ConfigError
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from engine.remoting.accounts import Account, Accounts, AccountsSource, AccountsWatch, Permission
from engine.remoting.gate import LOOPBACK, DemandAt, Gate, HoldersOf, nobody, nowhere
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, ServerTls, TlsMode

_PERMISSIONS: Mapping[str, Permission] = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
_WORDS: Mapping[Permission, str] = {
    perm: word for word, perm in _PERMISSIONS.items() if word != "SUB|PUB"
}


@dataclass(frozen=True, slots=True)
class Access:
    """The accounts and certificates of a party. Without accounts it is open to everybody."""

    accounts: tuple[Account, ...] = ()
    admin_networks: tuple[str, ...] = LOOPBACK
    """Without accounts: from where an administrator's requests are taken."""
    server_tls: ServerTls | None = None
    client_tls: ClientTls | None = None
    """How it connects to others of its cluster."""
    source: AccountsSource | None = field(default=None, compare=False)
    """Where the accounts are read again when they have changed."""

    def __post_init__(self) -> None:
        """Raises ConfigError when the accounts do not fit together."""
        if self.accounts:
            Accounts(self.accounts)

    def keeps_strangers_off(self, host: str) -> bool:
        """Does a port at `host` take only parties of this machine, or such as prove by mutual TLS
        who they are?
        """
        tls = self.server_tls
        return ip_address(host).is_loopback or (tls is not None and tls.is_mutual)

    def gate(self, demand_at: DemandAt = nowhere, holders_of: HoldersOf = nobody) -> Gate:
        """The gate of a party; `demand_at` says what a stored message demands, `holders_of` who
        holds a client id.
        """
        accounts = Accounts(self.accounts) if self.accounts else None
        gate = Gate(
            accounts,
            admin_networks=self.admin_networks,
            demand_at=demand_at,
            holders_of=holders_of,
        )
        if self.source is not None:
            gate.look = AccountsWatch(self.source, self.accounts, gate.take).look
        return gate


class _Tls(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    certificate: str | None = None
    key: str | None = None
    mode: TlsMode = TlsMode.STRICT
    client_authorities: str | None = None
    authorities: str | None = None


class _Account(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    access_key: str
    secret_key: str
    admin: bool = False
    watcher: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: list[str] = msgspec.field(default_factory=list)
    group_perms: list[str] = msgspec.field(default_factory=list)


class _PartyFile(msgspec.Struct, forbid_unknown_fields=True):
    accounts: list[_Account] = msgspec.field(default_factory=list)
    tls: _Tls | None = None


class _ClientFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    tls: _Tls | None = None


def read_access(text: str, path: str) -> Access:
    """What the file at `path` says. Raises ConfigError; it never quotes a secret."""
    document = _read(text, path, _PartyFile)
    accounts = tuple(_account(each) for each in document.accounts)
    if not accounts and document.tls is None:
        raise ConfigError("access", path, "a file with [[accounts]], [tls] or both")
    server, client = None, None
    if document.tls is not None:
        tls = _resolved(document.tls, path)
        if tls.certificate is None or tls.key is None:
            raise ConfigError("tls", path, "certificate and key")
        server = ServerTls(tls.certificate, tls.key, tls.client_authorities, tls.mode)
        shows = tls.client_authorities is not None
        client = ClientTls(
            tls.authorities, tls.certificate if shows else None, tls.key if shows else None
        )
    return Access(accounts, server_tls=server, client_tls=client)


def account_from_document(document: object) -> Account:
    """An account in the words of the file. Raises ConfigError; it never quotes a secret."""
    try:
        return _account(msgspec.convert(document, _Account))
    except msgspec.ValidationError as error:
        raise ConfigError("accounts", "an entry", f"{error}") from error


def account_to_document(account: Account) -> dict[str, Any]:
    """The account in the words of the file, its secret among them."""
    entry = _Account(
        account.credentials.access_key,
        account.credentials.secret_key,
        admin=account.admin,
        watcher=account.watcher,
        default_topic_perm=_WORDS[account.default_topic_perm],
        default_group_perm=_WORDS[account.default_group_perm],
        topic_perms=[f"{name}={_WORDS[perm]}" for name, perm in account.topic_perms.items()],
        group_perms=[f"{name}={_WORDS[perm]}" for name, perm in account.group_perms.items()],
    )
    return cast("dict[str, Any]", msgspec.to_builtins(entry))


def read_credentials(text: str, path: str) -> tuple[Credentials | None, ClientTls | None]:
    """A client's credentials and TLS settings. Raises ConfigError; it never quotes a secret."""
    document = _read(text, path, _ClientFile)
    credentials, client = None, None
    if document.access_key is not None or document.secret_key is not None:
        credentials = Credentials(
            document.access_key or "", document.secret_key or "", document.security_token
        )
    if document.tls is not None:
        tls = _resolved(document.tls, path)
        client = ClientTls(tls.authorities, tls.certificate, tls.key)
    return credentials, client


def _read(text: str, path: str, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("access", path, f"a TOML file ({error})") from error
    except msgspec.ValidationError as error:
        raise ConfigError("access", path, f"{error}") from error


def _account(entry: _Account) -> Account:
    key = entry.access_key
    return Account(
        Credentials(key, entry.secret_key),
        admin=entry.admin,
        watcher=entry.watcher,
        default_topic_perm=_permission(entry.default_topic_perm, "defaultTopicPerm", key),
        default_group_perm=_permission(entry.default_group_perm, "defaultGroupPerm", key),
        topic_perms=_list(entry.topic_perms, "topicPerms", key),
        group_perms=_list(entry.group_perms, "groupPerms", key),
    )


def _list(words: list[str], name: str, access_key: str) -> dict[str, Permission]:
    permissions: dict[str, Permission] = {}
    for word in words:
        resource, equals, permission = word.partition("=")
        resource = resource.strip()
        if not equals or not resource or resource in permissions:
            raise ConfigError(name, word, f"name=permission, each name once (account {access_key})")
        if name == "topicPerms" and resource.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise ConfigError(
                name, word, f"a topic of a group is decided in groupPerms ({access_key})"
            )
        permissions[resource] = _permission(permission, name, access_key)
    return permissions


def _permission(word: str, name: str, access_key: str) -> Permission:
    permission = _PERMISSIONS.get(word.strip())
    if permission is None:
        raise ConfigError(name, word, f"DENY, PUB, SUB or PUB|SUB (account {access_key})")
    return permission


def _resolved(tls: _Tls, path: str) -> _Tls:
    folder = path.rpartition("/")[0]

    def place(file: str | None) -> str | None:
        return file if file is None or file.startswith("/") or not folder else f"{folder}/{file}"

    return _Tls(
        place(tls.certificate),
        place(tls.key),
        tls.mode,
        place(tls.client_authorities),
        place(tls.authorities),
    )
