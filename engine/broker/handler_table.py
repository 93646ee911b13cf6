"""Maps each request code to its handler and supplies the handler's dependencies.

A code is added in `handlers/`, in the class of its subject.

Invariant: each code has one handler; the server answers a code that is not here with
REQUEST_CODE_NOT_SUPPORTED. Absent on purpose: pop consumption, static topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.broker.groups.open_requests import QuestionNotes
from engine.broker.handlers.accounts import AccountHandlers
from engine.broker.handlers.admin_broker import BrokerHandlers, ConfigHandlers
from engine.broker.handlers.admin_clients import ClientHandlers, MemberRequestHandlers
from engine.broker.handlers.admin_groups import GroupHandlers
from engine.broker.handlers.admin_store import StoreHandlers
from engine.broker.handlers.admin_topics import TopicHandlers, TopicQueryHandlers
from engine.broker.handlers.group_offsets import GroupOffsetHandlers, OffsetResetHandlers
from engine.broker.handlers.heartbeat import HeartbeatHandlers
from engine.broker.handlers.offset import OffsetHandlers
from engine.broker.handlers.pull import PullHandlers
from engine.broker.handlers.query import QueryHandlers
from engine.broker.handlers.queue_locks import QueueLockHandlers
from engine.broker.handlers.recall import RecallHandlers
from engine.broker.handlers.replicas import ReplicaHandlers
from engine.broker.handlers.reply import ReplyHandlers
from engine.broker.handlers.send import SendHandlers
from engine.broker.handlers.send_back import SendBackHandlers
from engine.broker.handlers.stats import StatsHandlers
from engine.broker.handlers.timers import TimerHandlers
from engine.broker.handlers.transaction import TransactionHandlers
from engine.broker.replicating.agreed_answers import RESTS_ON_TABLES, agreed
from engine.broker.services import Services
from engine.broker.state import BrokerState, assembled
from engine.remoting import Handler, Handlers

BY_NAME: tuple[Callable[..., Handlers], ...] = (
    TransactionHandlers,
    ReplyHandlers,
    PullHandlers,
    HeartbeatHandlers,
    QueueLockHandlers,
    QueryHandlers,
    TopicQueryHandlers,
    ClientHandlers,
    MemberRequestHandlers,
    ConfigHandlers,
    StatsHandlers,
)
"""Those that are given nothing but what the tables and services are named."""


def handler_table(state: BrokerState, services: Services) -> dict[int, Handler]:
    """Request code → handler, of all rooms of the broker."""
    table: dict[int, Handler] = {}
    for room in _rooms(state, services):
        for code, handler in room.handlers().items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    if services.raft is not None:
        table |= {code: agreed(table[code], services.raft) for code in RESTS_ON_TABLES}
    return table


def _rooms(state: BrokerState, services: Services) -> Iterator[Handlers]:
    offsets, sending, reporters = services.offsets, services.sending, services.reporters
    replication, save_settings = services.replication, services.persistence.save_settings
    orders = None if services.raft is None else services.raft.orders
    copies = replication if orders is None else orders
    holders = (state, sending, services.pulling, offsets, reporters, services)
    for kind in BY_NAME:
        yield assembled(kind, *holders)
    if orders is not None:
        yield assembled(AccountHandlers, *holders)
    notes = QuestionNotes(gate=state.gate, questions=state.questions)
    yield assembled(SendHandlers, *holders, questions=notes)
    yield assembled(OffsetHandlers, *holders, answers=reporters.offset_answers)
    yield assembled(SendBackHandlers, *holders, delays=state.delay_levels)
    yield assembled(RecallHandlers, *holders, timers=sending.drafts.timers)
    yield TimerHandlers(state.time_wheel)
    yield assembled(
        TopicHandlers,
        *holders,
        changes=services.topic_changes,
        save_settings=save_settings,
        topics_registered=services.registration.registered,
    )
    yield assembled(GroupHandlers, *holders, save_settings=save_settings)
    yield assembled(GroupOffsetHandlers, *holders, deletion=services.offset_deletion)
    yield assembled(OffsetResetHandlers, *holders, emit_marks=reporters.watermarks.emit)
    yield assembled(
        StoreHandlers, *holders, status=replication.status if orders is None else orders.status
    )
    yield assembled(
        ReplicaHandlers,
        *holders,
        carry_out=services.leadership.carry_out if orders is None else orders.carry_out,
        merge=replication.merges.merge,
        outage=replication.merges.own,
        state=copies.state,
    )
    yield assembled(BrokerHandlers, *holders, delay=state.delay_levels)
