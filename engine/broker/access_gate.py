"""Broker access gate: resolves the account and topic that decide whether a request passes.

Accounts come from the broker's configuration, topics of stored messages from its store.

Place in the walk: before every handler. A request that names a message by its place is judged by
the topic that message belongs to, also while it waits in a topic of the broker's own (delayed, half
of a transaction). What a producer has not committed is nobody's to read but its producers'. A pull
that waits is answered when the accounts change, with nothing (handlers/pull): its reader asks
again, and gets what comes now only if it still may read. A client id belongs to the account whose
client is connected under it.

Invariant: an offset that leads to no message does not pass (stored_messages).
"""

from __future__ import annotations

from engine.broker.groups.members import ClientIds
from engine.broker.transactions.stored_messages import demand_for, no_message, stored_message
from engine.broker.transactions.transactions import Transactions
from engine.remoting.access import Access
from engine.remoting.accounts import Demand, Permission
from engine.remoting.gate import Gate
from engine.store import MessageStore


def gate_of(
    access: Access, *, store: MessageStore, transactions: Transactions, client_ids: ClientIds
) -> Gate:
    """The gate of this broker."""

    def demand_at(physical_offset: int, permission: Permission) -> Demand:
        message = stored_message(store, transactions, physical_offset)
        if message is None:
            raise no_message(physical_offset)
        return demand_for(message, permission)

    return access.gate(demand_at, client_ids.accounts)
