"""Row E3: our broker takes over a store whose timers were Apache RocketMQ's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from engine.protocol.codes import ResponseCode
from engine.protocol.message_record import decode_records
from tests.integration.broker.cluster import RawClient, eventually
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

SHAPE = {"mappedFileSizeCommitLog": "1048576"}
TOPIC = "timers-of-both"
SOON_MS, LATER_MS = 3_000, 25_000


async def delivered(client: RawClient) -> list[bytes]:
    """Bodies of the topic's only queue."""
    answer = await client.pull(0, topic=TOPIC)
    return [one.body for one in decode_records(answer.body)] if answer.body else []


async def put_timers(address: str) -> None:
    """One that RocketMQ delivers itself, and one that it leaves."""
    client = RawClient(address)
    assert (await client.make_topic(TOPIC)).code == ResponseCode.SUCCESS
    for body, delay_ms in ((b"soon", SOON_MS), (b"later", LATER_MS)):
        answer = await client.send(
            body, topic=TOPIC, TIMER_DELAY_MS=delay_ms, UNIQ_KEY=body.decode()
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def is_delivered() -> bool:
        return await delivered(client) == [b"soon"]

    await eventually(is_delivered, "RocketMQ delivers its first timer")
    await asyncio.sleep(3)  # Its check point is written each second.
    await client.close()


async def read_rest(address: str) -> list[bytes]:
    """What the topic holds once both timers are there, and half a second later."""
    client = RawClient(address)

    async def both() -> bool:
        return len(await delivered(client)) >= 2

    await eventually(both, "our broker delivers the other timer", within_s=40)
    await asyncio.sleep(0.5)
    found = await delivered(client)
    await client.close()
    return found


def test_each_timer_comes_once_though_another_broker_delivers_it(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with real_rocketmq(tmp_path, SHAPE, clean_stop=True) as real:
        asyncio.run(put_timers(real.broker))
    shape = [word for key, value in SHAPE.items() for word in ("--set", f"{key}={value}")]
    with our_engine(tmp_path, *shape) as engine:
        found = asyncio.run(read_rest(engine.broker))
    assert found == [b"soon", b"later"]
    assert time.monotonic() - began_s > LATER_MS / 1000, "not early"
