"""Row C7: a sync fails under a real `tidemark broker`: it stops writing, goes on reading until it
ends by itself, with one sentence and exit code 1; a restart on a sound disk has all it promised.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from engine.foundation.errors import TidemarkError
from engine.protocol.codes import ResponseCode
from tests.integration.broker import failing_syncs
from tests.integration.broker.cluster import RawClient, bodies
from tests.integration.broker.processes import party, talk
from tests.integration.broker.spooled import spooled

PROGRAM = (sys.executable, "-m", failing_syncs.__name__)
END_TIMEOUT_S = 30
PRODUCERS = 4


async def send_until_it_ends(client: RawClient, switch: Path, fault: str) -> list[bytes]:
    """Several producers at once; after some answers the disk breaks. What was answered as safe."""
    safe: list[bytes] = []

    async def produce(producer: int) -> None:
        number = 0
        while True:
            body = b"%d:%d" % (producer, number)
            number += 1
            try:
                answer = await client.send(body)
            except TidemarkError:
                return  # The broker has ended.
            if answer.code != ResponseCode.SUCCESS:
                codes = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SERVICE_NOT_AVAILABLE)
                assert answer.code in codes, answer
                return
            safe.append(body)
            if len(safe) == 40:
                switch.with_suffix(".new").write_text(fault)
                switch.with_suffix(".new").rename(switch)  # No sync may read half of it.

    async with asyncio.timeout(END_TIMEOUT_S):
        await asyncio.gather(*(produce(producer) for producer in range(PRODUCERS)))
    return safe


@pytest.mark.parametrize(
    ("fault", "words_for_it"),
    [
        ("EIO /commitlog/", "Input/output error"),
        ("EIO /consumequeue/", "Input/output error"),
        ("EIO /", "Input/output error"),
        ("ENOSPC /consumequeue/", "No space left on device"),
    ],
    ids=["log", "queues", "everything", "queues without room"],
)
def test_a_failed_sync_ends_the_broker_with_a_sentence_and_a_restart_has_what_was_safe(
    tmp_path: Path, fault: str, words_for_it: str
) -> None:
    """A sync that finds no room has failed like any other: the kernel has dropped the pages, and
    room that comes later brings none back.
    """
    switch, log = tmp_path / "broken", tmp_path / "log"
    store = ("--store", str(tmp_path / "store"), "--port", "0", "--namesrv", "127.0.0.1:1")
    small = ("--set", "mappedFileSizeCommitLog=65536", "--set", "maxIndexNum=2000")
    words = ("broker", *store, *small, "--flush", "sync")
    environment = {failing_syncs.SWITCH: str(switch)}
    with party(log, *words, environment=environment, program=PROGRAM) as broken:
        safe = talk(broken.address, lambda client: send_until_it_ends(client, switch, fault))
        assert broken.process.wait(END_TIMEOUT_S) == 1
        assert broken.process.stdout is not None
        assert broken.process.stdout.read() == "", "nothing behind the ready line"
    said = log.read_text()
    last = said.splitlines()[-1]
    assert last.startswith("tidemark broker: the store stopped writing: ")
    assert last.endswith(f"{words_for_it}; restart it on a sound disk")
    assert "Traceback" not in said
    kinds = [row["kind"] for row in spooled(tmp_path / "store", "lifecycle")]
    assert kinds.count("WRITES_STOPPED") == 1
    assert (tmp_path / "store" / "abort").exists(), "the next start looks closely"
    switch.unlink()
    with party(log, *words, environment=environment, program=PROGRAM) as sound:

        async def everything(client: RawClient) -> list[bytes]:
            found: list[bytes] = []
            while (answer := await client.pull(len(found))).code == ResponseCode.SUCCESS:
                found += bodies(answer)
            assert (await client.send(b"and it writes")).code == ResponseCode.SUCCESS
            return found

        found = talk(sound.address, everything)
        assert not set(safe) - set(found), "lost, though answered as safe"
        sound.stop()
