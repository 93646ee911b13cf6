"""Row E3: what waits goes from our broker to Apache RocketMQ by its timer files, and back."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from engine.protocol.codes import ResponseCode
from engine.protocol.message_record import decode_records
from tests.integration.broker.cluster import RawClient, eventually
from tests.integration.client.typed_commands import answered, done
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import real_rocketmq

FILE_BYTES = {"mappedFileSizeCommitLog": "1048576"}
OURS = [word for pair in FILE_BYTES.items() for word in ("--set", "=".join(pair))]
TOPIC = "timers-both-ways"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Story:
    """Timers by key, and when each appeared, if it did."""

    def __init__(self) -> None:
        self.due_ms: dict[str, int] = {}

    async def send(self, address: str, **delays_ms: int) -> None:
        client = RawClient(address)
        for key, delay_ms in delays_ms.items():
            self.due_ms[key] = now_ms() + delay_ms
            answer = await client.send(
                key.encode(), topic=TOPIC, TIMER_DELIVER_MS=self.due_ms[key], UNIQ_KEY=key
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        await client.close()

    async def appeared(self, address: str, count: int) -> list[str]:
        """All that appeared, once there are so many; none before its time."""
        client = RawClient(address)

        async def read() -> list[tuple[str, int]]:
            answer = await client.pull(0, topic=TOPIC)
            found = decode_records(answer.body) if answer.body else []
            return [(one.body.decode(), one.store_timestamp_ms) for one in found]

        async def are_there() -> bool:
            return len(await read()) >= count

        await eventually(are_there, f"{count} appear", within_s=60)
        await asyncio.sleep(1.5)
        found = await read()
        await client.close()
        for key, stored_ms in found:
            assert stored_ms >= self.due_ms[key], f"{key} appeared early"
        return [key for key, _ in found]


@pytest.mark.slow
def test_timers_go_to_rocketmq_and_come_back_each_once(tmp_path: Path) -> None:
    story, first, second = Story(), tmp_path / "first", tmp_path / "second"
    with our_engine(first, *OURS) as engine:
        done(engine, "topic", "create", TOPIC, "--queues", "1")
        delays = {"done": 500, "void": 15_000, "soon": 15_000, "far": 50_000, "days": 345_600_000}
        asyncio.run(story.send(engine.broker, **delays))
        assert asyncio.run(story.appeared(engine.broker, 1)) == ["done"]
        done(engine, "timer", "cancel", "void", "--yes")
        done(engine, "broker", "set", "broker-a", "timerStopDequeue=true")
        done(engine, "timer", "export", "broker-a", str(first / "store"))
    with real_rocketmq(first, FILE_BYTES, clean_stop=True) as real:
        assert asyncio.run(story.appeared(real.broker, 2)) == ["done", "soon"]
        asyncio.run(story.send(real.broker, theirs=30_000))
        time.sleep(2)  # Its check point is written each second.
    with our_engine(second) as engine:
        done(engine, "topic", "create", TOPIC, "--queues", "1")
        done(engine, "timer", "import", str(first / "store"), "--yes")
        again = done(engine, "timer", "import", str(first / "store"), "--yes")
        assert "nothing waits there that does not wait here" in again
        assert sorted(asyncio.run(story.appeared(engine.broker, 2))) == ["far", "theirs"]
        (left,) = answered(engine, "timer", "list")  # RocketMQ itself refuses more than three days.
        assert left["unique_key"] == "days"
    shutil.rmtree(first / "store")
