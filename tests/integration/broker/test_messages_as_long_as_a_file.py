"""Messages as long as a commit-log file can just hold: a further copy says more than the first, and
has to fit a file, too. A broker refuses what it could not deliver, retry or bury later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.transactions.half_records import make_half
from engine.delay.waiting_messages import scheduled
from engine.foundation.errors import RecordTooLarge
from engine.foundation.limits import COPY_ROOM_BYTES
from engine.protocol.codes import ResponseCode
from engine.store.record_writing import DraftRecord
from tests.integration.broker.accepted_messages import QUICK, Sent, follow
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.transactor import Transactor
from tests.store_support import draft

FILE_BYTES = 64 * 1024
LONG_TOPIC = "t" * 120
"""Its name is longer than that of the topic of delayed messages."""


async def longest_accepted(client: RawClient, **fields: object) -> int:
    """Length of the longest body that is taken; what is longer is refused for good."""
    taken, refused = FILE_BYTES - 8192, FILE_BYTES
    while refused - taken > 1:
        length = (taken + refused) // 2
        answer = await client.send(b"b" * length, **fields)
        if answer.code == ResponseCode.SUCCESS:
            taken = length
            continue
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert "raise mappedFileSizeCommitLog" in str(answer.remark)
        refused = length
    return taken


async def test_the_longest_messages_that_are_accepted_travel_every_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = [*range(FILE_BYTES - COPY_ROOM_BYTES - 1500, FILE_BYTES, 377)]
    config = broker_config(tmp_path, log_bytes=FILE_BYTES, **QUICK)
    async with cluster(config) as running:
        every = [Sent(body=b"b" * length) for length in lengths]
        paths = await follow(running.client(), running.name_server_address, every)
    assert len(paths.refused) > 4 < len(paths.accepted)
    assert "UNDELIVERABLE" not in caplog.text


async def test_no_delayed_message_is_so_long_that_others_wait_behind_it(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=FILE_BYTES, **QUICK)) as running:
        client = running.client()
        longest = await longest_accepted(client, topic=LONG_TOPIC, DELAY=1)
        for level in (1, 2, 3):
            assert (await client.send(b"small", DELAY=level)).code == ResponseCode.SUCCESS

        async def all_came() -> bool:
            found = bodies(await client.pull(0))
            return len(found) == 3

        await eventually(all_came, "the small messages of all levels are delivered")
        found, offset = 0, 0
        while (answer := await client.pull(offset, topic=LONG_TOPIC)).code == 0:
            found = max([found, *(len(body) for body in bodies(answer))])
            offset = int(answer.fields["nextBeginOffset"])
        assert found == longest


@pytest.mark.parametrize("level", [1, -1], ids=["a retry", "a dead letter"])
async def test_the_longest_message_can_be_sent_back(tmp_path: Path, level: int) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=FILE_BYTES, **QUICK)) as running:
        client = running.client()
        await client.heartbeat(GROUP, (LONG_TOPIC,))
        longest = await longest_accepted(client, topic=LONG_TOPIC, UNIQ_KEY="k")
        sent = await client.send(b"b" * longest, topic=LONG_TOPIC, UNIQ_KEY="k")
        place = int(sent.fields["msgId"][16:], 16)
        answer = await client.ask(36, offset=place, group=GROUP, delayLevel=level)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        topic = f"%RETRY%{GROUP}" if level > 0 else f"%DLQ%{GROUP}"

        async def came() -> bool:
            return [len(body) for body in bodies(await client.pull(0, topic=topic))] == [longest]

        await eventually(came, f"the message is in {topic}")


async def test_a_batch_of_messages_is_refused_for_the_one_that_is_too_long(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=FILE_BYTES)) as running:
        store = running.broker.state.store
        drafts = [draft(b"x" * length) for length in (10, FILE_BYTES - 1000)]
        with pytest.raises(RecordTooLarge, match="and 4096 reserved for its further copies"):
            store.put_batch(drafts, room_bytes=COPY_ROOM_BYTES)
        assert store.max_offset("TopicA", 0) == 0
        assert (await running.client().send(b"on", topic=TOPIC)).code == ResponseCode.SUCCESS


async def test_what_another_broker_took_in_too_long_stands_in_nobodys_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can hold its further copies: it is reported, and everybody behind it goes on."""
    config = broker_config(tmp_path, log_bytes=FILE_BYTES, **QUICK)
    async with cluster(config) as running:
        store, client = running.broker.state.store, running.client()
        assert (await client.send(b"first", topic=LONG_TOPIC)).code == ResponseCode.SUCCESS
        born_ms = client.runtime.clock.now_ms()
        for make in (make_half, lambda one: scheduled(one, 1)):
            one = draft(b"", topic=LONG_TOPIC, born_timestamp_ms=born_ms)
            one.properties = "UNIQ_KEY\x01u\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x011\x02"
            make(one)
            one.body = b"b" * (FILE_BYTES - 8 - DraftRecord(one).size_bytes)
            store.put(one)
    async with cluster(config) as running:
        client = running.client()
        producer = Transactor(client)
        await producer.register()
        await producer.begin("small")
        assert (await client.send(b"delayed", DELAY=1)).code == ResponseCode.SUCCESS

        async def asked_about_the_small_one() -> bool:
            return "small" in {half.key for half, _, _ in producer.asked()}

        await eventually(asked_about_the_small_one, "the check round goes on")

        async def delivered() -> bool:
            return b"delayed" in bodies(await client.pull(0))

        await eventually(delivered, "the level goes on")
    assert "is stepped over: a record of" in caplog.text
    assert "is rolled back: a record of" in caplog.text
    assert not [record for record in caplog.records if record.exc_info]
