"""Helpers of store tests: small settings, a manual clock, a recording listener, drafts.

`abandon` leaves a store the way SIGKILL does: everything written is on disk, nothing is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine.foundation.observing import EmittedUpTo, Fact, FlushDone, HandedTail, LifecycleEvent
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_records
from engine.runtime import Disk, Runtime, SystemDisk, SystemEntropy, SystemNetwork
from engine.runtime.clock import StepListener
from engine.store import FlushDiskType, MessageDraft, MessageStore, StoreConfig

FactKind = TypeVar("FactKind")

START_MS = 1_800_000_000_000
BIG = 1 << 30


class HandClock:
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.value_ms = now_ms

    def now_ms(self) -> int:
        return self.value_ms

    def local_hour(self, at_ms: int) -> int:
        return at_ms // 3_600_000 % 24

    def now_us(self) -> int:
        return self.value_ms * 1000

    def steady_ms(self) -> int:
        return self.value_ms

    def steady_us(self) -> int:
        return self.value_ms * 1000

    def offset_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return self.value_ms

    def on_step(self, listener: StepListener) -> None:
        """It is moved, never set."""


class Listener:
    """Remembers every fact."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.losses = 0
        self.is_losing = False

    def observe(self, fact: Fact) -> None:
        self.facts.append(fact)

    def observe_all(self, facts: Sequence[Fact]) -> None:
        self.facts += facts

    def pulled(
        self, group: str, topic: str, queue_id: int, pulled_offset: int, client_id: str
    ) -> None:
        raise AssertionError("a store knows nothing of pulls")

    def handed(self, tail: HandedTail) -> None:
        raise AssertionError("a store knows nothing of pulls")

    def emitted_up_to(self) -> EmittedUpTo | None:
        return None if self.is_losing else EmittedUpTo(len(self.facts) + 1, self.losses)

    def lifecycle(self, kind: str) -> list[LifecycleEvent]:
        return [f for f in self.facts if isinstance(f, LifecycleEvent) and f.kind == kind]

    def flushes(self, component: str) -> list[FlushDone]:
        return [f for f in self.facts if isinstance(f, FlushDone) and f.component == component]

    @property
    def recovery(self) -> LifecycleEvent:
        """The one report of the last recovery."""
        return self.lifecycle("RECOVERY")[-1]


def small_config(root: Path | str, **changes: Any) -> StoreConfig:
    """Files so small that a few messages fill several of them."""
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log_bytes": 4096,
        "mapped_file_size_consume_queue_bytes": 160,
        "max_hash_slot_count": 50,
        "max_index_count": 40,
        "flush_interval_commit_log_ms": 20,
        "flush_interval_consume_queue_ms": 20,
        "disk_max_used_ratio": 1.0,
        "disk_clean_forcibly_ratio": 1.0,
        "disk_warning_ratio": 1.0,
    }
    return StoreConfig(str(root), **(settings | changes))


def sync_config(root: Path | str, **changes: Any) -> StoreConfig:
    """As `small_config`, with group commit."""
    return small_config(root, flush_disk_type=FlushDiskType.SYNC_FLUSH, **changes)


def runtime_on(disk: Disk | None = None, clock: HandClock | None = None) -> Runtime:
    """The real machine, but for a clock set by hand and, if given, another disk."""
    return Runtime(clock or HandClock(), SystemNetwork(), disk or SystemDisk(), SystemEntropy())


async def open_store(
    config: StoreConfig,
    listener: Listener | None = None,
    runtime: Runtime | None = None,
    **how: Any,
) -> MessageStore:
    """An opened, not yet started store."""
    return await MessageStore.open(runtime or runtime_on(), config, listener or Listener(), **how)


async def abandon(store: MessageStore) -> None:
    """Drop the store as SIGKILL would."""
    for task in store._life.tasks:
        task.cancel()
    await asyncio.gather(*store._life.tasks, return_exceptions=True)
    store._life.release()


async def turn() -> None:
    """Let the event loop run what was planned for its next turn."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    """Wait for what another task brings about."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline_s, f"not within {within_s} s"
        await asyncio.sleep(0.005)


def draft(body: bytes = b"body", **changes: Any) -> MessageDraft:
    """A message for TopicA, queue 0."""
    settings: dict[str, Any] = {
        "topic": "TopicA",
        "queue_id": 0,
        "properties": "TAGS\x01TagA\x02",
        "born_timestamp_ms": START_MS,
        "born_host": "10.0.0.5:5555",
        "store_host": "192.168.1.9:10911",
    }
    return MessageDraft(body=body, **(settings | changes))


def bodies_of(store: MessageStore, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
    """Every body of a queue, from its first message to its last, read as a consumer does."""
    return [message.body for message in messages_of(store, topic, queue_id)]


def messages_over_holes(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0
) -> Sequence[MessageExt]:
    """Every message of a queue that is left, as a consumer gets them: offsets grow, each pull
    brings it further, and what is in a hole is passed over.
    """
    found: list[MessageExt] = []
    queue_offset = store.min_offset(topic, queue_id)
    while queue_offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, queue_offset, max_count=3, max_bytes=BIG)
        assert queue_offset < result.next_begin_offset <= store.max_offset(topic, queue_id)
        for message in decode_records(result.body()) if result.count else []:
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert queue_offset <= message.queue_offset < result.next_begin_offset
            found.append(message)
        queue_offset = result.next_begin_offset
    offsets = [message.queue_offset for message in found]
    assert offsets == sorted(set(offsets))
    return found


def messages_of(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0
) -> Sequence[MessageExt]:
    """Every message of a queue, checked: each stands at its own offset."""
    found: list[MessageExt] = []
    queue_offset = store.min_offset(topic, queue_id)
    while queue_offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, queue_offset, max_count=32, max_bytes=BIG)
        assert result.status.value == "FOUND", result
        for message in decode_records(result.body()):
            assert (message.topic, message.queue_id) == (topic, queue_id)
            assert message.queue_offset == queue_offset
            found.append(message)
            queue_offset += 1
        assert result.next_begin_offset == queue_offset
    return found


def file_bytes(root: Path, leave_out: Sequence[str] = ()) -> dict[str, bytes]:
    """Every file below `root` by its relative name."""
    return {
        name: path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and (name := str(path.relative_to(root))) not in leave_out
    }
