"""Maps each request code to its handler and supplies the handler's dependencies.

A code is added in `handlers/`, in the class of its subject.

Invariant: each code has one handler; the server answers a code that is not here with
REQUEST_CODE_NOT_SUPPORTED. Absent on purpose: pop consumption, static topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from engine.broker.groups.open_requests import QuestionNotes
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
from engine.broker.services import Services
from engine.broker.state import BrokerState
from engine.remoting import Handler


def handler_table(state: BrokerState, services: Services) -> dict[int, Handler]:
    """Request code → handler, of all rooms of the broker."""
    table: dict[int, Handler] = {}
    for handlers in chain(
        _of_messages(state, services),
        _of_consumers(state, services),
        _of_topics_and_groups(state, services),
        _of_the_broker(state, services),
    ):
        for code, handler in handlers.items():
            assert code not in table, f"two handlers for request code {code}"
            table[code] = handler
    return table


def _of_messages(state: BrokerState, services: Services) -> Iterator[dict[int, Handler]]:
    yield SendHandlers(
        node=state.node,
        queues=services.sending.queues,
        drafts=services.sending.drafts,
        placement=services.sending.placement,
        durability=services.sending.durability,
        half_queue=services.sending.half_queue,
        retry_copies=services.sending.retry_copies,
        stats=state.stats,
        questions=QuestionNotes(gate=state.gate, questions=state.questions),
    ).handlers()
    yield TransactionHandlers(
        clock=state.clock,
        durability=services.sending.durability,
        node=state.node,
        store=state.store,
        half_queue=services.sending.half_queue,
    ).handlers()
    yield ReplyHandlers(
        node=state.node,
        clock=state.clock,
        queues=services.sending.queues,
        drafts=services.sending.drafts,
        placement=services.sending.placement,
        durability=services.sending.durability,
        producers=state.producers,
        gate=state.gate,
        questions=state.questions,
    ).handlers()


def _of_consumers(state: BrokerState, services: Services) -> Iterator[dict[int, Handler]]:
    yield PullHandlers(
        node=state.node,
        clock=state.clock,
        checks=services.pulling.checks,
        positions=services.pulling.positions,
        answers=services.pulling.answers,
        holds=state.holds,
    ).handlers()
    yield OffsetHandlers(
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        offsets=state.offsets,
        starting_points=services.offsets.starting_points,
        answers=services.reporters.offset_answers,
        remembered=services.offsets.remembered,
        reports=services.offsets.reports,
    ).handlers()
    yield HeartbeatHandlers(
        client_ids=state.client_ids,
        clock=state.clock,
        gate=state.gate,
        groups=state.groups,
        node=state.node,
        producers=state.producers,
        membership=services.membership,
    ).handlers()
    yield QueueLockHandlers(
        node=state.node,
        clock=state.clock,
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        locks=state.locks,
    ).handlers()
    yield SendBackHandlers(
        node=state.node,
        group_configs=state.group_configs,
        queues=services.sending.queues,
        origins=services.sending.origins,
        dead_letters=services.sending.dead_letters,
        delays=state.delay_levels,
        durability=services.sending.durability,
        stats=state.stats,
        observer=state.observer,
    ).handlers()
    yield RecallHandlers(
        clock=state.clock,
        durability=services.sending.durability,
        node=state.node,
        timers=services.sending.drafts.timers,
        topics=state.topics,
    ).handlers()
    yield TimerHandlers(state.time_wheel).handlers()
    yield QueryHandlers(
        node=state.node,
        store=state.store,
        transactions=state.transactions,
    ).handlers()


def _of_topics_and_groups(state: BrokerState, services: Services) -> Iterator[dict[int, Handler]]:
    yield TopicHandlers(
        changes=services.topic_changes,
        shrinking=services.shrinking,
        deletions=services.deletions,
        expired=services.reporters.expired,
        save_settings=services.persistence.save_settings,
        topics_registered=services.registration.registered,
    ).handlers()
    yield TopicQueryHandlers(
        node=state.node,
        clock=state.clock,
        store=state.store,
        topics=state.topics,
        stats=state.stats,
        groups=state.groups,
        offsets=state.offsets,
    ).handlers()
    yield GroupHandlers(
        changes=state.changes,
        deletions=services.deletions,
        group_configs=state.group_configs,
        node=state.node,
        offsets=state.offsets,
        progress=services.offsets.progress,
        removals=services.offsets.removals,
        save_settings=services.persistence.save_settings,
    ).handlers()
    yield GroupOffsetHandlers(
        node=state.node,
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        groups=state.groups,
        offsets=state.offsets,
        facts=services.offsets.facts,
        deletion=services.offset_deletion,
    ).handlers()
    yield OffsetResetHandlers(
        node=state.node,
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        groups=state.groups,
        offsets=state.offsets,
        facts=services.offsets.facts,
        emit_marks=services.reporters.watermarks.emit,
    ).handlers()
    yield ClientHandlers(
        node=state.node,
        clock=state.clock,
        groups=state.groups,
        producers=state.producers,
        offsets=state.offsets,
    ).handlers()
    yield MemberRequestHandlers(
        node=state.node,
        topics=state.topics,
        group_configs=state.group_configs,
        groups=state.groups,
        store=state.store,
        transactions=state.transactions,
    ).handlers()


def _of_the_broker(state: BrokerState, services: Services) -> Iterator[dict[int, Handler]]:
    yield StoreHandlers(
        clock=state.clock,
        deletions=services.deletions,
        groups=state.groups,
        status=services.replication.status,
        node=state.node,
        offsets=state.offsets,
        store=state.store,
        topics=state.topics,
    ).handlers()
    yield ReplicaHandlers(
        carry_out=services.leadership.carry_out,
        merge=services.replication.merges.merge,
        node=state.node,
        outage=services.replication.merges.own,
        state=services.replication.state,
        store=state.store,
    ).handlers()
    yield BrokerHandlers(
        node=state.node,
        offsets=state.offsets,
        runtime_info=services.runtime_info,
        delay=state.delay_levels,
    ).handlers()
    yield ConfigHandlers(
        node=state.node,
        config_changes=services.config_changes,
    ).handlers()
    yield StatsHandlers(
        clock=state.clock,
        group_configs=state.group_configs,
        node=state.node,
        offsets=state.offsets,
        progress=services.offsets.progress,
        topics=state.topics,
        stats=state.stats,
    ).handlers()
