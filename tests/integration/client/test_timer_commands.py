"""`tidemark admin timer ...` as a user types it, against an engine in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.codes import ResponseCode
from engine.protocol.message_record import decode_records
from tests.integration.broker.cluster import RawClient, eventually
from tests.integration.client.typed_commands import answered, done, refused, tidemark
from tests.interop.our_engine import OurEngine, our_engine

TOPIC = "timed"
HOUR_MS = 3_600_000
AT_MS = (time.time_ns() // 1_000_000 // HOUR_MS + 3) * HOUR_MS + 250
"""A quarter of a second into an hour that no test meets."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    with our_engine(tmp_path_factory.mktemp("timer-engine")) as running:
        for topic in (TOPIC, "other"):
            assert tidemark(running, "topic", "create", topic, "--queues", "1").exit_code == 0
        yield running


def send(engine: OurEngine, *timers: tuple[str, int], topic: str = TOPIC, **more: object) -> None:
    """Timers by key and due time."""

    async def work() -> None:
        client = RawClient(engine.broker)
        for key, due_ms in timers:
            answer = await client.send(
                key.encode(), topic=topic, TIMER_DELIVER_MS=due_ms, UNIQ_KEY=key, **more
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        await client.close()

    asyncio.run(work())


def delivered(engine: OurEngine, count: int, topic: str = TOPIC) -> list[bytes]:
    async def work() -> list[bytes]:
        client = RawClient(engine.broker)

        async def bodies() -> list[bytes]:
            answer = await client.pull(0, topic=topic)
            return [one.body for one in decode_records(answer.body)] if answer.body else []

        async def are_there() -> bool:
            return len(await bodies()) >= count

        await eventually(are_there, f"{count} are delivered")
        found = await bodies()
        await client.close()
        return found

    return asyncio.run(work())


def keys(engine: OurEngine, *words: str) -> list[str]:
    return [row["unique_key"] for row in answered(engine, "timer", "list", *words)]


def test_what_waits_is_listed_by_time_with_its_zone_and_counted_by_hour(engine: OurEngine) -> None:
    send(engine, ("l2", AT_MS + HOUR_MS), ("l1", AT_MS), KEYS="order-1 order-2")
    send(engine, ("l3", AT_MS), topic="other")
    assert keys(engine, "--topic", TOPIC) == ["l1", "l2"]
    assert keys(engine, "--until", str(AT_MS)) == ["l1", "l3"]
    first = answered(engine, "timer", "list", "--topic", TOPIC)[0]
    assert first["due"] == time.strftime("%Y-%m-%dT%H:00:00.250Z", time.gmtime(AT_MS / 1000))
    assert (first["topic"], first["keys"]) == (TOPIC, "order-1 order-2")
    counts = [row["timers"] for row in answered(engine, "timer", "list", "--by-hour")]
    assert counts == [2, 1]
    assert "l1" in done(engine, "timer", "list")
    one = tidemark(engine, "timer", "list", "--limit", "1")
    assert "1 of 3 are shown" in one.stderr
    for key in ("l1", "l2", "l3"):
        done(engine, "timer", "cancel", key, "--yes")
    assert done(engine, "timer", "list") == "nothing waits for a moment\n"


def test_a_timer_is_cancelled_once_somebody_has_said_yes(engine: OurEngine) -> None:
    send(engine, ("c1", AT_MS), ("c2", AT_MS), KEYS="both")
    asked = tidemark(engine, "timer", "cancel", "c1")
    assert asked.exit_code == 1
    assert "Cancel 1 timer?" in asked.output
    assert keys(engine) == ["c1", "c2"], "nothing is cancelled unasked"
    assert "1 timer cancelled" in done(engine, "timer", "cancel", "c1", "--yes")
    assert keys(engine) == ["c2"]
    send(engine, ("c3", AT_MS + 1), KEYS="both")
    assert "2 timers cancelled" in done(engine, "timer", "cancel", "both", "--yes")
    assert tidemark(engine, "timer", "cancel", "both", "--yes").exit_code == 1


def test_what_was_delivered_does_not_wait_and_what_was_cancelled_does_not_appear(
    engine: OurEngine,
) -> None:
    due_ms = time.time_ns() // 1_000_000 + 3000
    send(engine, ("d1", due_ms), ("d2", due_ms + 1), ("d3", due_ms + 1))
    done(engine, "timer", "cancel", "d2", "--yes")
    assert keys(engine) == ["d1", "d3"]
    assert delivered(engine, 2) == [b"d1", b"d3"]
    assert keys(engine) == []


def test_export_overwrites_nothing_and_warns_while_deliveries_go_on(
    engine: OurEngine, tmp_path: Path
) -> None:
    send(engine, ("e1", AT_MS))
    written = tidemark(engine, "timer", "export", "broker-a", str(tmp_path))
    assert "1 timers in" in written.stdout
    assert "timerStopDequeue=true" in written.stderr
    assert (tmp_path / "timerwheel").stat().st_size == 38_707_200
    assert "nothing is overwritten" in refused(engine, "timer", "export", "broker-a", str(tmp_path))
    done(engine, "timer", "cancel", "e1", "--yes")


def test_what_is_due_waits_while_deliveries_are_stopped(engine: OurEngine) -> None:
    done(engine, "broker", "set", "broker-a", "timerStopDequeue=true")
    send(engine, ("s1", time.time_ns() // 1_000_000 + 200), topic="other")
    time.sleep(1)
    assert keys(engine) == ["s1"]
    done(engine, "broker", "set", "broker-a", "timerStopDequeue=false")
    assert delivered(engine, 1, "other") == [b"s1"]


def test_what_was_exported_is_imported_once(tmp_path: Path) -> None:
    with our_engine(tmp_path / "first") as first:
        done(first, "topic", "create", TOPIC, "--queues", "1")
        send(first, ("i1", AT_MS), ("i2", AT_MS + 400), ("i3", AT_MS + 30 * 24 * HOUR_MS), TAGS="t")
        send(first, ("past", time.time_ns() // 1_000_000 + 300))
        assert delivered(first, 1) == [b"past"]
        done(first, "timer", "cancel", "i2", "--yes")
        done(first, "timer", "export", "broker-a", str(first.store))
        waited = answered(first, "timer", "list")
    with our_engine(tmp_path / "second") as second:
        done(second, "topic", "create", TOPIC, "--queues", "1")
        asked = tidemark(second, "timer", "import", str(first.store))
        assert "Have 2 timers wait there?" in asked.output
        assert keys(second) == []
        assert "2 timers imported" in done(second, "timer", "import", str(first.store), "--yes")
        found = answered(second, "timer", "list")
        assert [(row["unique_key"], row["due"]) for row in found] == [
            (row["unique_key"], row["due"]) for row in waited
        ]
        again = done(second, "timer", "import", str(first.store), "--yes")
        assert "nothing waits there that does not wait here" in again
        assert "RocketMQ's, with its timerwheel" in refused(
            second, "timer", "import", str(second.store)
        )
