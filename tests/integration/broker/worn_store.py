"""A store with something in every file, what a broker that starts on it has, and ways to damage it.

One store a stop is prepared and copied for each row of the table of damaged files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from operator import eq
from pathlib import Path
from typing import Any

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.broker.groups.group_configs import group_to_document
from engine.broker.rocketmq_settings import (
    ROOT,
    read_start,
    rocketmq_values,
    with_rocketmq_settings,
)
from engine.delay import TimeWheel
from engine.foundation.config_layers import from_flags
from engine.foundation.errors import ProtocolError, TidemarkError
from engine.foundation.units import MINUTE_MS
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.hashes import tags_code
from engine.protocol.message_record import decode_record
from engine.runtime import SystemDisk, system_runtime
from engine.store import MessageStore
from engine.store.consume_queue import UNIT_BYTES
from engine.store.upkeep.checkpoint import decode_checkpoint
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from tests.integration.broker.cluster import GROUP, RawClient, broker_config
from tests.integration.broker.spooled import spooled
from tests.store_support import until

TOPIC, GONE = "orders", "gone"
TAGS = ("red", "green", "blue")
COUNT = 60
LOG_BYTES = 16 * 1024
WAITS_LEVEL = 2
"""A delay level that no test outlives."""
FAR_MS = 4_000_000_000_000
"""A time that none sees."""
QUIET_MS = 600_000
LIVE = {"fileReservedTime": 240, "maxMessageSize": 123_456}
"""Settings that are changed while the broker runs, from these values on."""

Inventory = dict[tuple[object, ...], object]
"""What a broker has, piece by piece: a name for the piece, and what it is."""


def config_of(folder: Path) -> BrokerConfig:
    """What is flushed and persisted is so when the story says."""
    config = broker_config(
        folder,
        log_bytes=LOG_BYTES,
        delay_levels_ms=(100, QUIET_MS),
        enable_property_filter=True,
        flush_consumer_offset_interval_ms=QUIET_MS,
        flush_delay_offset_interval_ms=QUIET_MS,
    )
    return replace(config, store=replace(config.store, flush_interval_consume_queue_ms=QUIET_MS))


def broker_on(folder: Path) -> Broker:
    """A broker by the settings that its store keeps, as one that is started without a file.

    Raises ConfigError, CorruptRecord.
    """
    config = config_of(folder)
    flags = from_flags({ROOT: config.store.root})
    start = read_start(SystemDisk(), None, environment={}, flags=flags)
    values = rocketmq_values(start.config)
    config = with_rocketmq_settings(config, {key: values[key] for key in LIVE})
    return Broker(system_runtime(), config, start.origin)


async def _ask(client: RawClient, code: int, body: bytes = b"", **fields: object) -> None:
    answer = await client.ask(code, body, **fields)
    assert answer.code == ResponseCode.SUCCESS, f"{code}: {answer.remark}"


async def fill(broker: Broker, client: RawClient, name: str, topic: str) -> None:
    """Every table written more than once, with other content each time."""
    running = broker._running
    assert running is not None

    async def persist() -> None:
        await running.services.persistence.save_offsets("TIMER")
        await running.state.delay_levels.persist("TIMER")
        await running.state.time_wheel.persist("TIMER")
        await running.services.persistence.save_settings()
        await running.state.store._flusher.flush_log("TIMER")
        await running.state.store._flusher.flush_derived("TIMER")

    for part in range(3):
        await _ask(
            client,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=f"{name}-{part}",
            readQueueNums=2,
            writeQueueNums=2,
            perm=4,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            defaultTopic="TBW102",
        )
        group = {"groupName": f"{name}-group-{part}", "retryMaxTimes": 3 + part}
        await _ask(
            client,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            json.dumps(group).encode(),
        )
        await subscribe(client, topic, f"{name}-sql-{part}")
        await client.heartbeat(GROUP, (topic,))
        for number in range(part * COUNT // 3, (part + 1) * COUNT // 3):
            sent = await client.send(
                f"{name} {number} ".encode().ljust(600 + 97 * len(name), b"."),
                topic=topic,
                queue_id=number % 2,
                UNIQ_KEY=f"{name}{number}",
                TAGS=TAGS[number % len(TAGS)],
            )
            assert sent.code == ResponseCode.SUCCESS, sent.remark
        for level in (1, WAITS_LEVEL):
            await client.send(b"delayed", topic="later", DELAY=level)
        for minute in range(2):
            due_ms = FAR_MS + part + minute * MINUTE_MS
            await client.send(b"timed", topic="later", TIMER_DELIVER_MS=due_ms)
        await client.send(b"to be deleted", topic=f"{GONE}-{part}", UNIQ_KEY=f"{GONE}{part}")
        await _ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic=f"{GONE}-{part}")
        store = broker.state.store
        for queue_id in (0, 1):
            consumed = store.max_offset(topic, queue_id) - 2
            assert (
                await client.pull(0, topic=topic, queue_id=queue_id)
            ).code == ResponseCode.SUCCESS
            await client.commit(consumed, topic=topic, queue_id=queue_id)
        await asyncio.sleep(0.3)  # What waits at the short level is due.
        await running.services.delay.deliver_due()
        settings = "".join(f"{key}={least + part}\n" for key, least in LIVE.items())
        await _ask(client, RequestCode.UPDATE_BROKER_CONFIG, settings.encode())
        await persist()


async def subscribe(client: RawClient, topic: str, group: str) -> None:
    """HEART_BEAT of a consumer that selects by SQL92."""
    subscription = {
        "classFilterMode": False,
        "topic": topic,
        "subString": "a > 5",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1,
        "expressionType": "SQL92",
    }
    data = {
        "clientID": client.client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [subscription],
                "unitMode": False,
            }
        ],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    await _ask(client, RequestCode.HEART_BEAT, json.dumps(data).encode())


def prepare(folder: Path, name: str, topic: str, *, clean: bool) -> Path:
    """A store that was stopped cleanly, or as SIGKILL leaves it; its root."""
    return asyncio.run(_prepare(folder, name, topic, clean=clean))


async def _prepare(folder: Path, name: str, topic: str, *, clean: bool) -> Path:
    live = config_of(folder / "live")
    broker = broker_on(folder / "live")
    await broker.start()
    client = RawClient(broker.address)
    await fill(broker, client, name, topic)
    root = Path(live.store.root)
    if not clean:
        broker._running.telemetry.write_turn()  # type: ignore[union-attr]
        root = folder / "killed" / "store"
        shutil.copytree(live.store.root, root)
    await client.close()
    await broker.stop()
    assert not (Path(live.store.root) / "abort").exists(), "the clean stop was none"
    assert decode_checkpoint((Path(live.store.root) / "checkpoint").read_bytes()).derived
    return root


def inventory_of(broker: Broker) -> Inventory:
    """Everything a broker has of earlier lives."""
    state = broker.state
    store, found = state.store, Inventory()
    for topic, queue_id in store.queues():
        offset = store.min_offset(topic, queue_id)
        while offset < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, offset, max_count=1, max_bytes=1 << 20)
            if got.status.value == "FOUND":
                try:
                    message = decode_record(got.body())
                except (ProtocolError, TidemarkError):
                    message = None
                if message is not None and message.queue_offset == offset:
                    found["message", topic, queue_id, offset] = bytes(message.body)
                    key = message.properties.get("UNIQ_KEY", "")
                    asked = store.query_by_key(topic, key, max_count=64, begin_ms=0, end_ms=1 << 60)
                    if message.physical_offset in asked.physical_offsets:
                        found["key", topic, queue_id, offset] = True
            offset = max(offset + 1, got.next_begin_offset)
    found |= messages_by_tag(store)
    for config in state.topics.all():
        found["topic", config.topic_name] = (config.write_queue_nums, config.perm)
    for group_config in state.group_configs.all():
        settings = json.dumps(group_to_document(group_config), sort_keys=True)
        found["group", group_config.group_name] = settings
    filters = state.filters.to_document()
    for topic, entry in dict(filters.get("filterDataByTopic", {})).items():  # type: ignore[call-overload]
        for group in entry.get("groupFilterData", {}):
            found["filter", topic, group] = True
    for group, topic, queue_id in list(state.offsets.keys()):
        found["offset", group, topic, queue_id] = state.offsets.committed(group, topic, queue_id)
    running = broker._running
    assert running is not None
    for level, cursor in running.state.delay_levels.cursors().items():
        found["cursor", level] = cursor
    found |= timers(state.time_wheel)
    for group, topic, queue_id in list(state.readers._readings):
        reading = state.readers.of((group, topic, queue_id))
        found["pulled", group, topic, queue_id] = None if reading is None else reading.pulled_offset
    for topic in store.tombstones.ends:
        found["deleted", topic] = True
    values = rocketmq_values(state.node.config)
    found |= {("setting", key): values[key] for key in LIVE}
    return found


def messages_by_tag(store: MessageStore) -> Inventory:
    """What consumers get that filter by a tag."""
    found = Inventory()
    for (topic, queue_id), tag in product(store.queues(), TAGS):
        offset, wanted = store.min_offset(topic, queue_id), partial(eq, tags_code(tag))
        while offset < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, offset, max_count=1, max_bytes=1 << 20, wanted=wanted)
            if got.status.value == "FOUND":
                found["by tag", topic, queue_id, got.next_begin_offset - 1, tag] = True
            offset = max(offset + 1, got.next_begin_offset)
    return found


def rows_in(root: Path) -> Inventory:
    """The rows in a spool, by their number."""
    directory, found = root / "spool", Inventory()
    for name in segment_names(SystemDisk(), str(directory)):
        for placed in decode_frames((directory / name).read_bytes())[0]:
            if isinstance(placed.frame, Turn):
                for number, time_us, values in placed.frame.rows:
                    found["row", number, time_us, repr(values)] = True
    return found


@dataclass
class Start:
    """What starting on a store came to."""

    refused: str | None = None
    has: Inventory = field(default_factory=Inventory)
    reported: list[str] = field(default_factory=list)
    """Lines of the terminal and lifecycle rows that speak of anything but the start itself."""


def _is_ordinary(row: dict[str, Any]) -> bool:
    """Would a start on a sound store report this, too?"""
    if row["kind"] == "RECOVERY":
        return row["truncated_from"] is None and " 0 bytes dropped" in row["detail"]
    return row["kind"] in {"BOOT", "SHUTDOWN", "SNAPSHOT"}


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def start_on(root: Path) -> Start:
    """Start a broker on the store, look, and stop it."""
    return asyncio.run(_start_on(root))


async def _start_on(root: Path) -> Start:
    lines, start = _Lines(), Start()
    rows_before = len(spooled(root, "lifecycle")) if (root / "spool").is_dir() else 0
    logging.getLogger().addHandler(lines)
    try:
        broker = broker_on(root.parent)
        await broker.start()
        await all_is_looked_at(broker)
    except TidemarkError as error:
        start.refused = str(error)
        return start
    finally:
        logging.getLogger().removeHandler(lines)
    start.has = inventory_of(broker)
    await broker.stop()
    start.has |= rows_in(root)
    rows = spooled(root, "lifecycle")
    fresh = rows[rows_before:] if len(rows) > rows_before else rows
    start.reported = lines.lines + [
        f"{row['kind']}: {row['detail']}" for row in fresh if not _is_ordinary(row)
    ]
    return start


async def all_is_looked_at(broker: Broker) -> None:
    """Wait until every file of the index, every consume queue and every delay log was looked at,
    and what was damaged is there again.
    """
    store = broker.state.store
    scrubs = [task for task in store._life.tasks if task.get_name().endswith("scrub")]
    assert len(scrubs) == 2
    await asyncio.wait(scrubs, timeout=30)
    await until(lambda: store._index is None or not store._index.is_behind)
    await until(lambda: broker.state.time_wheel.is_checked)


def timers(wheel: TimeWheel) -> Inventory:
    """What the delay logs lead to."""
    logs, found = wheel._logs, Inventory()
    for log in map(logs.of, logs.hours()):
        for entry in chain.from_iterable(map(log.of_second, log.seconds())):
            found["timer", entry.due_ms, entry.log_offset] = True
    return found


def less(before: Inventory, after: Inventory) -> list[tuple[object, ...]]:
    """Pieces that are missing or not what they were."""
    return [name for name, value in before.items() if after.get(name) != value]


Damage = Callable[[Path, Path], None]
FIELDS = {"an entry's offset": 7, "an entry's size": 11, "an entry's tags hash": 19}
"""Of an entry of a consume queue: its last byte."""


# ---- damages ------------------------------------------------------------------------------------


def missing(path: Path, _: Path) -> None:
    path.unlink()


def empty(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path, _: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: _end_of(content) // 2])


def one_bit_flipped(path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    content[_end_of(content) // 2] ^= 1
    path.write_bytes(content)


def bit_flipped_at(at: int) -> Damage:
    """In the entry of a consume queue in the middle, the lowest bit of one field."""

    def flip(path: Path, _: Path) -> None:
        content = bytearray(path.read_bytes())
        unit = _end_of(content) // UNIT_BYTES // 2
        content[unit * UNIT_BYTES + at] ^= 1
        path.write_bytes(content)

    return flip


def swapped(path: Path, _: Path) -> None:
    backup = path.with_name(path.name + ".bak")
    content = path.read_bytes()
    path.write_bytes(backup.read_bytes())
    backup.write_bytes(content)


def of_another_store(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _end_of(content: bytes | bytearray) -> int:
    """Behind the last byte that is not zero: files are made in their full length."""
    return len(bytes(content).rstrip(b"\0"))


DAMAGES: dict[str, Damage] = {
    "missing": missing,
    "empty": empty,
    "truncated": truncated,
    "one bit flipped": one_bit_flipped,
    **{f"one bit flipped in {words}": bit_flipped_at(at) for words, at in FIELDS.items()},
    "swapped with its .bak": swapped,
    "of another store": of_another_store,
}
