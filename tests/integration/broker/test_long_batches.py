"""A batch of thousands of messages: others are served while it is encoded, and it is stored whole
or not at all.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path

import pytest

from engine.broker.topics.topics import DEDUPLICATION
from engine.foundation.limits import (
    BATCH_MESSAGES_MAX,
    DEDUPLICATED_BATCH_MAX,
    LOOP_STEP_ENTRIES_MAX,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message
from engine.protocol.message_batch import encode_batch
from engine.store import BatchDraft, MessageDraft
from tests.integration.broker.cluster import (
    TOPIC,
    Cluster,
    RawClient,
    broker_config,
    cluster,
    eventually,
)

LONG = 8 * LOOP_STEP_ENTRIES_MAX
LOG_BYTES = 8 << 20


def messages(count: int) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, {"UNIQ_KEY": f"k{number}"}) for number in range(count)]


async def send_batch(client: RawClient, sent: list[Message]) -> RemotingCommand:
    fields = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "h": 0, "i": ""}
    fields |= {"g": 1_700_000_000_000, "j": 0, "k": "false", "m": "true"}
    return await client.ask(RequestCode.SEND_BATCH_MESSAGE, bytes(encode_batch(sent)), **fields)


async def dispatched(running: Cluster, count: int) -> None:
    async def all_are() -> bool:
        return running.broker.state.store.max_offset(TOPIC, 0) >= count

    await eventually(all_are, f"{count} messages can be pulled")
    assert running.broker.state.store.max_offset(TOPIC, 0) == count


class Added:
    """How many messages were encoded, and how many of them in one pass of the loop at most."""

    def __init__(self) -> None:
        self.count = self.most_in_a_pass = 0
        self.begun = asyncio.Event()

    async def watch(self) -> None:
        before = 0
        while True:
            self.most_in_a_pass = max(self.most_in_a_pass, self.count - before)
            before = self.count
            await asyncio.sleep(0)


@asynccontextmanager
async def watched(
    folder: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Cluster, RawClient, Added]]:
    added, add = Added(), BatchDraft.add

    def counted(batch: BatchDraft, draft: MessageDraft) -> None:
        added.count += 1
        added.begun.set()
        add(batch, draft)

    patch.setattr(BatchDraft, "add", counted)
    async with cluster(broker_config(folder, log_bytes=LOG_BYTES)) as running:
        client = running.client()
        await client.send(queue_id=1)
        watch = asyncio.create_task(added.watch())
        try:
            yield running, client, added
        finally:
            watch.cancel()


async def test_it_is_encoded_in_steps_and_lies_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (running, client, added):
        answers = await asyncio.gather(
            send_batch(client, messages(LONG)),
            send_batch(running.client(), messages(LONG)),
            *(running.client().send() for _ in range(3)),
        )
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 5
        assert added.count == 2 * LONG
        assert added.most_in_a_pass <= 2 * LOOP_STEP_ENTRIES_MAX, "the first step of one, and one"
        await dispatched(running, 2 * LONG + 3)
        store = running.broker.state.store
        for answer in answers[:2]:
            first, ids = int(answer.fields["queueOffset"]), answer.fields["msgId"].split(",")
            units = store.queue_units(TOPIC, 0, first, LONG)
            assert units is not None
            assert [unit[0] for unit in units] == [int(one[-16:], 16) for one in ids]
            places = [(at, at + size) for at, size, _ in units]
            assert [end for _, end in places[:-1]] == [begin for begin, _ in places[1:]]
            assert answer.fields["transactionId"].split(",") == [f"k{n}" for n in range(LONG)]


async def test_of_the_longest_batch_each_message_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (running, client, added):
        answer = await send_batch(client, messages(BATCH_MESSAGES_MAX))
        assert answer.code == ResponseCode.SUCCESS
        assert added.most_in_a_pass <= LOOP_STEP_ENTRIES_MAX
        await dispatched(running, BATCH_MESSAGES_MAX)
        refused = await send_batch(client, messages(BATCH_MESSAGES_MAX + 1))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert str(BATCH_MESSAGES_MAX) in (refused.remark or "")
        assert not running.broker.state.store.queue_units(TOPIC, 0, BATCH_MESSAGES_MAX, 1)


async def test_what_its_producer_sends_behind_it_is_stored_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (running, client, _):
        other = running.client()
        await other.send(queue_id=1)
        sent = [
            asyncio.ensure_future(one)
            for one in (
                send_batch(client, messages(LONG)),
                client.send(b"behind the first", queue_id=0),
                send_batch(client, messages(LONG)),
                client.send(b"behind the second", queue_id=0),
                send_batch(client, messages(2)),
                client.send(b"last", queue_id=0),
            )
        ]
        meanwhile = await other.send(b"of another", queue_id=1)
        assert meanwhile.code == ResponseCode.SUCCESS
        assert not any(one.done() for one in sent), "others wait for none of that"
        answers = await asyncio.gather(*sent)
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 6
        offsets = [int(answer.fields["queueOffset"]) for answer in answers]
        assert offsets == [0, LONG, LONG + 1, 2 * LONG + 1, 2 * LONG + 2, 2 * LONG + 4]
        alone = await client.send(b"later", queue_id=0)
        assert int(alone.fields["queueOffset"]) == 2 * LONG + 5
        lines = [one for one in gc.get_objects() if type(one).__name__ == "_Line"]
        assert lines == [], "nothing is kept of who waited"


async def test_a_batch_that_is_refused_holds_up_nobody_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (_, client, _):
        refused, behind = await asyncio.gather(
            send_batch(client, messages(BATCH_MESSAGES_MAX + 1)),
            client.send(b"behind it", queue_id=0),
        )
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert (behind.code, behind.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")


async def test_what_is_taken_from_its_topic_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (running, client, added):
        state = running.broker.state
        sending = asyncio.create_task(send_batch(client, messages(LONG)))
        await added.begun.wait()
        assert added.count < LONG
        read_only = copy(state.topics.require(TOPIC))
        read_only.perm = 4
        state.topics.put(read_only)
        answer = await sending
        assert answer.code == ResponseCode.NO_PERMISSION
        assert state.store.max_offset(TOPIC, 0) == 0


async def test_a_topic_that_looks_for_each_message_takes_shorter_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, monkeypatch) as (running, client, _):
        state = running.broker.state
        once = copy(state.topics.require(TOPIC))
        once.attributes = {DEDUPLICATION: "true"}
        state.topics.put(once)
        refused = await send_batch(client, messages(DEDUPLICATED_BATCH_MAX + 1))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"{DEDUPLICATED_BATCH_MAX} at once: send it in parts" in (refused.remark or "")
        assert state.store.max_offset(TOPIC, 0) == 0
        first = await send_batch(client, messages(DEDUPLICATED_BATCH_MAX))
        again = await send_batch(client, messages(DEDUPLICATED_BATCH_MAX))
        assert first.fields == again.fields, "it is stored once"
        await dispatched(running, DEDUPLICATED_BATCH_MAX)
