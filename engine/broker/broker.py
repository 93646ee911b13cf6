"""Assembles a broker's parts, then starts and stops them in the required order.

Place in the walk: around it. It decides nothing but the order:
  start  take the store (recovery) → telemetry → tables → port → name servers → loops
  stop   name servers → held pulls answered → port → loops → tables → store → telemetry

Invariant: the port opens only when the tables are loaded, so no client meets a half-known broker;
the spool closes last, so that the shutdown itself is recorded. A loop that ends by an error ends
the broker, as does a failed sync of the store or a broken invariant of a handler: `wait` raises it,
and the caller lets the process die, because only a recovery finds out what really holds.
Absent on purpose: requests (handlers), signals and the command line (commands).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import chain
from typing import Any

from engine.broker.config import BrokerConfig, BrokerRole, MetricsExporter
from engine.broker.groups.readers import QueueKey, Reading
from engine.broker.handler_table import handler_table
from engine.broker.metrics import MetricsPort
from engine.broker.offsets.remembered_offsets import BootEnds
from engine.broker.persistence import SETTINGS_GONE
from engine.broker.pulling.cold_reads import TOLD_EACH_SAMPLES
from engine.broker.replicating.agreed_tables import applied_in, read_snapshot, table_file
from engine.broker.replicating.ordered_role import OrderedRole
from engine.broker.services import Services, metrics_of, services_of
from engine.broker.state import BrokerState, Signals, state_of
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.config_layers import Origin
from engine.foundation.errors import DiskFull, ProtocolError, StorageError
from engine.foundation.limits import LOOP_STEP_ANSWERS_MAX
from engine.foundation.observing import LifecycleEvent, Observer, SilentObserver
from engine.foundation.units import SECOND_MS
from engine.protocol.names import MASTER_ID
from engine.remoting import Peer, RpcClient, RpcServer
from engine.runtime import Runtime
from engine.runtime.clock import ClockStep
from engine.runtime.durable import make_durable
from engine.store import NO_END, FlushDiskType, MessageStore
from engine.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

_log = logging.getLogger(__name__)

RESENDS_TOLD_MS = 30 * SECOND_MS
"""How often it is reported what became of messages that were sent again."""


@dataclass(slots=True)
class _Running:
    """What exists while the broker runs."""

    state: BrokerState
    services: Services
    server: RpcServer
    client: RpcClient
    telemetry: Telemetry | None
    metrics: MetricsPort | None = None
    loops: asyncio.Task[None] | None = None


class Broker:
    """One broker. `start`, then `wait` or go on, then `stop`."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        origin: Origin | None = None,
        *,
        observer: Observer | None = None,
    ) -> None:
        """`observer` hears of the facts of a broker without telemetry; None: nobody does."""
        self._runtime = runtime
        self._config = config
        self._origin = origin or Origin()
        self._observer = observer or SilentObserver()
        self._running: _Running | None = None

    @property
    def state(self) -> BrokerState:
        """The tables of a running broker, for whoever looks inside (the simulator's checkers)."""
        assert self._running is not None, "the broker is not running"
        return self._running.state

    @property
    def services(self) -> Services:
        """What works on the tables of a running broker, as `state`."""
        assert self._running is not None, "the broker is not running"
        return self._running.services

    @property
    def address(self) -> str:
        """`ip:port` under which a running broker is known."""
        return self.state.node.address

    @property
    def metrics_address(self) -> str | None:
        """`ip:port` of a running broker's metrics; None when it reports none."""
        assert self._running is not None, "the broker is not running"
        return None if self._running.metrics is None else self._running.metrics.address

    async def start(self) -> int:
        """Recover, open the port and register; return the port.

        Raises StorageError when the store is taken or unreadable, ConfigError when the port is.
        """
        assert self._running is None, "the broker is running already"
        disk, root = self._runtime.disk, self._config.store.root
        make_durable(disk, root)
        is_master = self._config.broker_role is not BrokerRole.SLAVE
        ordered = OrderedRole(self._runtime, self._config)
        config = self._config = ordered.config
        stopped_cleanly = not disk.exists(config.store.abort_path)
        telemetry = self._open_telemetry(is_master=is_master)
        observer: Observer = self._observer if telemetry is None else telemetry
        try:
            store = await MessageStore.open(
                self._runtime,
                config.store,
                observer,
                visible_end=_visible_end(self._runtime, config),
            )
        except BaseException as error:
            if telemetry is not None:
                await telemetry.close()
            if isinstance(
                error, DiskFull
            ):  # What is lacking is part of what makes the store whole.
                what = str(error).partition(";")[0]
                raise StorageError(f"{what}; free some, then start it again") from error
            raise
        try:
            store.retention.beside = _folders_beside(config)
            running = self._assemble(
                store, observer, telemetry, ordered=ordered, stopped_cleanly=stopped_cleanly
            )
            await self._read_tables(running, stopped_cleanly=stopped_cleanly)
            await self._settle_settings(running)
            is_first = None if telemetry is None else telemetry.earlier_epoch == 0
            observer.observe(
                LifecycleEvent("BOOT", f"store {root}", clean=stopped_cleanly, first_seen=is_first)
            )
            port = await running.server.start(config.host, config.port)
        except BaseException:
            await store.close()
            if telemetry is not None:
                await telemetry.close()
            raise
        self._running = running
        running.state.node.address = f"{config.host}:{port}"
        store.on_arrival(running.services.wake_ups.arrived)
        running.state.gate.on_change = running.services.wake_ups.wake_all
        self._runtime.clock.on_step(self._clock_stepped)
        if running.services.raft is None:
            store.start()
        if telemetry is not None:
            running.services.sending.resends.begin()
            telemetry.start()
        try:
            await self._save_tables(running)
            if running.services.raft is None:
                await running.services.replication.start()
            running.metrics = await self._open_metrics(running)
            await running.services.registration.register()
        except BaseException:
            await self.stop()
            raise
        running.loops = asyncio.create_task(self._run_loops(running), name="broker loops")
        return port

    async def _read_tables(self, running: _Running, *, stopped_cleanly: bool) -> None:
        """All that a broker knows before its port opens; of a group it first hears what its log
        says.
        """
        store, services = running.state.store, running.services
        if services.raft is None:
            await services.leadership.begin(stopped_cleanly=stopped_cleanly)
        else:
            store.start()
            await services.raft.start()
        self._load(running, stopped_cleanly=stopped_cleanly)
        if services.raft is not None:
            await services.raft.tables.load()
            await running.state.delay_levels.follow_log()
        await running.state.time_wheel.follow_log(was_written=services.persistence.all_written)
        services.sending.half_queue.load()
        if store.epochs.leads:
            await services.replication.merge_back()

    async def wait(self) -> None:
        """Return never, while all goes well; raise what ended one of the loops."""
        assert self._running is not None, "the broker is not running"
        assert self._running.loops is not None, "the broker has not started"
        try:
            await self._running.loops
        except BaseExceptionGroup as group:  # Of several ends the first one is the reason.
            raise group.exceptions[0] from group

    async def stop(self) -> None:
        """Stop cleanly: everything answered, persisted, flushed and reported."""
        running, self._running = self._running, None
        if running is None:
            return
        services = running.services
        await services.registration.unregister()
        if running.metrics is not None:
            await running.metrics.stop()
        await services.replication.stop()
        if services.raft is not None:
            await services.raft.stop()
        await services.wake_ups.finish()
        services.membership.stop()
        await running.server.stop()
        if running.loops is not None:
            running.loops.cancel()
            await asyncio.gather(running.loops, return_exceptions=True)
        await running.state.work.finish()
        await running.client.close()
        clean = await self._persist_last(running)
        everything = services.reporters.watermarks.sample(
            self._runtime.clock.steady_ms(), everything=True
        )
        await in_steps(everything)
        services.sending.placement.emit_resends()
        await running.state.store.close()
        running.state.observer.observe(LifecycleEvent("SHUTDOWN", None, clean=clean))
        if running.telemetry is not None:
            await running.telemetry.close()

    async def _persist_last(self, running: _Running) -> bool:
        """Write all that a stop leaves; could it be written?"""
        services = running.services
        half_queue = services.sending.half_queue
        try:
            half_queue.settle("SHUTDOWN")
            await running.state.store.flush()
            half_queue.settle("SHUTDOWN")  # Progress passes only what is durable.
            await services.persistence.save_settings()
            await services.persistence.save_offsets("SHUTDOWN")
            await running.state.delay_levels.persist("SHUTDOWN")
            await running.state.time_wheel.persist("SHUTDOWN")
        except StorageError as error:
            _log.error("stopping without the last tables: %s", error)
            return False
        return True

    async def _settle_settings(self, running: _Running) -> None:
        """Report how the settings of the store were found, and put them right."""
        if not self._origin.is_kept:
            return
        settings = running.services.stored_settings
        await settings.settle(self._origin.found)
        if running.services.persistence.settings_were_kept and not settings.is_there:
            settings.report_missing(running.state.observer, SETTINGS_GONE)

    async def _save_tables(self, running: _Running) -> None:
        """Write what recovery lowered, and the tables, at start; without room for them they are
        written when there is some.

        The files there say the same but for what a boot takes back again, and for topics that every
        broker makes for itself.
        """
        try:
            await running.services.persistence.save_offsets("RECOVERY")
            await running.state.delay_levels.persist("RECOVERY")
            await running.state.time_wheel.persist("RECOVERY")
            await running.services.persistence.save_settings()
        except DiskFull as error:
            _log.warning("the tables are written when there is room: %s", error)
            running.state.changes.of_settings()

    async def _open_metrics(self, running: _Running) -> MetricsPort | None:
        config = self._config
        if config.metrics_exporter is not MetricsExporter.PROM:
            return None
        names = (config.host, *config.metrics_hosts)
        pages = metrics_of(running.state, running.services).pages
        metrics = MetricsPort(self._runtime.network, pages, names=names)
        await metrics.start(config.metrics_host, config.metrics_port)
        return metrics

    def _open_telemetry(self, *, is_master: bool) -> Telemetry | None:
        """Under the number that the spool has; in a new one under that of masters, or, of a node
        that was configured as a slave, one that no other has.
        """
        config = self._config
        if not config.telemetry:
            return None
        leads = is_master and not config.raft_enable
        number = MASTER_ID if leads else 1 + int(self._runtime.entropy.token(4).hex(), 16)
        identity = EmitterIdentity(config.cluster_name, config.broker_name, number)
        spool = f"{config.store.root}/{SPOOL_DIRECTORY}"
        telemetry = Telemetry.open(self._runtime, spool, identity)
        if config.raft_enable:
            telemetry.await_role()
        elif config.broker_role is BrokerRole.SLAVE:
            telemetry.follow()
        return telemetry

    def _assemble(
        self,
        store: MessageStore,
        observer: Observer,
        telemetry: Telemetry | None,
        *,
        ordered: OrderedRole,
        stopped_cleanly: bool,
    ) -> _Running:
        runtime, config = self._runtime, self._config

        def topic_made(topic: str) -> None:
            services.offsets.new_lives.topic_made(topic)

        def last_offset_forgotten(group: str) -> None:
            services.offsets.removals.group_lost(group)

        def reading_forgotten(key: QueueKey, reading: Reading) -> None:
            services.offsets.new_lives.reading_forgotten(key, reading)

        state = state_of(
            runtime,
            config,
            store=store,
            observer=observer,
            signals=Signals(topic_made, last_offset_forgotten, reading_forgotten),
            broker_epoch=runtime.clock.now_us() if telemetry is None else telemetry.broker_epoch,
        )
        client = RpcClient(runtime, credentials=state.gate, tls=config.access.client_tls)
        services = services_of(
            state,
            origin=self._origin,
            ordered=ordered,
            client=client,
            telemetry=telemetry,
            boot_ends=_boot_ends(config, store, stopped_cleanly=stopped_cleanly),
        )
        reporters, delay_levels = services.reporters, state.delay_levels
        store.retention.on_doomed = lambda below: chain(
            # A copy's files are younger than its master's, who has put again what waits in them.
            state.time_wheel.put_again(below) if state.node.is_master else (),
            reporters.expired.emit_expired(below, delay_levels.cursors()),
        )
        store.retention.on_purged = lambda gone: reporters.retention_losses.emit_unconsumed(
            gone, delay_levels.cursors()
        )
        return _Running(
            state=state,
            services=services,
            server=self._server(state, services, telemetry),
            client=client,
            telemetry=telemetry,
        )

    def _server(
        self, state: BrokerState, services: Services, telemetry: Telemetry | None
    ) -> RpcServer:
        return RpcServer(
            self._runtime,
            handler_table(state, services),
            before_answers=(lambda: None) if telemetry is None else telemetry.write_turn,
            on_lost=services.membership.lost,
            on_protocol_error=self._emit_malformed,
            latencies=state.latencies,
            gate=state.gate,
            tls=self._config.access.server_tls,
            connections_max=self._config.connections_max,
        )

    def _load(self, running: _Running, *, stopped_cleanly: bool) -> None:
        state, services, config = running.state, running.services, self._config
        services.persistence.load(stopped_cleanly=stopped_cleanly)
        state.delay_levels.load(was_written=services.persistence.all_written)
        services.sending.placement.load_window()
        state.topics.add_system_topics(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            delay_levels_count=len(config.store.delay_levels_ms),
            template_queue_nums=(
                config.default_topic_queue_nums if config.auto_create_topic_enable else None
            ),
        )
        services.persistence.make_topics_of_queues()
        if running.telemetry is not None and state.node.is_master:
            services.reporters.boot_audit.compare_with_earlier_life(
                running.telemetry, services.persistence.spooled
            )
        services.persistence.watch_lives()
        state.work.add(services.offsets.new_lives.serve())

    async def _run_loops(self, running: _Running) -> None:
        config, store, services = self._config, running.state.store, running.services
        async with asyncio.TaskGroup() as loops:
            for work in (
                services.registration.run(),
                *_replicating(services),
                services.persistence.run_settings(),
                services.persistence.run_offsets(),
                services.delay.run(),
                services.timers.run(),
                running.state.delay_levels.run_persist(config.flush_delay_offset_interval_ms),
                running.state.time_wheel.run(config.flush_delay_offset_interval_ms),
                services.sending.half_queue.run(),
                services.checks.run(),
                services.reporters.client_windows.run(),
                services.membership.notices.run(),
                running.state.work.run(),
                services.wake_ups.run(
                    config.hold_check_interval_ms, self._runtime.clock.steady_ms, store.max_offset
                ),
                self._keep_house(running),
                self._count(running),
                self._sample(running),
                store.failed(),
                running.server.failed(),
            ):
                _start(loops, work)

    async def _keep_house(self, running: _Running) -> None:
        """Remove clients that have been silent for too long."""
        config = self._config
        interval_ms = min(config.housekeeping_interval_ms, config.client_expiry_ms)
        while True:
            await asyncio.sleep(interval_ms / SECOND_MS)
            running.state.lives.grow_older(self._runtime.clock.steady_ms())
            departures = running.services.membership.expire()
            await in_steps(stepped(departures, LOOP_STEP_ANSWERS_MAX))

    async def _count(self, running: _Running) -> None:
        """Take the samples of rates and times on each point of the grid."""
        state, clock = running.state, self._runtime.clock
        cold_ms = TOLD_EACH_SAMPLES * self._config.sample_interval_ms
        cold_emitted = clock.now_ms() // cold_ms
        state.cold_reads.take(self._runtime.disk.fetched_bytes())
        while True:
            now_ms = await self._next_sample_ms()
            if now_ms // cold_ms != cold_emitted:
                cold_emitted = now_ms // cold_ms
                fetched_bytes = self._runtime.disk.fetched_bytes()
                state.observer.observe_all(state.cold_reads.take(fetched_bytes))
            state.put_times.sample(clock.steady_ms())
            await in_steps(state.stats.sample(clock.steady_ms(), wall_ms=now_ms))
            await in_steps(running.services.membership.judge())

    async def _sample(self, running: _Running) -> None:
        """Report the watermarks on each point of the grid. When many moved, and others want the
        loop, it takes until after the next one, which is passed over then.
        """
        clock = self._runtime.clock
        rounds_begun = clock.now_ms() // RESENDS_TOLD_MS
        while True:
            now_ms = await self._next_sample_ms()
            running.services.replica_marks.sample()
            running.services.timer_marks.sample()
            await in_steps(running.services.reporters.watermarks.sample(clock.steady_ms()))
            if now_ms // RESENDS_TOLD_MS != rounds_begun:
                rounds_begun = now_ms // RESENDS_TOLD_MS
                running.services.sending.placement.emit_resends()

    async def _next_sample_ms(self) -> int:
        """Wait for the next point of the grid; the time then."""
        every_ms, clock = self._config.sample_interval_ms, self._runtime.clock
        await asyncio.sleep((every_ms - clock.now_ms() % every_ms) / SECOND_MS)
        return clock.now_ms()

    def _clock_stepped(self, step: ClockStep) -> None:
        """Somebody has set the machine's clock. Reported in the next turn: whoever has just looked
        at the clock may be about to report something itself.
        """
        direction = "forward" if step.by_ms > 0 else "back"
        detail = f"the machine's clock was set {direction} by {abs(step.by_ms)} ms"
        _log.warning("%s", detail)

        def emit() -> None:
            if self._running is not None:
                self._running.state.observer.observe(
                    LifecycleEvent("CLOCK_STEPPED", detail, step_ms=step.by_ms)
                )

        asyncio.get_running_loop().call_soon(emit)

    def _emit_malformed(self, peer: Peer, error: ProtocolError) -> None:
        if self._running is not None:
            self._running.state.observer.observe(
                LifecycleEvent("MALFORMED_CONNECTION", f"{peer.address}: {error}")
            )


def _replicating(services: Services) -> tuple[Coroutine[Any, Any, None], ...]:
    """What replicates the log: a group of its own, or a master and slaves."""
    if services.raft is not None:
        return (services.raft.run(),)
    return services.replication.run(), services.leadership.run()


def _visible_end(runtime: Runtime, config: BrokerConfig) -> int:
    """Up to where a start may show the log at once: of a node of a group, what it has applied."""
    if not config.raft_enable:
        return NO_END
    return applied_in(read_snapshot(table_file(runtime, config)))


def _start(loops: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    loops.create_task(work, name=getattr(work, "__qualname__", "broker loop"))


def _folders_beside(config: BrokerConfig) -> tuple[str, ...]:
    """Folders of a broker's store that hold no messages, and may be volumes of their own."""
    root = config.store.root
    return root, config.config_folder, f"{root}/{SPOOL_DIRECTORY}"


def _boot_ends(config: BrokerConfig, store: MessageStore, *, stopped_cleanly: bool) -> BootEnds:
    """Where queues end, when a power cut may have taken what lay behind; else None. What a Raft
    group has shown, no power cut takes.
    """
    is_lossy = config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH and not config.raft_enable
    if stopped_cleanly or not is_lossy:
        return None
    return {key: store.max_offset(*key) for key in store.queues()}
