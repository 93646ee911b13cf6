"""Builds the services that work on a broker's tables, each with only what it needs.

Place in the walk: made when the tables are (`state`), before any request. `handler_table` hands the
services on to handlers, `broker` starts and stops those that have a life of their own.

Invariant: a service is given all that it uses when it is made. Two tables notify services that are
made after them: they are given functions that find the service when it is called. Absent on
purpose: the order of a start (broker).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
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
from engine.broker.replicating.agreed_tables import AgreedTables, table_file
from engine.broker.replicating.leadership import Leadership
from engine.broker.replicating.offset_merges import OffsetMerges
from engine.broker.replicating.ordered_role import OrderedRole
from engine.broker.replicating.raft_group import RaftGroup
from engine.broker.replicating.raft_orders import BROKER_ROLE
from engine.broker.replicating.rebuild import Rebuild
from engine.broker.replicating.replication import Replication
from engine.broker.replicating.table_copies import TableCopies
from engine.broker.replicating.table_records import TableRecords
from engine.broker.reporting.replica_marks import ReplicaMarks
from engine.broker.reporting.timer_marks import TimerMarks
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
from engine.broker.state import BrokerState, assembled
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
    timer_marks: TimerMarks
    roles: RoleChanges
    leadership: Leadership
    raft: RaftGroup | None
    """None: this broker is not one of a group."""
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
    watermarks = reporting.watermarks
    persistence = assembled(Persistence, state, offsets, telemetry=telemetry)
    sending = send_services(state, offsets, persistence.save_settings)
    membership = membership_of(state, offsets, watermarks)
    wake_ups = WakeUps(state.holds)
    # Only who emits facts looks for messages that their producers sent again.
    handed = sending.resends.handed if telemetry is not None else handed_to_nobody
    stored_settings = _kept_settings(state)
    registration = assembled(Registration, state, client=client)
    deletions = _deletions(state, offsets, watermarks, persistence=persistence, wake_ups=wake_ups)
    replication = _replication(
        state, client=client, deletions=deletions, facts=offsets.facts, registration=registration
    )
    roles = assembled(RoleChanges, state, telemetry=telemetry, wake_ups=wake_ups)
    read_again = _read_again(state, persistence, sending)
    raft = _raft_group(state, deletions, roles, read_again)
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
        topic_changes=assembled(TopicChanges, state, offsets, membership=membership),
        offset_deletion=assembled(
            OffsetDeletion,
            state,
            offsets,
            group_queues=offsets.queues,
            save_offsets=persistence.save_offsets_now,
            watermarks=watermarks,
        ),
        shrinking=assembled(Shrinking, state),
        delay=_delivery_of(
            state.delay_levels, state, sending, is_stopped=lambda: _is_too_early(raft)
        ),
        timers=_timers_of(state, sending, raft),
        checks=assembled(TransactionChecks, state, sending),
        replication=replication,
        replica_marks=_replica_marks(state, replication, raft),
        timer_marks=assembled(TimerMarks, state, wheel=state.time_wheel),
        roles=roles,
        leadership=_leadership(
            state,
            ordered=ordered,
            read_again=read_again,
            replication=replication,
            roles=roles,
        ),
        raft=raft,
        runtime_info=assembled(RuntimeInfo, state),
    )


def _replication(
    state: BrokerState,
    *,
    client: RpcClient,
    deletions: Deletions,
    facts: OffsetFacts,
    registration: Registration,
) -> Replication:
    outage = state.outage_offsets
    merges = assembled(OffsetMerges, state, client=client, facts=facts, outage=outage)
    copies = assembled(
        TableCopies, state, client=client, deletions=deletions, merges=merges, outage=outage
    )
    return assembled(
        Replication, state, client=client, copies=copies, merges=merges, registration=registration
    )


def _read_again(
    state: BrokerState, persistence: Persistence, sending: SendServices
) -> Callable[[], Awaitable[None]]:
    async def read_again() -> None:
        state.outage_offsets.forget()
        persistence.make_topics_of_queues()
        persistence.take_back_to_the_log()
        sending.half_queue.load()
        sending.placement.load_window()
        await state.delay_levels.pass_delivered()

    return read_again


def _raft_group(
    state: BrokerState,
    deletions: Deletions,
    roles: RoleChanges,
    read_again: Callable[[], Awaitable[None]],
) -> RaftGroup | None:
    config, store = state.node.config, state.store
    if not config.raft_enable:
        return None
    tables = assembled(
        AgreedTables,
        state,
        delete_here=deletions.delete_here,
        deletions_ended=deletions.ended,
        file=table_file(state.runtime, config, store.store_id),
        records=assembled(TableRecords, state),
    )
    deletions.agree = tables.delete_topic
    return assembled(RaftGroup, state, read_again=read_again, roles=roles, tables=tables)


def _replica_marks(
    state: BrokerState, replication: Replication, raft: RaftGroup | None
) -> ReplicaMarks:
    return assembled(
        ReplicaMarks,
        state,
        replicas=replication.service.replicas if raft is None else raft.orders.replicas,
        needed=lambda: 1 if raft is not None else replication.acknowledgements.needed,
        mode=lambda: BROKER_ROLE if raft is not None else state.node.config.broker_role.value,
    )


def _leadership(
    state: BrokerState,
    *,
    ordered: OrderedRole,
    read_again: Callable[[], Awaitable[None]],
    replication: Replication,
    roles: RoleChanges,
) -> Leadership:
    return assembled(
        Leadership,
        state,
        ordered=ordered,
        read_again=read_again,
        rebuild=assembled(
            Rebuild,
            state,
            disk=state.runtime.disk,
            read_again=read_again,
            replication=replication,
        ),
        replication=replication,
        roles=roles,
    )


def membership_of(
    state: BrokerState, offsets: OffsetServices, watermarks: Watermarks
) -> Membership:
    """The membership of the groups of one broker."""
    return assembled(
        Membership,
        state,
        offsets,
        emit_marks=watermarks.emit,
        notices=assembled(MemberNotices, state),
        committed=state.offsets.committed,
    )


def _kept_settings(state: BrokerState) -> KeptSettings:
    path = f"{state.node.config.config_folder}/{FILE_NAME}"
    return KeptSettings(state.runtime, path, state.store.store_id, state.observer)


def _config_changes(
    state: BrokerState, origin: Origin, stored_settings: KeptSettings
) -> ConfigChanges:
    is_users_file = origin.path and not origin.is_kept
    return assembled(
        ConfigChanges,
        state,
        origin=origin,
        file=SettingsFile(state.runtime, origin.path) if is_users_file else stored_settings,
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
    return assembled(
        Deletions,
        state,
        offsets,
        save_offsets=persistence.save_offsets_now,
        of_topics=of_topics,
        of_groups=of_groups,
    )


def _is_too_early(raft: RaftGroup | None) -> bool:
    return raft is not None and raft.is_clock_ahead()


def _timers_of(state: BrokerState, sending: SendServices, raft: RaftGroup | None) -> DelayService:
    def is_stopped() -> bool:
        return state.node.config.timer_stop_dequeue or _is_too_early(raft)

    return _delivery_of(state.time_wheel, state, sending, is_stopped=is_stopped)


def _delivery_of(
    delays: Delays[int],
    state: BrokerState,
    sending: SendServices,
    *,
    is_stopped: Callable[[], bool],
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
        return assembled(Lags, state, has_left=services.reporters.left_topics.__contains__)

    return assembled(
        BrokerMetrics,
        state,
        exporter=assembled(ExporterFamilies, state),
        lags=lags,
        runtime=assembled(RuntimeFamilies, state, services),
        wheel=state.time_wheel,
    )
