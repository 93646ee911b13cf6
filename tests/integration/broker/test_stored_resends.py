"""Row A10: a message that its producer sent again is stored twice; each group that is handed the
second copy is named with it, over kills of the broker, and nothing else is taken for one.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.foundation.limits import SECOND_COPIES_LOOKED_UP_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import Message
from engine.protocol.message_batch import encode_batch
from tests.asynchronous import run_by
from tests.integration.broker.cluster import TOPIC, RawClient, bodies
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import eventually
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine

KEY = "7F00000100002A139A4B018B4D400001"


def with_engine(
    folder: Path, story: Callable[[KillableEngine, RawClient], Coroutine[Any, Any, None]]
) -> None:
    """Run `story` with an engine that can be killed, and a client of its broker."""

    async def run() -> None:
        engine = KillableEngine(folder, *SMALL)
        await engine.start()
        client = RawClient(engine.broker)
        try:
            await story(engine, client)
        finally:
            await client.close()
            with suppress(ProcessLookupError):  # The story may have ended it.
                await engine.end(signal.SIGKILL)

    asyncio.run(run())


async def send(client: RawClient, body: bytes, queue_id: int = 0, **more: Any) -> None:
    answer = await client.send(body, queue_id=queue_id, **({"UNIQ_KEY": KEY} | more))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def read(client: RawClient, group: str, *, queue_id: int = 0, offset: int = 0) -> list[bytes]:
    answer = await client.pull(offset, queue_id=queue_id, group=group, wait_ms=10_000)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return bodies(answer)


def reported_resends(engine: KillableEngine) -> list[tuple[Any, ...]]:
    """Group, id, and place of the second copy, in order."""
    rows = [row for row in spooled(engine.store, "retry_dlq_flow") if row["step"] == "SENT_AGAIN"]
    columns = ("group", "message_id", "origin_topic", "origin_queue_id", "origin_offset")
    return [picked(row, *columns) for row in rows]


@run_by(with_engine, "tmp_path")
async def test_a_message_that_is_sent_again_after_a_kill_is_reported_to_every_group_that_gets_both(
    engine: KillableEngine, client: RawClient
) -> None:
    await send(client, b"pay 7")
    await send(client, b"other", UNIQ_KEY=f"{KEY[:-1]}2")
    assert await read(client, "early") == [b"pay 7", b"other"]
    await engine.end(signal.SIGKILL)
    await engine.start()
    await send(client, b"between", queue_id=1, UNIQ_KEY=f"{KEY[:-1]}3")
    await send(client, b"pay 7", queue_id=1)
    assert reported_resends(engine) == [], "nobody was handed the second copy yet"
    for _ in range(2):
        assert await read(client, "early", queue_id=1) == [b"between", b"pay 7"]
    second = (KEY, TOPIC, 1, 1)
    assert reported_resends(engine) == [("early", *second)]
    await engine.end(signal.SIGKILL)
    await engine.start()
    assert await read(client, "late", queue_id=1) == [b"between", b"pay 7"]
    assert reported_resends(engine) == [("early", *second), ("late", *second)]
    rows = spooled(engine.store, "retry_dlq_flow")
    assert all("an earlier copy is at queue 0, offset 0" in row["reason"] for row in rows)


@run_by(with_engine, "tmp_path")
async def test_what_only_looks_like_a_resend_is_not_reported(
    engine: KillableEngine, client: RawClient
) -> None:
    await send(client, b"one body")
    await send(client, b"another body under the same id")
    await send(client, b"one body", topic="elsewhere")
    for _ in range(2):
        await send(client, b"a copy on purpose", UNIQ_KEY="R", ORIGIN_MESSAGE_ID="first")
    assert len(await read(client, "group")) == 4
    await send(client, b"later", queue_id=1, UNIQ_KEY="D", DELAY=1)
    assert await read(client, "group", queue_id=1) == [b"later"]
    assert (await client.pull(0, topic="elsewhere", group="group")).body
    assert reported_resends(engine) == []
    await send(client, b"later", queue_id=1, UNIQ_KEY="D", DELAY=1)
    assert await read(client, "group", queue_id=1, offset=1) == [b"later"]
    assert reported_resends(engine) == [("group", "D", TOPIC, 1, 1)]


@run_by(with_engine, "tmp_path")
async def test_a_client_that_repeats_one_id_is_compared_up_to_a_limit_and_the_rest_is_a_number(
    engine: KillableEngine, client: RawClient
) -> None:
    more = 199
    message = Message(TOPIC, b"again", {"UNIQ_KEY": KEY})
    batch = bytes(encode_batch([message] * (1 + SECOND_COPIES_LOOKED_UP_MAX + more)))
    header: dict[str, Any] = {
        "a": "p",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 0,
        "h": 0,
    }
    header |= {"i": "", "j": 0, "k": "false", "m": "true"}
    sent = await client.ask(RequestCode.SEND_BATCH_MESSAGE, batch, **header)
    assert sent.code == ResponseCode.SUCCESS, sent.remark

    async def is_reported() -> bool:
        await send(client, b"again")
        rows = [row for row in spooled(engine.store, "lifecycle") if row["kind"] == "RESENDS"]
        assert all("may be second copies were not compared" in row["detail"] for row in rows)
        return sum(int(row["detail"].split()[0]) for row in rows) >= more

    await eventually(is_reported, "the number of those passed over")
