"""Row C2: messages found by key, by unique key and by time, over several index files, from a broker
that is stopped cleanly, killed, and killed with its index lost.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageExt
from tests.integration.broker.cluster import TOPIC, RawClient, messages
from tests.integration.telemetry.killable_engine import KillableEngine

SMALL = ("--set", "maxHashSlotNum=10", "--set", "maxIndexNum=50", "--no-telemetry")
COUNT = 60  # Three entries each, 49 to a file.


async def write(client: RawClient) -> None:
    for number in range(COUNT):
        sent = await client.send(
            b"%d" % number, KEYS=f"order-{number} parity-{number % 2}", UNIQ_KEY=f"UNIQUE{number}"
        )
        assert sent.code == ResponseCode.SUCCESS


async def find(
    client: RawClient, key: str, *, unique: bool = False, begin_ms: int = 0, end_ms: int = 1 << 60
) -> list[MessageExt]:
    answer = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=TOPIC,
        key=key,
        maxNum=32,
        beginTimestamp=begin_ms,
        endTimestamp=end_ms,
        **({"_UNIQUE_KEY_QUERY": "true"} if unique else {}),
    )
    return messages(answer) if answer.code == ResponseCode.SUCCESS else []


async def check(client: RawClient) -> None:
    for number in (0, 17, 31, COUNT - 1):
        for key, unique in ((f"order-{number}", False), (f"UNIQUE{number}", True)):
            (found,) = await find(client, key, unique=unique)
            assert found.body == b"%d" % number
    even = await find(client, "parity-0")
    assert [int(message.body) for message in even] == list(range(0, COUNT, 2))
    stored_ms = even[0].store_timestamp_ms
    assert await find(client, "parity-0", end_ms=stored_ms - 2000) == []
    assert len(await find(client, "parity-0", begin_ms=stored_ms - 2000)) == COUNT // 2
    assert await find(client, "order-60") == []


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        pytest.param(signal.SIGTERM, False, id="clean stop"),
        pytest.param(signal.SIGKILL, False, id="kill -9"),
        pytest.param(signal.SIGKILL, True, id="kill -9, index lost"),
    ],
)
def test_keys_are_found_before_and_after(
    tmp_path: Path, number: signal.Signals, lost: bool
) -> None:
    async def story() -> None:
        engine = KillableEngine(tmp_path)
        await engine.start(*SMALL)
        client = RawClient(engine.broker)
        await write(client)
        await check(client)
        await client.close()
        assert len(list((engine.store / "index").iterdir())) >= 3, "the index has rolled"
        await engine.end(number)
        if lost:
            shutil.rmtree(engine.store / "index")
        await engine.start(*SMALL)
        client = RawClient(engine.broker)
        await check(client)
        await client.close()
        await engine.end(signal.SIGTERM)

    asyncio.run(story())
