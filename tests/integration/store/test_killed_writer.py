"""kill -9 of a process that appends: whatever it acknowledged is there, in order, findable by key.

The same store is killed again and again, so that recoveries run over what recoveries left.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from engine.protocol.message_record import decode_record
from engine.store import MessageStore
from tests.amounts import kills
from tests.integration.store.appending_process import QUEUES
from tests.store_support import Listener, messages_of, open_store, small_config

ROOT = Path(__file__).parents[3]


def run_and_kill(root: Path, flush_disk_type: str, *, first: int, acks: int) -> int:
    """Start the writer at message `first`, kill it after `acks` acks; first number not acked."""
    writer = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.store.appending_process",
            str(root),
            flush_disk_type,
            str(first),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None
    acked = first
    try:
        for _ in range(acks):
            line = writer.stdout.readline()
            assert line, "the writer ended by itself"
            acked = int(line)
    finally:
        writer.kill()
        rest, _ = writer.communicate(timeout=30)
    complete = rest[: rest.rfind(b"\n") + 1].split()  # Acks that were on their way.
    return int(complete[-1]) if complete else acked


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH", "POOL"])
@kills(5, in_full=30)
def test_everything_acknowledged_survives_kill_9(
    tmp_path: Path, flush_disk_type: str, kills: int
) -> None:
    chance = random.Random(flush_disk_type)
    stored = 0
    for _ in range(kills):
        acked = run_and_kill(tmp_path, flush_disk_type, first=stored, acks=chance.randint(1, 120))
        stored = asyncio.run(check(tmp_path, acked))
    assert stored > kills * 10


async def check(root: Path, acked: int) -> int:
    """Recover in this process; the number of messages found, at least `acked`."""
    listener = Listener()
    store = await open_store(
        small_config(
            root,
            mapped_file_size_commit_log_bytes=64 * 1024,
            mapped_file_size_consume_queue_bytes=2000,
            max_hash_slot_count=500,
            max_index_count=4000,
        ),
        listener,
    )
    assert listener.recovery.clean is False
    found = [
        int(message.body.rstrip(b".") or message.properties["UNIQ_KEY"][4:])
        for queue_id in range(QUEUES)
        for message in messages_of(store, queue_id=queue_id)
    ]
    assert sorted(found) == list(range(len(found))), "a hole or a double"
    assert len(found) >= acked, f"{acked} messages were acknowledged, {len(found)} are there"
    for number in range(max(0, acked - 300), acked):
        check_key(store, number)
    await store.close()
    return len(found)


def check_key(store: MessageStore, number: int) -> None:
    found = store.query_by_key("TopicA", f"key-{number}", max_count=64, begin_ms=0, end_ms=1 << 50)
    records = [store.record_at(offset) for offset in found.physical_offsets]
    keys = [
        decode_record(record).properties["UNIQ_KEY"] for record in records if record is not None
    ]
    assert keys.count(f"key-{number}") == 1, f"key-{number} is in the index as {keys}"
