"""Access gate that accepts or refuses each request before any handler sees it.

Place in the walk: in the server, before any handler. With accounts, every request is signed and its
account has the permissions it demands. Without accounts, everything passes but what demands an
administrator: that is for peers on this machine.

Invariant: a request that was refused here has changed nothing and reached no handler. Absent on
purpose: connections and their limits (rpc_server).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting.accounts import Account, Accounts, ClientId, Demand, Permission
from engine.remoting.peer import Peer
from engine.remoting.permissions import DEMANDS, SPEAK_FOR, Asked, Need, demands_of
from engine.remoting.signing import ACCESS_KEY

LOOPBACK = ("127.0.0.0/8", "::1/128")

DemandAt = Callable[[int, Permission], Demand]
"""What whoever asks for this with the message at a physical offset must be allowed. Raises
RequestRefused when no message begins there: what cannot be judged does not pass.
"""


HoldersOf = Callable[[str], Collection[str]]
"""Access keys of the accounts whose connected clients go by a client id."""


def nowhere(physical_offset: int, permission: Permission) -> Demand:
    """A party without a log has no message anywhere."""
    del permission
    raise RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"no message begins at physical offset {physical_offset}: this party keeps none",
    )


def nobody(client_id: str) -> Collection[str]:
    """A party that keeps no clients."""
    del client_id
    return ()


def _nothing() -> None:
    """Nobody waits here."""


class Gate:
    """Decides request by request."""

    def __init__(
        self,
        accounts: Accounts | None,
        *,
        admin_networks: tuple[str, ...] = LOOPBACK,
        demand_at: DemandAt = nowhere,
        holders_of: HoldersOf = nobody,
    ) -> None:
        """`admin_networks` counts only without accounts. Raises ConfigError for no network."""
        self._accounts = accounts
        self.open_codes = _open_codes(accounts)
        """Request codes that pass whoever sends them, so that nobody need ask."""
        self._networks = [_network(text) for text in admin_networks]
        self._demand_at = demand_at
        self._holders_of = holders_of
        self.look: Callable[[], None] | None = None
        """Looks whether the accounts have changed; None where they do not."""

        self.changes = 0
        """How often other accounts were put in force: what passed before may not pass any more."""

        self.on_change: Callable[[], None] = _nothing
        """Hears that other accounts are in force: what passed before may not pass any more."""

    def take(self, accounts: Accounts | None) -> None:
        """These are in force from now on; None: as without accounts."""
        self.changes += 1
        self._accounts = accounts
        self.open_codes = _open_codes(accounts)
        self.on_change()

    def sign(self, request: RemotingCommand) -> None:
        """Sign what the party itself asks of others of its cluster, where requests are signed."""
        if self._accounts is not None:
            self._accounts.own.sign(request)

    @property
    def has_accounts(self) -> bool:
        """Must requests be signed?"""
        return self._accounts is not None

    def check(self, peer: Peer, request: RemotingCommand) -> None:
        """Raise RequestRefused when it may not pass: with NO_PERMISSION, or because the message it
        is about is not there.
        """
        needed = demands_of(request.code)
        if self._accounts is None:
            if needed in (Need.ADMIN, Need.WATCHER) and not self._is_near(peer):
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"request code {request.code} is for administrators: without accounts it is "
                    "answered only to this machine",
                )
            return
        account = self._accounts.authenticated(request)
        if needed is Need.ADMIN:
            if not account.admin:
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"request code {request.code} is for administrators, account "
                    f"{account.credentials.access_key} is none",
                )
        elif needed is Need.WATCHER:
            if not account.admin and not account.watcher:
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"request code {request.code} is for administrators and watchers, account "
                    f"{account.credentials.access_key} is neither",
                )
        elif needed is not Need.ANY_ACCOUNT and (not account.admin or request.code in SPEAK_FOR):
            self._check(account, needed(request))

    def account_of(self, request: RemotingCommand) -> str | None:
        """The access key of a request that has passed; None without accounts, where a signature
        proves nothing.
        """
        return None if self._accounts is None else request.fields.get(ACCESS_KEY)

    def may(self, access_key: str | None, demand: Demand) -> bool:
        """Is this allowed to the account now? Without accounts, to everybody."""
        if self._accounts is None:
            return True
        account = None if access_key is None else self._accounts.find(access_key)
        return account is not None and account.may(demand)

    def _check(self, account: Account, demands: Iterable[Asked]) -> None:
        for demand in demands:
            if isinstance(demand, ClientId):
                self._check_client(account, demand.name)
            elif account.admin:
                continue
            elif isinstance(demand, Demand):
                account.check((demand,))
            else:
                account.check((self._demand_at(demand.physical_offset, demand.permission),))

    def _check_client(self, account: Account, client_id: str) -> None:
        """Raise RequestRefused when an account that still exists holds the client id."""
        assert self._accounts is not None, "without accounts nobody holds anything"
        own = account.credentials.access_key
        for holder in self._holders_of(client_id):
            if holder != own and self._accounts.find(holder) is not None:
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"account {own} has no right to client id {client_id!r}: a connected client of "
                    "another account goes by it; choose another instance name",
                )

    def _is_near(self, peer: Peer) -> bool:
        host = peer.address.rpartition(":")[0].strip("[]")
        try:
            address = ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)  # An IPv4 peer of an IPv6 port.
        return any((mapped or address) in network for network in self._networks)


def _open_codes(accounts: Accounts | None) -> frozenset[int]:
    if accounts is not None:
        return frozenset()
    return frozenset(code for code, needed in DEMANDS.items() if needed is not Need.WATCHER)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError("admin_networks", text, "an IP network such as 10.0.0.0/8") from error
