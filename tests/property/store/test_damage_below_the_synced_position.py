"""Recovery takes nothing away that was on stable storage: for any damage to any files, after any
stop, whatever else of the store is lost.

A store of three queues and some ten commit-log files is played once; each example stops it in some
way, damages it, recovers it twice and reads it as consumers do.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from engine.store import FlushDiskType, MessageStore, PutResult
from engine.store.record_writing import DraftRecord
from tests.simulation.crash_states.recording import RecordingDisk, Tree
from tests.simulation.crash_states.workloads import runtime_on, settings_of
from tests.store_support import (
    START_MS,
    HandClock,
    Listener,
    abandon,
    draft,
    messages_over_holes,
    small_config,
)

FILE_BYTES = 2048
QUEUES = 3
COUNT = 60
SYNCED_COUNT = 45
LOG = "/store/commitlog/"
CONFIG = small_config(
    "/store",
    **settings_of(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log_bytes=FILE_BYTES
    ),
)
SEEN_IN_A_RECORD = [*range(12), *range(28, 36), *range(84, 90)]
"""Bytes of a record whose change every reader sees: size, magic, CRC, own offset, body."""
QUEUE_OFFSET_AT = range(20, 28)
"""Its queue offset has no check of its own; only its neighbours in the queue show it."""


@dataclass(frozen=True)
class Played:
    """A store as a stop left it."""

    tree: dict[str, Any]
    put: tuple[PutResult, ...]
    synced_to: int
    """Every byte below was synced, and the store knows it."""

    def name_of(self, physical_offset: int) -> str:
        return f"{LOG}{physical_offset - physical_offset % FILE_BYTES:020d}"


def holding_a_record(body: bytes, record_at: int, number: int) -> bytes:
    """The body of a message that begins at `record_at`, with what looks like a record inside."""
    inside = record_at + 88 + len(body)
    forged = draft(b"forged", topic=("Ghost", "TopicA")[number % 2], properties="UNIQ_KEY\x01F\x02")
    return body + DraftRecord(forged).encode(number % 7, inside, START_MS) + b"." * 50


async def play(*, clean: bool) -> Played:
    """SYNCED_COUNT messages flushed one by one, the others never; killed, or stopped cleanly."""
    disk, clock = RecordingDisk(), HandClock()
    store = await MessageStore.open(runtime_on(disk, clock), CONFIG, Listener())
    put: list[PutResult] = []
    for number in range(COUNT):
        body = (b"%d:" % number).ljust(60 + number * 53 % 400, b".")
        if number % 5 == 2:
            body = holding_a_record(body, put[-1].end_offset, number)
        properties = f"UNIQ_KEY\x01{number}\x02TAGS\x01T\x02"
        put.append(store.put(draft(body, queue_id=number % QUEUES, properties=properties)))
        clock.value_ms += 700
        await asyncio.sleep(0)
        if number < SYNCED_COUNT:
            await store._flusher.flush_log("GROUP")
        if number == SYNCED_COUNT // 2:
            await store._flusher.flush_derived("TIMER")
    await asyncio.sleep(0)
    synced_to = store.physical_flushed
    if clean:
        await store.close()
        synced_to = put[-1].end_offset
    else:
        await abandon(store)
    return Played(disk.tree(), tuple(put), synced_to)


@cache
def played(clean: bool) -> Played:
    return asyncio.run(play(clean=clean))


@dataclass(frozen=True)
class Damage:
    """What happens to the file that holds a message's record."""

    number: int
    kind: str
    byte: int = 0
    bit: int = 0

    def apply(self, case: Played, tree: Tree) -> None:
        record = case.put[self.number]
        name = case.name_of(record.physical_offset)
        content = tree.get(name)
        if content is None:
            return
        inside = record.physical_offset % FILE_BYTES
        bent = bytearray(content)
        if self.kind == "remove":
            del tree[name]
            return
        if self.kind == "empty":
            bent.clear()
        elif self.kind == "cut":
            del bent[inside + self.byte :]
        elif self.kind == "zero":
            end = min(inside + self.byte + 512, len(bent))
            bent[inside + self.byte : end] = bytes(max(0, end - inside - self.byte))
        elif inside + SEEN_IN_A_RECORD[self.byte % len(SEEN_IN_A_RECORD)] < len(bent):
            bent[inside + SEEN_IN_A_RECORD[self.byte % len(SEEN_IN_A_RECORD)]] ^= 1 << self.bit
        tree[name] = bytes(bent)


damages = st.lists(
    st.builds(
        Damage,
        st.integers(0, COUNT - 1),
        st.sampled_from(["remove", "empty", "cut", "zero", "flip", "flip", "flip"]),
        st.integers(0, 80),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=4,
)


def sound(case: Played, tree: Tree) -> list[int]:
    """Numbers of the messages whose bytes are all there and that must be left: everything sound
    below the synced position; behind it up to the first thing that is not as it was written.
    """
    kept = []
    for number, result in enumerate(case.put):
        name = case.name_of(result.physical_offset)
        inside = slice(
            result.physical_offset % FILE_BYTES, (result.end_offset - 1) % FILE_BYTES + 1
        )
        whole = (tree.get(name) or b"")[inside] == case.tree[name][inside]
        if result.physical_offset >= case.synced_to:
            blank = case.put[number - 1].end_offset
            old, new = case.tree[case.name_of(blank)], tree.get(case.name_of(blank)) or b""
            at = slice(blank % FILE_BYTES, blank % FILE_BYTES + 8)
            if not whole or (blank != result.physical_offset and old[at] != new[at]):
                break
        if whole:
            kept.append(number)
    return kept


def below(tree: Tree, synced_to: int) -> dict[str, bytes]:
    """The bytes of the log below the synced position, file by file, without zeros at their end."""
    found = {
        name: data[: synced_to - int(name[-20:])].rstrip(b"\0")
        for name, data in tree.items()
        if data is not None and name.startswith(LOG) and int(name[-20:]) < synced_to
    }
    return {name: data for name, data in found.items() if data}


@settings(
    max_examples=int(os.environ.get("TIDEMARK_DAMAGES", "200")),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
@given(
    damages,
    st.booleans(),
    st.sets(st.sampled_from(["consumequeue", "index", "checkpoint"])),
    st.booleans(),
)
def test_recovery_cuts_and_unlinks_nothing_below_the_synced_position(
    damages: list[Damage], clean: bool, lost: set[str], forgets: bool
) -> None:
    """`forgets`: the checkpoint has RocketMQ's numbers alone, as after another broker. One that is
    lost may have said of everything that it was synced.
    """
    case = played(clean)
    tree = tree_without(case, lost)
    if "checkpoint" in lost:
        case = replace(case, synced_to=case.put[-1].end_offset)
    elif forgets and clean:
        checkpoint = tree["/store/checkpoint"]
        assert checkpoint is not None
        tree["/store/checkpoint"] = checkpoint[:40].ljust(4096, b"\0")
    for damage in damages:
        damage.apply(case, tree)
    asyncio.run(check(case, tree, lost, is_reported=not forgets))


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(0, SYNCED_COUNT - 1 - QUEUES),
    st.sampled_from(QUEUE_OFFSET_AT),
    st.integers(0, 7),
    st.booleans(),
    st.sets(st.sampled_from(["consumequeue", "index"])),
)
@example(number=4 * QUEUES, byte=27, bit=2, clean=False, lost={"consumequeue"})
@example(number=4 * QUEUES, byte=27, bit=2, clean=True, lost={"consumequeue"})
@example(number=5 * QUEUES, byte=20, bit=7, clean=False, lost={"consumequeue"})
@example(number=5 * QUEUES, byte=27, bit=2, clean=False, lost=set())
def test_a_flipped_bit_of_a_queue_offset_costs_its_record_alone(
    number: int, byte: int, bit: int, clean: bool, lost: set[str]
) -> None:
    case = played(clean)
    tree = tree_without(case, lost)
    record = case.put[number]
    bent = bytearray(case.tree[case.name_of(record.physical_offset)])
    bent[record.physical_offset % FILE_BYTES + byte] ^= 1 << bit
    tree[case.name_of(record.physical_offset)] = bytes(bent)
    asyncio.run(check(case, tree, lost))


def tree_without(case: Played, lost: set[str]) -> Tree:
    """The store's files but those of the folders that are lost."""
    folders = tuple(f"/store/{each}/" for each in lost)
    return {
        name: data
        for name, data in case.tree.items()
        if data is None or not f"{name}/".startswith(folders)
    }


async def check(case: Played, tree: Tree, lost: set[str], *, is_reported: bool = True) -> None:
    """`is_reported`: is there anything left by which a loss can be seen?"""
    whole_queues = "consumequeue" not in lost
    expected = sound(case, tree)
    disk, clock, listener = RecordingDisk(tree), HandClock(1_900_000_000_000), Listener()
    store = await MessageStore.open(runtime_on(disk, clock), CONFIG, listener)
    found = sorted(
        int(message.body.partition(b":")[0])
        for queue_id in range(QUEUES)
        for message in messages_over_holes(store, queue_id=queue_id)
    )
    assert found == expected
    synced = [n for n, each in enumerate(case.put) if each.end_offset <= case.synced_to]
    if is_reported and "checkpoint" not in lost and not set(synced) <= set(found):
        assert listener.lifecycle("LOG_HOLE"), "less is there, and nothing was reported"
    for number in found:
        result, queue_id = case.put[number], number % QUEUES
        assert store.queue_units("TopicA", queue_id, result.queue_offset, 1) == [
            (result.physical_offset, result.size_bytes, 84)
        ]
        keys = store.query_by_key("TopicA", str(number), max_count=9, begin_ms=0, end_ms=1 << 60)
        assert result.physical_offset in keys.physical_offsets, f"message {number} by its key"
    assert store.queues() == [("TopicA", queue_id) for queue_id in range(QUEUES)]
    keys = store.query_by_key("Ghost", "F", max_count=9, begin_ms=0, end_ms=1 << 60)
    keys_here = store.query_by_key("TopicA", "F", max_count=9, begin_ms=0, end_ms=1 << 60)
    assert (keys.physical_offsets, keys_here.physical_offsets) == ([], []), "a forged record"
    given_out = [store.max_offset("TopicA", queue_id) for queue_id in range(QUEUES)]
    for queue_id in range(QUEUES):
        survivors = [case.put[n].queue_offset for n in found if n % QUEUES == queue_id]
        assert given_out[queue_id] > max(survivors, default=-1)
        if whole_queues:
            synced = [
                each.queue_offset
                for n, each in enumerate(case.put)
                if n % QUEUES == queue_id and n <= SYNCED_COUNT // 2
            ]
            assert given_out[queue_id] > max(synced), "an offset would be given twice"
    store._life.release()
    settled = disk.tree()
    for name, data in below(tree, case.synced_to).items():
        assert below(settled, case.synced_to)[name] == data, f"{name} was cut"
    again = Listener()
    store = await MessageStore.open(runtime_on(disk, clock), CONFIG, again)
    assert again.recovery.truncated_from is None, again.recovery
    store._life.release()
    noted = {"/store/checkpoint"} if "checkpoint" in lost else set()
    changed = {name for name, data in disk.tree().items() if settled.get(name) != data}
    assert changed <= noted, "a second recovery changes something"
    assert set(disk.tree()) == set(settled), "a second recovery makes or removes something"
    store = await MessageStore.open(runtime_on(disk, clock), CONFIG, Listener())
    put = store.put(draft(b"goes on", queue_id=1))
    assert put.queue_offset == given_out[1]
    await store._flusher.flush_log("GROUP")
    assert store.physical_flushed == put.end_offset
    await store.close()
