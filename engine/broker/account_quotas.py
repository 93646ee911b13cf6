"""Tracks entries against a total quota and a smaller quota for each account.

Place in the walk: in the tables of consumer groups and of producer groups, whose entries come from
heartbeats, and beside replies that wait for their askers. Without accounts only the sum counts in
those tables, and replies count by connection.

Invariant: the sum is that of all holders; an account's share is smaller, so that no account can
take what others need. Absent on purpose: what is held, and refusing.
"""

from __future__ import annotations


class Shares:
    """Holders of one thing."""

    def __init__(self, all_max: int, account_max: int) -> None:
        self._all_max = all_max
        self._account_max = account_max
        self._of: dict[str, int] = {}
        self.total = 0

    def add(self, account: str | None, change: int) -> None:
        """The account (None: none) holds so much more, or (below 0) less."""
        self.total += change
        if account is not None and change:
            held = self._of.get(account, 0) + change
            if held:
                self._of[account] = held
            else:
                del self._of[account]

    def of(self, account: str) -> int:
        """What the account holds."""
        return self._of.get(account, 0)

    def excess(self, account: str | None, change: int, *, own_change: int | None = None) -> str:
        """Which limit it would break when all held `change` more and the account `own_change`,
        the same when it is left out; "": none. Who asks for no more than there was breaks none.
        """
        own_change = change if own_change is None else own_change
        if change > 0 and self.total + change > self._all_max:
            return f"all have {self.total} of {self._all_max}"
        if account is not None and own_change > 0:
            held = self.of(account)
            if held + own_change > self._account_max:
                return f"{account} has {held} of the {self._account_max} for one of them"
        return ""
