"""A body that holds the bytes of a record, at the offset where they will lie: when damage takes the
message around it, the bytes inside never become a message.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.store import MessageStore, PutResult
from engine.store.record_writing import DraftRecord
from tests.store_support import (
    Listener,
    abandon,
    draft,
    messages_over_holes,
    open_store,
    sync_config,
    turn,
)

FILE_BYTES = 4096
FORGED_KEY = "forged-key"
HEAD_BYTES = 88
BEFORE_BYTES = 40


class Case(NamedTuple):
    """What is forged, and what happens to the store."""

    damage: str
    topic: str
    queue_offset: int
    stop: str
    lost: str
    aligned: bool
    """Does it end where the message around it ends, so that sound records follow?"""

    def __str__(self) -> str:
        place = "up to the end" if self.aligned else "amid"
        named = f"{self.topic} {self.queue_offset} {place}"
        return f"{self.damage}, {named}, {self.stop}, lost {self.lost}"


@dataclass(frozen=True)
class Attack:
    """A store of eleven messages whose sixth holds a record in its body."""

    put: tuple[PutResult, ...]
    forged_at: int


def forged_record(physical_offset: int, topic: str, queue_offset: int, tail: bytes) -> bytes:
    """What the broker itself would have written there, up to a tail that others write."""
    properties = f"UNIQ_KEY\x01{FORGED_KEY}\x02".encode() + tail
    record = DraftRecord(draft(b"forged!", topic=topic, properties=properties))
    encoded = record.encode(queue_offset, physical_offset, 1_700_000_000_000)
    return encoded[: len(encoded) - len(tail)]


async def play(root: Path, case: Case) -> Attack:
    store = await open_store(sync_config(root))
    put: list[PutResult] = []
    forged_at = 0
    for number in range(11):
        body = b"%d:" % number + b"x" * 60
        if number == 5:
            forged_at = put[-1].end_offset + HEAD_BYTES + BEFORE_BYTES
            body = b"5:".ljust(BEFORE_BYTES, b"-")
            tail = b"\x06TopicA\0\x0bUNIQ_KEY\x015\x02" if case.aligned else b""
            body += forged_record(forged_at, case.topic, case.queue_offset, tail)
            body += b"" if case.aligned else b"-" * 40
        properties = f"UNIQ_KEY\x01{number}\x02"
        put.append(store.put(draft(body, queue_id=number % 2, properties=properties)))
        await store._flusher.flush_log("GROUP")
    await turn()
    if case.stop == "kill":
        await store._flusher.flush_derived("TIMER")
    if case.stop == "clean":
        await store.close()
    else:
        await abandon(store)
    return Attack(tuple(put), forged_at)


def overwrite(root: Path, physical_offset: int, data: bytes) -> None:
    path = root / "commitlog" / f"{physical_offset - physical_offset % FILE_BYTES:020d}"
    content = bytearray(path.read_bytes())
    inside = physical_offset % FILE_BYTES
    content[inside : inside + len(data)] = data
    path.write_bytes(content)


def flip(root: Path, physical_offset: int) -> None:
    path = root / "commitlog" / f"{physical_offset - physical_offset % FILE_BYTES:020d}"
    inside = physical_offset % FILE_BYTES
    overwrite(root, physical_offset, bytes([path.read_bytes()[inside] ^ 4]))


DAMAGES: dict[str, Callable[[Path, int], None]] = {
    "size": lambda root, at: flip(root, at + 3),
    "size that leads inside": lambda root, at: overwrite(
        root, at, (HEAD_BYTES + BEFORE_BYTES).to_bytes(4, "big")
    ),
    "magic": lambda root, at: flip(root, at + 5),
    "CRC": lambda root, at: flip(root, at + 9),
    "own offset": lambda root, at: flip(root, at + 35),
    "body length": lambda root, at: flip(root, at + 87),
    "body": lambda root, at: flip(root, at + 90),
    "whole head": lambda root, at: overwrite(root, at, bytes(HEAD_BYTES)),
}


def check_forged_is_no_message(store: MessageStore, attack: Attack, topic: str) -> None:
    numbers = sorted(
        int(message.body.partition(b":")[0])
        for queue_id in (0, 1)
        for message in messages_over_holes(store, queue_id=queue_id)
    )
    assert numbers == [n for n in range(11) if n != 5], "by a pull"
    if topic != "TopicA":
        assert messages_over_holes(store, topic=topic) == []
        assert (topic, 0) not in store.queues()
    found = store.query_by_key(topic, FORGED_KEY, max_count=9, begin_ms=0, end_ms=1 << 60)
    assert found.physical_offsets == [], "by its key"
    assert store.known_record_at(attack.forged_at) is None, "by its offset"


def can_be_distinguished(case: Case) -> bool:
    """Not when no queue knows of either, the head of the message around is gone, and the record
    ends where that message ends, in a queue where it contradicts nobody.
    """
    units_lost = case.lost == "consumequeue" or case.stop == "kill, units unwritten"
    contradicted = (case.topic, case.queue_offset) == ("TopicA", 3)
    nobody_knows = units_lost and case.damage == "whole head"
    return not (nobody_knows and case.aligned) or contradicted


CASES = [
    case
    for each in product(
        DAMAGES,
        ("Ghost", "TopicA"),
        (0, 3),
        ("clean", "kill", "kill, units unwritten"),
        ("nothing", "consumequeue"),
        (False, True),
    )
    if can_be_distinguished(case := Case(*each))
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_record_inside_a_damaged_message_never_becomes_a_message(
    tmp_path: Path, case: Case
) -> None:
    attack = await play(tmp_path, case)
    DAMAGES[case.damage](tmp_path, attack.put[5].physical_offset)
    if case.lost != "nothing":
        shutil.rmtree(tmp_path / case.lost)
    listener = Listener()
    store = await open_store(sync_config(tmp_path), listener)
    check_forged_is_no_message(store, attack, case.topic)
    assert listener.recovery.truncated_from is None
    await store.close()
