"""Indexes producers by producer group and by client id.

Place in the walk: heartbeats enter here; check-backs of transactions and replies find their client,
tools the lists of connections.

Invariant: a producer counts once in each of its groups, by its newest connection; what a lost
connection costs grows with the groups of its clients, never with those of all. Absent on purpose:
which account a group belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.broker.account_quotas import Shares
from engine.broker.groups.members import ClientChannel, Member, silent_members
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import ACCOUNT_MEMBERS_MAX, GROUPS_MAX, MEMBERS_MAX
from engine.protocol.codes import ResponseCode
from engine.remoting import Peer


class ProducerGroups:
    """Producers by group, for connection lists."""

    def __init__(
        self, members_max: int = MEMBERS_MAX, *, account_members_max: int = ACCOUNT_MEMBERS_MAX
    ) -> None:
        self._memberships = Shares(members_max, account_members_max)
        self._groups: dict[str, dict[str, Member]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        """client id → groups."""
        self._clients_of: dict[Peer, dict[str, None]] = {}
        """Connection → client ids that were heard on it and may still live by it."""

    @property
    def member_count(self) -> int:
        """Memberships in all groups."""
        return self._memberships.total

    def check_room(self, groups: Sequence[str], client_id: str, account: str | None) -> None:
        """Raise RequestRefused when the client as a producer in all of these would be one group or
        one member too many, for the broker or for its account. Nothing has changed then.
        """
        joined = [one for one in dict.fromkeys(groups) if self.member(one, client_id) is None]
        named = [group for group in joined if group not in self._groups]
        if named and len(self._groups) + len(named) > GROUPS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"producer group {named[0]} is one too many: this broker knows {GROUPS_MAX}",
            )
        if excess := self._memberships.excess(account, len(joined)):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"producer group {joined[0]} has one member too many: {excess} memberships in "
                "producer groups; use fewer clients, or fewer groups in each",
            )

    def register(self, group: str, channel: ClientChannel, *, now_ms: int) -> None:
        """Take a heartbeat's word for one group, for which there is room (`check_room`)."""
        client_id = channel.client_id
        before = self.member(group, client_id)
        if before is not None:
            self._memberships.add(before.account, -1)
        self._memberships.add(channel.account, 1)
        self._groups.setdefault(group, {})[client_id] = Member(channel, now_ms, channel.account)
        self._groups_of.setdefault(client_id, {})[group] = None
        self._clients_of.setdefault(channel.peer, {})[client_id] = None

    def members(self, group: str) -> list[Member]:
        """Producers of a group, by client id."""
        members = self._groups.get(group, {})
        return [members[client_id] for client_id in sorted(members)]

    def count(self, group: str) -> int:
        """Producers of a group."""
        return len(self._groups.get(group, ()))

    def member(self, group: str, client_id: str) -> Member | None:
        """A producer of one group; None when it is not there."""
        return self._groups.get(group, {}).get(client_id)

    def find(self, client_id: str) -> Member | None:
        """The producer with this client id, whatever its groups; None when it is not connected."""
        for group in self._groups_of.get(client_id, ()):
            return self._groups[group][client_id]
        return None

    def names(self) -> list[str]:
        """Groups that have members, sorted."""
        return sorted(self._groups)

    def all_names(self) -> list[str]:
        """As `names`, in no order."""
        return list(self._groups)

    def unregister(self, group: str, client_id: str) -> None:
        """The client says farewell."""
        members = self._groups.get(group, {})
        member = members.pop(client_id, None)
        if member is None:
            return
        self._memberships.add(member.account, -1)
        if not members:
            del self._groups[group]
        groups = self._groups_of[client_id]
        del groups[group]
        if not groups:
            del self._groups_of[client_id]

    def lost(self, peer: Peer) -> None:
        """A connection ended."""
        for client_id in self._clients_of.pop(peer, ()):
            for group in list(self._groups_of.get(client_id, ())):
                if self._groups[group][client_id].channel.peer is peer:
                    self.unregister(group, client_id)

    def expire(self, now_ms: int, expiry_ms: int) -> Iterator[None]:
        """Forget producers that have sent no heartbeat for `expiry_ms`, one after the other."""
        for found in silent_members(list(self._groups.items()), now_ms - expiry_ms):
            if found is not None:
                self._expire_one(*found, oldest_ms=now_ms - expiry_ms)
            yield

    def _expire_one(self, group: str, client_id: str, *, oldest_ms: int) -> None:
        member = self.member(group, client_id)
        if member is not None and member.last_heartbeat_ms < oldest_ms:
            self.unregister(group, client_id)
