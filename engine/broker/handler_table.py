"""Which handler answers which request code of a broker.

Invariant: each code has one handler; a code that is not here is answered REQUEST_CODE_NOT_SUPPORTED
by the server. Absent on purpose: pop consumption, static topics.
"""

from __future__ import annotations

from engine.broker.half_queue import HalfQueue
from engine.broker.handlers.admin_broker import BrokerHandlers
from engine.broker.handlers.admin_clients import ClientHandlers
from engine.broker.handlers.admin_config import ConfigHandlers
from engine.broker.handlers.admin_groups import GroupHandlers
from engine.broker.handlers.admin_store import StoreHandlers
from engine.broker.handlers.admin_topics import TopicHandlers
from engine.broker.handlers.group_offsets import GroupOffsetHandlers
from engine.broker.handlers.heartbeat import HeartbeatHandlers
from engine.broker.handlers.offset import OffsetHandlers
from engine.broker.handlers.pull import PullHandlers
from engine.broker.handlers.query import QueryHandlers
from engine.broker.handlers.reply import ReplyHandlers
from engine.broker.handlers.send import SendHandlers
from engine.broker.handlers.send_back import SendBackHandlers
from engine.broker.handlers.stats import StatsHandlers
from engine.broker.handlers.transaction import TransactionHandlers
from engine.broker.membership import Membership
from engine.broker.parts import BrokerParts
from engine.delay import DelayService
from engine.remoting import Handler


def handler_table(
    parts: BrokerParts, membership: Membership, delay: DelayService, half_queue: HalfQueue
) -> dict[int, Handler]:
    """Request code → handler, of all rooms of the broker."""
    table: dict[int, Handler] = {}
    for handlers in (
        SendHandlers(parts, half_queue).handlers(),
        TransactionHandlers(parts, half_queue).handlers(),
        ReplyHandlers(parts).handlers(),
        PullHandlers(parts, membership).handlers(),
        OffsetHandlers(parts).handlers(),
        HeartbeatHandlers(parts, membership).handlers(),
        SendBackHandlers(parts).handlers(),
        QueryHandlers(parts).handlers(),
        TopicHandlers(parts, membership).handlers(),
        GroupHandlers(parts).handlers(),
        ClientHandlers(parts).handlers(),
        StoreHandlers(parts).handlers(),
        GroupOffsetHandlers(parts).handlers(),
        BrokerHandlers(parts, delay).handlers(),
        ConfigHandlers(parts).handlers(),
        StatsHandlers(parts).handlers(),
    ):
        for code, handler in handlers.items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table
