"""A broker on a store that was damaged below what was synced: it starts, serves both sides, lets
consumers pass, and says what is gone; or, if it is to be strict, it refuses.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.protocol.codes import ResponseCode
from engine.store import FlushDiskType
from tests.integration.broker.cluster import RawClient, bodies, cluster
from tests.integration.broker.scraping import of, values, with_metrics
from tests.integration.broker.spooled import spooled

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
FILE_BYTES = 4096
COUNT = 60


def config_of(folder: Path) -> BrokerConfig:
    """Commit-log files of some fifteen messages."""
    config = with_metrics(folder)
    store = replace(
        config.store,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        mapped_file_size_commit_log_bytes=FILE_BYTES,
        max_index_count=1000,
        max_hash_slot_count=500,
    )
    return replace(config, store=store)  # type: ignore[no-any-return]


async def consumed(client: RawClient) -> list[bytes]:
    """Everything a consumer gets of queue 0, pulling on from where each answer says."""
    found: list[bytes] = []
    offset = 0
    while True:
        answer = await client.pull(offset)
        following = int(answer.fields["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            found += bodies(answer)
        elif following <= offset:
            return found
        offset = following


async def test_it_serves_both_sides_and_passes_over_a_missing_file(tmp_path: Path) -> None:
    sent = [b"%03d:" % number + b"x" * 150 for number in range(COUNT)]
    async with cluster(config_of(tmp_path)) as running:
        client = running.client()
        for body in sent:
            assert (await client.send(body)).code == ResponseCode.SUCCESS
    root = Path(config_of(tmp_path).store.root)
    victim = root / "commitlog" / f"{FILE_BYTES:020d}"
    lost = {body for body in sent if body in victim.read_bytes()}
    assert 10 < len(lost) < 20
    victim.unlink()
    async with cluster(config_of(tmp_path)) as running:
        client = running.client()
        assert await consumed(client) == [body for body in sent if body not in lost]
        answer = await client.send(b"goes on")
        assert (answer.code, answer.fields["queueOffset"]) == (0, str(COUNT))
        assert (await consumed(client))[-1] == b"goes on"
        figures = await values(of(running))
        assert figures["tidemark_storage_holes", "", ""] == 1
        assert figures["tidemark_storage_holes_bytes", "", ""] == FILE_BYTES
    rows = [row for row in spooled(root, "lifecycle") if row["kind"] == "LOG_HOLE"]
    assert [f"{len(lost)} messages of 1 queues" in str(row["detail"]) for row in rows] == [True]


async def fill(tmp_path: Path) -> None:
    """A store of several files, stopped cleanly."""
    async with cluster(config_of(tmp_path)) as running:
        client = running.client()
        for _ in range(COUNT):
            await client.send(b"x" * 150)


@pytest.mark.parametrize("command", ["broker", "engine"])
def test_a_strict_broker_refuses_in_one_sentence_and_ends_with_one(
    tmp_path: Path, command: str
) -> None:
    asyncio.run(fill(tmp_path))
    root = Path(config_of(tmp_path).store.root)
    (root / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    words = ["--port", "0"]
    if command == "engine":
        words = ["--broker-port", "0", "--namesrv-port", "0"]
    done = subprocess.run(
        [
            *(TIDEMARK, command, "--store", str(root), *words, "--strict-store"),
            *("--set", f"mappedFileSizeCommitLog={FILE_BYTES}"),
            *("--set", "maxIndexNum=1000", "--set", "maxHashSlotNum=500"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ready" not in done.stdout
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("tidemark ")]
    assert "is damaged and strictStore is on: commit log: hole [4096, 8192)" in said
