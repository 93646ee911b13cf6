"""A broker: its parts put together, started and stopped in the right order.

Place in the walk: around it. Nothing is decided here but the order of things:
  start  take the store (recovery) → telemetry → tables → port → name servers → loops
  stop   name servers → held pulls answered → port → loops → tables → store → telemetry

Invariant: the port opens only when the tables are loaded, so no client meets a half-known broker;
the spool closes last, so that the shutdown itself is told. A loop that ends by an error ends the
broker, as does a failed sync of the store or a broken invariant of a handler: `wait` raises it, and
whoever started us lets the process die, because only a recovery finds out what really holds.
Absent on purpose: requests (handlers), signals and the command line (commands).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from engine.broker.client_windows import ClientWindows
from engine.broker.config import BrokerConfig, MetricsExporter
from engine.broker.earlier_life import compare_with_earlier_life
from engine.broker.expired_dead_letters import tell_expired
from engine.broker.gatekeeping import gate_of
from engine.broker.gone import tell_lost_group
from engine.broker.half_queue import HalfQueue
from engine.broker.handler_table import handler_table
from engine.broker.handlers.putting import Putting
from engine.broker.handlers.retry_sends import make_dead_letter_topic
from engine.broker.live_config import kept_settings
from engine.broker.long_poll import HeldPulls
from engine.broker.membership import Membership
from engine.broker.metrics import BrokerMetrics, MetricsPort
from engine.broker.new_lives import reading_forgotten, topic_made
from engine.broker.parts import BrokerParts
from engine.broker.registration import Registration
from engine.broker.sampling import Watermarks
from engine.broker.state.cold_reads import TOLD_EACH_SAMPLES
from engine.broker.state.group_configs import GroupConfigs
from engine.broker.state.groups import ConsumerGroups
from engine.broker.state.offsets import ConsumerOffsets
from engine.broker.state.producer_groups import ProducerGroups
from engine.broker.state.queue_locks import QueueLocks
from engine.broker.state.readers import Readers
from engine.broker.state.topics import Topics
from engine.broker.stored_resends import StoredResends
from engine.broker.tables import SETTINGS_GONE, Tables
from engine.broker.transaction_checks import TransactionChecks
from engine.broker.unconsumed import tell_unconsumed
from engine.broker.woken_pulls import WokenPulls
from engine.broker.work_in_steps import in_steps, stepped
from engine.delay import DelayService
from engine.foundation.config_layers import Origin
from engine.foundation.errors import DiskFull, ProtocolError, StorageError
from engine.foundation.limits import LOOP_STEP_ANSWERS_MAX
from engine.foundation.observing import LifecycleEvent, Observer, SilentObserver
from engine.foundation.units import SECOND_MS
from engine.protocol.message_ids import UniqueIds
from engine.remoting import Handler, Peer, RpcClient, RpcServer
from engine.remoting.gate import Gate
from engine.runtime import Runtime
from engine.runtime.clock import ClockStep
from engine.runtime.durable_folders import make_durable
from engine.store import FlushDiskType, MessageStore
from engine.store.table_file import TableFile
from engine.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

_log = logging.getLogger(__name__)

RESENDS_TOLD_MS = 30 * SECOND_MS
"""How often it is told what became of messages that were sent again."""


@dataclass(slots=True)
class _Running:
    """What exists while the broker runs."""

    parts: BrokerParts
    server: RpcServer
    client: RpcClient
    registration: Registration
    membership: Membership
    watermarks: Watermarks
    windows: ClientWindows
    woken: WokenPulls
    tables: Tables
    delay: DelayService
    half_queue: HalfQueue
    checks: TransactionChecks
    telemetry: Telemetry | None
    metrics: MetricsPort | None = None
    loops: asyncio.Task[None] | None = None


class Broker:
    """One broker. `start`, then `wait` or go on, then `stop`."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, origin: Origin | None = None
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._origin = origin or Origin()
        self._running: _Running | None = None

    @property
    def parts(self) -> BrokerParts:
        """The state of a running broker, for whoever looks inside (the simulator's checkers)."""
        assert self._running is not None, "the broker is not running"
        return self._running.parts

    @property
    def address(self) -> str:
        """`ip:port` under which a running broker is known."""
        return self.parts.address

    @property
    def metrics_address(self) -> str | None:
        """`ip:port` of a running broker's metrics; None when it tells none."""
        assert self._running is not None, "the broker is not running"
        return None if self._running.metrics is None else self._running.metrics.address

    async def start(self) -> int:
        """Recover, open the port and register; return the port.

        Raises StorageError when the store is taken or unreadable, ConfigError when the port is.
        """
        assert self._running is None, "the broker is running already"
        config = self._config
        disk, root = self._runtime.disk, config.store.root
        make_durable(disk, root)
        stopped_cleanly = not disk.exists(config.store.abort_path)
        telemetry = self._open_telemetry()
        observer: Observer = SilentObserver() if telemetry is None else telemetry
        try:
            store = await MessageStore.open(self._runtime, config.store, observer)
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
            running = self._assemble(store, observer, telemetry)
            self._load(running, stopped_cleanly=stopped_cleanly)
            running.half_queue.load()
            await self._settle_settings(running)
            observer.observe(LifecycleEvent("BOOT", f"store {root}", clean=stopped_cleanly))
            port = await running.server.start(config.host, config.port)
        except BaseException:
            await store.close()
            if telemetry is not None:
                await telemetry.close()
            raise
        self._running = running
        running.parts.address = f"{config.host}:{port}"
        store.on_arrival(running.woken.arrived)
        running.parts.pulls_woken = running.woken.wake
        running.parts.gate.on_change = running.woken.wake_all
        self._runtime.clock.on_step(self._clock_stepped)
        store.start()
        if telemetry is not None:
            StoredResends(running.parts).begin()
            telemetry.start()
        try:
            await self._save_tables(running)
            running.metrics = await self._open_metrics(running.parts)
            await running.registration.register()
        except BaseException:
            await self.stop()
            raise
        running.loops = asyncio.create_task(self._run_loops(running), name="broker loops")
        return port

    async def wait(self) -> None:
        """Return never, while all goes well; raise what ended one of the loops."""
        assert self._running is not None, "the broker is not running"
        assert self._running.loops is not None, "the broker has not started"
        try:
            await self._running.loops
        except BaseExceptionGroup as group:  # Of several ends the first one is the reason.
            raise group.exceptions[0] from group

    async def stop(self) -> None:
        """Stop cleanly: everything answered, persisted, flushed and told."""
        running, self._running = self._running, None
        if running is None:
            return
        await running.registration.unregister()
        if running.metrics is not None:
            await running.metrics.stop()
        await running.woken.finish()
        running.membership.stop()
        await running.server.stop()
        if running.loops is not None:
            running.loops.cancel()
            await asyncio.gather(running.loops, return_exceptions=True)
        await running.parts.work.finish()
        await running.client.close()
        clean = True
        try:
            running.half_queue.settle("SHUTDOWN")
            await running.parts.store.flush()
            running.half_queue.settle("SHUTDOWN")  # Progress passes only what is durable.
            await running.tables.save_settings()
            await running.tables.save_offsets("SHUTDOWN")
            await running.delay.persist("SHUTDOWN")
        except StorageError as error:
            clean = False
            _log.error("stopping without the last tables: %s", error)
        await in_steps(running.watermarks.sample(self._runtime.clock.steady_ms(), everything=True))
        Putting(running.parts).tell_resends()
        await running.parts.store.close()
        running.parts.observer.observe(LifecycleEvent("SHUTDOWN", None, clean=clean))
        if running.telemetry is not None:
            await running.telemetry.close()

    async def _settle_settings(self, running: _Running) -> None:
        """Tell how the settings of the store were found, and put them right."""
        if not self._origin.is_kept:
            return
        settings = kept_settings(running.parts)
        await settings.settle(self._origin.found)
        if running.tables.settings_were_kept and not settings.is_there:
            settings.tell_missing(running.parts.observer, SETTINGS_GONE)

    async def _save_tables(self, running: _Running) -> None:
        """Write what recovery lowered, and the tables, at start; without room for them they are
        written when there is some.

        The files there say the same but for what a boot takes back again, and for topics that every
        broker makes for itself.
        """
        try:
            await running.tables.save_offsets("RECOVERY")
            await running.delay.persist("RECOVERY")
            await running.tables.save_settings()
        except DiskFull as error:
            _log.warning("the tables are written when there is room: %s", error)
            running.tables.want()

    async def _open_metrics(self, parts: BrokerParts) -> MetricsPort | None:
        config = self._config
        if config.metrics_exporter is not MetricsExporter.PROM:
            return None
        names = (config.host, *config.metrics_hosts)
        metrics = MetricsPort(self._runtime.network, BrokerMetrics(parts).pages, names=names)
        await metrics.start(config.metrics_host, config.metrics_port)
        return metrics

    def _open_telemetry(self) -> Telemetry | None:
        config = self._config
        if not config.telemetry:
            return None
        identity = EmitterIdentity(config.cluster_name, config.broker_name, config.broker_id)
        return Telemetry.open(self._runtime, f"{config.store.root}/{SPOOL_DIRECTORY}", identity)

    def _assemble(
        self, store: MessageStore, observer: Observer, telemetry: Telemetry | None
    ) -> _Running:
        runtime, config, clock = self._runtime, self._config, self._runtime.clock
        epoch = clock.now_us() if telemetry is None else telemetry.broker_epoch
        parts = BrokerParts(
            runtime=runtime,
            config=config,
            store=store,
            observer=observer,
            topics=Topics(),
            group_configs=GroupConfigs(auto_create=config.auto_create_subscription_group),
            groups=ConsumerGroups(),
            producers=ProducerGroups(),
            offsets=ConsumerOffsets(),
            readers=Readers(epoch),
            locks=QueueLocks(),
            holds=HeldPulls(),
            unique_ids=UniqueIds(
                config.host, runtime.entropy.process_id(), runtime.entropy.below(1 << 32)
            ),
            boot_ms=clock.now_ms(),
            origin=self._origin,
        )
        gate = parts.gate = gate_of(parts)
        client = RpcClient(runtime, credentials=gate, tls=config.access.client_tls)
        registration = Registration(parts, client)
        membership = Membership(parts)
        watermarks = Watermarks(parts)
        tables = Tables(parts, telemetry)
        delay = DelayService(
            runtime,
            store,
            levels_ms=config.store.delay_levels_ms,
            cursor_file=TableFile(runtime, config.delay_offset_path, store.store_id),
            observer=observer,
            make_dead_letter_topic=lambda group: make_dead_letter_topic(parts, group),
            queue_there=parts.topics.queue_there,
        )
        half_queue = HalfQueue(parts)
        table = handler_table(parts, membership, delay, half_queue)

        def topics_changed() -> None:
            parts.topics_unsaved = True
            tables.want()
            registration.want()

        parts.topics_changed = topics_changed
        parts.topics_told = registration.told
        parts.group_configs_changed = tables.want
        parts.settings_saved = tables.save_settings
        parts.filters_changed = parts.settings_kept = tables.want
        watermarks.offer(parts)
        store.retention.on_doomed = lambda below: tell_expired(parts, below, delay.cursors())
        store.retention.on_purged = lambda gone: tell_unconsumed(parts, gone, delay.cursors())
        return _Running(
            parts=parts,
            server=self._server(parts, table, membership, telemetry=telemetry, gate=gate),
            client=client,
            registration=registration,
            membership=membership,
            watermarks=watermarks,
            windows=ClientWindows(parts),
            woken=WokenPulls(parts.holds),
            tables=tables,
            delay=delay,
            half_queue=half_queue,
            checks=TransactionChecks(parts, half_queue),
            telemetry=telemetry,
        )

    def _server(
        self,
        parts: BrokerParts,
        table: Mapping[int, Handler],
        membership: Membership,
        *,
        telemetry: Telemetry | None,
        gate: Gate,
    ) -> RpcServer:
        return RpcServer(
            self._runtime,
            table,
            before_answers=(lambda: None) if telemetry is None else telemetry.write_turn,
            on_lost=membership.lost,
            on_protocol_error=self._tell_malformed,
            latencies=parts.latencies,
            gate=gate,
            tls=self._config.access.server_tls,
            connections_max=self._config.connections_max,
        )

    def _load(self, running: _Running, *, stopped_cleanly: bool) -> None:
        parts, config = running.parts, self._config
        parts.offsets.on_last_forgotten = lambda group: tell_lost_group(parts, group)
        parts.readers.on_forgotten = lambda key, reading: reading_forgotten(parts, key, reading)
        running.tables.load(stopped_cleanly=stopped_cleanly)
        running.delay.load(was_written=running.tables.all_written)
        Putting(parts).load_window()
        parts.topics.add_system_topics(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            delay_levels_count=len(config.store.delay_levels_ms),
            template_queue_nums=(
                config.default_topic_queue_nums if config.auto_create_topic_enable else None
            ),
        )
        running.tables.make_topics_of_queues()
        if not stopped_cleanly and config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            store = parts.store
            parts.boot_ends = {key: store.max_offset(*key) for key in store.queues()}
        if running.telemetry is not None:
            compare_with_earlier_life(parts, running.telemetry, running.tables.spooled)
        running.tables.watch_lives()
        parts.topics.on_made = lambda topic: topic_made(parts, topic)

    async def _run_loops(self, running: _Running) -> None:
        config, store = self._config, running.parts.store
        async with asyncio.TaskGroup() as loops:
            for work in (
                running.registration.run(),
                running.tables.run_settings(),
                running.tables.run_offsets(),
                running.delay.run(),
                running.delay.run_persist(config.flush_delay_offset_interval_ms),
                running.half_queue.run(),
                running.checks.run(),
                running.windows.run(),
                running.membership.notices.run(),
                running.parts.work.run(),
                running.woken.run(
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
            running.parts.lives.grow_older(self._runtime.clock.steady_ms())
            departures = running.membership.expire()
            await in_steps(stepped(departures, LOOP_STEP_ANSWERS_MAX))

    async def _count(self, running: _Running) -> None:
        """Take the samples of rates and times on each point of the grid."""
        parts, clock = running.parts, self._runtime.clock
        cold_ms = TOLD_EACH_SAMPLES * self._config.sample_interval_ms
        cold_told = clock.now_ms() // cold_ms
        parts.cold_reads.take(self._runtime.disk.fetched_bytes())
        while True:
            now_ms = await self._next_sample_ms()
            if now_ms // cold_ms != cold_told:
                cold_told = now_ms // cold_ms
                fetched_bytes = self._runtime.disk.fetched_bytes()
                parts.observer.observe_all(parts.cold_reads.take(fetched_bytes))
            parts.put_times.sample(clock.steady_ms())
            await in_steps(parts.traffic.sample(clock.steady_ms(), wall_ms=now_ms))
            await in_steps(running.membership.judge())

    async def _sample(self, running: _Running) -> None:
        """Tell the watermarks on each point of the grid. When many moved, and others want the loop,
        it takes until after the next one, which is passed over then.
        """
        clock = self._runtime.clock
        rounds_begun = clock.now_ms() // RESENDS_TOLD_MS
        while True:
            now_ms = await self._next_sample_ms()
            await in_steps(running.watermarks.sample(clock.steady_ms()))
            if now_ms // RESENDS_TOLD_MS != rounds_begun:
                rounds_begun = now_ms // RESENDS_TOLD_MS
                Putting(running.parts).tell_resends()

    async def _next_sample_ms(self) -> int:
        """Wait for the next point of the grid; the time then."""
        every_ms, clock = self._config.sample_interval_ms, self._runtime.clock
        await asyncio.sleep((every_ms - clock.now_ms() % every_ms) / SECOND_MS)
        return clock.now_ms()

    def _clock_stepped(self, step: ClockStep) -> None:
        """Somebody has set the machine's clock. Told in the next turn: whoever has just looked at
        the clock may be about to tell something itself.
        """
        direction = "forward" if step.by_ms > 0 else "back"
        detail = f"the machine's clock was set {direction} by {abs(step.by_ms)} ms"
        _log.warning("%s", detail)

        def tell() -> None:
            if self._running is not None:
                self._running.parts.observer.observe(
                    LifecycleEvent("CLOCK_STEPPED", detail, step_ms=step.by_ms)
                )

        asyncio.get_running_loop().call_soon(tell)

    def _tell_malformed(self, peer: Peer, error: ProtocolError) -> None:
        if self._running is not None:
            self._running.parts.observer.observe(
                LifecycleEvent("MALFORMED_CONNECTION", f"{peer.address}: {error}")
            )


def _start(loops: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    loops.create_task(work, name=getattr(work, "__qualname__", "broker loop"))


def _folders_beside(config: BrokerConfig) -> tuple[str, ...]:
    """Folders of a broker's store that hold no messages, and may be volumes of their own."""
    root = config.store.root
    return root, config.config_folder, f"{root}/{SPOOL_DIRECTORY}"
