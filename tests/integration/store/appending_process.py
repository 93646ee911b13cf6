"""A process that appends numbered messages for ever and prints each number once it is acknowledged.

Run as `python -m tests.integration.store.appending_process ROOT SYNC_FLUSH|ASYNC_FLUSH|POOL FIRST`;
its parent kills it at a random moment and looks what is there. With the pool a message counts as
acknowledged when it is committed.
"""

from __future__ import annotations

import asyncio
import sys

from engine.foundation.observing import SilentObserver
from engine.runtime import system_runtime
from engine.store import FlushDiskType, MessageDraft, MessageStore
from tests.store_support import small_config, until

QUEUES = 3
BATCH = 5


async def append(root: str, flush_disk_type: str, first: int) -> None:
    config = small_config(
        root,
        flush_disk_type=FlushDiskType(flush_disk_type.replace("POOL", "ASYNC_FLUSH")),
        transient_store_pool_enable=flush_disk_type == "POOL",
        commit_interval_commit_log_ms=2,
        commit_commit_log_thorough_interval_ms=1,
        mapped_file_size_commit_log_bytes=64 * 1024,
        mapped_file_size_consume_queue_bytes=2000,
        max_hash_slot_count=500,
        max_index_count=4000,
    )
    store = await MessageStore.open(system_runtime(), config, SilentObserver())
    store.start()
    number = first
    while True:
        results = [
            store.put(
                MessageDraft(
                    topic="TopicA",
                    queue_id=n % QUEUES,
                    body=str(n).encode().ljust(n * 37 % 900, b"."),
                    properties=f"UNIQ_KEY\x01key-{n}\x02",
                    born_timestamp_ms=1_800_000_000_000,
                    born_host="127.0.0.1:1",
                    store_host="127.0.0.1:10911",
                )
            )
            for n in range(number, number + BATCH)
        ]
        flushed = store.when_flushed(results[-1].end_offset)
        if flushed is not None:
            assert await flushed
        else:
            await asyncio.sleep(0)
        await until(lambda: store.physical_committed >= results[-1].end_offset)  # noqa: B023
        number += BATCH
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], sys.argv[2], int(sys.argv[3])))
