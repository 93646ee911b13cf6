"""Builds the services that work on a broker's tables, each with only what it needs.

Place in the walk: made when the tables are (`state`), before any request. `handler_table` hands the
services on to handlers, `broker` starts and stops those that have a life of their own.

Invariant: a service is given all that it uses when it is made. Two tables notify services that are
made after them: they are given functions that find the service when it is called. Absent on
purpose: the order of a start (broker).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.broker.dynamic_config import ConfigChanges
from engine.broker.groups.membership import MemberNotices, Membership
from engine.broker.metrics import BrokerMetrics
from engine.broker.metrics.exporter_families import ExporterFamilies
from engine.broker.metrics.lags import Lags
from engine.broker.metrics.runtime_families import RuntimeFamilies
from engine.broker.offsets.offset_facts import OffsetFacts
from engine.broker.offsets.remembered_offsets import BootEnds
from engine.broker.persistence import Persistence
from engine.broker.pulling.long_poll import WakeUps
from engine.broker.pulling.pull_answers import handed_to_nobody
from engine.broker.registration import Registration
from engine.broker.removing.deletion import Deletions, Forget, OffsetDeletion
from engine.broker.removing.topic_changes import Shrinking, TopicChanges
from engine.broker.replicating.leadership import Leadership
from engine.broker.replicating.offset_merges import OffsetMerges
from engine.broker.replicating.ordered_role import OrderedRole
from engine.broker.replicating.rebuild import Rebuild
from engine.broker.replicating.replication import Replication
from engine.broker.replicating.table_copies import TableCopies
from engine.broker.reporting.replica_marks import ReplicaMarks
from engine.broker.reporting.watermarks import Watermarks
from engine.broker.rocketmq_settings import FILE_NAME
from engine.broker.role_changes import RoleChanges
from engine.broker.service_groups import (
    OffsetServices,
    PullServices,
    Reporters,
    SendServices,
    offset_services,
    pull_services,
    reporters,
    send_services,
)
from engine.broker.state import BrokerState
from engine.broker.stats.runtime_info import RuntimeInfo
from engine.broker.transactions.checks import TransactionChecks
from engine.delay import Delays, DelayService
from engine.foundation.config_layers import Origin
from engine.remoting import RpcClient
from engine.store.stored_settings import KeptSettings
from engine.store.table_file import SettingsFile
from engine.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that works on the tables of one broker."""

    offsets: OffsetServices
    reporters: Reporters
    sending: SendServices
    membership: Membership
    wake_ups: WakeUps
    pulling: PullServices
    persistence: Persistence
    registration: Registration
    config_changes: ConfigChanges
    stored_settings: KeptSettings
    deletions: Deletions
    topic_changes: TopicChanges
    offset_deletion: OffsetDeletion
    shrinking: Shrinking
    delay: DelayService
    timers: DelayService
    checks: TransactionChecks
    replication: Replication
    replica_marks: ReplicaMarks
    roles: RoleChanges
    leadership: Leadership
    runtime_info: RuntimeInfo


def services_of(
    state: BrokerState,
    *,
    origin: Origin,
    ordered: OrderedRole,
    client: RpcClient,
    telemetry: Telemetry | None,
    boot_ends: BootEnds,
) -> Services:
    """The services of the broker with these tables; `origin`: where its settings came from."""
    offsets = offset_services(state, boot_ends)
    reporting = reporters(state, offsets)
    persistence = _persistence(state, offsets, telemetry)
    sending = send_services(state, offsets, persistence.save_settings)
    membership = membership_of(state, offsets, reporting.watermarks)
    wake_ups = WakeUps(state.holds)
    # Only who emits facts looks for messages that their producers sent again.
    handed = sending.resends.handed if telemetry is not None else handed_to_nobody
    stored_settings = _kept_settings(state)
    registration = Registration(
        changes=state.changes, node=state.node, topics=state.topics, client=client
    )
    deletions = _deletions(
        state, offsets, reporting.watermarks, persistence=persistence, wake_ups=wake_ups
    )
    replication = _replication(
        state, client=client, deletions=deletions, facts=offsets.facts, registration=registration
    )
    roles = _roles(state, wake_ups)
    return Services(
        offsets=offsets,
        reporters=reporting,
        sending=sending,
        membership=membership,
        wake_ups=wake_ups,
        pulling=pull_services(state, offsets, membership, handed=handed),
        persistence=persistence,
        registration=registration,
        config_changes=_config_changes(state, origin, stored_settings),
        stored_settings=stored_settings,
        deletions=deletions,
        topic_changes=_topic_changes(state, offsets, membership),
        offset_deletion=_offset_deletion(state, offsets, persistence, reporting.watermarks),
        shrinking=Shrinking(
            groups=state.groups, offsets=state.offsets, store=state.store, topics=state.topics
        ),
        delay=_delivery_of(state.delay_levels, state, sending),
        timers=_timers_of(state, sending),
        checks=TransactionChecks(
            clock=state.clock,
            gate=state.gate,
            half_queue=sending.half_queue,
            node=state.node,
            producers=state.producers,
        ),
        replication=replication,
        replica_marks=_replica_marks(state, replication),
        roles=roles,
        leadership=_leadership(
            state,
            ordered=ordered,
            persistence=persistence,
            replication=replication,
            roles=roles,
            sending=sending,
        ),
        runtime_info=_runtime_info(state),
    )


def _replication(
    state: BrokerState,
    *,
    client: RpcClient,
    deletions: Deletions,
    facts: OffsetFacts,
    registration: Registration,
) -> Replication:
    merges = OffsetMerges(
        client=client,
        clock=state.clock,
        facts=facts,
        node=state.node,
        offsets=state.offsets,
        outage=state.outage_offsets,
        store=state.store,
        topics=state.topics,
    )
    return Replication(
        state.runtime,
        client=client,
        copies=TableCopies(
            changes=state.changes,
            client=client,
            delay_levels=state.delay_levels,
            deletions=deletions,
            group_configs=state.group_configs,
            merges=merges,
            node=state.node,
            offsets=state.offsets,
            outage=state.outage_offsets,
            store=state.store,
            topics=state.topics,
        ),
        merges=merges,
        node=state.node,
        registration=registration,
        safety=state.safety,
        store=state.store,
    )


def _leadership(
    state: BrokerState,
    *,
    ordered: OrderedRole,
    persistence: Persistence,
    replication: Replication,
    roles: RoleChanges,
    sending: SendServices,
) -> Leadership:
    async def read_again() -> None:
        state.outage_offsets.forget()
        persistence.make_topics_of_queues()
        persistence.take_back_to_the_log()
        sending.half_queue.load()
        sending.placement.load_window()
        await state.delay_levels.pass_delivered()

    return Leadership(
        node=state.node,
        ordered=ordered,
        read_again=read_again,
        rebuild=Rebuild(
            disk=state.runtime.disk,
            node=state.node,
            read_again=read_again,
            replication=replication,
            store=state.store,
        ),
        replication=replication,
        roles=roles,
        store=state.store,
    )


def _topic_changes(
    state: BrokerState, offsets: OffsetServices, membership: Membership
) -> TopicChanges:
    return TopicChanges(
        changes=state.changes,
        membership=membership,
        node=state.node,
        removals=offsets.removals,
        store=state.store,
        topics=state.topics,
    )


def _runtime_info(state: BrokerState) -> RuntimeInfo:
    return RuntimeInfo(
        clock=state.clock,
        node=state.node,
        put_times=state.put_times,
        runtime=state.runtime,
        stats=state.stats,
        store=state.store,
    )


def _roles(state: BrokerState, wake_ups: WakeUps) -> RoleChanges:
    return RoleChanges(
        changes=state.changes,
        clock=state.clock,
        locks=state.locks,
        node=state.node,
        observer=state.observer,
        safety=state.safety,
        wake_ups=wake_ups,
    )


def _replica_marks(state: BrokerState, replication: Replication) -> ReplicaMarks:
    return ReplicaMarks(
        node=state.node,
        observer=state.observer,
        store=state.store,
        clock=state.clock,
        replicas=replication.service.replicas,
        needed=lambda: replication.acknowledgements.needed,
    )


def _persistence(
    state: BrokerState, offsets: OffsetServices, telemetry: Telemetry | None
) -> Persistence:
    return Persistence(
        changes=state.changes,
        clock=state.clock,
        deleted_groups=state.deleted_groups,
        filters=state.filters,
        group_configs=state.group_configs,
        node=state.node,
        lives=state.lives,
        observer=state.observer,
        offsets=state.offsets,
        outage=state.outage_offsets,
        removals=offsets.removals,
        runtime=state.runtime,
        store=state.store,
        telemetry=telemetry,
        topics=state.topics,
    )


def membership_of(
    state: BrokerState, offsets: OffsetServices, watermarks: Watermarks
) -> Membership:
    """The membership of the groups of one broker."""
    return Membership(
        changes=state.changes,
        client_ids=state.client_ids,
        clock=state.clock,
        doubtful_readers=state.doubtful_readers,
        emit_marks=watermarks.emit,
        filters=state.filters,
        group_configs=state.group_configs,
        groups=state.groups,
        node=state.node,
        notices=MemberNotices(
            clock=state.clock,
            group_configs=state.group_configs,
            groups=state.groups,
            work=state.work,
        ),
        observer=state.observer,
        committed=state.offsets.committed,
        producers=state.producers,
        readers=state.readers,
        removals=offsets.removals,
        topics=state.topics,
        work=state.work,
    )


def _kept_settings(state: BrokerState) -> KeptSettings:
    path = f"{state.node.config.config_folder}/{FILE_NAME}"
    return KeptSettings(state.runtime, path, state.store.store_id, state.observer)


def _config_changes(
    state: BrokerState, origin: Origin, stored_settings: KeptSettings
) -> ConfigChanges:
    is_users_file = origin.path and not origin.is_kept
    return ConfigChanges(
        node=state.node,
        origin=origin,
        file=SettingsFile(state.runtime, origin.path) if is_users_file else stored_settings,
        changes=state.changes,
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
    )


def _deletions(
    state: BrokerState,
    offsets: OffsetServices,
    watermarks: Watermarks,
    *,
    persistence: Persistence,
    wake_ups: WakeUps,
) -> Deletions:
    def at_once(topic: str) -> Iterator[None]:
        state.duplicate_copies.forget_topic(topic)
        state.unsynced.forget_topic(topic)
        return iter(())

    of_topics: list[Forget] = [
        at_once,
        wake_ups.answer_topic,
        state.locks.forget_topic,
        watermarks.forget_topic,
        state.offsets.forget_topic,
        state.readers.forget_topic,
        state.stats.forget_topic,
        state.deduplication.forget_topic,
        offsets.remembered.forget_topic,
    ]
    of_groups: list[Forget] = [
        wake_ups.answer_group,
        watermarks.forget_group,
        state.offsets.forget_group,
        state.readers.forget_group,
        state.stats.forget_group,
    ]
    return Deletions(
        store=state.store,
        topics=state.topics,
        group_configs=state.group_configs,
        deleted_groups=state.deleted_groups,
        offsets=state.offsets,
        new_lives=offsets.new_lives,
        changes=state.changes,
        save_offsets=persistence.save_offsets_now,
        removals=offsets.removals,
        of_topics=of_topics,
        of_groups=of_groups,
    )


def _offset_deletion(
    state: BrokerState, offsets: OffsetServices, persistence: Persistence, watermarks: Watermarks
) -> OffsetDeletion:
    return OffsetDeletion(
        clock=state.clock,
        group_queues=offsets.queues,
        groups=state.groups,
        offsets=state.offsets,
        readers=state.readers,
        removals=offsets.removals,
        save_offsets=persistence.save_offsets_now,
        watermarks=watermarks,
    )


def _timers_of(state: BrokerState, sending: SendServices) -> DelayService:
    def is_stopped() -> bool:
        return state.node.config.timer_stop_dequeue

    return _delivery_of(state.time_wheel, state, sending, is_stopped=is_stopped)


def _delivery_of(
    delays: Delays[int],
    state: BrokerState,
    sending: SendServices,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> DelayService:
    return DelayService(
        state.store,
        delays,
        observer=state.observer,
        make_dead_letter_topic=sending.dead_letters.make,
        may_deliver=lambda: state.node.is_master and not is_stopped(),
        queue_there=state.topics.queue_there,
        origin_of=sending.origins.origin_of,
    )


def metrics_of(state: BrokerState, services: Services) -> BrokerMetrics:
    """What a scrape of this broker reads."""

    def lags() -> Lags:
        return Lags(
            has_left=services.reporters.left_topics.__contains__,
            offsets=state.offsets,
            readers=state.readers,
            store=state.store,
            topics=state.topics,
        )

    return BrokerMetrics(
        client_stats=state.client_stats,
        clock=state.clock,
        exporter=ExporterFamilies(
            client_stats=state.client_stats,
            clock=state.clock,
            groups=state.groups,
            node=state.node,
            producers=state.producers,
            stats=state.stats,
            store=state.store,
        ),
        group_configs=state.group_configs,
        groups=state.groups,
        lags=lags,
        latencies=state.latencies,
        node=state.node,
        producers=state.producers,
        runtime=RuntimeFamilies(
            node=state.node,
            runtime=state.runtime,
            runtime_info=services.runtime_info,
            store=state.store,
        ),
        stats=state.stats,
        store=state.store,
        topics=state.topics,
        transactions=state.transactions,
        wheel=state.time_wheel,
    )
