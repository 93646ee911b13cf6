"""The accounts that the brokers of a Raft group agree on; until then each one's file's.

Place in the walk: `replicating/agreed_tables` records what changes here and applies what others
changed; the gate judges by what is held. The first leader that has a file with accounts founds them
for all.

Invariant: what is held has an administrator, and the gate judges by it from that step on. A broker
signs with the first administrator of its own file, which is whom its name servers know. Absent on
purpose: accounts of a broker of no group: those are its file's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.limits import ACCOUNTS_BYTES_MAX
from engine.protocol import fastjson
from engine.protocol.codes import ResponseCode
from engine.remoting.access import Access, account_from_document, account_to_document
from engine.remoting.accounts import Account, Accounts, AccountsWatch
from engine.remoting.gate import Gate


class AgreedAccounts:
    """Those of one broker."""

    def __init__(self, gate: Gate, access: Access) -> None:
        self._gate = gate
        self._of_file = access.accounts
        self._own = Accounts(access.accounts).own if access.accounts else None
        self._by_name: dict[str, Account] = {
            one.credentials.access_key: one for one in self._of_file
        }
        self._is_loading = False
        self.is_agreed = False
        """Are these the group's, and no more the file's?"""
        self.on_changed: Callable[[], None] = lambda: None
        """Called when other accounts are held, or for another reason."""
        if access.source is not None:
            gate.look = AccountsWatch(access.source, access.accounts, self._take_file).look

    def find(self, name: str) -> Account | None:
        """The account of this name."""
        return self._by_name.get(name)

    def all(self) -> list[Account]:
        """Every account, in the order in which they were made."""
        return list(self._by_name.values())

    def found(self) -> None:
        """This broker leads: what its file says is proposed to a group that has no accounts."""
        if not self.is_agreed and self._by_name:
            self.is_agreed = True
            self.on_changed()

    def put(self, account: Account) -> None:
        """Make an account, or replace it. Raises RequestRefused for what makes no sense."""
        self._change({**self._by_name, account.credentials.access_key: account})

    def delete(self, name: str) -> None:
        """Remove an account. Raises RequestRefused when no administrator would be left."""
        self._change({key: one for key, one in self._by_name.items() if key != name})

    def _change(self, accounts: dict[str, Account]) -> None:
        if not self._by_name:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                "without accounts nobody is refused: start the brokers with --access to have some",
            )
        try:
            in_force = Accounts(accounts.values(), self._own)
        except ConfigError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from error
        if len(fastjson.dumps(_documents(accounts.values()))) > ACCOUNTS_BYTES_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"accounts of a group take {ACCOUNTS_BYTES_MAX} bytes at most in all",
            )
        self._by_name, self.is_agreed = accounts, True
        self._gate.take(in_force)
        self.on_changed()

    def documents(self) -> list[dict[str, object]]:
        """What the group agrees on, as the access file has it; empty: on none."""
        return _documents(self._by_name.values()) if self.is_agreed else []

    def hold(self, documents: Iterable[object]) -> None:
        """Hold what the group agreed on; on none: what the file says. Raises ConfigError."""
        accounts = [account_from_document(one) for one in documents]
        self.is_agreed = bool(accounts)
        self._hold(accounts or self._of_file)
        self.on_changed()

    def _hold(self, accounts: Iterable[Account]) -> None:
        by_name = {one.credentials.access_key: one for one in accounts}
        if by_name != self._by_name:
            self._by_name = by_name
            if not self._is_loading:
                self._put_in_force()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While a snapshot and what the log says since are held, the gate judges as before: what
        stands in between was so once, and is no more.
        """
        before, self._is_loading = self._by_name, True
        try:
            yield
        finally:
            self._is_loading = False
            if self._by_name != before:
                self._put_in_force()

    def _put_in_force(self) -> None:
        held = self._by_name.values()
        self._gate.take(Accounts(held, self._own) if held else None)

    def _take_file(self, accounts: Accounts) -> None:
        if self.is_agreed:
            raise ConfigError(
                "accounts",
                "of this broker",
                "a change by request: the group has agreed on its own, and the file counts at a "
                "start for what the broker signs with",
            )
        self._own, self._of_file = accounts.own, accounts.all()
        self._hold(self._of_file)


def _documents(accounts: Iterable[Account]) -> list[dict[str, object]]:
    return [account_to_document(one) for one in accounts]
