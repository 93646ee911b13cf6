"""A store written by RocketMQ's own DefaultMessageStore: we open it, serve it, and write the same.

tests/cases/store.json holds its files, what was put, and what it answered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.message_batch import decode_batch
from engine.protocol.message_record import decode_record
from engine.store import MessageStore
from engine.store.upkeep.checkpoint import decode_checkpoint
from tests.store_support import (
    BIG,
    HandClock,
    Listener,
    draft,
    file_bytes,
    open_store,
    runtime_on,
    small_config,
    turn,
)

CASE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "cases" / "store.json").read_text(encoding="utf-8")
)
FILES: dict[str, bytes] = {
    name: bytes.fromhex(file["hex"]).ljust(file["size"], b"\0")
    for name, file in CASE["files"].items()
}
FIRST_MS = CASE["puts"][0]["storeTimestamp"]
LAST_MS = 1795239608873  # store time of the batch, from the checkpoint's first eight bytes


def lay_out(root: Path, *, without: tuple[str, ...] = (), crashed: bool = False) -> None:
    for name, content in FILES.items():
        if not name.startswith(without or ("-",)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    if crashed:
        (root / "abort").write_text("1024", encoding="ascii")


def check_answers(store: MessageStore) -> None:
    assert store.physical_max == CASE["max_physical_offset"]
    for key, max_offset in CASE["max_queue_offsets"].items():
        topic, _, queue_id = key.rpartition(":")
        assert store.max_offset(topic, int(queue_id)) == max_offset, key
    for expected in CASE["get_message"]:
        result = store.get(
            expected["topic"],
            expected["queueId"],
            expected["offset"],
            max_count=expected.get("maxMsgNums", 32),
            max_bytes=BIG,
        )
        assert result.status.value == expected["status"], expected
        assert result.next_begin_offset == expected["nextBeginOffset"], expected
        assert result.max_offset == expected.get("maxOffset", 0), expected
        offsets = [
            decode_record(record, position).queue_offset
            for record in result.records
            for position in record_positions(record)
        ]
        assert offsets == expected.get("queueOffsets", []), expected
    for expected in CASE["query_by_key"]:
        found = store.query_by_key(
            expected["topic"], expected["key"], max_count=32, begin_ms=0, end_ms=BIG << 20
        )
        assert found.physical_offsets == expected["physicalOffsets"], expected


def record_positions(view: memoryview) -> list[int]:
    positions, position = [], 0
    while position < len(view):
        positions.append(position)
        position += int.from_bytes(view[position : position + 4], "big")
    return positions


@pytest.mark.parametrize(
    ("without", "crashed"),
    [
        pytest.param((), False, id="after a clean stop"),
        pytest.param((), True, id="after kill -9"),
        pytest.param(("consumequeue",), False, id="clean, consume queues lost"),
        pytest.param(("consumequeue", "index"), True, id="killed, queues and index lost"),
        pytest.param(("checkpoint",), True, id="killed, checkpoint lost"),
    ],
)
async def test_a_store_of_rocketmq_opens_and_answers_as_rocketmq_did(
    tmp_path: Path, without: tuple[str, ...], crashed: bool
) -> None:
    lay_out(tmp_path, without=without, crashed=crashed)
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    check_answers(store)
    await store.close()
    assert listener.recovery.clean is not crashed
    assert listener.recovery.truncated_from is None
    assert not listener.lifecycle("DAMAGED_FILE")


async def test_a_copy_of_rocketmqs_log_has_its_queues_and_answers_as_it_did(tmp_path: Path) -> None:
    """Byte for byte, the blanks between files included, in the pieces that its masters send."""
    logs = [FILES[name] for name in sorted(FILES) if name.startswith("commitlog/")]
    log = b"".join(logs)[: CASE["max_physical_offset"]]
    store, sent = await open_store(small_config(tmp_path)), 0
    while store.physical_max < len(log):
        sent = min(len(log), sent + 1000)
        store.append_at(store.physical_max, log[store.physical_max : sent])
        await turn()
    check_answers(store)
    await store.close()
    found = file_bytes(tmp_path)
    for name, content in FILES.items():
        if name.startswith(("commitlog/", "consumequeue/")):
            assert found[name] == content, name


@pytest.mark.parametrize("without", [(), ("consumequeue",)], ids=["as it was", "queues lost"])
@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "killed"])
async def test_opening_and_closing_changes_no_byte(
    tmp_path: Path, without: tuple[str, ...], crashed: bool
) -> None:
    """But for the note of ours in the checkpoint, where RocketMQ leaves zeros, and for the sums of
    the index and the ends of the queues, which lie where RocketMQ does not look.
    """
    lay_out(tmp_path, without=without, crashed=crashed)
    store = await open_store(small_config(tmp_path))
    await store.close()
    found = {
        name: data
        for name, data in file_bytes(tmp_path).items()
        if not name.startswith(("indexSums/", "consumequeueEnds"))
    }
    checkpoint = found.pop("checkpoint")
    assert found == {name: data for name, data in FILES.items() if name != "checkpoint"}
    assert checkpoint[:256] == FILES["checkpoint"][:256]
    assert decode_checkpoint(checkpoint).flushed_offset == CASE["max_physical_offset"]


async def test_the_same_messages_give_the_same_files(tmp_path: Path) -> None:
    """Every byte but the index files' names: those name the moment of their creation."""
    clock = HandClock(FIRST_MS)
    store = await open_store(small_config(tmp_path), runtime=runtime_on(clock=clock))
    for put in CASE["puts"]:
        clock.value_ms = put["storeTimestamp"]
        result = store.put(
            draft(
                bytes.fromhex(put["bodyHex"]),
                topic=put["topic"],
                queue_id=put["queueId"],
                properties=put["propertiesString"],
                sys_flag=put["sysFlag"],
                born_timestamp_ms=put["bornTimestamp"],
                born_host=put["bornHost"].replace("|", ":"),
                store_host=put["storeHost"].replace("|", ":"),
                prepared_transaction_offset=put["preparedTransactionOffset"],
            )
        )
        assert result.physical_offset == put["wroteOffset"], put["i"]
        assert result.size_bytes == put["wroteBytes"], put["i"]
        assert result.queue_offset == put["logicsOffset"], put["i"]
        await turn()
    clock.value_ms = LAST_MS
    batch = CASE["batch_put"]
    results = store.put_batch(
        [
            draft(
                entry.body,
                queue_id=batch["queueId"],
                properties=entry.properties_text,
                flag=entry.flag,
                born_timestamp_ms=CASE["puts"][0]["bornTimestamp"],
            )
            for entry in decode_batch(bytes.fromhex(batch["bodyHex"]))
        ]
    )
    assert results[0].physical_offset == batch["wroteOffset"]
    assert sum(result.size_bytes for result in results) == batch["wroteBytes"]
    assert [result.queue_offset for result in results] == [0, 1, 2]
    await store.close()
    written = file_bytes(tmp_path)
    derived = [name for name in FILES if name.startswith(("commitlog", "consumequeue"))]
    for name in derived:
        assert written[name] == FILES[name], name
    ours = [content for name, content in written.items() if name.startswith("index/")]
    assert ours == [content for name, content in FILES.items() if name.startswith("index/")]
    assert written["lock"] == FILES["lock"]
    assert "abort" not in written


async def test_store_times_are_found_by_offset_and_offsets_by_time(tmp_path: Path) -> None:
    lay_out(tmp_path)
    store = await open_store(small_config(tmp_path))
    puts = [p for p in CASE["puts"] if (p["topic"], p["queueId"]) == ("TopicB", 1)]
    in_queue = [put for put in puts if put["sysFlag"] & 0xC not in (0x4, 0xC)]
    for put in in_queue:
        offset, stored_ms = put["logicsOffset"], put["storeTimestamp"]
        assert store.store_time_at("TopicB", 1, offset) == stored_ms
        assert store.offset_at_time("TopicB", 1, stored_ms) == offset
        assert store.offset_at_time("TopicB", 1, stored_ms + 1) == offset + 1
    assert store.offset_at_time("TopicB", 1, 0) == 0
    assert store.last_store_time("TopicB", 1) == in_queue[-1]["storeTimestamp"]
    assert store.store_time_at("TopicB", 1, len(in_queue)) is None
    await store.close()


async def test_a_record_is_found_by_its_physical_offset_and_nowhere_else(tmp_path: Path) -> None:
    lay_out(tmp_path)
    store = await open_store(small_config(tmp_path))
    begins = {put["wroteOffset"]: put for put in CASE["puts"]}
    for physical_offset in range(9000):
        record = store.record_at(physical_offset)
        put = begins.get(physical_offset)
        if put is None:
            assert record is None, physical_offset
        else:
            assert record is not None, physical_offset
            assert decode_record(record).body == bytes.fromhex(put["bodyHex"])
    assert store.record_at(CASE["max_physical_offset"]) is None
    assert store.record_at(-8) is None
    await store.close()
