"""What may be handed hostile bytes, which errors it may answer with, and samples to begin from.

Used by `make fuzz` (coverage-guided, as long as one likes) and by a Hypothesis test in the suite.
A target returns, or raises one of its declared errors; anything else is a defect.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.broker.groups.consumer_filters import ConsumerFilters
from engine.broker.groups.group_configs import GroupConfigs
from engine.broker.offsets.consumer_offsets import from_document
from engine.broker.topics.topics import Topics
from engine.foundation.errors import (
    ConfigError,
    CorruptRecord,
    ProtocolError,
    RemoteProtocolError,
    RequestRefused,
    StorageError,
)
from engine.protocol import bodies, fastjson, headers
from engine.protocol.body_codec import Body, Part
from engine.protocol.frames import FrameDecoder
from engine.protocol.header_fields import Header
from engine.protocol.message_batch import decode_batch
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.message_record import decode_records
from engine.protocol.properties import decode_properties
from engine.protocol.sql92.selector import compile_selector
from engine.store import MessageStore
from engine.store.record_reading import check_record
from engine.store.table_file import _parse
from engine.store.upkeep.checkpoint import decode_checkpoint
from engine.telemetry.frames import decode_frames
from tests.fuzz import jobs
from tests.fuzz.accepted import SAMPLES, accepted_message
from tests.simulation.crash_states.recording import RecordingDisk
from tests.simulation.crash_states.workloads import runtime_on, settings_of
from tests.store_support import HandClock, Listener, draft, messages_over_holes, small_config

CASES = Path(__file__).parents[1] / "cases"
LEVELS_MS = (1000, 5000)
HEADERS: list[Any] = [
    kind
    for _, kind in inspect.getmembers(headers, inspect.isclass)
    if kind.__module__ in {"engine.protocol.headers_admin", "engine.protocol.headers_client"}
]
BODIES = [
    kind
    for _, kind in inspect.getmembers(bodies, inspect.isclass)
    if issubclass(kind, Body | Part) and kind not in {Body, Part}
]


@dataclass(frozen=True)
class Target:
    """One decoder under fire."""

    name: str
    run: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    samples: Sequence[bytes]


# ---- the wire ------------------------------------------------------------------------------


def frame_header(data: bytes) -> None:
    """A frame whose lengths are right and whose header is hostile; then every typed header."""
    if not data:
        return
    body = data[1:]
    frame = struct.pack(">iI", 4 + len(body), (data[0] & 1) << 24 | len(body)) + body
    for command in FrameDecoder().feed(memoryview(frame)):
        for kind in HEADERS:
            if issubclass(kind, Header):
                try:
                    kind.decode(command.fields)
                except (ProtocolError, RequestRefused):
                    continue


def every_body(data: bytes) -> None:
    """The bytes as every body there is."""
    for kind in BODIES:
        decode = getattr(kind, "decode", None)
        if decode is not None:
            try:
                decode(data)
            except ProtocolError:
                continue


def selector(data: bytes) -> None:
    """The text as an SQL92 expression."""
    compile_selector(data.decode("utf-8", "replace"))


# ---- files ---------------------------------------------------------------------------------


def stored_record(data: bytes) -> None:
    """The bytes at the place of a record in a commit-log file."""
    check_record(memoryview(data), 0, 0, LEVELS_MS)


def config_file(data: bytes) -> None:
    """The bytes as each of the broker's tables."""
    document = _parse(data, "table.json")
    for accept in (
        Topics().load,
        GroupConfigs(auto_create=True).load,
        from_document,
        lambda found: ConsumerFilters().load(found, now_ms=0),
    ):
        try:
            accept(document)
        except (CorruptRecord, ProtocolError):
            continue


def store_with(path: str) -> Callable[[bytes], None]:
    """A target: a small store in which one file is hostile is opened after a crash, and read."""

    def run(data: bytes) -> None:
        tree = dict(SMALL_STORE)
        (name,) = [each for each in tree if each.startswith(path) and tree[each] is not None]
        whole = tree[name]
        assert whole is not None
        tree[name] = data[: len(whole)].ljust(len(whole), b"\0")
        asyncio.run(open_and_read(RecordingDisk(tree)))

    return run


async def open_and_read(disk: RecordingDisk) -> None:
    """Recover, read all there is, put one more."""
    config = small_config("/store", **settings_of())
    store = await MessageStore.open(runtime_on(disk, HandClock()), config, Listener())
    try:
        messages_over_holes(store)
        store.query_by_key("TopicA", "key-1", max_count=9, begin_ms=0, end_ms=1 << 60)
        store.offset_at_time("TopicA", 0, 1)
        store.put(draft(b"goes on"))
    finally:
        await store.close()


async def _small_store() -> RecordingDisk:
    disk = RecordingDisk()
    config = small_config("/store", **settings_of())
    store = await MessageStore.open(runtime_on(disk, HandClock()), config, Listener())
    for number in range(5):
        store.put(draft(b"%d" % number * 20, properties=f"UNIQ_KEY\x01key-{number}\x02"))
    await asyncio.sleep(0)
    await store._flusher.flush_log("TIMER")
    await store._flusher.flush_derived("TIMER")
    store._life.release()
    return disk


SMALL_STORE = asyncio.run(_small_store()).tree()


def content_of(path: str) -> bytes:
    """A file of the small store."""
    (found,) = [data for name, data in SMALL_STORE.items() if name.startswith(path) and data]
    return found


def wire_frames() -> list[bytes]:
    """Real frames of RocketMQ."""
    cases = json.loads((CASES / "remoting_frames.json").read_text())
    text = json.dumps(cases)
    words = [word for word in text.replace('"', " ").split() if len(word) > 40]
    found = []
    for word in words[:40]:
        try:
            found.append(bytes.fromhex(word))
        except ValueError:
            continue
    return found


def elsewhere(record_bytes: bytes) -> bytes:
    """The first record says that it is of another queue, while the queue it was put to knows it."""
    return record_bytes[:12] + b"\0\0\xff\xff" + record_bytes[16:]


FOUND = {"commitlog/0": [elsewhere(content_of("/store/commitlog/"))]}
"""Inputs that once broke something."""
FILES = ("commitlog/0", "consumequeue/TopicA/0/0", "index/", "checkpoint")
TARGETS = [
    Target(
        "frames",
        lambda data: FrameDecoder().feed(memoryview(data)),
        (ProtocolError,),
        wire_frames(),
    ),
    Target(
        "headers",
        frame_header,
        (ProtocolError,),
        [
            b'\0{"code":10,"flag":0,"language":"JAVA","opaque":1,"version":493,"extFields":{"a":"g"}}',
            b"\1\0\n\0\1\xed\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0",
        ],
    ),
    Target(
        "bodies",
        every_body,
        (ProtocolError,),
        [
            b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[]}',
            b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}',
        ],
    ),
    Target("fastjson", fastjson.loads, (ProtocolError,), [b'{0:"a",{"b":1}:[1,2.5e3,null]}']),
    Target(
        "records",
        decode_records,
        (ProtocolError, CorruptRecord),
        [content_of("/store/commitlog/")[:400]],
    ),
    Target("batch", decode_batch, (ProtocolError,), [b"\0\0\0\x18" + bytes(20)]),
    Target(
        "properties",
        lambda data: decode_properties(data.decode("utf-8", "replace")),
        (),
        [b"KEYS\x01a b\x02TAGS\x01t\x02"],
    ),
    Target(
        "message id",
        lambda data: parse_offset_message_id(data.decode("latin-1")),
        (ProtocolError,),
        [b"C0A8010900002A9F0000000000000104"],
    ),
    Target(
        "selector",
        selector,
        (ProtocolError, RequestRefused),
        [b"a > 5 AND b IN ('x') OR c IS NULL"],
    ),
    Target("stored record", stored_record, (CorruptRecord,), [content_of("/store/commitlog/")]),
    Target("checkpoint", decode_checkpoint, (), [content_of("/store/checkpoint")[:2200]]),
    Target(
        "config files",
        config_file,
        (CorruptRecord, ProtocolError),
        [
            b'{"offsetTable":{"t@g":{0:5}},"dataVersion":{"counter":1}}',
            b'{"topicConfigTable":{"t":{"perm":6,"readQueueNums":4,"topicName":"t"}}}',
        ],
    ),
    Target("spool", decode_frames, (CorruptRecord,), [bytes(64)]),
    Target("accepted message", accepted_message, (), SAMPLES),
    Target("jobs wire", jobs.wire_message, (RemoteProtocolError,), jobs.WIRE_SAMPLES),
    Target("executor address", jobs.executor_address, (ConfigError,), jobs.ADDRESS_SAMPLES),
    Target("cron rule", jobs.cron_text, (ConfigError,), jobs.CRON_SAMPLES),
    *(
        Target(
            f"store with a hostile {path}",
            store_with(f"/store/{path}"),
            (ConfigError, StorageError),
            [content_of(f"/store/{path}"), *FOUND.get(path, ())],
        )
        for path in FILES
    ),
]
