"""The broker's tables on disk: topics, groups' settings and selectors, consume offsets.

Place in the walk: loaded before the port opens; offsets are written on a timer and at shutdown,
topics and groups soon after they changed.

Invariant: a table that could not be written stays marked as changed and is tried again. Absent on
purpose: the delay cursors, which are the delay service's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from engine.broker.parts import BrokerParts
from engine.broker.state.offsets import from_document
from engine.broker.work_in_steps import in_steps, stepped
from engine.foundation.errors import StorageError
from engine.foundation.observing import FlushDone
from engine.foundation.units import SECOND_MS
from engine.store.table_file import TableFile

RETRY_MS = SECOND_MS

_log = logging.getLogger(__name__)


class Tables:
    """Loads and saves the tables of one broker."""

    def __init__(
        self, parts: BrokerParts, rows_settled: Callable[[], Awaitable[None]] | None
    ) -> None:
        """`rows_settled` makes every fact told so far durable; None without telemetry."""
        folder = parts.config.config_folder
        self._parts = parts
        self._rows_settled = rows_settled
        self._offsets_file = TableFile(parts.runtime, f"{folder}/consumerOffset.json")
        self._topics_file = TableFile(parts.runtime, f"{folder}/topics.json")
        self._groups_file = TableFile(parts.runtime, f"{folder}/subscriptionGroup.json")
        self._changed = asyncio.Event()
        self._saving = asyncio.Lock()
        self._topics_written = -1
        self._groups_written = -1
        self._filters_file = TableFile(parts.runtime, f"{folder}/consumerFilter.json")
        self._filters_written = 0

    def load(self) -> None:
        """Take over what the last life left.

        Raises CorruptRecord when a table and its .bak are both unreadable.
        """
        parts = self._parts
        self._topics_file.load(parts.observer, parts.topics.load)
        self._groups_file.load(parts.observer, parts.group_configs.load)
        self._filters_file.load(
            parts.observer, lambda found: parts.filters.load(found, now_ms=parts.now_ms())
        )
        self._offsets_file.load(
            parts.observer,
            lambda found: parts.offsets.load(from_document(found), counter_of(found)),
        )

    def want(self) -> None:
        """Save topics, groups and selectors soon."""
        self._changed.set()

    async def run_settings(self) -> None:
        """Save topics and groups' settings after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.save_settings()
            except StorageError as error:
                _log.warning("topics and groups are not saved yet: %s", error)
                self._changed.set()
                await asyncio.sleep(RETRY_MS / SECOND_MS)

    async def run_offsets(self) -> None:
        """Persist the consume offsets on RocketMQ's rhythm, until cancelled."""
        parts = self._parts
        await asyncio.sleep(parts.config.flush_consumer_offset_first_ms / SECOND_MS)
        while True:
            try:
                await self.save_offsets("TIMER")
            except StorageError as error:
                _log.warning("consume offsets are not persisted yet: %s", error)
            await asyncio.sleep(parts.config.flush_consumer_offset_interval_ms / SECOND_MS)

    async def save_settings(self) -> None:
        """Write topics.json, subscriptionGroup.json and consumerFilter.json when they changed.

        Raises StorageError.
        """
        parts = self._parts
        async with self._saving:
            counter = parts.topics.counter
            if counter != self._topics_written:
                await self._topics_file.write_data(parts.topics.encode(parts.data_version(counter)))
                self._topics_written = counter
                parts.topics_unsaved = parts.topics.counter != counter
            counter = parts.group_configs.counter
            if counter != self._groups_written:
                version = parts.data_version(counter).to_json()
                table = parts.group_configs.table_document()
                await self._groups_file.write(
                    {"dataVersion": version, "subscriptionGroupTable": table}
                )
                self._groups_written = counter
            counter = parts.filters.counter
            if counter != self._filters_written:
                await self._filters_file.write(parts.filters.to_document())
                self._filters_written = counter

    def _is_without_offsets(self) -> bool:
        return not self._parts.runtime.disk.exists(self._offsets_file.path)

    async def save_offsets(self, cause: str) -> None:
        """Write consumerOffset.json when it changed, and tell so. Raises StorageError.

        The reports in it are durable before it, so that no crash leaves a file that says more than
        was told. After a clean stop there always is one, so that its absence says that somebody
        took it away.
        """
        offsets = self._parts.offsets
        async with self._saving:
            if not offsets.changed and not (cause == "SHUTDOWN" and self._is_without_offsets()):
                return
            snapshot = offsets.snapshot()
            version = self._parts.data_version(offsets.counter).to_json()
            try:
                await in_steps(offsets.encode(snapshot, version))
                if self._rows_settled is not None:
                    await self._rows_settled()
                written = await self._offsets_file.write_data(snapshot.data)
            except BaseException:  # Cancelled as well: whether it is on disk is unknown.
                offsets.mark_failed(snapshot)
                raise
            await in_steps(stepped(offsets.mark_persisted(snapshot)))
        self._parts.observer.observe(
            FlushDone(
                component="CONSUMER_OFFSETS",
                action="PERSIST",
                cause=cause,
                written=written.size_bytes,
                flushed=None,
                store_time_ms=None,
                duration_us=written.duration_us,
                content_crc=written.crc,
            )
        )


def counter_of(document: Mapping[str, object]) -> int:
    """Counter of a table's data version; 0 when it tells none."""
    version = document.get("dataVersion")
    counter = version.get("counter") if isinstance(version, Mapping) else None
    return counter if isinstance(counter, int) else 0
