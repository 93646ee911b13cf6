"""A broker is killed, its store emptied, and started again under its name, over one lake: gold goes
on with what is there now, and no check takes the old life for a loss.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from expectations.checkpoints import look
from expectations.memory import Memory
from pipelines.lake.lake import Lake, whole_table
from tests.checked_lake import broken, checked_rows, in_this_process
from tests.integration.client.cluster_users import Seen, consuming, eventually, producing, text
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine
from tests.pipelines.live_play import shipped

pytestmark = pytest.mark.timeout(180)
EMITTER = "DefaultCluster/broker-a/0"
TOPIC = "orders"


async def live(engine: KillableEngine, sent: int, *, wait_s: float = 6.0) -> None:
    """A life of the broker, in which a group consumes so many messages; then SIGKILL."""
    await engine.start()
    seen = Seen()
    async with producing(engine.namesrv, "makers") as producer:
        for number in range(sent):
            await producer.send(text(TOPIC, str(number)))
        async with consuming(engine.namesrv, "billing", {TOPIC: seen}):
            await eventually(lambda: len(seen.messages) >= sent, "all are consumed")
            await asyncio.sleep(wait_s)  # Its offsets are reported each 5 s.
    await asyncio.sleep(1.5)  # And reported within a second.
    await engine.end(signal.SIGKILL)


def lags(lake: Lake) -> list[dict[str, Any]]:
    """The newest row of each queue."""
    rows = whole_table(lake.table(lake.gold("consumer_lag"))).to_pylist()
    own = [row for row in rows if (row["group"], row["topic"]) == ("billing", TOPIC)]
    return list({row["queue_id"]: row for row in sorted(own, key=lambda row: row["seq"])}.values())


async def test_gold_goes_on_when_a_store_is_emptied_under_its_name(tmp_path: Path) -> None:
    engine = KillableEngine(tmp_path, *SMALL, "--set", "autoCreateTopicEnable=true")
    memory = Memory()
    for sent in (40, 12):
        shutil.rmtree(engine.store, ignore_errors=True)
        await live(engine, sent)
        lake = Lake.at(str(await asyncio.to_thread(shipped, engine.store, engine.lake)))
        newest = lags(lake)
        assert sum(row["max_offset"] for row in newest) == sent
        assert sum(row["committed"] for row in newest) == sent
        now = max(row["observed_at"] for row in newest)
        seen = await asyncio.to_thread(look, lake, in_this_process, memory, now=now)
        memory = seen.memory
        assert broken(seen) == {}
        assert checked_rows(seen)["facts_gapless"] < 10_000
    bronze = read_all(engine.lake)
    assert_exactly_once(bronze, EMITTER)
    boots = [row["first_seen"] for row in bronze["lifecycle"] if row["kind"] == "BOOT"]
    assert boots == [True, True], "each is the first of its store"
    later = [row for row in bronze["shipments"] if row["skipped"]]
    assert len(later) == 2
