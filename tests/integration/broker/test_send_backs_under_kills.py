"""Row E1: a broker is killed again and again while failed messages are sent back
to it, wait in their delay level and are delivered: each answered one comes again at least once, or
is a dead letter, and never both.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageExt
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, eventually, messages
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine

KILLS = 5
COUNT = 300
SEED = 20_260_411
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


async def all_of(client: RawClient, topic: str) -> list[MessageExt]:
    """Everything in the topic's first queue."""
    found: list[MessageExt] = []
    while True:
        pulled = await client.pull(len(found), topic=topic)
        if pulled.code != ResponseCode.SUCCESS:
            return found
        found += messages(pulled)


async def send_back_all(
    client: RawClient, waiting: list[MessageExt], answered: dict[str, bool]
) -> None:
    """Send back what is left in `waiting`; the unanswered ones are tried again in the next life.

    Every third one is spent, so it becomes a dead letter.
    """
    while waiting:
        message = waiting[-1]
        spent = int(message.body) % 3 == 0
        answer = await client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            timeout_ms=2000,
            offset=message.physical_offset,
            group=GROUP,
            delayLevel=1,
            maxReconsumeTimes=0 if spent else 16,
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        answered[bytes(message.body).decode()] = spent
        waiting.pop()


async def lives(engine: KillableEngine, answered: dict[str, bool]) -> None:
    """Send everything, then fail it over KILLS lives that end by SIGKILL, and a last one."""
    choice = random.Random(SEED)
    client = RawClient(engine.broker)
    await client.heartbeat()
    for number in range(COUNT):
        assert (await client.send(f"{number}".encode())).code == ResponseCode.SUCCESS
    waiting = await all_of(client, TOPIC)
    for _ in range(KILLS):
        work = asyncio.create_task(send_back_all(client, waiting, answered))
        before = len(answered)
        enough = before + choice.randrange(10, 40)

        async def busy(enough: int = enough, work: asyncio.Task[None] = work) -> bool:
            return len(answered) >= enough or work.done()

        await eventually(busy, "send-backs are answered")
        await engine.end(signal.SIGKILL)
        await asyncio.gather(work, return_exceptions=True)
        await client.close()
        await engine.start()
        client = RawClient(engine.broker)
        await client.heartbeat()
    await send_back_all(client, waiting, answered)

    async def all_back() -> bool:
        back = {bytes(message.body) for message in await all_of(client, RETRY)}
        return len(back) == COUNT - len(range(0, COUNT, 3))

    await eventually(all_back, "every failed message that is not spent comes again", within_s=60)
    await client.close()


@pytest.mark.timeout(200)
async def test_no_answered_send_back_is_lost_and_none_is_both_retried_and_dead(
    tmp_path: Path,
) -> None:
    answered: dict[str, bool] = {}
    engine = KillableEngine(tmp_path, *SMALL)
    await engine.start()
    try:
        await lives(engine, answered)
        client = RawClient(engine.broker)
        retried, dead = [
            Counter(bytes(m.body).decode() for m in await all_of(client, topic))
            for topic in (RETRY, DLQ)
        ]
        await client.close()
    finally:
        await engine.end(signal.SIGKILL)
    assert len(answered) == COUNT
    for body, spent in answered.items():
        assert (body in dead, body in retried) == (spent, not spent), f"message {body}"
    again = sum(n - 1 for n in (retried + dead).values())
    assert again <= 40 * KILLS + COUNT, "duplicates are those of the lives' last moments"
